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
from typing import NamedTuple, Protocol

from edl.errors import ConfigError, EdlError, PermanentError
from edl.worker.group import StepGroup, World

_SAVE_WAIT_S, _SAVE_TIMEOUT_S = 0.02, 30.0
_LOSE_LESS = "to lose less, set EDL_CHECKPOINTS to a folder that all trainers see"
_log = logging.getLogger(__name__)


class PeerLostError(EdlError):
    """A collective failed because another trainer of the world is gone."""


class DivergedError(PermanentError):
    """The trainers have different models: the job must not go on with any of them."""


class Piece(NamedTuple):
    """Some neighbouring positions of a step, which one trainer computes together.

    Attributes:
        epoch: of the positions.
        start, end: half-open, within the epoch.
        slot: the place of the piece in the order in which gradients are summed.
        weight: the part of the step's records that the piece has, in (0, 1].
    """

    epoch: int
    start: int
    end: int
    slot: int
    weight: float


class StepDone(NamedTuple):
    """A step that every trainer of the world has applied, and that nobody knows of yet.

    Attributes:
        start, end: counted through all epochs, half-open.
    """

    start: int
    end: int


class Flags(NamedTuple):
    """What every trainer adds to the sum of a step: 0 or 1 each; the sum counts trainers.

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
            world: that has formed.
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

    def begin_step(self) -> None:
        """Forget every gradient."""

    def begin_piece(self, step: int, piece: Piece) -> None:
        """The loop now computes the gradient of a piece."""

    def end_piece(self, piece: Piece) -> None:
        """The loop has computed the gradient of a piece: the mean over its records."""

    def end_step(self, flags: Flags) -> Flags:
        """Sum gradients and flags over the trainers, and apply the step; a sum that fails changes nothing.

        Raises:
            PeerLostError: a trainer is gone.
            DivergedError: the trainers have different models.
        """

    def scale_rate(self, factor: float) -> None:
        """Set the learning rate to its first value times a factor."""

    def save(self, checkpoint: int) -> None:
        """Save the state under that number.

        Raises:
            PermanentError: it cannot be saved; training goes on.
        """

    def committed(self, checkpoint: int) -> None:
        """Training would return to that checkpoint from now on, and to no older one."""

    def load(self, checkpoint: int) -> None:
        """Load the state that was saved under that number."""


@dataclass(frozen=True)
class StepSettings:
    """How a job trains in step.

    Attributes:
        total: records of an epoch.
        epochs: how often to train on each record.
        global_batch: records of a step; None gives each trainer `micro_batch` records in each step.
        micro_batch: the most records of a piece; None for no limit.
        logical_ranks: into how many parts a step is always divided, however many trainers there are; 0 divides it
            by the number of trainers.
        save_every: save the model after so many steps of an epoch, and at the end of the job; 0 for never, None for
            the end of each epoch.
        scale_rate: without a global batch, multiply the learning rate by the number of trainers.

    Raises:
        ConfigError: the values contradict each other.
    """

    total: int
    epochs: int = 1
    global_batch: int | None = None
    micro_batch: int | None = None
    logical_ranks: int = 0
    save_every: int | None = 0
    scale_rate: bool = False

    def __post_init__(self) -> None:
        if self.global_batch is None and self.micro_batch is None:
            raise ConfigError(
                "steps: neither global_batch nor micro_batch is given, so the size of a step is not known; set"
                " spec.elasticity.globalBatch in the job, or EDL_GLOBAL_BATCH, or pass micro_batch= for a step that"
                " grows with the trainers"
            )
        if any(size is not None and size < 1 for size in (self.global_batch, self.micro_batch)):
            raise ConfigError("steps: global_batch and micro_batch must be at least 1")
        if self.global_batch is None and self.logical_ranks:
            raise ConfigError("steps: a deterministic job needs global_batch; set spec.elasticity.globalBatch")
        if self.global_batch is not None and self.scale_rate:
            raise ConfigError("steps: scale_rate is only for jobs without global_batch, whose batch grows")

    @property
    def division(self) -> str:
        """What all trainers of a job must have in common."""
        batch = f"global_batch={self.global_batch} micro_batch={self.micro_batch}"
        return f"{batch} logical_ranks={self.logical_ranks}"

    @property
    def end(self) -> int:
        """The position at which the job ends."""
        return self.total * self.epochs

    def step_end(self, position: int, size: int) -> int:
        """Where the step that begins at a position ends, with that many trainers; no step crosses an epoch."""
        batch = self.global_batch if self.global_batch is not None else (self.micro_batch or 1) * size
        return min(position + batch, (position // self.total + 1) * self.total)

    def is_saved_after(self, position: int, size: int) -> bool:
        """True if the model is saved after the step that begins at a position."""
        if self.save_every is None:
            return self.step_end(position, size) % self.total == 0
        if not self.save_every:
            return False
        start = position % self.total
        length = self.step_end(position - start, size) - (position - start)
        return (start // length + 1) % self.save_every == 0 or self.step_end(position, size) == self.end

    def pieces(self, position: int, rank: int, size: int) -> list[Piece]:
        """What a trainer computes in the step that begins at a position."""
        end = self.step_end(position, size)
        epoch, start = divmod(position, self.total)
        count = end - position
        parts = self.logical_ranks or size
        found = []
        for part in parts_of(parts, rank, size):
            low, high = part * count // parts, (part + 1) * count // parts
            most = self.micro_batch or max(1, count)
            for first in range(low, high, most):
                last = min(first + most, high)
                found.append(Piece(epoch, start + first, start + last, part, (last - first) / count))
        return found


def parts_of(parts: int, rank: int, size: int) -> range:
    """The parts of a step that a trainer computes: neighbouring ones, so that their order is that of the ranks.

    Args:
        parts: of a step, at least 0.
        rank: of the trainer, in `[0, size)`.
        size: how many trainers there are.
    """
    return range(math.ceil(rank * parts / size), math.ceil((rank + 1) * parts / size))


@dataclass
class StepCounts:
    """What the loop of one trainer has done.

    Attributes:
        steps: applied by this trainer.
        worlds: that it was in.
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
        must_stop: set it to end the training with the next step, in all trainers.
        is_stopped: a trainer has ended it.
        was_left: the caller has left `events` before they ended.
        counts: for people and measurements.
        on_step: called after each step that this trainer has applied: its first position, its end, its world.
    """

    def __init__(
        self,
        group: StepGroup,
        replica: Replica,
        settings: StepSettings,
        is_leaving: Callable[[], bool],
        save: Callable[[int, Callable[[int], None]], int],
    ) -> None:
        self._group, self._replica, self.settings = group, replica, settings
        self._is_leaving, self._save_at_master = is_leaving, save
        self.position: int | None = None
        self._has_trained = self._is_connected = False
        self.must_stop = self.is_stopped = self.was_left = False
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
            EdlError: the master refuses this trainer.
            PermanentError: the state of the model is lost, and this process has trained already.
        """
        try:
            yield from self._events()
        except GeneratorExit:
            self.was_left = not self.is_stopped
            raise

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
            if world.must_copy and world.size > 1:
                self._replica.copy_state(world)
        except PeerLostError as error:
            self._give_up(world, error)
            return False
        self.position = world.position
        self._group.report(self.position, now=world.must_copy)
        self._replica.scale_rate(float(world.size) if self.settings.scale_rate else 1.0)
        return True

    def _begin_anew(self, world: World) -> None:
        """Training begins at the first record, with the model of this process: it must be a new one."""
        if self._has_trained:
            raise PermanentError(
                "steps: every trainer with the state of the model is gone and there is no checkpoint, so training"
                " begins again at the first record with a new model, and that of this process is not new; start this"
                f" process again; {_LOSE_LESS}"
            )
        if world.generation > 1:
            _log.warning(
                "world %d has no trainer with a trained model, and there is no checkpoint: training begins at the"
                " first record with a new model, and steps that were made before are made again; %s",
                world.generation,
                _LOSE_LESS,
            )

    def _train(self, world: World) -> Generator[Piece | StepDone, None, bool]:
        """Train until the world ends; the generator returns True if this trainer leaves."""
        while (start := self.position) is not None and start < self.settings.end:
            yield from self._compute(world, start)
            leaves = self._is_leaving()
            flags = self._make_step(world, start, leaves=leaves)
            if flags is None:
                return False
            yield StepDone(start, self.settings.step_end(start, world.size))
            if flags.stop:
                self._end_early(world)
                return True
            is_empty = flags.leaving >= world.size  # nobody is left to copy the state from
            self._report(world, must_save=is_empty or self.settings.is_saved_after(start, world.size))
            if leaves:
                return True
            if flags.must_change or flags.leaving:
                return False
        return False

    def _compute(self, world: World, start: int) -> Generator[Piece, None, None]:
        """The gradients of this trainer's pieces of a step."""
        self._replica.begin_step()
        pieces = self.settings.pieces(start, world.rank, world.size)
        for piece in pieces:
            self._replica.begin_piece(start, piece)
            try:
                yield piece
            except GeneratorExit:
                if self.must_stop and piece is pieces[-1]:  # the caller has ended the training, and goes
                    self._replica.end_piece(piece)
                    if self._make_step(world, start, leaves=False) is not None:
                        self._end_early(world)
                        self._group.leave()
                        self._disconnect()
                raise
            self._replica.end_piece(piece)

    def _make_step(self, world: World, start: int, *, leaves: bool) -> Flags | None:
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
            self._group.stop(start, str(error))
            raise
        self.position, self._has_trained = self.settings.step_end(start, world.size), True
        self.counts.steps += 1
        self.on_step(start, self.position, world)
        return flags

    def _end_early(self, world: World) -> None:
        """The training ends here: save the model, and tell the master that no more records are wanted."""
        self.is_stopped = True
        self._report(world, must_save=self.settings.save_every != 0)
        self._group.stop(self.position or 0)

    def _report(self, world: World, *, must_save: bool) -> None:
        """Report the position; rank 0 saves the model if it must be saved now."""
        position = self.position or 0
        self._group.report(position, now=must_save)
        if not must_save or world.rank != 0:
            return
        until_s = time.monotonic() + _SAVE_TIMEOUT_S
        while self._group.report(position, now=True) < position:  # the others have to report this step first
            if time.monotonic() > until_s:
                _log.warning("position %d is not saved: another trainer does not report it", position)
                return
            time.sleep(_SAVE_WAIT_S)
        try:
            self._replica.committed(self._save_at_master(position, self._replica.save))
        except PermanentError as error:  # no room, or this trainer was given up and the others have gone on
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
    return PermanentError(
        f"steps: the loop was left at position {loop.position or 0} of {loop.settings.end}, so this trainer has no"
        " complete model, none is saved, and the other trainers go on without it; to end the training early in all"
        " trainers, with the model saved, call elastic.stop() before you leave the loop"
    )
