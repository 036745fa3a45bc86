"""Checkpoints of the model: what each one covers, how training returns to one, and which trainer saves.

A checkpoint ties the positions that count as done to a saved model, so that both return to the same point.
"""

from __future__ import annotations

from edl.errors import ConflictError
from edl.ledger.dispatch import LedgerSettings
from edl.ledger.entries import Checkpoint
from edl.ledger.errors import UnknownCheckpointError
from edl.ledger.events import CheckpointBegun, CheckpointCommitted, Elected, Restored
from edl.ledger.members import Membership
from edl.ledger.request import SessionKey
from edl.ledger.state import LedgerState


class CheckpointLedger(Membership):
    """The part of a ledger that knows checkpoints and elects the trainer that saves.

    Args:
        state: rebuilt from a journal; by default an empty state.
        settings: the time limits.
    """

    def __init__(self, state: LedgerState | None = None, settings: LedgerSettings | None = None) -> None:
        super().__init__(state, settings)
        self._election_until_s = 0.0

    def begin_checkpoint(self, key: SessionKey, step: int) -> int:
        """Begin a checkpoint: it covers everything that is reported so far.

        Args:
            key: the session that saves.
            step: the step of the training; if trainers train in step, the position of the model.

        Returns:
            The number of the checkpoint; the same number for the same session and step.

        Raises:
            ConflictError: there is no data set, the session was replaced, or its pod is not on the roster.
        """
        if self.state.dataset is None:
            raise ConflictError("checkpoint: this job has no data set yet; send it with POST /v1/dataset first")
        session = self._session(key)
        if not self._is_on_roster(session):
            raise ConflictError(
                f"session {key.name}: pod {key.pod_uid} is not on the roster; only a trainer on the roster may save"
                " the model"
            )
        if self.state.world is not None and step != self.state.done_position:
            raise ConflictError(
                f"session {key.name}: its model is at position {step}, but the steps up to"
                f" {self.state.done_position} are counted; a checkpoint must be of the model that the others have"
            )
        for checkpoint in self.state.checkpoints.values():
            if (checkpoint.session, checkpoint.step, checkpoint.committed) == (session.number, step, False):
                return checkpoint.number
        leases = self.state.leases.values()
        self._emit(CheckpointBegun(session.number, step, [[x.fence, x.cursor] for x in leases if x.cursor > x.start]))
        return self.state.serial

    def commit_checkpoint(self, number: int) -> None:
        """Commit a checkpoint, because its model is saved; a second commit changes nothing.

        Raises:
            UnknownCheckpointError: there is no such checkpoint.
        """
        if not self._checkpoint(number).committed:
            self._emit(CheckpointCommitted(number))

    def restore(self, number: int | None, *, in_step: bool = False) -> int:
        """Continue training from a committed checkpoint; every lease ends.

        Args:
            number: the checkpoint. None is the last one, or the start of the epoch if there is none. Trainers in
                step then have a new model, so for them it is the start of the first epoch.
            in_step: the trainers train in step; known by itself once they have had a world.

        Returns:
            The number of the checkpoint; 0 for the start of the epoch, or of the first one.

        Raises:
            UnknownCheckpointError: there is no such checkpoint, or it was not committed.
        """
        if number is None:
            latest = self.state.latest_checkpoint
            number = latest.number if latest is not None else 0
        elif not self._checkpoint(number).committed:
            raise UnknownCheckpointError(
                f"checkpoint {number} was never committed; restore a committed one, or `latest`"
            )
        for lease in self.state.leases.values():
            self.state.sessions[lease.session].revoked.append(lease.fence)
        self._emit(Restored(number, not number and (in_step or self.state.world is not None)))
        for session in self.state.sessions.values():
            session.seen_epoch = self.state.epoch
        return number

    def elect(self, key: SessionKey, step: int, ttl_s: float, now_s: float) -> bool:
        """Elect the one session that saves the model of a step.

        Args:
            key: the session that asks.
            step: the step of the training; a greater step starts a new election.
            ttl_s: another session may be elected after this many seconds.
            now_s: monotonic seconds.

        Returns:
            True if the session that asks is elected.

        Raises:
            ConflictError: a newer process has replaced the session.
        """
        session, held = self._session(key), self.state.election
        self._renew(session, now_s)
        latest = self.state.latest_checkpoint
        if not self._is_on_roster(session) or (latest is not None and step <= latest.step):
            return False
        if held is not None:
            if held.session == session.number and held.step == step:
                return True
            if step < held.step:
                return False
            if now_s < self._election_until_s and held.session in self._live and held.session != session.number:
                return False
        self._emit(Elected(session.number, step, ttl_s))
        self._election_until_s = now_s + ttl_s
        return True

    def _resume_election(self, now_s: float) -> None:
        """After a restart of the master, let the elected session keep its election for its full time."""
        if self.state.election is not None:
            self._election_until_s = now_s + self.state.election.ttl_s

    def _checkpoint(self, number: int) -> Checkpoint:
        checkpoint = self.state.checkpoints.get(number)
        if checkpoint is None:
            raise UnknownCheckpointError(
                f"checkpoint {number} does not exist: it was never begun, is too old, or a restore removed it;"
                " restore another one, or `latest`"
            )
        return checkpoint
