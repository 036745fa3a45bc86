"""Takes the place of Hugging Face's `Trainer`: the script changes one import, and its model trains in step.

    from edl.worker_torch.transformers import Trainer        # instead of: from transformers import Trainer
    Trainer(model=model, args=args, train_dataset=data).train()

Callbacks, logging, evaluation and `TrainingArguments` stay. The master decides the order of the data. A batch of the
job has `per_device_train_batch_size * gradient_accumulation_steps` records, or spec.elasticity.globalBatch, however
many trainers there are; a trainer computes its share of it in batches of at most `per_device_train_batch_size`.
Source: the loop `_inner_training_loop` of transformers 5.
"""

from __future__ import annotations

import logging
import math
import os
from typing import Any

from edl.errors import ConfigError
from edl.worker.job import Job
from edl.worker_torch.elastic import Elastic
from edl.worker_torch.epochs import Epochs, connected, fail_at_exit
from edl.worker_torch.stepper import Scheduler, Stepper

try:
    import torch
    import transformers
    from transformers.trainer_callback import ExportableState
except ImportError as error:
    raise ConfigError(
        "edl.worker_torch.transformers needs the package transformers, which is not installed here; run pip install"
        " transformers accelerate"
    ) from error

_ORDER = {"train_sampling_strategy": "random", "group_by_length": False}
_NOT_HERE = {"deepspeed": None, "fsdp": None, "auto_find_batch_size": False, "dataloader_drop_last": False, **_ORDER}
_BEST = ("best_metric", "best_global_step", "best_model_checkpoint")
_log = logging.getLogger(__name__)


