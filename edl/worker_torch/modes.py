"""What a script sets on the modules of a model and `state_dict` does not hold.

Such as training or evaluation of single layers, the rate of a dropout, and counters. A trainer that joins builds the
model as the script begins, so it takes over what has changed since then.
"""

from __future__ import annotations

import hashlib
from typing import Any

from edl.errors import ConfigError

try:
    import torch
except ImportError as error:
    raise ConfigError(
        "edl.worker_torch needs the package torch, which is not installed here; run pip install torch"
    ) from error

_SIMPLE = (bool, int, float, str)
_MOST = 65_536  # numbers of a tensor


class ModuleSettings:
    """The attributes of modules that are numbers, text or small tensors, as they were and as they are.

    Args:
        model: whose modules are watched, as it is built.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._first = {name: _noted(value) for name, value in self._values()}
        self._taken: set[str] = set()

    def changed(self) -> dict[str, list[Any]]:
        """Return the attributes of modules that have changed: name -> [value in the new model, present value].

        Of a tensor the first value is None.
        """
        found = {}
        for name, value in self._values():
            first = self._first.get(name)
            if first is not None and not _is_same(first, value):
                found[name] = [None if isinstance(value, torch.Tensor) else first[0], value]
        return found

    def load(self, theirs: dict[str, list[Any]]) -> None:
        """Take over the settings that another trainer has changed and this one has not.

        Args:
            theirs: from `changed` of that trainer.
        """
        modules = dict(self._model.named_modules())
        for name, value in self._values():
            first = self._first.get(name)
            if name not in theirs or first is None or not (name in self._taken or _is_same(first, value)):
                continue
            before, now = theirs[name]
            is_tensor = isinstance(value, torch.Tensor)
            if is_tensor is isinstance(now, torch.Tensor) and (is_tensor or before == first[0]):
                place, _, key = name.rpartition(".")
                setattr(modules[place], key, now.to(value.device) if is_tensor else now)
                self._taken.add(name)

    def _values(self) -> list[tuple[str, Any]]:
        found = []
        for place, module in self._model.named_modules():
            for key, value in vars(module).items():
                is_tensor = type(value) is torch.Tensor and not value.requires_grad and value.numel() <= _MOST
                if not key.startswith("_") and (type(value) in _SIMPLE or is_tensor):
                    found.append((f"{place}.{key}", value))
        return found


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
    """Return a value with its version, which rises each time that a tensor is written to; 0 for other values."""
    return value, value._version if isinstance(value, torch.Tensor) else 0  # noqa: SLF001 - torch's only name for it


def _is_same(first: tuple[Any, int], value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return first[0] is value and first[1] == value._version  # noqa: SLF001
    return type(first[0]) is type(value) and bool(first[0] == value)
