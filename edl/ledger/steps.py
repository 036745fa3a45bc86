"""Training in step: all trainers of a world take part in each optimizer step, and commit it together.

A world is the trainers of one generation, in the order of their ranks. Step by step they train on neighbouring
positions of the epoch's order, so one number says what a model was trained on: its position, epoch * total + position
in the epoch. The steps that every trainer of the world has applied count as done.
"""

from __future__ import annotations

from collections.abc import Sequence

from edl.errors import ConflictError
from edl.ledger.checkpoints import CheckpointLedger
from edl.ledger.entries import TrainerSession
from edl.ledger.events import StepsDone, TrainingStopped, WorldFormed
from edl.ledger.request import SessionKey


class StepLedger(CheckpointLedger):
    """The part of a ledger that counts steps."""

    @property
    def position(self) -> int:
        """The first position that is not done, counted through all epochs; 0 without a data set."""
        return self.state.done_position

    def step_session(self, key: SessionKey, now_s: float) -> TrainerSession:
        """The session of a trainer that trains in step; the call counts as its heartbeat.

        Raises:
            ConflictError: a newer process has replaced the session, or trainers of this job lease ranges.
        """
        session, state = self._session(key), self.state
        is_mixed = state.leases or state.suspects or state.quarantined or len(state.todo) > 1
        if is_mixed or (state.todo and state.todo.first()[1] != state.total):
            raise ConflictError(
                f"session {key.name}: trainers of this job have leased ranges, and a job cannot mix both; either all"
                " trainers use records() and batches(), or all train in step"
            )
        self._renew(session, now_s)
        return session

    def may_train(self, session: TrainerSession) -> bool:
        """Return True if the roster has the pod of a session, and no newer process of the pod has replaced it."""
        return self._is_on_roster(session) and not session.is_replaced

    def form_world(self, sessions: Sequence[int], positions: Sequence[int | None]) -> WorldFormed:
        """Begin the next world of trainers that train in step; its generation is one higher.

        Args:
            sessions: rank -> number of the session.
            positions: rank -> position of its model, None if it has no state. If nobody has one, the ledger goes
                back to the last committed checkpoint, or to the first record: a new model has seen none.
        """
        state, before = self.state, self.state.world
        known = [position for position in positions if position is not None]
        is_new = before is None and self.position == 0 and state.latest_checkpoint is None
        checkpoint = None if known else 0 if is_new else self.restore(None, in_step=True)
        position = max(known, default=self.position)
        generation = before.generation + 1 if before is not None else 1
        self._emit(WorldFormed(generation, position, list(sessions), list(positions), checkpoint))
        assert state.world is not None  # noqa: S101 - for the type checker
        return state.world

    def commit_steps(self, position: int) -> None:
        """Count the steps up to a position as done; each epoch that is complete closes.

        Args:
            position: the position that every trainer of the world has reached, counted through all epochs.
        """
        state = self.state
        while state.world is not None and state.is_open and self.position < position:
            start = state.todo.first()[0]
            end = min(state.total, position - state.epoch * state.total)
            self._emit(StepsDone(state.world.generation, start, end))
            self._close_epoch()

    def stop_training(self, position: int, error: str) -> None:
        """End the training at a position, before the end of the last epoch; a second call changes nothing.

        Args:
            position: the position of the model that counts from now on; the steps before it count as done.
            error: why the job has failed; empty if it has succeeded.
        """
        self.commit_steps(position)
        if self.state.is_open:
            self._emit(TrainingStopped(self.position, error))
