"""What a script sets on the modules of a model, or on an optimizer, and `state_dict` does not hold.

Such as training or evaluation of single layers, the rate of a dropout, counters and queues. A trainer that joins
builds the model as the script begins, so it takes over what has changed since then.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from edl.errors import ConfigError

try:
    import torch
    from torch import nn, optim
except ImportError as error:
    raise ConfigError(
        "edl.worker_torch needs the package torch, which is not installed here; run pip install torch"
    ) from error

_SIMPLE = (bool, int, float, str, type(None))
_HOLDERS = (list, tuple, dict, set, deque)
_MOST = 65_536  # numbers of a tensor, and of what a list or an array has at the beginning
_ABSENT = "edl.absent"


class Settings:
    """What a script keeps in attributes of modules and optimizers, as it was and as it is.

    Numbers, text, small tensors and arrays, and lists, dictionaries, queues and sets of them.

    Args:
        model: whose modules are watched, as it is built.
        optimizers: that are watched, too.
    """

    def __init__(self, model: Any, optimizers: Sequence[Any] = ()) -> None:
        self._model, self._optimizers = model, optimizers
        self._first = {name: _noted(value) for name, value in self._values(_MOST)}
        self._others = {f"{place}.{key}" for place, one in self._places() for key in vars(one)} - set(self._first)
        self._taken: set[str] = set()

    def changed(self) -> dict[str, list[Any]]:
        """Name of an attribute -> its value at the beginning, and the one that it has now, where they differ.

        Of a tensor the first value is None.
        """
        found = {}
        for name, value in self._values():
            first = self._first.get(name)
            if first is None:
                if name not in self._others:
                    found[name] = [_ABSENT, value]
            elif not _is_same(first, value):
                found[name] = [None if isinstance(first[0], torch.Tensor) else first[0], value]
        return found

    def load(self, theirs: dict[str, list[Any]]) -> None:
        """Take over the settings that another trainer has changed and this one has not.

        Args:
            theirs: from `changed` of that trainer.
        """
        holders, mine = dict(self._places()), dict(self._values())
        for name, (before, now) in theirs.items():
            place, _, key = name.rpartition(".")
            first, value = self._first.get(name), mine.get(name)
            if place not in holders or (name in mine and not self._may_take(name, before, first, value)):
                continue
            if name in mine or (isinstance(before, str) and before == _ABSENT and not hasattr(holders[place], key)):
                device = next((one.device for one in self._model.parameters()), "cpu")
                setattr(holders[place], key, now.to(device) if isinstance(now, torch.Tensor) else now)
                self._taken.add(name)

    def _may_take(self, name: str, before: Any, first: tuple[Any, int] | None, value: Any) -> bool:
        if first is None:
            return name in self._taken
        is_tensor = isinstance(first[0], torch.Tensor)
        return (name in self._taken or _is_same(first, value)) and (is_tensor or _are_equal(before, first[0]))

    def _places(self) -> Iterator[tuple[str, Any]]:
        yield from self._model.named_modules()
        yield from ((f"optimizer {place}", one) for place, one in enumerate(self._optimizers))

    def _values(self, most: float = math.inf) -> Iterator[tuple[str, Any]]:
        for place, holder in self._places():
            own = _OF_A_MODULE if isinstance(holder, nn.Module) else _OF_AN_OPTIMIZER
            for key, value in vars(holder).items():
                if key not in own and _size(value) < most:
                    yield f"{place}.{key}", value


_OF_A_MODULE = set(vars(nn.Module())) - {"training"}
_OF_AN_OPTIMIZER = {*vars(optim.SGD([torch.zeros(1)], lr=0.0)), "step", "zero_grad", "_opt_called", "_step_count"}
"""What torch itself keeps there."""


def _size(value: Any, depth: int = 8) -> float:
    """How many numbers and texts a value has; infinite if it is of another kind, or not to be copied."""
    if type(value) in _SIMPLE:
        return 1
    if isinstance(value, torch.Tensor):
        is_plain = type(value) is torch.Tensor and not value.requires_grad and value.numel() <= _MOST
        return max(1, value.numel()) if is_plain else math.inf
    if type(value) in _HOLDERS and depth:
        items = [*value.keys(), *value.values()] if isinstance(value, dict) else value
        return 1 + sum(_size(item, depth - 1) for item in items)
    if type(value).__module__ == "numpy" and getattr(getattr(value, "dtype", None), "kind", "O") in "biufc":
        return float(value.size)
    return math.inf


class Modes:
    """Which parameters of a model train, and which of its modules are in training.

    Args:
        model: of this trainer.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._parameters: list[Any] = []
        self._modules: list[Any] = []

    def refresh(self) -> None:
        """Look for parameters and modules anew; a script may have replaced some."""
        self._parameters, self._modules = list(self._model.parameters()), list(self._model.modules())

    @property
    def digest(self) -> int:
        """A number of 62 bits that stands for all of them as they are now."""
        flags = [one.requires_grad for one in self._parameters] + [one.training for one in self._modules]
        return int.from_bytes(hashlib.blake2b(bytes(flags), digest_size=8).digest()) >> 2

    @property
    def named(self) -> dict[str, str]:
        """Return by name the settings of parameters and modules that `digest` covers."""
        found = {f"requires_grad of {name}": str(one.requires_grad) for name, one in self._model.named_parameters()}
        modules = self._model.named_modules()
        return found | {f"training of {name or 'the model'}": str(one.training) for name, one in modules}


def _noted(value: Any) -> tuple[Any, int]:
    """A value as it is now, and of a tensor how often it was written to."""
    if isinstance(value, torch.Tensor):
        return value, value._version  # noqa: SLF001 - torch's only name for it
    return copy.deepcopy(value), 0


def _is_same(first: tuple[Any, int], value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return first[0] is value and first[1] == value._version  # noqa: SLF001
    return type(first[0]) is type(value) and _are_equal(first[0], value)


def _are_equal(one: Any, other: Any) -> bool:
    """True if two values are equal, with the tensors and arrays in them."""
    if isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
        are_both = isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)
        return are_both and one.dtype == other.dtype and torch.equal(one.cpu(), other.cpu())
    if isinstance(one, list | tuple | deque) and isinstance(other, list | tuple | deque):
        return len(one) == len(other) and all(map(_are_equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(map(_are_equal, one.values(), other.values()))
    if hasattr(one, "tobytes") and hasattr(other, "tobytes"):
        return bool(one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes())
    return type(one) is type(other) and bool(one == other)
