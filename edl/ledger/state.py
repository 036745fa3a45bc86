"""The durable state of a ledger, and how each event changes it: the same events always give the same state.

Every position of an epoch is in exactly one place: to do, suspect (to do, but a lease with it has failed), leased,
reported, committed or quarantined. An interval set refuses to add a position twice or to remove one that it does not
hold. An event that would lose work or count it twice therefore cannot be applied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edl.ledger.entries import NOT_SUSPECT, Checkpoint, ClosedEpoch, Lease, TrainerSession
from edl.ledger.events import (
    CheckpointBegun,
    CheckpointCommitted,
    DatasetSet,
    Done,
    Elected,
    EpochClosed,
    Event,
    Failed,
    Granted,
    JournalError,
    Replied,
    Restored,
    Returned,
    RosterSet,
    SessionForgotten,
    SessionOpened,
    StepsDone,
    TrainingStopped,
    TruncateAccepted,
    TruncateOffered,
    WorldFormed,
)
from edl.ledger.intervals import IntervalSet

MAX_FAILURES = 3
"""A single record is quarantined after this many failures."""
_COMMITTED_KEPT, _PENDING_KEPT = 8, 64  # checkpoints


class LedgerState:
    """The durable state. Only `apply` changes it.

    Attributes:
        serial: the number of the last event.
        epoch: the open epoch, from 0; `dataset.epochs` once the job is finished.
        todo, reported, committed, quarantined: positions of the open epoch.
        suspects: start -> (end, number of failures of that range).
        leases: fence -> lease.
        sessions: number -> session; `session_by_process` and `session_by_pod` find the same ones by their identity.
        checkpoints: number -> checkpoint.
        closed: the epochs that are over.
        redispatched: positions of the open epoch that were leased and returned undone; each return counts.
        roster_uids: the UIDs of the pods on the roster.
        world: the trainers that train in step; None while trainers lease ranges.
        is_stopped: they have ended the training early.
        stop_error: why they have, if the job has failed.
    """

    def __init__(self) -> None:
        self.serial = 0
        self.dataset: DatasetSet | None = None
        self.epoch = 0
        self.todo, self.reported, self.committed, self.quarantined = (IntervalSet() for _ in range(4))
        self.suspects: dict[int, tuple[int, int]] = {}
        self.leases: dict[int, Lease] = {}
        self.sessions: dict[int, TrainerSession] = {}
        self.session_by_process: dict[tuple[str, int | str], TrainerSession] = {}
        self.session_by_pod: dict[str, TrainerSession] = {}
        self.checkpoints: dict[int, Checkpoint] = {}
        self.closed: list[ClosedEpoch] = []
        self.redispatched = 0
        self.election: Elected | None = None
        self.roster: RosterSet | None = None
        self.roster_uids: frozenset[str] = frozenset()
        self.world: WorldFormed | None = None
        self.is_stopped, self.stop_error = False, ""
        self._apply: dict[type, Callable[[Any], None]] = {
            DatasetSet: self._dataset_set,
            SessionOpened: self._session_opened,
            SessionForgotten: self._session_forgotten,
            Granted: self._granted,
            Done: self._done,
            Failed: self._failed,
            Returned: self._returned,
            TruncateOffered: self._truncate_offered,
            TruncateAccepted: self._truncate_accepted,
            EpochClosed: self._epoch_closed,
            CheckpointBegun: self._checkpoint_begun,
            CheckpointCommitted: self._checkpoint_committed,
            Restored: self._restored,
            Elected: self._elected,
            RosterSet: self._roster_set,
            Replied: self._replied,
            WorldFormed: self._world_formed,
            StepsDone: self._steps_done,
            TrainingStopped: self._training_stopped,
        }

    @property
    def total(self) -> int:
        """The number of positions of an epoch; 0 without a data set."""
        return self.dataset.total if self.dataset else 0

    @property
    def is_finished(self) -> bool:
        """True if every epoch is closed, or the trainers have ended the training early."""
        is_stopped = self.is_stopped and not self.stop_error
        return self.dataset is not None and (is_stopped or self.epoch >= self.dataset.epochs)

    @property
    def is_failed(self) -> bool:
        """True if more positions are quarantined than the data set allows, or the trainers' models differ."""
        data = self.dataset
        return data is not None and (bool(self.stop_error) or self._has_too_many_quarantined(data))

    def _has_too_many_quarantined(self, data: DatasetSet) -> bool:
        return self.quarantined.size > data.max_quarantined_fraction * data.total

    @property
    def is_open(self) -> bool:
        """True if there is an epoch to train on."""
        return self.dataset is not None and not self.is_finished and not self.is_failed

    @property
    def available(self) -> int:
        """How many positions could be leased now."""
        return self.todo.size + sum(end - start for start, (end, _) in self.suspects.items())

    @property
    def done_position(self) -> int:
        """The first position that is not done, counted through all epochs; 0 without a data set."""
        start, may_be_within = self.epoch * self.total, self.is_open or (self.is_stopped and self.todo)
        return start + (self.todo.first()[0] if self.todo else self.total) if may_be_within else start

    @property
    def unsaved(self) -> int:
        """Positions that are done and that training would repeat if the model were lost now; of a failed job none."""
        if self.dataset is None or self.is_failed:
            return 0
        latest, done = self.latest_checkpoint, self.reported.size + self.committed.size
        if latest is None:  # training would go back to the start of the epoch; in step, to that of the first one
            return done + (self.epoch * self.total if self.world is not None else 0)
        return max(0, (self.epoch - latest.epoch) * self.total + done - latest.done.size)

    @property
    def latest_checkpoint(self) -> Checkpoint | None:
        """The committed checkpoint that began last; None if there is none."""
        return max((c for c in self.checkpoints.values() if c.committed), key=lambda c: c.number, default=None)

    def apply(self, event: Event) -> None:
        """Apply one event.

        Raises:
            JournalError: the event contradicts the state; the state must not be used afterwards.
        """
        self.serial += 1
        try:
            self._apply[type(event)](event)
        except (ValueError, KeyError, IndexError) as error:
            raise JournalError(
                f"journal: event {self.serial}, {event!r}, contradicts the events before it: {error}; the journal is"
                " damaged: put it back from a copy; or report this as a bug in edl"
            ) from error

    def _dataset_set(self, event: DatasetSet) -> None:
        self.dataset = event
        self.epoch = event.first_epoch
        self._open_epoch()

    def _open_epoch(self) -> None:
        self.reported, self.committed, self.quarantined = IntervalSet(), IntervalSet(), IntervalSet()
        self.suspects, self.redispatched = {}, 0
        self.todo = IntervalSet([(0, self.total)] if not self.is_finished else [])

    def _session_opened(self, event: SessionOpened) -> None:
        session = TrainerSession(self.serial, event.pod_uid, event.incarnation, event.name, seen_epoch=self.epoch)
        older = self.session_by_pod.get(event.pod_uid)
        if older is not None:
            older.is_replaced = True
        self.sessions[session.number] = self.session_by_pod[event.pod_uid] = session
        self.session_by_process[event.pod_uid, event.incarnation] = session

    def _session_forgotten(self, event: SessionForgotten) -> None:
        session = self.sessions.pop(event.session)
        del self.session_by_process[session.pod_uid, session.incarnation]
        if self.session_by_pod.get(session.pod_uid) is session:
            del self.session_by_pod[session.pod_uid]

    def _granted(self, event: Granted) -> None:
        lease = Lease(self.serial, event.session, event.start, event.end, cursor=event.start)
        if event.start in self.suspects:
            end, lease.errors = self.suspects.pop(event.start)
            if end != event.end:
                raise ValueError(f"the suspect range ends at {end}, not at {event.end}")
        else:
            self.todo.remove(event.start, event.end)
        self.leases[lease.fence] = self.sessions[event.session].leases[lease.fence] = lease

    def _end_lease(self, fence: int, cursor: int) -> Lease:
        """Remove a lease; the positions before the cursor count as reported."""
        lease = self.leases.pop(fence)
        session = self.sessions[lease.session]
        del session.leases[fence]
        if not lease.start <= cursor <= lease.end:
            raise ValueError(f"the cursor {cursor} is outside the lease [{lease.start}, {lease.end})")
        self.reported.add(lease.start, cursor)
        session.done += cursor - lease.start
        return lease

    def _give_back(self, start: int, end: int, errors: int) -> None:
        if start >= end:
            return
        self.redispatched += end - start
        if errors == NOT_SUSPECT:
            self.todo.add(start, end)
        else:
            self.suspects[start] = (end, errors)

    def _done(self, event: Done) -> None:
        lease = self.leases[event.fence]
        self._end_lease(event.fence, lease.end)
        recent_reports = self.sessions[lease.session].recent_reports
        recent_reports.append((lease.fence, self.epoch, lease.start, lease.end))

    def _failed(self, event: Failed) -> None:
        lease = self._end_lease(event.fence, event.cursor)
        self.sessions[lease.session].recent_reports.append((lease.fence, self.epoch, lease.start, lease.end))
        start, end = event.cursor, lease.end
        middle = (start + end) // 2
        if end - start > 1:
            self._give_back(start, middle, 0)
            self._give_back(middle, end, 0)
        elif end > start:
            same = lease.start == start
            errors = 1 + (max(lease.errors, 0) if same else 0)
            if errors >= MAX_FAILURES:
                self.quarantined.add(start, end)
            else:
                self._give_back(start, end, errors)

    def _returned(self, event: Returned) -> None:
        lease = self._end_lease(event.fence, event.cursor)
        self._give_back(event.cursor, lease.end, lease.errors)

    def _truncate_offered(self, event: TruncateOffered) -> None:
        self.leases[event.fence].truncate_at = event.end

    def _truncate_accepted(self, event: TruncateAccepted) -> None:
        lease = self.leases[event.fence]
        if not lease.start <= event.end <= lease.end:
            raise ValueError(f"the new end {event.end} is outside the lease [{lease.start}, {lease.end})")
        self._give_back(event.end, lease.end, lease.errors)
        lease.end, lease.truncate_at = event.end, None
        if lease.start == lease.end:
            self._end_lease(event.fence, lease.end)

    def _epoch_closed(self, event: EpochClosed) -> None:
        if event.epoch != self.epoch or self.available or self.leases:
            raise ValueError("some positions of the epoch are not done yet")
        self.closed.append(ClosedEpoch(self.epoch, self.total, self.redispatched, list(self.quarantined)))
        self.epoch += 1
        self._open_epoch()

    def done_ranges(self) -> IntervalSet:
        """Return the positions of an epoch that are reported as done or covered by a committed checkpoint."""
        return IntervalSet(sorted([*self.reported, *self.committed]))

    def _checkpoint_begun(self, event: CheckpointBegun) -> None:
        done, suspects = self.done_ranges(), dict(self.suspects)
        consumed = {entry[0]: entry[1] for entry in event.cursors}
        for lease in self.leases.values():
            cursor = consumed.get(lease.fence, lease.start)
            done.add(lease.start, cursor)
            if lease.errors != NOT_SUSPECT and cursor < lease.end:  # a restore returns every lease
                suspects[cursor] = (lease.end, lease.errors)
        self.checkpoints[self.serial] = Checkpoint(
            self.serial, event.session, event.step, self.epoch, done, self.quarantined.copy(), suspects
        )
        self._delete_old_checkpoints(committed=False, kept=_PENDING_KEPT)

    def _delete_old_checkpoints(self, *, committed: bool, kept: int) -> None:
        numbers = sorted(n for n, c in self.checkpoints.items() if c.committed is committed)
        for number in numbers[:-kept]:
            del self.checkpoints[number]

    def _checkpoint_committed(self, event: CheckpointCommitted) -> None:
        checkpoint = self.checkpoints[event.checkpoint]
        checkpoint.committed = True
        if checkpoint.epoch == self.epoch:
            for start, end in checkpoint.done:
                for low, high in self.reported.within(start, end):
                    self.reported.remove(low, high)
                    self.committed.add(low, high)
        self._delete_old_checkpoints(committed=True, kept=_COMMITTED_KEPT)

    def _restored(self, event: Restored) -> None:
        for fence, lease in list(self.leases.items()):
            self._end_lease(fence, lease.start)
        self.is_stopped, self.stop_error = False, ""
        undone, before = self.redispatched + self.reported.size + self.committed.size, self.epoch
        checkpoint = self.checkpoints[event.checkpoint] if event.checkpoint else None
        if checkpoint is not None:
            self.epoch = checkpoint.epoch
        elif event.from_first_epoch:
            self.epoch = 0
        self._open_epoch()
        self.redispatched = undone if before == self.epoch else self.total
        self.closed = [closed for closed in self.closed if closed.epoch < self.epoch]
        self.checkpoints = {n: c for n, c in self.checkpoints.items() if c is checkpoint or n < event.checkpoint}
        self.election = None
        if checkpoint is not None and not self.is_finished:
            self._load_checkpoint(checkpoint)

    def _load_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Move the positions of a newly opened epoch to where the checkpoint has them."""
        self.committed, self.quarantined = checkpoint.done.copy(), checkpoint.quarantined.copy()
        self.suspects = dict(checkpoint.suspects)
        for start, end in [*self.committed, *self.quarantined, *((a, b) for a, (b, _) in self.suspects.items())]:
            self.todo.remove(start, end)
        self.redispatched -= self.committed.size

    def _elected(self, event: Elected) -> None:
        self.election = event

    def _roster_set(self, event: RosterSet) -> None:
        self.roster, self.roster_uids = event, frozenset(event.pod_uids)

    def _replied(self, event: Replied) -> None:
        self.sessions[event.session].journaled_reply = event

    def _world_formed(self, event: WorldFormed) -> None:
        if self.leases or not len(event.sessions) == len(event.positions) > 0:
            raise ValueError("positions are leased, or a rank has no entry")
        self.world = event

    def _steps_done(self, event: StepsDone) -> None:
        if self.world is None or event.generation != self.world.generation or not event.start < event.end:
            raise ValueError("the steps are of another world, or there are none")
        self.todo.remove(event.start, event.end)
        self.reported.add(event.start, event.end)

    def _training_stopped(self, event: TrainingStopped) -> None:
        if self.world is None or event.position != self.done_position:
            raise ValueError(f"the steps up to {self.done_position} are counted, not up to {event.position}")
        self.is_stopped, self.stop_error = True, event.error
