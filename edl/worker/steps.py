"""Training in step: each optimizer step has the same records, however many trainers compute its gradient.

A step is the next `global_batch` positions of the epoch's order. Each trainer computes the gradient of its share, in
pieces of at most `micro_batch` records. Then the gradients are summed over all trainers, and every trainer applies
the same step. The sum carries two more numbers, so all trainers agree without another message whether this step is
the last one of their world: a trainer wants to leave, or somebody waits at the master.

If a collective fails, because a trainer was killed, the others discard the step that they have not applied, and the
master forms the next world from them. A trainer that did apply it is the source from which the others copy.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from edl.errors import EdlError, PermanentError
from edl.worker.group import StepGroup, World
from edl.worker.siblings import SharedGroup
from edl.worker.step_settings import Piece, StepPlan, StepSettings

_LOSE_LESS = "to lose less, set EDL_CHECKPOINTS to a folder that all trainers see"
_TELL_EVERY_S = 5.0
_log = logging.getLogger(__name__)


class PeerLostError(EdlError):
    """A collective failed because another trainer of the world is gone."""


class DivergedError(PermanentError):
    """The trainers have different models: the job must not go on with any of them."""


class StepDone(NamedTuple):
    """A step that every trainer of the world has applied, to be reported to the master.

    Attributes:
        start, end: counted through all epochs, half-open.
    """

    start: int
    end: int


class Flags(NamedTuple):
    """Flags that every trainer adds to the sum of a step, 0 or 1 each; the sum counts trainers.

    Attributes:
        must_change: the master wants another world.
        leaving: the trainer leaves after this step.
        stop: the training ends with this step, in all trainers.
    """

    must_change: float
    leaving: float
    stop: float = 0.0


class Replica(Protocol):
    """A model, its optimizer, and its connections to the other trainers; one for each framework."""

    def connect(self, world: World, is_broken: Callable[[], bool]) -> None:
        """Build the connections of a world.

        Args:
            world: the world that has formed.
            is_broken: True once the master knows that a trainer of it is gone.

        Raises:
            PeerLostError: a trainer is gone.
        """

    def disconnect(self) -> None:
        """Close the connections; a collective of a peer that is under way fails."""

    def copy_state(self, world: World) -> None:
        """Copy the state of the holders of a world to its other trainers; a copy that fails changes nothing.

        Raises:
            PeerLostError: a trainer is gone.
        """

    def next_batch(self) -> int | None:
        """The global batch of the next step in records, on which all trainers agree.

        None for that of the settings.
        """

    def begin_step(self, plan: StepPlan) -> None:
        """Forget every gradient, because the records of a new step follow."""

    def begin_piece(self, step: int, piece: Piece) -> None:
        """Prepare for a piece (part of a step): the loop is about to compute its gradient."""

    def end_piece(self, piece: Piece) -> None:
        """Add the gradient of a piece to that of the step.

        The loop has computed it as the mean over the piece's records.
        """

    def end_step(self, flags: Flags) -> Flags:
        """Sum gradients and flags over the trainers, and apply the step; a sum that fails changes nothing.

        Raises:
            PeerLostError: a trainer is gone.
            DivergedError: the trainers have different models.
        """

    def begin_anew(self) -> None:
        """Begin the job with the model of this process: nothing is trained or saved yet.

        Raises:
            PermanentError: what is saved belongs to another training.
        """

    def goodput(self) -> dict[str, Any] | None:
        """Return the global batch, and the goodput by number of trainers; None if the job has one batch size only."""

    def save(self, checkpoint: int) -> None:
        """Save the state of the training as the checkpoint with a number.

        Raises:
            PermanentError: it cannot be saved; training goes on.
        """

    def committed(self, checkpoint: int) -> None:
        """Note that training would restart from that checkpoint, and from no older one; older ones may be deleted."""

    def load(self, checkpoint: int) -> None:
        """Load the state that was saved under that number."""


@dataclass
class StepCounts:
    """The counts of the loop of one trainer.

    Attributes:
        steps: applied by this trainer.
        worlds: the worlds that it was in.
        lost: collectives that failed.
        waited_s: seconds from the end of the last step of a world to the beginning of the next one's first step.
    """

    steps: int = 0
    worlds: int = 0
    lost: int = 0
    waited_s: float = 0.0


class StepLoop:
    """The loop of one trainer.

    Args:
        group: its place at the master.
        replica: its model.
        settings: how the job trains.
        is_leaving: True once this trainer should leave.
        save: saves the model of a step at the master: it gets the number of the step and what saves it, and returns
            the number of the checkpoint.

    Attributes:
        position: how far the model is, None without a state.
        batch: the batch of the step under way; None for that of the settings.
        must_stop: set it to end the training with the next step, in all trainers.
        must_end: set it after a step to end the training with that one; all trainers decide alike.
        is_stopped: a trainer has ended it.
        is_under_way: `events` has begun and has not come to its end; the caller may have left it.
        counts: for people and measurements.
        on_step: called after each step that this trainer has applied: its first position, its end, its world.
    """

    def __init__(
        self,
        group: StepGroup | SharedGroup,
        replica: Replica,
        settings: StepSettings,
        is_leaving: Callable[[], bool],
        save: Callable[[int, Callable[[int], None]], int],
    ) -> None:
        self._group, self._replica, self.settings = group, replica, settings
        self._is_leaving, self._save_at_master = is_leaving, save
        self.position: int | None = None
        self.batch: int | None = None
        self._told_s = -math.inf
        self._has_trained = self._is_connected = False
        self.must_stop = self.must_end = self.is_stopped = self.is_under_way = False
        self.counts = StepCounts()
        self.on_step: Callable[[int, int, World], None] = lambda _start, _end, _world: None

    @property
    def is_complete(self) -> bool:
        """True if the model of this trainer has had every step; false if it left, or came after the end."""
        return self.position == self.settings.end or self.is_stopped

    def pieces(self) -> Generator[Piece, None, None]:
        """The pieces of this trainer; the loop has computed the gradient of one when it asks for the next."""
        for event in self.events():
            if isinstance(event, Piece):
                yield event

    def events(self) -> Generator[Piece | StepDone, None, None]:
        """The pieces of this trainer, and after those of each step that the step is done.

        What the caller changes after a step, before it asks for the next event, belongs to the state that trainers
        copy and save. Ends when the job has ended, or when this trainer has left.

        Raises:
            EdlError: the master rejects this trainer.
            PermanentError: the state of the model is lost, and this process has trained already.
        """
        self.is_under_way = True
        yield from self._events()
        self.is_under_way = False

    def _events(self) -> Generator[Piece | StepDone, None, None]:
        since_s = time.monotonic()
        while (world := self._group.enter(self.position, self._is_leaving)) is not None:
            if not self._begin(world):
                continue
            self.counts.waited_s += time.monotonic() - since_s
            is_last = yield from self._train(world)
            since_s = time.monotonic()
            if is_last:
                self._group.leave()
                break
        self._disconnect()

    def _begin(self, world: World) -> bool:
        """Connect to the trainers of a world and take over its state; False if one of them is gone."""
        self.counts.worlds += 1
        if not world.has_state:
            self.position = None
        if world.checkpoint == 0 and world.rank == world.source:
            self._begin_anew(world)
        try:
            self._disconnect()
            self._is_connected = True
            self._replica.connect(world, lambda: self._group.is_broken)
            if world.checkpoint and world.rank == world.source:
                self._replica.load(world.checkpoint)
            if world.must_copy:
                self._replica.copy_state(world)
        except PeerLostError as error:
            self._give_up(world, error)
            return False
        self.position = world.position
        self._group.report(self.position, now=world.must_copy)
        return True

    def _begin_anew(self, world: World) -> None:
        """Training begins at the first record, with the model of this process: it must be a new one."""
        if self._has_trained:
            raise PermanentError(
                "steps: every trainer with the state of the model is gone and there is no checkpoint, so training"
                " begins again at the first record with a new model, and that of this process is not new; start this"
                f" process again; {_LOSE_LESS}"
            )
        if world.generation == 1:
            self._replica.begin_anew()
        else:
            _log.warning(
                "world %d has no trainer with a trained model, and there is no checkpoint: training begins at the"
                " first record with a new model, and steps that were made before are made again; %s",
                world.generation,
                _LOSE_LESS,
            )

    def _train(self, world: World) -> Generator[Piece | StepDone, None, bool]:
        """Train until the world ends; the generator returns True if this trainer leaves."""
        while (start := self.position) is not None and start < self.settings.end:
            self.batch = self._replica.next_batch()
            plan = self.settings.plan(start, world.size, self.batch)
            yield from self._compute(world, plan)
            leaves = self._is_leaving()
            flags = self._make_step(world, plan, leaves=leaves)
            if flags is None:
                return False
            yield StepDone(start, plan.end)
            if flags.stop or self.must_end:
                self._end_early(world)
                return True
            is_empty = flags.leaving >= world.size  # nobody is left to copy the state from
            self._report(world, must_save=is_empty or self.settings.is_saved_after(plan))
            if leaves:
                return True
            if flags.must_change or flags.leaving:
                return False
        return False

    def _compute(self, world: World, plan: StepPlan) -> Generator[Piece, None, None]:
        """The gradients of this trainer's pieces of a step."""
        self._replica.begin_step(plan)
        pieces = self.settings.pieces(plan.start, world.rank, world.size, self.batch)
        for piece in pieces:
            self._replica.begin_piece(plan.start, piece)
            try:
                yield piece
            except GeneratorExit:
                if self.must_stop and piece is pieces[-1]:  # the caller has ended the training, and goes
                    self._replica.end_piece(piece)
                    if self._make_step(world, plan, leaves=False) is not None:
                        self._end_early(world)
                        self._group.leave()
                        self._disconnect()
                raise
            self._replica.end_piece(piece)

    def _make_step(self, world: World, plan: StepPlan, *, leaves: bool) -> Flags | None:
        """Make a step with all trainers; None if one of them is lost.

        Raises:
            DivergedError: the trainers have different models; no trainer goes on with the job.
        """
        wanted = Flags(float(self._group.must_change), float(leaves), float(self.must_stop))
        try:
            flags = self._replica.end_step(wanted)
        except PeerLostError as error:
            self._give_up(world, error)
            return None
        except DivergedError as error:
            self._group.stop(plan.start, str(error))
            raise
        self.position, self._has_trained = plan.end, True
        self.counts.steps += 1
        self.on_step(plan.start, plan.end, world)
        return flags

    def _end_early(self, world: World) -> None:
        """The training ends here: save the model, and tell the master that no more records are wanted."""
        self.is_stopped = True
        self._report(world, must_save=self.settings.save_every != 0)
        self._group.stop(self.position or 0)

    def _report(self, world: World, *, must_save: bool) -> None:
        """Report the position; rank 0 saves the model if it must be saved now."""
        position = self.position or 0
        if world.rank == 0 and time.monotonic() - self._told_s > _TELL_EVERY_S:
            self._told_s = time.monotonic()
            self._group.tell(self._replica.goodput())
        self._group.report(position, now=must_save)
        if not must_save or world.rank != 0:
            return
        if not self._group.wait_until_done(position):  # the others have to report this step first
            _log.warning("position %d is not saved: another trainer does not report it", position)
            return
        try:
            self._replica.committed(self._save_at_master(position, self._replica.save))
        except PermanentError as error:  # a full disk, or the others have gone on without this trainer
            _log.warning("position %d is not saved: %s", position, error)

    def _give_up(self, world: World, error: PeerLostError) -> None:
        self.counts.lost += 1
        _log.warning(
            "a trainer was lost; the step is repeated, unless another trainer has made it: world %d of %d trainers"
            " ends early (%s)",
            world.generation,
            world.size,
            error,
        )
        self._disconnect()

    def _disconnect(self) -> None:
        if self._is_connected:
            self._is_connected = False
            self._replica.disconnect()


def left_early(loop: StepLoop) -> PermanentError:
    """The error of a script that has left its loop by `break` or `return` before the training ended."""
    if loop.must_stop:
        return PermanentError(
            f"steps: the loop called elastic.stop() and was left at position {loop.position or 0} before it had all"
            " batches of that step (micro_batch), so the step is not made; let the loop go on until it ends"
        )
    return PermanentError(
        f"steps: the loop was left at position {loop.position or 0} of {loop.settings.end}, so this trainer has no"
        " complete model, none is saved, and the other trainers go on without it; to end the training early in all"
        " trainers, with the model saved, call elastic.stop() before you leave the loop"
    )
