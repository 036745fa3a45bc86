"""What a script sets on the modules of a model, or on an optimizer, and `state_dict` does not hold.

Such as training or evaluation of single layers, the rate of a dropout, counters and queues. A trainer that joins
builds the model as the script begins, so it takes over what has changed since then.
"""

from __future__ import annotations

import copy
import hashlib
import logging
import math
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from edl.errors import ConfigError
from edl.worker_torch.portable import bytes_of, version_of

try:
    import torch
    from torch import nn, optim
except ImportError as error:
    raise ConfigError(
        "edl.worker_torch needs the package torch, which is not installed here; run pip install torch"
    ) from error

_NUMBERS = (bool, int, float)
_SIMPLE = (*_NUMBERS, str, type(None))
_HOLDERS = (list, tuple, dict, set, deque)
_MOST = 65_536  # numbers of a tensor or an array, and items of a list with all that it holds
_ABSENT = "edl.absent"
_log = logging.getLogger(__name__)


class Settings:
    """What a script keeps in attributes of modules and optimizers, as it was and as it is.

    Numbers, text, small tensors and arrays, and lists, dictionaries, queues and sets of them. Of attributes with
    private names those that had another value of the same type at the beginning: a cache is filled anew.

    Args:
        model: whose modules are watched, as it is built.
        optimizers: that are watched, too.
    """

    def __init__(self, model: Any, optimizers: Sequence[Any] = ()) -> None:
        self._model, self._optimizers = model, optimizers
        every = dict(self._values())
        self._first = {name: _noted(value) for name, value in every.items() if _size(value) <= _MOST}
        self._others = set(every) - set(self._first)
        self._taken: set[str] = set()
        self._said: set[str] = set()

    def changed(self) -> dict[str, list[Any]]:
        """Return what has changed since the beginning.

        Name of an attribute -> its value at the beginning, the one that it has now, and the kinds of the devices of
        the tensors in it. Of a tensor the first value is None.
        """
        found: dict[str, list[Any]] = {}
        parted = set()  # the modules whose private attributes cannot be copied all together
        for name, value in self._values():
            first = self._first.get(name)
            if name in self._others or (first is not None and _is_same(first, value)):
                continue
            size = _size(value)
            if size <= _MOST and (not _is_private(name) or (first is not None and _is_alike(first[0], value))):
                before = _ABSENT if first is None else None if isinstance(first[0], torch.Tensor) else first[0]
                found[name] = [before, value, [one.device.type for one in _tensors(value)]]
            elif _is_private(name):
                parted.add(name.rpartition(".")[0])
            if _MOST < size < math.inf and not _is_private(name):
                self._say(name)
        return {
            name: one for name, one in found.items() if not (_is_private(name) and name.rpartition(".")[0] in parted)
        }

    def _say(self, name: str) -> None:
        if name not in self._said:
            self._said.add(name)
            _log.warning(
                "Elastic: the attribute %s of the model has more than %d numbers by now, too many to copy to trainers"
                " that join and to save. Keep a tensor in a buffer, or the last of them in a deque (said once)",
                name.removeprefix("."),
                _MOST,
            )

    def load(self, theirs: dict[str, list[Any]]) -> None:
        """Take over copies of the settings that another trainer has changed and this one has not.

        Args:
            theirs: from `changed` of that trainer.
        """
        holders, mine = dict(self._places()), dict(self._values())
        for name, (before, now, *kinds) in theirs.items():
            place, _, key = name.rpartition(".")
            value = mine.get(name)
            if place not in holders or (name in mine and not self._may_take(name, before, value)):
                continue
            if name in mine or (isinstance(before, str) and before == _ABSENT and not hasattr(holders[place], key)):
                devices = self._devices(value, now, kinds[0] if kinds else [])
                setattr(holders[place], key, _placed(now, iter(devices)))
                self._taken.add(name)

    def _may_take(self, name: str, before: Any, value: Any) -> bool:
        first = self._first.get(name)
        if first is None:
            return name in self._taken
        is_tensor = isinstance(first[0], torch.Tensor)
        return (name in self._taken or _is_same(first, value)) and (is_tensor or _are_equal(before, first[0]))

    def _devices(self, mine: Any, now: Any, kinds: Sequence[str]) -> list[Any]:
        """For each tensor of a new value its device: where this trainer, or else the other one, has it."""
        own, count = [one.device for one in _tensors(mine)], sum(1 for _ in _tensors(now))
        if own and (len(own) == count or len(set(own)) == 1):
            return own if len(own) == count else own[:1] * count
        model = next((one.device for one in self._model.parameters()), torch.device("cpu"))
        if len(kinds) != count:
            return [model] * count
        return [torch.device("cpu") if kind == "cpu" else model for kind in kinds]

    def _places(self) -> Iterator[tuple[str, Any]]:
        yield from self._model.named_modules()
        yield from ((f"optimizer {place}", one) for place, one in enumerate(self._optimizers))

    def _values(self) -> Iterator[tuple[str, Any]]:
        for place, holder in self._places():
            own = _OF_A_MODULE if isinstance(holder, nn.Module) else _OF_AN_OPTIMIZER
            yield from ((f"{place}.{key}", value) for key, value in vars(holder).items() if key not in own)


