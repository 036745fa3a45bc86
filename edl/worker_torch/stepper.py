"""Supports scripts that call `optimizer.step()` themselves: the call makes a step in all trainers at once.

A batch is a part of a step of the job. If the script asks for the next batch without a step, the gradients of the
batch are summed over the trainers and carried to the next one: gradients are accumulated as in one process. What a
script does after a step and before its next batch, also between two epochs, belongs to the state that trainers copy
and save. A step that is lost with a trainer is not made: the script gets the records again, as another batch.
"""

from __future__ import annotations

import functools
import logging
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from edl.errors import ConfigError, PermanentError
from edl.worker.job import Job
from edl.worker.step_settings import Piece
from edl.worker.steps import StepDone
from edl.worker_torch.elastic import Elastic
from edl.worker_torch.replica import DROP, STEP

LEFT = 143
"""The exit code of a trainer that left after SIGTERM."""
_log = logging.getLogger(__name__)


class Stepper:
    """Drives an `Elastic` from the calls of a script.

    Args:
        job: connected; the stepper closes it at the end of the training.
        elastic: made for the optimizer.
        optimizer: whose `step` and `zero_grad` become those of this class.

    Attributes:
        was_lost: the last step was not made, because a trainer was lost.
        is_partial: the calls of `step` are ignored, because more batches of the same step come.
        first_epoch: the first epoch of the job, in which this trainer began; None before its first batch.
    """

    def __init__(self, job: Job, elastic: Elastic, optimizer: Any) -> None:
        self._job, self._elastic, self._replica = job, elastic, elastic.replica
        if elastic.replica.processes.size > 1:
            raise ConfigError(
                f"Elastic: this trainer has {elastic.replica.processes.size} processes (torchrun), and scripts that"
                " call optimizer.step() train with one process in each pod; start one, or write the loop with Elastic"
            )
        if elastic.loop.settings.is_ranged:
            raise ConfigError(
                f"Elastic: the global batch of the job may be {elastic.loop.settings.global_batch} to"
                f" {elastic.loop.settings.largest_batch}, and scripts that call optimizer.step() count steps of one"
                " size; remove spec.elasticity.maxGlobalBatch, or give one batch by global_batch=, or write the loop"
                " with Elastic"
            )
        self._events = self._in_job()
        self._piece: Piece | None = None
        self._coming: tuple[Piece, Any] | None = None
        self._has_epoch_ended = self._has_ended = self._must_zero = False
        self.first_epoch: int | None = None
        self._epochs = 0
        self.was_lost = self.is_partial = self._is_made = False
        model = elastic.replica.state.model
        model.zero_grad = types.MethodType(_zeroing(self, model), model)
        self._step = optimizer.step
        optimizer.step = types.MethodType(_stepping(self), optimizer)
        optimizer.zero_grad = self.zero_grad

    @property
    def is_last(self) -> bool:
        """True if the current batch is the last one of its step in this trainer."""
        loop, world = self._elastic.loop, self._job.world()
        if self._piece is None or world is None or loop.position is None:
            return True
        return loop.settings.pieces(loop.position, world.rank, world.size)[-1] == self._piece

    def epoch(self) -> Iterator[Any]:
        """The batches of this trainer until the end of an epoch; none after the end of the job.

        A trainer that came late begins with the epoch of the others.

        Raises:
            PermanentError: the script asks for more epochs than the job has.
        """
        self._epochs += 1
        self._has_epoch_ended = False
        total = self._elastic.loop.settings.epochs
        if self._has_ended and self.first_epoch == 0 and self._epochs == total + 1:
            raise PermanentError(
                f"steps: the script asks for epoch {self._epochs}, but the job has {total} epochs and has ended with"
                " the model saved; set spec.dataset.epochs to the epochs of the script, or the other way round"
            )
        while (batch := self.next()) is not None:
            yield batch

    def next(self) -> Any:
        """The next batch; None at the end of an epoch, and at the end of the job."""
        while not self._has_epoch_ended and not self._has_ended:
            found, self._coming = self._coming, None
            if found is None:
                if self._piece is not None:
                    self._replica.action &= DROP
                event = self._advance()
                found = None if event is None or isinstance(event, StepDone) else event
            if found is not None:
                self._piece = found[0]
                if self.first_epoch is None:
                    self.first_epoch = found[0].epoch
                self._replica.action = 0
                return found[1]
        return None

    @property
    def may_schedule(self) -> bool:
        """True if a scheduler of learning rates may step now: a step was made, or an epoch has ended."""
        return not self.was_lost and not self.is_partial and (not self._has_ended or self._elastic.is_complete)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make the step of which the script has computed the gradients, with all trainers.

        Raises:
            PermanentError: the gradients of the step before were not forgotten, or the step has more batches.
        """
        if self._replica.is_stepping:
            return self._step(closure) if closure is not None else self._step()
        if self._is_made:
            self._is_made = False
            return None
        if self._piece is None and not self._has_ended:
            return self._step(closure) if closure is not None else self._step()
        found = closure() if closure is not None else None
        if not self._has_ended and not self.is_partial:
            self.make_step()
        return found

    def step_ahead(self) -> None:
        """Make the step before the script calls `step`, whose next call then does nothing."""
        if not self._has_ended and self._piece is not None:
            self.make_step()
            self._is_made = True

    def make_step(self) -> None:
        """Make a step as `step` does, without a closure."""
        if self._must_zero:
            raise PermanentError(
                "steps: the script calls optimizer.step() twice without zero_grad() between, so gradients would be"
                " added up over all steps; call optimizer.zero_grad() after each step"
            )
        if not self.is_last:
            raise PermanentError(
                "steps: the script calls optimizer.step() before it had all batches of the step; wrap the body of the"
                " loop in `with accelerator.accumulate(model):`, or leave micro_batch= and"
                " gradient_accumulation_steps= away"
            )
        self._replica.action |= STEP
        event = self._advance()
        self.was_lost = not isinstance(event, StepDone)
        self._must_zero = not self.was_lost
        if event is not None and not isinstance(event, StepDone):
            self._coming = event  # the records of the step that was lost

    def end(self) -> None:
        """End the training in all trainers because the script stops: the model is complete as it is, and is saved."""
        if self._has_ended or self._elastic.loop.position is None or self._job.leaving():
            return
        self._elastic.loop.must_end, self._replica.action = True, 0
        while self._advance() is not None:
            pass  # what the script had of the next step is not trained on

    def zero_grad(self, *_: Any, **__: Any) -> None:
        """Forget the gradients of this batch, and those carried over from the batches before."""
        self._must_zero = False
        if self._piece is not None and not self.is_partial:
            self._replica.action |= DROP
        if not self.is_partial:
            self._replica.forget_gradients()

    def _advance(self) -> tuple[Piece, Any] | StepDone | None:
        self._piece = None
        event = next(self._events, None)
        if event is None:
            self._has_ended = True
        elif isinstance(event, StepDone):
            settings = self._elastic.loop.settings
            self._has_epoch_ended = event.end % settings.total == 0
            if event.end == settings.end:  # the script may ask for no batch any more
                self._has_ended = next(self._events, None) is None
        return event

    def _in_job(self) -> Iterator[tuple[Piece, Any] | StepDone]:
        with self._job, self._replica.guard.during_loop(has_own_steps=True):
            try:
                yield from self._elastic.events()
            except GeneratorExit:
                if text := self.left_early():
                    _log.error("%s", text)
                raise
            if self._job.leaving():
                sys.exit(LEFT)

    def left_early(self) -> str:
        """The error to raise if the script ends now.

        Empty if the training is complete, or the script has an error anyway.
        """
        loop = self._elastic.loop
        if loop.position is None or loop.is_complete or self._job.is_closed or self._job.leaving():
            return ""
        done, epochs = divmod(loop.position, loop.settings.total)[0], loop.settings.epochs
        return (
            f"steps: the script has ended after {done} of the {epochs} epochs of the job, so its model is incomplete;"
            f" let the script train {epochs} epochs, or set spec.dataset.epochs to {done}"
        )


class Scheduler:
    """A scheduler of learning rates whose steps are ignored where the optimizer has made none.

    Args:
        inner: torch's.
        stepper: knows the steps.
    """

    def __init__(self, inner: Any, stepper: Stepper) -> None:
        self._inner, self._stepper = inner, stepper

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def step(self, *args: Any, **options: Any) -> None:
        """Make a step of the scheduler, unless the step of the optimizer was lost or is not complete."""
        if self._stepper.may_schedule:
            self._inner.step(*args, **options)


def _zeroing(stepper: Stepper, model: Any) -> Callable[..., None]:
    """Make a replacement for the method `zero_grad` of a model.

    Copies of the model still clear their own gradients.
    """
    inner = model.zero_grad.__func__

    @functools.wraps(inner)
    def zero_grad(module: Any, *args: Any, **options: Any) -> None:
        if module is model:
            stepper.zero_grad()
        inner(module, *args, **options)

    return zero_grad


def _stepping(stepper: Stepper) -> Callable[..., Any]:
    """Make a replacement for the method `step` of an optimizer, with the attributes that schedulers expect."""

    def step(optimizer: Any, closure: Callable[[], Any] | None = None) -> Any:
        optimizer._opt_called = True  # noqa: SLF001 - as the wrapper of a scheduler does
        return stepper.step(closure)

    vars(step)["_wrapped_by_lr_sched"] = True  # what a scheduler looks for
    return step
