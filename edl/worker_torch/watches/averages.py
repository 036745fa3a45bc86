"""Refuses averages of the weights that a script keeps beside the model and Elastic does not know.

A trainer that joins, and one that goes on from a checkpoint, would begin another average. Such an average is seen by
what it does: from one step to the next each of its tensors moves straight towards the weights. That is looked for
among all tensors of the process, in pairs of steps that become rare. An average of new tensors in each step is not
seen.
"""

from __future__ import annotations

import gc
import time
import types
from collections.abc import Iterable
from typing import Any, NamedTuple
from weakref import WeakSet

from edl.errors import ConfigError, PermanentError
from edl.worker_torch.state import TrainState

try:
    import torch
    from torch import nn
except ImportError as error:
    raise ConfigError(
        "edl.worker_torch needs the package torch, which is not installed here; run pip install torch"
    ) from error

_FREE_S, _SHARE = 1.0, 0.005  # what looks may cost: at the beginning, and of the time of the training
_SHAPES, _FEWEST, _SAMPLE, _MOST = 4, 8, 4096, 64  # parameters, numbers of one, numbers looked at, tensors of a shape
_STRAIGHT, _NEAR = 0.95, 0.02  # a cosine, and how much of its way an average has left at least
_DEEPEST = 200_000  # objects
_KINDS = (torch.Tensor, nn.Parameter)
_CODE = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, types.FrameType)


_states: WeakSet[TrainState] = WeakSet()  # of all trainers that are threads of this process


class _Look(NamedTuple):
    """The first numbers of a weight, and of the tensors of its shape that are not known, by their ids."""

    weight: Any
    others: dict[int, Any]


class AverageWatch:
    """Looks for averages of the weights.

    Args:
        state: of this trainer.
    """

    def __init__(self, state: TrainState) -> None:
        self._state, self._steps, self._cost_s = state, 0, 0.0
        self._begin_s = time.monotonic()
        self._before: dict[str, _Look] = {}
        _states.add(state)

    def begin_step(self) -> None:
        """A step begins, and hooks of the one before have run.

        Raises:
            PermanentError: something averages the weights, and Elastic does not know it.
        """
        self._steps += 1
        is_first = self._steps > 1 and not self._steps & (self._steps - 1)
        is_cheap = self._cost_s < _FREE_S + _SHARE * (time.monotonic() - self._begin_s)
        if not self._before and not (is_first and is_cheap and self._state.shards < 2):
            return
        begin_s = time.monotonic()
        now, before = self._look(), self._before
        self._before = {} if before else now
        self._cost_s += time.monotonic() - begin_s
        if before and set(before) == set(now) and all(_is_average(before[name], now[name]) for name in now):
            raise PermanentError(
                "Elastic: the script keeps an average of the weights beside the model (EMA) that Elastic does not"
                " know. A trainer that joins, and one that goes on from a checkpoint, would begin another average,"
                " and none would be saved; pass it as Elastic(..., state={'average': average}), an object with"
                " state_dict and load_state_dict such as torch.optim.swa_utils.AveragedModel, and update it in a hook"
                " of on_step_end"
            )

    def _look(self) -> dict[str, _Look]:
        """The largest weights, each with the tensors of its shape that are not known."""
        weights = [one for one in self._state.parameters if one.requires_grad and one.numel() >= _FEWEST]
        chosen = {tuple(one.shape): one for one in sorted(weights, key=lambda one: int(one.numel()))[-_SHAPES:]}
        known, found = self._known(), {shape: dict[int, Any]() for shape in chosen}
        for one in gc.get_objects():
            if (
                type(one) not in {torch.Tensor, nn.Parameter}
                or not one.is_floating_point()
                or one.grad_fn is not None
            ):
                continue
            its = found.get(tuple(one.shape))
            is_plain = one.layout == torch.strided and one.device.type != "meta"
            if its is not None and len(its) < _MOST and is_plain and one.data_ptr() not in known:
                its[id(one)] = _sample(one)
        return {self._state.name_of(weight): _Look(_sample(weight), found[shape]) for shape, weight in chosen.items()}

    def _known(self) -> set[int]:
        """Where the tensors are that belong to a state, or to this object."""
        tensors = []
        for state in list(_states):
            tensors += [*state.model.parameters(), *state.model.buffers()]
            tensors += _within([*state.optimizers, *state.extra.values()])
            tensors += [one.grad for one in state.parameters if one.grad is not None]
        tensors += [sample for look in self._before.values() for sample in (look.weight, *look.others.values())]
        return {int(one.data_ptr()) for one in tensors if one.layout == torch.strided}


def _within(roots: Iterable[Any]) -> list[Any]:
    """The tensors that can be reached from some objects, but not through functions, classes and modules of Python."""
    ahead, seen, found = list(roots), set[int](), []
    while ahead and len(seen) < _DEEPEST:
        one = ahead.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, torch.Tensor):
            found.append(one)
        elif not isinstance(one, _CODE):
            ahead += gc.get_referents(one)
    return found


def _sample(tensor: Any) -> Any:
    """Its first numbers, copied."""
    return tensor.detach().reshape(-1)[:_SAMPLE].to("cpu", torch.float64, copy=True)


def _is_average(before: _Look, now: _Look) -> bool:
    """Whether some tensor has gone a part of the way to a weight, as it was or as it is."""
    weights = (before.weight, now.weight)
    pairs = ((mine, before.others.get(key)) for key, mine in now.others.items())
    return any(its is not None and _is_between(mine, its, weights) for mine, its in pairs)


def _is_between(mine: Any, its: Any, weights: tuple[Any, Any]) -> bool:
    """Whether `its` has gone straight towards one of the weights, and is `mine` now, at none of them."""
    way = mine - its
    length = float(way.norm())
    if any(float((one - mine).norm()) <= _NEAR * length for one in weights):
        return False
    ways = [one - its for one in weights]
    return any(float(way @ one) >= _STRAIGHT * length * float(one.norm()) > 0 for one in ways)
