"""Checks that all trainers have the same state, by digests that they exchange with each step.

What is compared in each step costs microseconds: the settings of the optimizers, such as learning rates, and how many
steps each parameter has had. Parameters and buffers are compared at the first step of a world, and then after so many
steps that it costs less than a hundredth of the time.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import time
from typing import Any

from edl.errors import ConfigError
from edl.worker.steps import DivergedError
from edl.worker_torch.portable import bits_of
from edl.worker_torch.state import TrainState
from edl.worker_torch.wire import Wire

try:
    import torch
except ImportError as error:
    raise ConfigError(
        "edl.worker_torch needs the package torch, which is not installed here; run pip install torch"
    ) from error

RATE = (
    "every trainer must set it from the same number: elastic.step counts the steps of all trainers, a counter of the"
    " loop counts those of one; a scheduler goes to Elastic(..., scheduler=scheduler)"
)
COUNT = "only edl may call step() of an optimizer: pass every optimizer to Elastic"
MODE = (
    "what freezes parameters, or sets modules to training or evaluation, must do so in all trainers at once: in a"
    " hook of on_step_end, or by elastic.step, which counts the steps of all trainers; a counter of the loop counts"
    " those of one"
)
TENSOR = (
    "something outside of the step changes it in one trainer only: pass a second optimizer as Elastic(job, model,"
    " [optimizer, other]), and other state as state={name: object}; change weights only in hooks of on_step_end, in"
    " all trainers alike"
)
"""The remedy in messages about settings, step counts, modes or tensors that differ."""
_SHARE, _MOST_STEPS, _FIRST_STEPS = 0.01, 1000, 10


def digest(text: str) -> int:
    """A hash of a text, of 62 bits."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> 2


def _simple(value: Any) -> Any:
    """Turn a setting into plain Python numbers: another trainer may have a copy in another type."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, tuple | list):
        return [_simple(one) for one in value]
    return value.item() if type(value).__module__ == "numpy" and not getattr(value, "ndim", 1) else value


class Equality:
    """The digests of one trainer's state, to compare it with the others.

    Args:
        state: the state of this trainer.

    Attributes:
        tensors: the bits of each watched tensor, as of the last `note_tensors`.
        tensors_digest: the digest of the tensors.
        cost_us: what it took, in microseconds.
    """

    def __init__(self, state: TrainState) -> None:
        self._state = state
        self._left = 0  # steps until the next comparison of the tensors
        self.tensors: dict[str, str] = {}
        self.tensors_digest = self.cost_us = 0

    def begin_world(self) -> None:
        """Let the next step compare everything."""
        self._left = 0

    @property
    def settings(self) -> dict[str, str]:
        """All settings of the optimizers that decide how they step, as name -> value."""
        found = {}
        for place, optimizer in enumerate(self._state.optimizers):
            for index, group in enumerate(optimizer.param_groups):
                name = f"optimizer {place}, group {index}" if place else f"group {index} of the optimizer"
                found[f"the number of parameters in {name}"] = str(len(group["params"]))
                for key, value in group.items():
                    if key != "params":
                        found[f"{key} in {name}"] = repr(_simple(value))
        return found

    @property
    def settings_digest(self) -> int:
        """A digest of the values of `settings`."""
        groups = ((o, g) for o in self._state.optimizers for g in o.param_groups)
        return digest(
            repr([(len(g["params"]), [_simple(v) for k, v in g.items() if k != "params"]) for _, g in groups])
        )

    @property
    def counts(self) -> dict[str, int]:
        """How many steps each parameter has had, by its name, where an optimizer counts them."""
        found = {}
        for optimizer in self._state.optimizers:
            for parameter, values in optimizer.state.items():
                step = values.get("step") if isinstance(values, dict) else None
                if step is not None:
                    found[self._state.name_of(parameter)] = int(step)
        return found

    @property
    def counts_digest(self) -> int:
        """A digest of `counts`; 0 before the first step."""
        counts = self.counts
        return digest(repr(list(counts.values()))) if counts else 0

    @property
    def is_due(self) -> bool:
        """True if this step compares parameters and buffers."""
        return self._left <= 0

    def note_tensors(self) -> None:
        """Compute the digests of all watched tensors."""
        begin_s = time.monotonic()
        bits = {name: bits_of(tensor) for name, tensor in self._state.watched().items()}
        self.tensors_digest = hash(tuple(bits.values())) >> 2
        self.tensors = {name: f"a tensor with the digest {one & 2**64 - 1:016x}" for name, one in bits.items()}
        self.cost_us = int((time.monotonic() - begin_s) * 1e6)

    def plan_next(self, cost_us: int, step_us: int) -> None:
        """Choose how many steps to wait until the next comparison, so that it costs a small part of the time.

        Args:
            cost_us: what it took the slowest trainer, in microseconds.
            step_us: what a step takes the fastest one; 0 if nobody knows yet.
        """
        steps = cost_us / (_SHARE * step_us) if step_us else _FIRST_STEPS
        self._left = max(1, min(_MOST_STEPS, int(steps) + 1))

    def end_step(self) -> None:
        """Count a step towards the next comparison."""
        self._left -= 1


def name_difference(
    wire: Wire, names: tuple[str, ...], found: dict[str, Any] | None, remedy: str, shards: int = 1
) -> DivergedError:
    """Make the error that names the first value that differs between two trainers. All trainers must call this.

    Args:
        wire: on which all trainers make this call.
        names: rank -> trainer.
        found: name -> value in this trainer; None if it has nothing to compare.
        remedy: what a person can do.
        shards: each value is one of so many parts of a model, and the ranks have them in turn.
    """
    text = json.dumps(None if found is None else [(name, str(value)) for name, value in found.items()])
    every = [json.loads(its) for its in wire.gather_bytes(text.encode())]
    compared = [rank for rank, its in enumerate(every) if its is not None]
    for rank, other in ((rank, every[rank]) for rank in compared):
        first = next(twin for twin in compared if twin % shards == rank % shards)
        mine = every[first]
        for (name, value), (its_name, its) in itertools.zip_longest(mine, other, fillvalue=("nothing", "nothing")):
            if (name, value) != (its_name, its):
                return DivergedError(
                    f"Elastic: the trainers have different models: {name} is {value} in {names[first]}, and"
                    f" {its_name if its_name != name else 'it'} is {its} in {names[rank]}; {remedy}"
                )
    return DivergedError(f"Elastic: the trainers {', '.join(names)} have different models; {remedy}")
