"""Everything that makes one trainer the twin of another: model, optimizers, schedulers, and what the script adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edl.errors import ConfigError, PermanentError
from edl.worker_torch.portable import detached, plain, restored

try:
    import torch
    from torch import nn
except ImportError as error:
    raise ConfigError(
        "edl.worker_torch needs the package torch, which is not installed here; run pip install torch"
    ) from error

_KINDS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class TrainState:
    """The state of one trainer.

    Args:
        model: a module.
        optimizers: of its parameters, in the order in which they step.
        schedulers: of learning rates.
        extra: name -> anything with `state_dict` and `load_state_dict`.

    Attributes:
        steps: of the optimizers so far, in all trainers together.
        carried: name -> gradient that the next step of the optimizer adds to its own.

    Raises:
        ConfigError: an optimizer has parameters that are not in the model, a parameter is of a kind that cannot be
            summed, or an object has no state.
    """

    def __init__(
        self, model: Any, optimizers: Sequence[Any], schedulers: Sequence[Any], extra: Mapping[str, Any]
    ) -> None:
        self.model, self.optimizers, self.schedulers, self.extra = model, optimizers, schedulers, dict(extra)
        self.steps = 0
        self.carried: dict[str, Any] = {}
        self._names = {parameter: name for name, parameter in model.named_parameters()}
        for name, value in self.extra.items():
            if not hasattr(value, "state_dict") or not hasattr(value, "load_state_dict"):
                raise ConfigError(
                    f"Elastic: state[{name!r}] is a {type(value).__name__}, which has no state_dict and"
                    " load_state_dict; give it both, so that it can be copied to trainers that join and saved"
                )
        self._check(self.parameters)
        for one in self.optimizers:
            if isinstance(one, torch.optim.LBFGS):
                raise ConfigError(
                    "Elastic: LBFGS computes gradients several times in a step, by a closure, and a step here has the"
                    " gradients of one pass; use an optimizer whose step() needs no closure"
                )

    @property
    def parameters(self) -> list[Any]:
        """Those that the optimizers have now, each once; a group may have been added."""
        found = [p for one in self.optimizers for group in one.param_groups for p in group["params"]]
        return list(dict.fromkeys(found))

    def name_of(self, parameter: Any) -> str:
        """The name of a parameter in the model."""
        return str(self._names[parameter])

    @property
    def buffers(self) -> dict[str, Any]:
        """The buffers that are saved with the model, by name; others are constants or caches."""
        saved = self.model.state_dict(keep_vars=True)
        return {name: buffer for name, buffer in self.model.named_buffers() if name in saved}

    def watched(self) -> dict[str, Any]:
        """The tensors that must be equal in all trainers, by name."""
        found = {name: parameter.detach() for parameter, name in self._names.items()}
        found.update(self.buffers)
        for name, value in self.extra.items():
            found.update(_tensors(value.state_dict(), f"state[{name!r}]"))
        return found

    def collected(self) -> dict[str, Any]:
        """The state as plain data; its tensors are those of this trainer, not copies.

        Raises:
            ConfigError: an object of it could not be loaded again.
        """
        found: dict[str, Any] = {
            "model": plain(self.model.state_dict(), "model.state_dict()"),
            "optimizer": [plain(one.state_dict(), "optimizer.state_dict()") for one in self.optimizers],
            "scheduler": [plain(one.state_dict(), "scheduler.state_dict()") for one in self.schedulers],
            "state": {name: plain(one.state_dict(), f"state[{name!r}]") for name, one in self.extra.items()},
            "steps": self.steps,
            "groups": [[[self._names[p] for p in g["params"]] for g in o.param_groups] for o in self.optimizers],
            "frozen": [name for parameter, name in self._names.items() if not parameter.requires_grad],
            "gradients": dict(self.carried),
        }
        return found

    def load(self, state: Any, *, is_owned: bool) -> None:
        """Take over the state of another trainer, or of a file.

        Args:
            state: from `collected`.
            is_owned: the tensors of it belong to nobody else.

        Raises:
            PermanentError: the model or an optimizer of this trainer is another one.
        """

        def keep(part: Any) -> Any:
            return part if is_owned else detached(part)

        try:
            self._load_model(state)
            for one, part in zip(self.optimizers, state["optimizer"], strict=True):
                one.load_state_dict(keep(restored(part)))
            for one, part in zip(self.schedulers, state["scheduler"], strict=True):
                one.load_state_dict(restored(part))
            for name, part in state["state"].items():
                self.extra[name].load_state_dict(keep(restored(part)))
        except (KeyError, ValueError, TypeError, AttributeError, RuntimeError) as error:
            raise PermanentError(
                f"Elastic: the state of another trainer, or of a checkpoint, does not fit this one: {error}; every"
                " trainer must build the same model, optimizers, schedulers and state=, and a folder with checkpoints"
                " of another model cannot be used"
            ) from error
        self.steps, self.carried = state["steps"], keep(state["gradients"])

    def _load_model(self, state: Any) -> None:
        self.model.load_state_dict(restored(state["model"]))
        by_name = {name: parameter for parameter, name in self._names.items()}
        frozen = set(state["frozen"])
        for name, parameter in by_name.items():
            parameter.requires_grad_(name not in frozen)
        for one, groups in zip(self.optimizers, state["groups"], strict=True):
            for names in groups[len(one.param_groups) :]:  # the others have added it since they began
                one.add_param_group({"params": [by_name[name] for name in names]})

    def _check(self, parameters: list[Any]) -> None:
        outside = [p for p in parameters if p not in self._names]
        if outside:
            raise ConfigError(
                f"Elastic: the optimizer has {len(outside)} parameters, the first one of shape"
                f" {tuple(outside[0].shape)}, that the model has not, so they would neither be copied nor saved; put"
                " all modules with parameters into one, such as nn.ModuleList([model, loss_function]), and pass that"
            )
        for parameter in parameters:
            name = self._names[parameter]
            if isinstance(parameter, nn.parameter.UninitializedParameter) or parameter.device.type == "meta":
                raise ConfigError(
                    f"Elastic: the parameter {name} has no values yet (it is lazy, or on the device meta); make them"
                    " first: call the model once, or model.to_empty(device=...) and load its weights"
                )
            if hasattr(parameter, "to_local"):
                raise ConfigError(
                    f"Elastic: the parameter {name} is a shard (a DTensor, as FSDP2 makes it), and trainers exchange"
                    " whole models; leave fully_shard away"
                )
            if parameter.dtype not in _KINDS:
                raise ConfigError(
                    f"Elastic: the parameter {name} has the type {parameter.dtype}; gradients of"
                    f" {', '.join(str(kind).removeprefix('torch.') for kind in _KINDS)} can be summed; split a"
                    " complex parameter with torch.view_as_real"
                )


def _tensors(value: Any, place: str) -> dict[str, Any]:
    """The tensors of a state by their places."""
    if isinstance(value, torch.Tensor):
        return {place: value.detach()}
    pairs = (
        value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list | tuple) else ()
    )
    found: dict[str, Any] = {}
    for key, item in pairs:
        found.update(_tensors(item, f"{place}[{key!r}]"))
    return found
