"""Takes the place of Hugging Face Accelerate's `Accelerator` in a training script: the script then trains in step.

    from edl.worker_torch import Accelerator        # instead of: from accelerate import Accelerator
    accelerator = Accelerator()
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(3):
        for x, y in loader:
            accelerator.backward(loss_function(model(x), y))
            optimizer.step()
            optimizer.zero_grad()

What it has means what it means in Accelerate with one process and the global batch. The rest is refused by name;
`prepare` already warns of what the calling function mentions. Accelerate is not used and need not be installed.
Source: https://huggingface.co/docs/accelerate, "Adding Accelerate to your code" and the reference of `Accelerator`.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType, MethodType
from typing import Any

from edl.errors import ConfigError
from edl.worker.job import Job
from edl.worker_torch.collating import options_of
from edl.worker_torch.elastic import Elastic
from edl.worker_torch.epochs import Epochs, check_loader, connected, fail_at_exit, say_rest
from edl.worker_torch.stepper import Scheduler, Stepper

try:
    import torch
    from torch import nn, optim
    from torch.utils.data import DataLoader, RandomSampler
except ImportError as error:
    raise ConfigError(
        "edl.worker_torch needs the package torch, which is not installed here; run pip install torch"
    ) from error

_ELASTIC = (
    "collate",
    "global_batch",
    "micro_batch",
    "deterministic",
    "scaler",
    "state",
    "buffers",
    "max_grad_norm",
    "folder",
    "save_every",
    "keep",
    "timeout_s",
    "host",
)
_NOT_HERE = {
    "gather",
    "reduce",
    "load_state",
    "join_uneven_inputs",
    "trigger_sync_in_backward",
    "skip_first_batches",
    "split_between_processes",
    "set_trigger",
    "check_trigger",
    "lomo_backward",
    "clip_grad_value_",
    "unscale_gradients",
    "get_tracker",
    "prepare_model",
    "prepare_optimizer",
    "prepare_scheduler",
    "prepare_data_loader",
}
"""The methods of Accelerate's `Accelerator` that this one does not have."""
_PRECISIONS = {"no": None, "bf16": torch.bfloat16}

_log = logging.getLogger(__name__)


