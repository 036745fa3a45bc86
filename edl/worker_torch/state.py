"""Everything that must be equal in all trainers: model, optimizers, schedulers, and what the script adds."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from edl.errors import ConfigError, PermanentError
from edl.worker_torch.modes import Settings
from edl.worker_torch.portable import detached, is_shard, local_of, overwrite, plain, restored

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
        optimizers: the optimizers of its parameters, in the order in which they step.
        schedulers: the schedulers of learning rates.
        extra: name -> anything with `state_dict` and `load_state_dict`.
        processes: how many processes this trainer has.

    Attributes:
        steps: the steps of the optimizers so far, in all trainers together.
        carried: name -> gradient that the next step of the optimizer adds to its own.
        mesh: of the processes over which parameters are spread, as FSDP2 does it; None if each process has all.

    Raises:
        ConfigError: an optimizer has parameters that are not in the model, a parameter is of a kind that cannot be
            summed, or an object has no state.
    """

    def __init__(
        self,
        model: Any,
        optimizers: Sequence[Any],
        schedulers: Sequence[Any],
        extra: Mapping[str, Any],
        processes: int = 1,
    ) -> None:
        self.model, self.optimizers, self.schedulers, self.extra = model, optimizers, schedulers, dict(extra)
        self.steps, self._processes = 0, processes
        self._check_parts()
        self._settings = Settings(model, optimizers)
        self.carried: dict[str, Any] = {}
        self._names = {parameter: name for name, parameter in model.named_parameters()}
        for name, value in self.extra.items():
            if not hasattr(value, "state_dict") or not hasattr(value, "load_state_dict"):
                raise ConfigError(
                    f"Elastic: state[{name!r}] is a {type(value).__name__}, which has no state_dict and"
                    " load_state_dict; give it both, so that it can be copied to trainers that join and saved"
                )
        found = [parameter for parameter in self._names if is_shard(parameter)]
        self.mesh = found[0].device_mesh if found else None
        self.check(self.parameters)
        self._check_kinds()

    @property
    def parameters(self) -> list[Any]:
        """The parameters that the optimizers have now, each once; a script may have added a group."""
        found = [p for one in self.optimizers for group in one.param_groups for p in group["params"]]
        return list(dict.fromkeys(found))

    @property
    def shards(self) -> int:
        """Over how many processes parameters are spread; 0 if each process has all of them."""
        return self._processes if self.mesh is not None else 0

    def whole_model(self, *, is_wanted: bool) -> dict[str, Any]:
        """The `state_dict` of the whole model on the CPU, put together from the shards of all processes.

        Args:
            is_wanted: this process needs it; without that it only gives its shards.
        """
        found = {}
        for name, value in self.model.state_dict().items():
            whole = value.full_tensor() if is_shard(value) else value
            if is_wanted:
                found[name] = whole.cpu() if is_shard(value) else whole
        return found

    def name_of(self, parameter: Any) -> str:
        """The name of a parameter in the model."""
        return str(self._names[parameter])

    @property
    def buffers(self) -> dict[str, Any]:
        """The buffers that are saved with the model, by name; others are constants or caches."""
        found = dict(self.model.named_buffers())
        saved = self.model.state_dict(keep_vars=True) if found else {}  # each step asks for them
        return {name: buffer for name, buffer in found.items() if name in saved}

    @property
    def others(self) -> dict[str, Any]:
        """The buffers that are not saved, by name, without masks; a script may have drawn them without a seed."""
        every = dict(self.model.named_buffers())
        saved = self.buffers if every else {}
        return {name: one for name, one in every.items() if name not in saved and one.dtype != torch.bool}

    def watched(self) -> dict[str, Any]:
        """The tensors that must be equal in all trainers, by name."""
        found = {name: local_of(parameter.detach()) for name, parameter in self.model.named_parameters()}
        found.update(self.buffers)
        for name, value in self.extra.items():
            if getattr(value, "is_compared", True):
                found.update(_tensors(value.state_dict(), f"state[{name!r}]"))
        return found

    def has(self, module: Any) -> bool:
        """True if the parameters of a module belong to this state: to the model, or to what the script has added."""
        mine = {tensor.data_ptr() for tensor in self.watched().values()}
        return all(local_of(parameter.detach()).data_ptr() in mine for parameter in module.parameters())

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
            "constants": plain({name: one.detach() for name, one in self.others.items()}, "a buffer"),
            "modules": plain(self._settings.changed(), "a setting of a module"),
            "steps": self.steps,
            "groups": [[[self._names[p] for p in g["params"]] for g in o.param_groups] for o in self.optimizers],
            "frozen": [name for parameter, name in self._names.items() if not parameter.requires_grad],
            "gradients": plain(self.carried, "a gradient"),
            "shards": self.shards,
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
            if state.get("shards", 0) != self.shards:
                raise ValueError(f"it is in {state.get('shards', 0)} shards, and this model in {self.shards}")
            self._load_model(state)
            for one, part in zip(self.optimizers, state["optimizer"], strict=True):
                its = restored(keep(part), self.mesh)
                one.load_state_dict(its)
                _make_exact(one, its)
            for one, part in zip(self.schedulers, state["scheduler"], strict=True):
                one.load_state_dict(restored(part))
            for name, part in state["state"].items():
                self.extra[name].load_state_dict(restored(keep(part), self.mesh))
        except (KeyError, ValueError, TypeError, AttributeError, RuntimeError) as error:
            raise PermanentError(
                f"Elastic: the state of another trainer, or of a checkpoint, does not fit this one: {error}; every"
                " trainer must build the same model, optimizers, schedulers and state=, and a folder with checkpoints"
                " of another model cannot be used"
            ) from error
        self.steps, self.carried = state["steps"], restored(keep(state["gradients"]), self.mesh)

    def _load_model(self, state: Any) -> None:
        is_inference = any(one.is_inference() for one in self.model.buffers())  # only within it they can be written
        with torch.inference_mode() if is_inference else contextlib.nullcontext():
            self.model.load_state_dict(restored(state["model"], self.mesh))
        by_name = {name: parameter for parameter, name in self._names.items()}
        theirs = state.get("constants", {})
        for name, buffer in self.others.items():
            its = theirs.get(name)  # a cache may have grown since
            if its is not None and its.shape == buffer.shape and not torch.equal(its.to(buffer), buffer):
                overwrite(buffer, its)
        self._settings.load(restored(state.get("modules", {})))
        frozen = set(state["frozen"])
        for name, parameter in by_name.items():
            parameter.requires_grad_(name not in frozen)
        for one, groups in zip(self.optimizers, state["groups"], strict=True):
            for names in groups[len(one.param_groups) :]:  # the others have added it since they began
                one.add_param_group({"params": [by_name[name] for name in names]})

    def check(self, parameters: list[Any]) -> None:
        """Reject parameters of an optimizer that edl cannot sum or copy.

        Raises:
            ConfigError: one of them is not in the model, was added to it later, has no values, or is of a wrong kind.
        """
        self._check_place([p for p in parameters if p not in self._names])
        for parameter in parameters:
            name = self._names[parameter]
            if isinstance(parameter, nn.parameter.UninitializedParameter) or parameter.device.type == "meta":
                raise ConfigError(
                    f"Elastic: the parameter {name} has no values yet (it is lazy, or on the device meta); make them"
                    " first: call the model once, or model.to_empty(device=...) and load its weights"
                )
            if is_shard(parameter) and parameter.device_mesh.mesh.tolist() != list(range(self._processes)):
                raise ConfigError(
                    f"Elastic: the parameter {name} is spread over processes {parameter.device_mesh.mesh.tolist()},"
                    f" and this trainer has {self._processes} that torchrun has started in its pod; shard over all of"
                    " them: fully_shard(model, mesh=init_device_mesh(device, (world_size,)))"
                )
            if parameter.dtype not in _KINDS:
                raise ConfigError(
                    f"Elastic: the parameter {name} has the type {parameter.dtype}; gradients of"
                    f" {', '.join(str(kind).removeprefix('torch.') for kind in _KINDS)} can be summed; split a"
                    " complex parameter with torch.view_as_real"
                )

    def _check_place(self, outside: list[Any]) -> None:
        """Reject parameters of an optimizer that are not in the model, or were not in it at the beginning."""
        late = {parameter: name for name, parameter in self.model.named_parameters() if parameter not in self._names}
        if outside and outside[0] in late:
            raise ConfigError(
                f"Elastic: the parameter {late[outside[0]]} was added to the model after Elastic was made. A trainer"
                " that joins builds the model as the script begins, and could not take it over; build all layers"
                " first, and freeze those that train later: layer.requires_grad_(False), then True in a hook of"
                " on_step_end"
            )
        if outside:
            raise ConfigError(
                f"Elastic: the optimizer has {len(outside)} parameters, the first one of shape"
                f" {tuple(outside[0].shape)}, that the model has not, so they would neither be copied nor saved; put"
                " all modules with parameters into one, such as nn.ModuleList([model, loss_function]), and pass that"
            )

    def _check_parts(self) -> None:
        """Refuse what is no model and no optimizer of torch."""
        if not isinstance(self.model, nn.Module):
            raise ConfigError(f"Elastic: the model is a {type(self.model).__name__}; give a torch.nn.Module")
        for one in self.optimizers:
            if not isinstance(one, torch.optim.Optimizer):
                raise ConfigError(
                    f"Elastic: the optimizer is a {type(one).__name__}; give a torch.optim.Optimizer. A class around"
                    " one that sets its learning rate is a scheduler: write it as a LambdaLR of torch, or set"
                    " optimizer.param_groups by elastic.step"
                )

    def _check_kinds(self) -> None:
        """Reject wrappers and optimizers that exchange gradients or parameters themselves, or need a closure."""
        wrappers = {type(module).__name__ for module in self.model.modules()}
        if "FullyShardedDataParallel" in wrappers:
            raise ConfigError(
                "Elastic: the model is wrapped in FullyShardedDataParallel, whose flat parameters cannot be copied to"
                " trainers that join; spread it with fully_shard(model, mesh=mesh) (FSDP2), or leave the wrapper away"
            )
        if "DistributedDataParallel" in wrappers and self._processes > 1:
            raise ConfigError(
                "Elastic: the model is wrapped in DistributedDataParallel, which takes the mean of gradients that edl"
                " sums by their weights; leave the wrapper away"
            )
        for one in self.optimizers:
            if type(one).__name__ == "ZeroRedundancyOptimizer":
                raise ConfigError(
                    "Elastic: ZeroRedundancyOptimizer keeps a part of its state in each process, and cannot be copied"
                    " to trainers that join; use the optimizer itself, with fully_shard(model) to spread its state"
                )
            if isinstance(one, torch.optim.LBFGS):
                raise ConfigError(
                    "Elastic: LBFGS computes gradients several times in a step, by a closure, and a step here has the"
                    " gradients of one pass; use an optimizer whose step() needs no closure"
                )


def _make_exact(optimizer: Any, state: Any) -> None:
    """Put back what `load_state_dict` of torch has turned into the type of the parameter, or made anew."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    names = [name for group in state["param_groups"] for name in group["params"]]
    for name, parameter in zip(names, parameters, strict=True):
        mine, its = optimizer.state.get(parameter), state["state"].get(name)
        for key, value in its.items() if isinstance(mine, dict) and isinstance(its, dict) else ():
            if not isinstance(value, torch.Tensor):
                mine[key] = value
            elif isinstance(mine.get(key), torch.Tensor) and mine[key].dtype != value.dtype:
                mine[key] = value.to(mine[key].device)


def _tensors(value: Any, place: str) -> dict[str, Any]:
    """Find all tensors of a nested state: path -> tensor."""
    if isinstance(value, torch.Tensor):
        return {place: local_of(value.detach())}
    pairs = (
        value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list | tuple) else ()
    )
    found: dict[str, Any] = {}
    for key, item in pairs:
        found.update(_tensors(item, f"{place}[{key!r}]"))
    return found