_OF_A_MODULE = set(vars(nn.Module())) - {"training"}
_OF_AN_OPTIMIZER = {*vars(optim.SGD([torch.zeros(1)], lr=0.0)), "step", "zero_grad", "_opt_called", "_step_count"}
"""What torch itself keeps there."""


def _is_private(name: str) -> bool:
    return name.rpartition(".")[2].startswith("_")


def _is_alike(first: Any, value: Any) -> bool:
    """True if a value is of the type that it had at the beginning, and neither text nor None."""
    if isinstance(first, torch.Tensor) and isinstance(value, torch.Tensor):
        return bool(first.dtype == value.dtype and first.shape == value.shape)
    are_numbers = type(first) in _NUMBERS and type(value) in _NUMBERS
    return are_numbers or (type(first) is type(value) and type(value) not in _SIMPLE)


def _size(value: Any, most: float = _MOST, depth: int = 8) -> float:
    """How many numbers and texts a value has, or any number above `most`; infinite if it cannot be copied.

    Each 256 numbers of a tensor count as one.
    """
    if type(value) in _SIMPLE:
        return 1
    if isinstance(value, torch.Tensor):
        return 1 + value.numel() // 256 if _is_plain(value) else math.inf
    if type(value) in _HOLDERS and depth:
        size = 1.0 if len(value) < most else most + 1
        for item in _items(value) if size <= most else ():
            size += _size(item, most - size, depth - 1) if size <= most else 0
            if size > most:
                break
        return size
    if type(value).__module__ == "numpy" and getattr(getattr(value, "dtype", None), "kind", "O") in "biufc":
        return float(value.size)
    return math.inf


def _is_plain(tensor: Any) -> bool:
    is_plain = type(tensor) is torch.Tensor and not tensor.requires_grad and tensor.numel() <= _MOST
    return is_plain and tensor.layout == torch.strided and not tensor.is_quantized and tensor.device.type != "meta"


def _items(value: Any) -> list[Any]:
    return [*value.keys(), *value.values()] if isinstance(value, dict) else list(value)


def _tensors(value: Any) -> Iterator[Any]:
    """The tensors in a value, in the order of `_placed`."""
    if isinstance(value, torch.Tensor):
        yield value
    elif type(value) in _HOLDERS:
        for item in value.values() if isinstance(value, dict) else value:
            yield from _tensors(item)


def _placed(value: Any, devices: Iterator[Any]) -> Any:
    """A copy of a value, of which the tensors are on devices."""
    if isinstance(value, torch.Tensor):
        return value.detach().to(next(devices), copy=True)
    if isinstance(value, dict):
        return {key: _placed(item, devices) for key, item in value.items()}
    if type(value) not in _HOLDERS:
        return copy.copy(value)
    items = [_placed(item, devices) for item in value]
    return deque(items, value.maxlen) if isinstance(value, deque) else type(value)(items)


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
        return value, version_of(value)
    return copy.deepcopy(value), 0


def _is_same(first: tuple[Any, int], value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return first[0] is value and first[1] == version_of(value)
    return type(first[0]) is type(value) and _are_equal(first[0], value)


def _are_equal(one: Any, other: Any) -> bool:
    """True if two values are equal, with the tensors and arrays in them."""
    if isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
        are_both = isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)
        is_alike = are_both and one.dtype == other.dtype and one.shape == other.shape
        return is_alike and torch.equal(bytes_of(one), bytes_of(other))
    if isinstance(one, list | tuple | deque) and isinstance(other, list | tuple | deque):
        return len(one) == len(other) and all(map(_are_equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return (
            len(one) == len(other) and list(one) == list(other) and all(map(_are_equal, one.values(), other.values()))
        )
    if hasattr(one, "tobytes") and hasattr(other, "tobytes"):
        return bool(one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes())
    return type(one) is type(other) and bool(one == other or (one != one and other != other))  # noqa: PLR0124 - NaN
