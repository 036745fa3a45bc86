"""Lets a script for PyTorch Lightning train in step: it passes one more argument to its `Trainer`.

    from edl.worker_torch.lightning import ElasticStrategy
    Trainer(max_epochs=3, strategy=ElasticStrategy()).fit(model, train_loader)

The batch of the training loader is the global one, or spec.elasticity.globalBatch; the master decides the order.
Every trainer evaluates all data of the other loaders. Automatic optimization with one optimizer is offered.
Source: `lightning.pytorch.strategies.Strategy` and the loops of Lightning 2.6.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from edl.errors import ConfigError
from edl.worker.job import Job
from edl.worker_torch.collating import options_of
from edl.worker_torch.elastic import Elastic
from edl.worker_torch.epochs import Epochs, check_loader, connected, fail_at_exit
from edl.worker_torch.stepper import Scheduler, Stepper

try:
    from lightning.pytorch.strategies import SingleDeviceStrategy
    from torch.utils.data import DataLoader, RandomSampler
except ImportError as error:
    raise ConfigError(
        "edl.worker_torch.lightning needs the package lightning, which is not installed here; run pip install"
        " lightning"
    ) from error

_NOT_HERE = {
    "fast_dev_run": False,
    "limit_train_batches": 1.0,
    "overfit_batches": 0.0,
    "reload_dataloaders_every_n_epochs": 0,
}
"""The options of a `Trainer` that change which records it trains on, with the value that does not."""


class ElasticStrategy(SingleDeviceStrategy):
    """One trainer of the job.

    Args:
        device: where the model computes.
        job: by default the connection that `edl.worker.connect` makes.
        options: the options of `Elastic`, such as `deterministic`, `save_every` or `folder`.

    Attributes:
        elastic: what trains; None before `fit` has seen the training data.
    """

    def __init__(self, device: Any = "cpu", *, job: Job | None = None, **options: Any) -> None:
        self._job, self._options = job or connected(), options
        self.elastic: Elastic | None = None
        self._stepper: Stepper | None = None
        super().__init__(device=device)

    @property
    def global_rank(self) -> int:
        """The rank of this trainer now; 0 before the first step."""
        world = self._job.world()
        return world.rank if world is not None else 0

    @global_rank.setter
    def global_rank(self, _: int) -> None:
        """The master decides the rank."""

    @property
    def is_global_zero(self) -> bool:
        """True in exactly one trainer of the job."""
        return self.global_rank == 0

    def process_dataloader(self, dataloader: Any) -> Any:
        """Replace the loader of the training data by one of the job's batches; other loaders stay."""
        trainer = self.lightning_module.trainer
        is_data = isinstance(dataloader, DataLoader) and len(dataloader.dataset) == self._job.dataset["total"]
        is_shuffled = is_data and isinstance(dataloader.sampler, RandomSampler)
        if self.elastic is not None or not is_data or not trainer.training or not is_shuffled:
            return dataloader
        return self._elastic_loader(dataloader)

    def on_train_start(self) -> None:
        """Check that some loader had the training data, so that there is something to divide between trainers.

        Raises:
            ConfigError: no loader was that of the training data.
        """
        super().on_train_start()
        if self.elastic is None:
            data = self._job.dataset
            raise ConfigError(
                f"ElasticStrategy: no loader that shuffles has the {data['total']} records of {data['source']!r}; set"
                " spec.dataset.source to index:N with the length of the training data, and give their loader"
                " shuffle=True"
            )

    def optimizer_step(self, optimizer: Any, closure: Any, model: Any = None, **options: Any) -> Any:
        """Take an optimizer step.

        Lightning does not count a batch whose step was lost with a trainer: the batch comes again.
        """
        found = super().optimizer_step(optimizer, closure, model, **options)
        if self._stepper is not None and self._stepper.was_lost:
            _forget_batch(self.lightning_module.trainer.fit_loop)
        return found

    def on_train_end(self) -> None:
        """End the job if a callback of Lightning, such as `EarlyStopping`, has stopped the training."""
        super().on_train_end()
        if self._stepper is not None and self.lightning_module.trainer.should_stop:
            self._stepper.end()

    def _elastic_loader(self, data: Any) -> Any:
        self._check(data)
        configs = self.lr_scheduler_configs
        options: dict[str, Any] = {"collate": data.collate_fn, **options_of(data)}
        if not os.environ.get("EDL_GLOBAL_BATCH"):  # what spec.elasticity.globalBatch sets
            options["global_batch"] = data.batch_size
        options = {**options, **self._options}
        state = {f"edl.scheduler {place}": config.scheduler for place, config in enumerate(configs)}
        state["edl.callbacks"] = _Callbacks(self.lightning_module.trainer)
        options["state"] = {**(options.get("state") or {}), **state}
        read, optimizer = data.dataset.__getitem__, self.optimizers[0]
        self.elastic = Elastic(self._job, self.lightning_module, optimizer, read=read, **options)
        self._stepper = stepper = Stepper(self._job, self.elastic, optimizer)
        for config in configs:
            config.scheduler = Scheduler(config.scheduler, stepper)
        self.precision_plugin.clip_gradients = self._clip
        fail_at_exit(stepper)
        return _Loader(stepper, self.elastic, data, self.lightning_module.trainer)

    def _check(self, data: Any) -> None:
        trainer, epochs = self.lightning_module.trainer, self._job.dataset["epochs"]
        check_loader(self._job, data, data.batch_size, "ElasticStrategy")
        if trainer.max_epochs != epochs or trainer.max_steps > 0:
            raise ConfigError(
                f"ElasticStrategy: max_epochs={trainer.max_epochs} and max_steps={trainer.max_steps}, and the job has"
                f" {epochs} epochs; set max_epochs={epochs} without max_steps, or set spec.dataset.epochs"
            )
        for name, value in _NOT_HERE.items():
            if getattr(trainer, name, value) != value:
                raise ConfigError(
                    f"ElasticStrategy: {name}={getattr(trainer, name)} is not offered: the job trains on every record"
                    " of its data, once in each epoch; leave it away, and give a smaller data set for a trial"
                )
        algorithm = getattr(trainer.gradient_clip_algorithm, "value", trainer.gradient_clip_algorithm)
        if algorithm not in {None, "norm"}:
            raise ConfigError(f"ElasticStrategy: gradient_clip_algorithm={algorithm!r} is not offered; give 'norm'")
        if len(self.optimizers) != 1 or not self.lightning_module.automatic_optimization:
            raise ConfigError(
                f"ElasticStrategy: the module has {len(self.optimizers)} optimizers, and automatic_optimization is"
                f" {self.lightning_module.automatic_optimization}; one optimizer with automatic optimization is"
                " offered"
            )

    def _clip(self, optimizer: Any, clip_val: float = 0.0, gradient_clip_algorithm: Any = "norm") -> None:
        """Clip gradients after they are summed over all trainers, in place of Lightning's own clipping."""
        del optimizer, gradient_clip_algorithm
        if clip_val and clip_val > 0 and self.elastic is not None:
            self.elastic.clip_grad_norm(float(clip_val))