class Accelerator:
    """One trainer of the job.

    Args:
        job: by default the connection that `edl.worker.connect` makes.
        gradient_accumulation_steps: batches of a step within `accumulate`.
        mixed_precision: no or bf16.
        cpu, device_placement, step_scheduler_with_optimizer: as in Accelerate, with its defaults.
        options: of `Elastic`, such as `save_every`; without a global batch in the spec of the job, the batch of the
            loader times `gradient_accumulation_steps` is the global one.

    Raises:
        ConfigError: an option is not known here, or has a value that cannot be used.

    Attributes:
        elastic: what trains; None before `prepare`.
        sync_gradients: the batch in hand is the last one of its step.
    """

    def __init__(
        self,
        job: Job | None = None,
        *,
        gradient_accumulation_steps: int = 1,
        mixed_precision: str | None = None,
        cpu: bool = False,
        device_placement: bool = True,
        step_scheduler_with_optimizer: bool = True,
        **options: Any,
    ) -> None:
        unknown = sorted(options.keys() - set(_ELASTIC))
        if unknown or (mixed_precision or "no") not in _PRECISIONS or not step_scheduler_with_optimizer:
            raise ConfigError(
                f"Accelerator: {', '.join(unknown) or f'mixed_precision={mixed_precision!r}'} is not offered by"
                " edl.worker_torch; it has gradient_accumulation_steps, mixed_precision ('no' or 'bf16'), cpu,"
                f" device_placement, and of Elastic {', '.join(_ELASTIC)}"
            )
        self._job, self._options = job or connected(), options
        self.gradient_accumulation_steps = gradient_accumulation_steps
        self._precision, self._is_cpu, self._places = _PRECISIONS[mixed_precision or "no"], cpu, device_placement
        self.elastic: Elastic | None = None
        self._stepper: Stepper | None = None
        self.sync_gradients = True

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(_refusal(name))

    def prepare(self, *parts: Any) -> Any:
        """Connect model, optimizer, loader and scheduler to the job, and return them in the given order.

        Args:
            parts: a model, its optimizer, the DataLoader of the training data, and if need be a learning-rate
                scheduler. Of several DataLoaders the one that shuffles is that of the training data, or the first
                one; the others are returned unchanged, so every trainer evaluates all of their data.

        Raises:
            ConfigError: a part is missing, or the DataLoader and the data set of the job do not fit together.
        """
        _warn_of(sys._getframe(1))  # noqa: SLF001 - the script that calls
        model = self._only(parts, nn.Module, "model")
        optimizer = self._only(parts, optim.Optimizer, "optimizer")
        loaders = [part for part in parts if isinstance(part, DataLoader)]
        schedulers = [part for part in parts if part is not model and part is not optimizer and part not in loaders]
        if not loaders or len(schedulers) > 1:
            raise ConfigError(
                "Accelerator.prepare: give a model, an optimizer, the DataLoader of the training data, and at most"
                " one learning-rate scheduler"
            )
        data = next((one for one in loaders if isinstance(one.sampler, RandomSampler)), loaders[0])
        batch = (data.batch_size or 1) * self.gradient_accumulation_steps
        check_loader(self._job, data, batch, "Accelerator.prepare")
        say_rest(data, batch, self.gradient_accumulation_steps)
        if self._places:
            model.to(self.device)
        options = self._options_of(data, schedulers)
        self.elastic = Elastic(self._job, model, optimizer, read=data.dataset.__getitem__, **options)
        self._stepper = stepper = Stepper(self._job, self.elastic, optimizer)
        fail_at_exit(stepper)
        if self._precision is not None:
            model.forward = MethodType(self._in_precision(model.forward), model)  # a copy computes its own
        replaced: dict[int, Any] = {id(one): Scheduler(one, stepper) for one in schedulers}
        replaced[id(data)] = Epochs(stepper, self.elastic, data, self.device if self._places else None)
        return tuple(replaced.get(id(part), part) for part in parts)

    def backward(self, loss: Any, **options: Any) -> None:
        """Compute the gradients of a loss, with the weight that the loss has in the step."""
        loss.backward(**options)

    @contextlib.contextmanager
    def accumulate(self, *_: Any) -> Iterator[None]:
        """Within the block, let optimizer and scheduler step only with the last batch of a step."""
        stepper = self._prepared("accumulate")
        self.sync_gradients = stepper.is_last
        stepper.is_partial = not self.sync_gradients
        try:
            yield
        finally:
            stepper.is_partial = False

    @contextlib.contextmanager
    def autocast(self, *_: Any, **__: Any) -> Iterator[None]:
        """Within the block, compute in the precision of `mixed_precision`."""
        with torch.autocast(self.device.type, self._precision, enabled=self._precision is not None):
            yield

    def clip_grad_norm_(self, parameters: Any, max_norm: float, norm_type: float = 2.0) -> Any:
        """Clip the gradient of the next step, after it is summed over all trainers.

        Args:
            parameters: all that the optimizer has, such as `model.parameters()`.
            max_norm: the greatest norm of the gradient of a step; the same in every trainer.
            norm_type: 2 is the only one.

        Returns:
            The norm of the gradient of the last step, since that of this step is not known yet; nan in the first one.

        Raises:
            ConfigError: a value cannot be used, or `prepare` was not called.
        """
        if self.elastic is None:
            raise ConfigError("Accelerator.clip_grad_norm_: no optimizer is known; call prepare(...) first")
        given = {id(one) for one in ([parameters] if isinstance(parameters, nn.Parameter) else parameters)}
        owned = self.elastic.parameters
        found = sum(id(one) in given for one in owned)
        if norm_type != 2.0 or found < len(owned):
            raise ConfigError(
                f"Accelerator.clip_grad_norm_: it got {found} of the {len(owned)} parameters of the optimizer and"
                f" norm_type={norm_type}; one norm of type 2 is that of the whole step: pass model.parameters()"
            )
        return self.elastic.clip_grad_norm(max_norm)

    def gather_for_metrics(self, value: Any, *_: Any, **__: Any) -> Any:
        """Return the value unchanged: every trainer evaluates all data, so there is nothing to gather."""
        return value

    def pad_across_processes(self, value: Any, *_: Any, **__: Any) -> Any:
        """Return the value unchanged; see `gather_for_metrics`."""
        return value

    @contextlib.contextmanager
    def main_process_first(self) -> Iterator[None]:
        """Run the block at once: each trainer has files of its own, so none need go first."""
        yield

    local_main_process_first = main_process_first

    @contextlib.contextmanager
    def no_sync(self, *_: Any) -> Iterator[None]:
        """Within the block, compute gradients that are added to those of the next batch; see `Stepper`."""
        yield

    def register_for_checkpointing(self, *values: Any) -> None:
        """Add objects with `state_dict` and `load_state_dict` to the state that is copied and saved.

        Raises:
            ConfigError: `prepare` was called before.
        """
        if self.elastic is not None:
            raise ConfigError("Accelerator.register_for_checkpointing: call it before prepare(...)")
        state = self._options.setdefault("state", {})
        state.update({f"registered {len(state) + place}": value for place, value in enumerate(values)})

    def save_state(self, folder: str | os.PathLike[str], **_: Any) -> None:
        """Write the state of model, optimizer and scheduler as `state.pt`, in one trainer.

        edl saves checkpoints by itself, and training continues from them without a call.
        """
        self._prepared("save_state")
        if self.is_main_process and self.elastic is not None:
            Path(folder).mkdir(parents=True, exist_ok=True)
            torch.save(self.elastic.replica.state.collected(), Path(folder) / "state.pt")

    def wait_for_everyone(self) -> None:
        """Do nothing: all trainers wait for each other at the end of each step anyway."""

    def unwrap_model(self, model: nn.Module, *_: Any, **__: Any) -> nn.Module:
        """Return the model as it is: edl does not wrap it."""
        return model

    def get_state_dict(self, model: nn.Module, *_: Any, **__: Any) -> Any:
        """Return the `state_dict` of the model."""
        return model.state_dict()

    def save(self, value: Any, path: str | os.PathLike[str], **_: Any) -> None:
        """Save an object in one trainer, if the training is complete; a trainer that left early does not save."""
        if self.is_main_process and self.elastic is not None and self.elastic.is_complete:
            torch.save(value, path)

    def print(self, *words: object) -> None:
        """Print in one trainer only."""
        if self.is_main_process:
            sys.stdout.write(" ".join(map(str, words)) + "\n")
            sys.stdout.flush()

    def log(self, *_: Any, **__: Any) -> None:
        """Do nothing: there are no trackers, since `log_with` is not offered."""

    init_trackers = log

    def end_training(self) -> None:
        """Do nothing: the job ends by itself."""

    def free_memory(self, *parts: Any) -> Any:
        """Return the objects unchanged."""
        return parts

    @property
    def device(self) -> Any:
        """The device on which the model computes."""
        return torch.device("cuda" if torch.cuda.is_available() and not self._is_cpu else "cpu")

    @property
    def mixed_precision(self) -> str:
        """The precision of `autocast`: `no` or `bf16`."""
        return "no" if self._precision is None else "bf16"

    @property
    def optimizer_step_was_skipped(self) -> bool:
        """True if the last step was lost with a trainer; the next batch has its records."""
        return self._stepper is not None and self._stepper.was_lost

    @property
    def process_index(self) -> int:
        """The rank of this trainer now; 0 before the first step."""
        world = self._job.world()
        return world.rank if world is not None else 0

    @property
    def num_processes(self) -> int:
        """How many trainers there are now; 1 before the first step."""
        world = self._job.world()
        return world.size if world is not None else 1

    @property
    def is_main_process(self) -> bool:
        """True in exactly one trainer of the job."""
        return self.process_index == 0

    @property
    def is_local_main_process(self) -> bool:
        """True: a pod has one trainer."""
        return True

    @property
    def is_last_process(self) -> bool:
        """True in exactly one trainer of the job."""
        return self.process_index == self.num_processes - 1

    def _prepared(self, name: str) -> Stepper:
        if self._stepper is None:
            raise ConfigError(f"Accelerator.{name}: no optimizer is known; call prepare(...) first")
        return self._stepper

    @staticmethod
    def _only(parts: tuple[Any, ...], kind: type, name: str) -> Any:
        found = [part for part in parts if isinstance(part, kind)]
        if len(found) != 1:
            raise ConfigError(f"Accelerator.prepare: it got {len(found)} of {name}; give exactly one {name}")
        return found[0]

    def _options_of(self, data: Any, schedulers: list[Any]) -> dict[str, Any]:
        options = {"collate": data.collate_fn, **options_of(data), **self._options}
        if not os.environ.get("EDL_GLOBAL_BATCH"):  # what spec.elasticity.globalBatch sets
            options.setdefault("global_batch", data.batch_size * self.gradient_accumulation_steps)
        if self.gradient_accumulation_steps > 1:
            options.setdefault("micro_batch", data.batch_size)
        if schedulers:
            options["state"] = {**(options.get("state") or {}), "edl.scheduler": schedulers[0]}
        return options

    def _in_precision(self, forward: Any) -> Any:
        """Wrap `forward` so that it computes in lower precision and returns single precision, as Accelerate does."""
        method = getattr(forward, "__func__", None)  # None if the model is compiled

        @functools.wraps(forward)
        def call(model: Any, *args: Any, **options: Any) -> Any:
            with self.autocast():
                found = method(model, *args, **options) if method is not None else forward(*args, **options)
            return _in_single(found)

        return call


def _refusal(name: str) -> str:
    return (
        f"Accelerator of edl.worker_torch has no {name}: with trainers that come and go it would not mean what it"
        " means in Accelerate; take it out, or write the loop with edl.worker_torch.Elastic"
    )


def _warn_of(frame: FrameType) -> None:
    """Warn before the first step of names in the calling function that edl would reject, even if not reached."""
    for name in sorted(_names(frame.f_code) & _NOT_HERE):
        _log.warning("this script mentions .%s: %s", name, _refusal(name))


def _names(code: CodeType) -> set[str]:
    """The names of attributes and globals that a function uses, nested functions included."""
    inner = (one for one in code.co_consts if isinstance(one, CodeType))
    return set(code.co_names).union(*map(_names, inner))


def _in_single(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype in {torch.float16, torch.bfloat16} else value
    if isinstance(value, dict):
        for key, item in value.items():
            value[key] = _in_single(item)
        return value
    return type(value)(map(_in_single, value)) if isinstance(value, list | tuple) else value