class Trainer(transformers.Trainer):
    """One trainer of the job.

    Args:
        args, options: the arguments of Hugging Face's `Trainer`.
        job: by default the connection that `edl.worker.connect` makes.
        elastic_options: the options of `Elastic`, such as `deterministic`, `save_every` or `folder`.

    Raises:
        ConfigError: the arguments ask for what trainers that come and go cannot do, or do not fit the job.

    Attributes:
        elastic: what trains; None before `train`.
    """

    def __init__(
        self, *args: Any, job: Job | None = None, elastic_options: dict[str, Any] | None = None, **options: Any
    ) -> None:
        self._job, self._elastic_options = job or connected(), dict(elastic_options or {})
        self.elastic: Elastic | None = None
        self._stepper: Stepper | None = None
        self._schedule = _Schedule()
        super().__init__(*args, **options)
        self._check_arguments()
        self._micro_batch = self.args.per_device_train_batch_size
        self._step_batch = self._micro_batch * self.args.gradient_accumulation_steps
        self.args.gradient_accumulation_steps = 1  # a batch of the loop below is a whole step
        self.callback_handler.callbacks.insert(0, _GlobalStep(self))

    @property
    def steps_of_epoch(self) -> int:
        """The number of steps in an epoch of the job; 0 before `train`."""
        settings = self.elastic.loop.settings if self.elastic is not None else None
        batch = (settings.global_batch or settings.micro_batch or 1) if settings is not None else 0
        return math.ceil(settings.total / batch) if settings is not None else 0

    def get_train_dataloader(self) -> Any:
        """A loader with one item per step of the job, one epoch per iteration."""
        if self.optimizer is None:
            self.create_optimizer()
        data, collate = self._data()
        options: dict[str, Any] = {"collate": collate, "micro_batch": self._micro_batch}
        if not os.environ.get("EDL_GLOBAL_BATCH"):  # what spec.elasticity.globalBatch sets
            options["global_batch"] = self._step_batch
        if self.args.dataloader_num_workers:
            factor = self.args.dataloader_prefetch_factor
            options["num_workers"] = self.args.dataloader_num_workers
            options["reading"] = {"prefetch_factor": factor} if factor is not None else {}
            options["reading"]["persistent_workers"] = self.args.dataloader_persistent_workers
        options = {**options, **self._elastic_options}
        added = {"edl.scheduler": self._schedule, "edl.callbacks": _Callbacks(self)}
        options["state"] = {**(options.get("state") or {}), **added}
        self.elastic = Elastic(self._job, self.model, self.optimizer, read=data.__getitem__, **options)
        self._stepper = Stepper(self._job, self.elastic, self.optimizer)
        fail_at_exit(self._stepper)
        return _Steps(self._stepper, self, self.train_dataset)

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """Make the scheduler that the arguments name; it steps whenever the trainers make a step together."""
        found = super().create_scheduler(num_training_steps, optimizer)
        if self._stepper is not None and not isinstance(found, Scheduler):
            self._schedule.inner = found
            self.lr_scheduler = found = Scheduler(found, self._stepper)
        return found

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        """Compute the gradients of this trainer's share of a step, and make it; returns the mean loss.

        Each loss is a mean over what counts in its batch, and edl weighs it by that. If the step is lost with a
        trainer, its records come again, and the loop hears nothing of it.
        """
        if self._stepper is None or self.elastic is None:
            return super().training_step(model, inputs, num_items_in_batch)
        loss = self._share(self._stepper, model, inputs, num_items_in_batch)
        while not self._has_made_step(self.elastic, self._stepper):
            if (batch := self._stepper.next()) is None:  # this trainer leaves, or the job has ended
                break
            loss = self._share(self._stepper, model, *self._prepared(batch))
        return loss

    def _share(self, stepper: Stepper, model: Any, inputs: Any, count: Any) -> Any:
        """Compute the gradients of this trainer's share of a step; returns the mean loss."""
        losses, counts = [super().training_step(model, inputs, count)], [1.0 if count is None else float(count)]
        while not stepper.is_last:
            batch, count = self._prepared(stepper.next())
            losses.append(super().training_step(model, batch, count))
            counts.append(1.0 if count is None else float(count))
        weights = torch.tensor(counts, device=losses[0].device)
        return (torch.stack(losses) * weights).sum() / weights.sum()

    def _prepared(self, batch: Any) -> tuple[Any, Any]:
        """Move a batch to the device, and count the labels in it that enter the loss."""
        (found,), count = self.get_batch_samples(iter([batch]), 1, self.args.device)
        return found, count

    def _has_made_step(self, elastic: Elastic, stepper: Stepper) -> bool:
        """Make the step; False if it was lost with a trainer, so that its records come again.

        The loop counts a step for each of its batches, and calls `optimizer.step()`, which finds it made.
        """
        max_norm = self.args.max_grad_norm
        elastic.clip_grad_norm(max_norm if max_norm and max_norm > 0 else float("inf"))
        stepper.step_ahead()
        return not stepper.was_lost

    def _clip_grad_norm(self, _: Any) -> Any:
        """The norm of the gradient of the step, before it was clipped."""
        return self.elastic.replica.norm if self.elastic is not None else torch.tensor(0.0)

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        return super()._get_grad_norm(model, self._clip_grad_norm(model) if grad_norm is None else grad_norm)

    def is_world_process_zero(self) -> bool:
        """Return True in exactly one trainer of the job."""
        world = self._job.world()
        return world is None or world.rank == 0

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        if self.is_world_process_zero():
            super()._save_checkpoint(model, trial)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save in one trainer; after the training only a complete model."""
        is_complete = self.elastic is None or _internal_call or self.elastic.is_complete
        if self.is_world_process_zero() and is_complete:
            super().save_model(output_dir, _internal_call)

    def train(self, resume_from_checkpoint: Any = None, **options: Any) -> Any:
        """Train as `transformers.Trainer.train` does.

        Raises:
            ConfigError: it should begin with a checkpoint of Hugging Face's.
        """
        wanted = resume_from_checkpoint or self.args.resume_from_checkpoint
        if wanted:
            raise ConfigError(
                f"Trainer: resume_from_checkpoint={wanted!r} is not offered: a job goes on from edl's own checkpoints"
                " by itself, in the same folder; leave it away; to begin with other weights, load them into the model"
            )
        return super().train(**options)

    def end_if_stopped(self) -> None:
        """End the job, in all trainers, if a callback has stopped the training."""
        if self._stepper is not None and self.control.should_training_stop:
            self._stepper.end()

    def _load_best_model(self) -> None:
        self.end_if_stopped()  # the model of the job is that of the last step, in all trainers
        super()._load_best_model()

    def _data(self) -> tuple[Any, Any]:
        """The training data and what makes batches of them, without the columns that the model does not take."""
        data, total = self.train_dataset, self._job.dataset["total"]
        if not hasattr(data, "__len__") or not hasattr(data, "__getitem__") or len(data) != total:
            length = len(data) if hasattr(data, "__len__") else "an unknown number of"
            raise ConfigError(
                f"Trainer: train_dataset has {length} records, and the job trains on {self._job.dataset['source']!r}"
                f" with {total}; set spec.dataset.source to index:N with the length of the data"
            )
        if hasattr(data, "remove_columns"):
            return self._remove_unused_columns(data, description="training"), self.data_collator
        return data, self._get_collator_with_removed_columns(self.data_collator, description="training")

    def _check_arguments(self) -> None:
        args, epochs = self.args, self._job.dataset["epochs"]
        for name, value in _NOT_HERE.items():
            if (getattr(args, name, value) or value) != value:
                raise ConfigError(
                    f"Trainer: {name}={getattr(args, name)!r} cannot be used with trainers that come and go; leave it"
                    " away"
                )
        if args.max_steps > 0 or math.ceil(args.num_train_epochs) != epochs or args.num_train_epochs % 1:
            raise ConfigError(
                f"Trainer: num_train_epochs={args.num_train_epochs} and max_steps={args.max_steps}, and the job has"
                f" {epochs} epochs; set num_train_epochs={epochs} without max_steps, or set spec.dataset.epochs"
            )
        self._check_overrides()
        for name, base in (("get_train_dataloader", Trainer), ("_get_train_sampler", transformers.Trainer)):
            if getattr(type(self), name) is not getattr(base, name):
                raise ConfigError(
                    f"Trainer: {type(self).__name__} has a {name} of its own, and the master decides the order: each"
                    " record once in an epoch, shuffled; leave it away, and give the records that count as"
                    " train_dataset"
                )
        if args.lr_scheduler_type == "reduce_lr_on_plateau":
            raise ConfigError(
                "Trainer: lr_scheduler_type='reduce_lr_on_plateau' is not offered: its step needs a metric; give a"
                " schedule that counts steps, such as 'cosine' or 'linear'"
            )
        if args.fp16:
            raise ConfigError("Trainer: fp16=True is not offered; give bf16=True, which needs no scaler")

    def _check_overrides(self) -> None:
        """Refuse what would change gradients where edl has no part in it, or has made the step already."""
        if type(self).training_step is not Trainer.training_step:
            raise ConfigError(
                f"Trainer: {type(self).__name__} has a training_step of its own, whose gradients would be neither"
                " weighed nor clipped; put what computes the loss into compute_loss, and what changes gradients into"
                " optimizer.register_step_pre_hook(function), which calls function(optimizer, *_) when parameter.grad"
                " is the gradient of the step"
            )
        others = (
            one for one in self.callback_handler.callbacks if not type(one).__module__.startswith("transformers.")
        )
        for one in others:
            if type(one).on_pre_optimizer_step is not transformers.TrainerCallback.on_pre_optimizer_step:
                raise ConfigError(
                    f"Trainer: the callback {type(one).__name__} has on_pre_optimizer_step, and edl has made the step"
                    " in all trainers when it is called; optimizer.register_step_pre_hook(function) calls"
                    " function(optimizer, *_) when parameter.grad is the gradient of the step"
                )


class _Steps(Epochs):
    """Yields the first batch of each step of this trainer; `training_step` reads the others."""

    def __init__(self, stepper: Stepper, trainer: Trainer, dataset: Any) -> None:
        self._stepper, self._trainer, self._device = stepper, trainer, None
        self.dataset, self.batch_size = dataset, trainer.elastic and trainer.elastic.loop.settings.global_batch

    def __len__(self) -> int:
        """The number of steps in an epoch."""
        return self._trainer.steps_of_epoch


class _Schedule:
    """The state of a scheduler that does not exist yet when the state of the trainer is described."""

    inner: Any = None

    def state_dict(self) -> Any:
        return self.inner.state_dict() if self.inner is not None else {}

    def load_state_dict(self, state: Any) -> None:
        if state and self.inner is not None:
            self.inner.load_state_dict(state)


class _Callbacks:
    """The state of callbacks, and the best metric so far; each trainer evaluates for itself, so it is not compared.

    Args:
        trainer: whose callbacks.
    """

    is_compared = False

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def state_dict(self) -> dict[str, Any]:
        """The state of the callbacks that offer one, as a checkpoint of Hugging Face's has it."""
        best = {name: getattr(self._trainer.state, name, None) for name in _BEST}
        return {"best": best, "callbacks": {name: one.state()["attributes"] for name, one in self._named().items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over the callbacks' state of another trainer."""
        for name, value in state["best"].items():
            setattr(self._trainer.state, name, value)
        for name, callback in self._named().items():
            for attribute, value in state["callbacks"].get(name, {}).items():
                setattr(callback, attribute, value)

    def _named(self) -> dict[str, Any]:
        """Name each callback by its class and its position among those of that class."""
        every = [one for one in self._trainer.callback_handler.callbacks if isinstance(one, ExportableState)]
        kinds = [type(one).__name__ for one in every]
        return {f"{kinds[place]} {kinds[:place].count(kinds[place])}": one for place, one in enumerate(every)}


class _GlobalStep(transformers.TrainerCallback):
    """Sets the global step and the epoch to those of all trainers: one that came late has missed some."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def on_step_begin(self, _: Any, state: Any, control: Any, **__: Any) -> Any:
        """Set the global step to that of all trainers."""
        if self._trainer.elastic is not None:
            state.global_step = self._trainer.elastic.step
        return control

    def on_step_end(self, _: Any, state: Any, control: Any, **__: Any) -> Any:
        """Set the epoch from the global step: the loop has set it from the steps that this trainer has made."""
        if (steps := self._trainer.steps_of_epoch) and state.global_step:
            epoch, place = divmod(state.global_step - 1, steps)
            state.epoch = epoch + (place + 1) / steps
        return control

    def on_train_end(self, _: Any, __: Any, control: Any, **___: Any) -> Any:
        """End the job if the training was stopped early."""
        self._trainer.end_if_stopped()
        return control