class _Callbacks:
    """The state of callbacks such as `EarlyStopping`; each trainer evaluates for itself, so it is not compared.

    Args:
        trainer: whose callbacks.
    """

    is_compared = False

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def state_dict(self) -> dict[str, Any]:
        """The state of the callbacks that have one, as a checkpoint of Lightning's has it."""
        found = {one.state_key: one.state_dict() for one in self._trainer.callbacks}
        return {key: state for key, state in found.items() if state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over the callbacks' state of another trainer."""
        for one in self._trainer.callbacks:
            if one.state_key in state:
                one.load_state_dict(state[one.state_key])


class _Loader(Epochs):
    """Yields the batches of a trainer, and sets Lightning's counters to those of the whole job."""

    def __init__(self, stepper: Stepper, elastic: Elastic, data: Any, trainer: Any) -> None:
        super().__init__(stepper, elastic, data, None)
        self._trainer, self._has_begun = trainer, False
        self.sampler, self.batch_sampler = data.sampler, data.batch_sampler

    def __iter__(self) -> Iterator[Any]:
        for batch in super().__iter__():
            if not self._has_begun:
                self._has_begun = True
                epochs = self._trainer.fit_loop.epoch_progress.current
                epochs.completed = epochs.processed = self._stepper.first_epoch or 0
            self._set_counters(self._trainer.fit_loop)
            yield batch

    def _set_counters(self, fit: Any) -> None:
        """Set Lightning's counters from the steps of the job: a trainer that joined late has seen fewer batches."""
        loop = fit.epoch_loop
        steps = loop.automatic_optimization.optim_progress.optimizer.step.total
        steps.ready = steps.completed = self._elastic.step
        settings = self._elastic.loop.settings
        epoch, place = divmod(self._elastic.loop.position or 0, settings.total)
        place = -(-place // settings.base_batch(1))
        fit._data_fetcher.fetched = place  # noqa: SLF001 - it has no other name
        for progress, count in (
            (loop.batch_progress.current, place),
            (loop.batch_progress.total, epoch * len(self) + place),
        ):
            progress.ready = progress.started = progress.processed = progress.completed = count


def _forget_batch(fit: Any) -> None:
    """Undo what the loop has counted for its last batch, so that no epoch ends and nothing is validated with it."""
    loop = fit.epoch_loop
    loop.batch_progress.current.ready -= 1
    loop.batch_progress.is_last_batch = fit._data_fetcher.done = False  # noqa: SLF001
    loop._skip_next_val = True  # noqa: SLF001 - the batch before it may have been validated
