"""A PyTorch model that trains in step with other trainers, while trainers come and go.

    from edl.worker import connect
    from edl.worker_torch import Elastic
    with connect() as job:
        elastic = Elastic(job, model, optimizer, read=dataset.__getitem__, global_batch=256)
        for x, y in elastic.batches():
            loss_function(model(x), y).backward()

The loop computes gradients; `batches` does everything else: when the loop asks for the next batch of a step, the
gradients of the last one are added up, and after the last batch they are summed over the trainers and the optimizer
makes its step. If a trainer is lost in the middle of a step, the loop gets the records of that step again, with the
share that is now its own.

The gradient of a step is the one that a single process would compute from all of its records. A loss may be a mean
over records, over labels that count, or a sum: losses of PyTorch, and of models that use them, are recognised;
`elastic.backward(loss, weight=...)` says it for others.

A trainer may be several processes, one for each device of its pod, that torchrun has started. They divide the records
of the trainer among themselves. If FSDP2 has spread the model over them, each process trains its shard with those of
the same rank in other pods; trainers that come or go change only how many copies of each shard there are.

What uses the model after the loop belongs behind `if elastic.is_complete:`. A trainer that left, or that came after
the end, has no trained model.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

from edl.errors import ConfigError, PermanentError
from edl.worker.data import Reader
from edl.worker.job import Job
from edl.worker.model_folder import KEPT, ModelFolder
from edl.worker.step_settings import Piece
from edl.worker.steps import PeerLostError, StepDone, StepLoop
from edl.worker_torch.buffers import LAST
from edl.worker_torch.collating import Collate
from edl.worker_torch.losses.kinds import RECORDS, SUM, WEIGHT, LossKind
from edl.worker_torch.metrics import evaluated, gathered, summed
from edl.worker_torch.processes import Processes
from edl.worker_torch.reading import PieceReader
from edl.worker_torch.replica import TorchReplica
from edl.worker_torch.state import TrainState

try:
    from torch import nn, optim
    from torch.optim.lr_scheduler import ReduceLROnPlateau
    from torch.utils.data import default_collate
except ImportError as error:
    raise ConfigError(
        "edl.worker_torch needs the package torch, which is not installed here; run pip install torch"
    ) from error

_log = logging.getLogger(__name__)
_KINDS = {"mean": RECORDS, "sum": SUM}


class Elastic:
    """Trains a model in step with the other trainers of the job.

    Args:
        job: connected.
        model: in training mode; every trainer builds the same one.
        optimizer: of parameters of the model, or a list of optimizers, which step one after the other. `step` and
            `zero_grad` are called here; the loop may not call them.
        read: turns a number, a line or a row into a sample; by default the record is unchanged.
        collate: turns a list of samples into a batch.
        global_batch: records of an optimizer step, however many trainers there are; or the fewest and the most, such
            as (64, 512), of which the job takes what makes the most progress. By default spec.elasticity.globalBatch.
        micro_batch: the most records of a batch; a trainer with a larger share gets more batches in a step, whose
            gradients are added up. Without a global batch each trainer has one batch of this size in each step.
        deterministic: divide each step into that many parts, whatever the number of trainers, and sum their
            gradients in a fixed order; the weights then do not depend on the number of trainers. By default 0, or
            `max-instance` if spec.elasticity.deterministic is set.
        scheduler: a learning-rate scheduler, or a list of them, which make a step after each step of the optimizer;
            not in the loop.
        scaler: a `torch.amp.GradScaler`. The loop calls `scaler.scale(loss).backward()`, and nothing else of it.
        state: name -> anything with `state_dict` and `load_state_dict`, such as averaged weights or a sampler; it is
            copied to trainers that join, compared and saved. Change it in hooks of `on_step_end`.
        buffers: how buffers such as the averages of batch normalisation are kept equal after each step: `last` takes
            those of the trainer with the last records, `mean` the mean over the records of the step.
        max_grad_norm: clip the gradient of a step to this norm, once it is summed over all trainers, as
            `torch.nn.utils.clip_grad_norm_` does; None does not clip.
        rate_rule: how the learning rate follows the records of a step: `none`, `linear`, `sqrt` or `adascale`. The
            rate of the optimizer is that of the smallest batch, or without a global batch of one trainer.
        folder: for checkpoints and for the trained model, `model.pt`; all trainers must see the same folder, such as
            a volume, and each job needs its own. By default EDL_CHECKPOINTS; without either, no model is saved.
        save_every: save a checkpoint after so many steps of an epoch, and at the end; 0 saves only if all trainers
            leave. By default at the end of each epoch, if there is a folder.
        keep: how many of the last checkpoints stay; older ones in the folder are deleted. 0 deletes none.
        timeout_s: how long the others wait for a trainer that lives, but does not finish its part of a step. A
            trainer whose process is lost or stopped holds nobody up for that long.
        host: an address of this trainer that the others can reach; by default POD_IP.
        num_workers: how many processes read and collate batches ahead; 0 reads in this process. With `deterministic`
            the random numbers that they draw depend on the records alone.
        reading: the options of a DataLoader with processes: prefetch_factor, pin_memory, timeout, worker_init_fn
            multiprocessing_context, or persistent_workers; without that one, processes begin anew with each epoch,
            as those of a DataLoader do.

    Raises:
        ConfigError: a value is missing, or the values contradict each other.

    Attributes:
        loop: what counts steps and worlds.
    """

    def __init__(
        self,
        job: Job,
        model: nn.Module,
        optimizer: optim.Optimizer | Sequence[optim.Optimizer],
        *,
        read: Reader | None = None,
        collate: Collate = default_collate,
        global_batch: int | tuple[int, int] | None = None,
        micro_batch: int | None = None,
        deterministic: int | None = None,
        scheduler: Any = None,
        scaler: Any = None,
        state: Mapping[str, Any] | None = None,
        buffers: str = LAST,
        max_grad_norm: float | None = None,
        rate_rule: str = "",
        folder: str | os.PathLike[str] | None = None,
        save_every: int | None = None,
        keep: int = KEPT,
        timeout_s: float = 600.0,
        host: str | None = None,
        num_workers: int = 0,
        reading: Mapping[str, Any] | None = None,
    ) -> None:
        place = folder or os.environ.get("EDL_CHECKPOINTS", "")
        if save_every and not place:
            raise ConfigError(
                "Elastic: save_every needs a folder that all trainers see; pass folder=, or set EDL_CHECKPOINTS"
            )
        if deterministic is True:
            raise ConfigError(
                "Elastic: deterministic=True does not say into how many parts each step is divided; give their"
                " number, such as the most trainers of the job, or leave it away and set"
                " spec.elasticity.deterministic"
            )
        self._job, self._reader = job, PieceReader(job, read, collate, num_workers, reading or {})
        self._hooks: list[Callable[[], object]] = []
        extra = {**(state or {}), **({"edl.scaler": scaler} if scaler is not None else {})}
        schedulers = _listed(scheduler)
        _check_schedulers(schedulers)
        host = host or os.environ.get("POD_IP", "")
        processes = Processes(host)
        train_state = TrainState(model, _listed(optimizer), schedulers, extra, processes.size)
        shard = processes.rank if train_state.shards else None
        self._replica = TorchReplica(
            train_state,
            folder=ModelFolder(Path(place) if place else None, keep, shard),
            processes=processes,
            host=host,
            timeout_s=timeout_s,
            scaler=scaler,
            buffers=buffers,
        )
        self.loop: StepLoop = job.steps(
            self._replica,
            self._replica.endpoint,
            global_batch=global_batch,
            micro_batch=micro_batch,
            logical_ranks=deterministic,
            save_every=save_every if place else 0,
            rate_rule=rate_rule,
            siblings=processes if processes.size > 1 else None,
            is_sharded=train_state.shards > 1,
        )
        self._replica.logical_ranks = self.loop.settings.logical_ranks
        self._replica.losses.global_batch = self.loop.settings.global_batch or 0
        self._replica.watch.tuner.begin(self.loop.settings)
        if max_grad_norm is not None:
            self.clip_grad_norm(max_grad_norm)

    def backward(self, loss: Any, *, weight: float | None = None, reduction: str = "mean") -> None:
        """Compute the gradients of the loss of a batch, and say how much it counts in the step.

        Args:
            loss: a scalar tensor.
            weight: over how much the loss is a mean, such as the number of tokens of the batch that count; above 0.
                The gradient of the step is divided by the sum of all weights. None recognises the losses of PyTorch.
            reduction: `mean`, or `sum` for a loss that is a sum over the records of the batch.

        Raises:
            ConfigError: a value cannot be used.
            PermanentError: another loss of the same batch counts differently.
        """
        if reduction not in _KINDS or (weight is not None and not weight > 0):
            raise ConfigError(
                f"Elastic.backward: weight={weight} and reduction={reduction!r} cannot be used; give a weight above"
                " 0, and 'mean' or 'sum'"
            )
        if weight is not None:
            self._replica.losses.say(LossKind(WEIGHT, float(weight)))
        elif reduction == "sum":
            self._replica.losses.say(LossKind(SUM))
        loss.backward()

    def clip_grad_norm(self, max_norm: float) -> Any:
        """Clip the gradients of this step and of those after it, once they are summed over all trainers.

        Args:
            max_norm: the greatest norm of the gradient of a step; the same in every trainer.

        Returns:
            The norm of the gradient of the last step, before it was clipped; nan if there was none.

        Raises:
            ConfigError: the norm is not above 0.
        """
        if not max_norm > 0:
            raise ConfigError(f"Elastic: the greatest norm of a gradient is {max_norm}; give a number above 0")
        self._replica.max_norm = float(max_norm)
        return self._replica.norm

    def on_step_end(self, hook: Callable[[], object]) -> Callable[[], object]:
        """Call a function after each step, in every trainer, also in one that had no records in it.

        What it changes (averaged weights, a learning rate, frozen parameters) belongs to the state that is copied and
        saved, so it must do the same in all trainers. It may be used as a decorator.
        """
        self._hooks.append(hook)
        return hook

    def evaluate(self, batches: Any, metrics: Callable[[Any], Mapping[str, float]]) -> dict[str, float]:
        """Sum metrics over batches that the trainers divide among them; call it in a hook of `on_step_end`.

        Others wait for it as long as it takes. If a trainer is lost meanwhile, this one computes all batches itself.

        Args:
            batches: all of them, the same in every trainer: a list, a data set with `__getitem__`, or a DataLoader
                with shuffle=False, of which each trainer loads its share.
            metrics: gets a batch and returns numbers that are added up, such as a sum of losses and a count.

        Raises:
            PermanentError: the loop calls it within a step.
        """
        self._check_place("evaluate")
        return evaluated(self._replica.twins, batches, metrics, self._replica.processes.together)

    def sum(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """Sum numbers over all trainers; call it in a hook of `on_step_end`, with the same names in each trainer.

        Raises:
            PeerLostError: a trainer is gone; the hook may let it pass, which leaves out its rest in this trainer.
            PermanentError: the loop calls it within a step.
        """
        self._check_place("sum")
        return summed(self._replica.wire, numbers)

    def gather(self, value: Any) -> Any:
        """Join tensors of all trainers in the order of their ranks; call it in a hook of `on_step_end`.

        Args:
            value: a tensor of shape [n, ...], such as predictions; n may differ between trainers.

        Raises:
            ConfigError: the tensors do not fit together.
            PeerLostError: a trainer is gone; the hook may let it pass, which leaves out its rest in this trainer.
            PermanentError: the loop calls it within a step.
        """
        self._check_place("gather")
        return gathered(self._replica.wire, value)

    def stop(self) -> None:
        """End the training with the step that is under way, in all trainers: the model is complete and is saved.

        The loop may go on to the next batch, which does not come, or leave by `break`.
        """
        self.loop.must_stop = True

    @property
    def step(self) -> int:
        """How many steps the optimizers have made, in all trainers together; the same number in each of them."""
        return self._replica.state.steps

    @property
    def noise_scale(self) -> float | None:
        """The noise scale of the gradients, in records; None if it is not known yet, or cannot be measured."""
        return self._replica.watch.tuner.noise.value

    @property
    def is_epoch_end(self) -> bool:
        """True in a hook of `on_step_end` after the last step of an epoch, in all trainers."""
        position = self.loop.position or 0
        return position > 0 and position % self.loop.settings.total == 0

    @property
    def parameters(self) -> list[Any]:
        """The parameters that the optimizers train."""
        return self._replica.parameters

    @property
    def replica(self) -> TorchReplica:
        """The model of this trainer, with its connections to the other trainers; adapters use it."""
        return self._replica

    @property
    def is_complete(self) -> bool:
        """True if the model has had every step of the job; false if this trainer left, or came after the end."""
        return self.loop.is_complete

    def batches(self) -> Generator[Any, None, None]:
        """The batches of this trainer, until the job has ended or this trainer has left after SIGTERM.

        After the last step of the job the trained model is in the folder.

        Raises:
            PermanentError: a record cannot be read, the master rejects this trainer, the model is lost, it cannot be
                written, the trainers have different models, a step has no gradient, or the loop itself calls `step`
                or `zero_grad`.
        """
        pieces = self._job.endings.opened(self.pieces())
        return (batch for _, batch in pieces)

    def pieces(self) -> Generator[tuple[Piece, Any], None, None]:
        """Yield the batches of this trainer as `batches` does, each with the piece of its step that it is."""
        with self._replica.guard.during_loop():
            for event in self.events():
                if not isinstance(event, StepDone):
                    yield event

    def events(self) -> Generator[tuple[Piece, Any] | StepDone, None, None]:
        """Yield each batch with its piece of a step, and after the batches of a step, that the step is done."""
        if self.is_complete and self.loop.counts.steps:
            epochs = self.loop.settings.epochs
            raise PermanentError(
                f"Elastic: the loop asks for batches again, and it has had all those of the {epochs} epochs of the"
                " job: batches() goes through all of them. Delete the loop over epochs around it; what that loop does"
                " after an epoch belongs into a hook of on_step_end, behind `if elastic.is_epoch_end:`"
            )
        inner = self.loop.events()
        try:
            for event in inner:
                if isinstance(event, StepDone):
                    self._run_hooks()
                    yield event
                else:
                    yield event, self._batch(event)
        except GeneratorExit:
            inner.close()  # after stop() it makes the last step
            if self.is_complete:
                self._run_hooks()
                self._replica.save_model()
            raise
        finally:
            self._reader.close()
        if self.is_complete:
            self._replica.save_model()

    def _batch(self, piece: Piece) -> Any:
        world = self._job.world()
        return self._reader.batch(piece, self.loop, *((world.rank, world.size) if world is not None else (0, 1)))

    def _run_hooks(self) -> None:
        for hook in self._hooks:
            try:
                hook()
            except PeerLostError as error:
                _log.warning(
                    "a trainer was lost while a hook of on_step_end waited for its numbers: the rest of that hook is"
                    " left out in this trainer (%s)",
                    error,
                )

    def _check_place(self, name: str) -> None:
        """Reject within a step a call that all trainers must make together: they have other numbers of batches."""
        if self._replica.guard.is_within_step:
            raise PermanentError(
                f"Elastic.{name}: the loop calls it between two batches of a step, of which other trainers may have"
                " more or fewer, and all would wait for each other; call it in a hook of on_step_end"
            )


def _listed(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, list | tuple) else [value]


def _check_schedulers(schedulers: list[Any]) -> None:
    for one in schedulers:
        if isinstance(one, ReduceLROnPlateau):
            raise ConfigError(
                "Elastic: ReduceLROnPlateau needs a metric for its step; pass it as state={'scheduler': scheduler},"
                " and call its step(metric) in a hook of on_step_end, with a metric that is the same in all trainers,"
                " such as one of elastic.evaluate"
            )
