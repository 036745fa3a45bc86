"""A PyTorch model that trains in step with other trainers, while trainers come and go.

    from edl.worker import connect
    from edl.worker_torch import Elastic
    with connect() as job:
        elastic = Elastic(job, model, optimizer, read=dataset.__getitem__, global_batch=256)
        for x, y in elastic.batches():
            loss_function(model(x), y).backward()

The loop computes gradients; `batches` does everything else: when the loop asks for the next batch of a step, the
gradients of the last one are added up, and after the last batch they are summed over the trainers and the optimizer
makes its step. The loss must be the mean over the records of its batch. If a trainer is lost in the middle of a step,
the loop gets the records of that step again, with the share that is now its own.

What uses the model after the loop belongs behind `if elastic.is_complete:`. A trainer that left, or that came after
the end, has no trained model.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

from edl.errors import ConfigError
from edl.worker.data import Reader
from edl.worker.job import Job
from edl.worker.model_folder import KEPT, ModelFolder
from edl.worker.steps import Piece, StepLoop
from edl.worker_torch.loader import Collate
from edl.worker_torch.replica import TorchReplica

try:
    from torch import nn, optim
    from torch.utils.data import default_collate
except ImportError as error:
    raise ConfigError(
        "edl.worker_torch needs the package torch, which is not installed here; run pip install torch"
    ) from error


class Elastic:
    """Trains a model in step with the other trainers of the job.

    Args:
        job: connected.
        model: in training mode; every trainer builds the same one. Buffers such as those of batch normalisation are
            not summed: use layer or group normalisation.
        optimizer: of the parameters of the model. `step` and `zero_grad` are called here; the loop may not call them.
        read: turns a number, a line or a row into a sample; by default the record is unchanged.
        collate: turns a list of samples into a batch.
        global_batch: records of an optimizer step, however many trainers there are; by default
            spec.elasticity.globalBatch.
        micro_batch: the most records of a batch; a trainer with a larger share gets more batches in a step. Without
            a global batch each trainer has one batch of this size in each step.
        deterministic: divide each step into that many parts, whatever the number of trainers, and sum their
            gradients in their order; the weights then do not depend on the number of trainers. By default 0, or
            `max-instance` if spec.elasticity.deterministic is set.
        scheduler: a learning-rate scheduler, which makes a step after each step of the optimizer; not in the loop.
        max_grad_norm: clip the gradient of a step to this norm, once it is summed over all trainers, as
            `torch.nn.utils.clip_grad_norm_` does; None does not clip.
        scale_rate: without a global batch, multiply the learning rate by the number of trainers.
        folder: for checkpoints and for the trained model, `model.pt`; all trainers must see the same folder, such as
            a volume, and each job needs its own. By default EDL_CHECKPOINTS; without either, no model is saved.
        save_every: save a checkpoint after so many steps of an epoch, and at the end; 0 saves only if all trainers
            leave. By default at the end of each epoch, if there is a folder.
        keep: how many of the last checkpoints stay; older ones in the folder are deleted. 0 deletes none.
        timeout_s: a collective fails after this many seconds, if no trainer of the world has ended before. It should
            be longer than a checkpoint takes.
        host: an address of this trainer that the others can reach; by default POD_IP.

    Raises:
        ConfigError: a value is missing, or the values contradict each other.

    Attributes:
        loop: what counts steps and worlds.
    """

    def __init__(
        self,
        job: Job,
        model: nn.Module,
        optimizer: optim.Optimizer,
        *,
        read: Reader | None = None,
        collate: Collate = default_collate,
        global_batch: int | None = None,
        micro_batch: int | None = None,
        deterministic: int | None = None,
        scheduler: Any = None,  # noqa: ANN401 - any learning-rate scheduler
        max_grad_norm: float | None = None,
        scale_rate: bool = False,
        folder: str | os.PathLike[str] | None = None,
        save_every: int | None = None,
        keep: int = KEPT,
        timeout_s: float = 30.0,
        host: str | None = None,
    ) -> None:
        place = folder or os.environ.get("EDL_CHECKPOINTS", "")
        if save_every and not place:
            raise ConfigError(
                "Elastic: save_every needs a folder that all trainers see; pass folder=, or set EDL_CHECKPOINTS"
            )
        self._job, self._read, self._collate = job, read, collate
        self._replica = TorchReplica(
            model,
            optimizer,
            scheduler=scheduler,
            folder=ModelFolder(Path(place) if place else None, keep),
            host=host or os.environ.get("POD_IP", ""),
            timeout_s=timeout_s,
        )
        self.loop: StepLoop = job.steps(
            self._replica,
            self._replica.endpoint,
            global_batch=global_batch,
            micro_batch=micro_batch,
            logical_ranks=deterministic,
            save_every=save_every if place else 0,
            scale_rate=scale_rate,
        )
        self._replica.logical_ranks = self.loop.settings.logical_ranks
        if max_grad_norm is not None:
            self.clip_grad_norm(max_grad_norm)

    def clip_grad_norm(self, max_norm: float) -> Any:  # noqa: ANN401 - a tensor
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

    @property
    def parameters(self) -> list[Any]:
        """Those that the optimizer has."""
        return self._replica.parameters

    @property
    def is_complete(self) -> bool:
        """True if the model has had every step of the job; false if this trainer left, or came after the end."""
        return self.loop.is_complete

    def batches(self) -> Generator[Any, None, None]:
        """The batches of this trainer, until the job has ended or this trainer has left after SIGTERM.

        After the last step of the job the trained model is in the folder.

        Raises:
            PermanentError: a record cannot be read, the master refuses this trainer, the model is lost, it cannot be
                written, or the loop itself calls `step` or `zero_grad`.
        """
        for _, batch in self.pieces():
            yield batch

    def pieces(self) -> Generator[tuple[Piece, Any], None, None]:
        """The same with the piece of a step that each batch is."""
        with self._replica.guard.during_loop():
            for piece in self.loop.pieces():
                yield piece, self._collate(self._job.piece(piece, self._read))
        if self.is_complete:
            self._replica.save_model()
