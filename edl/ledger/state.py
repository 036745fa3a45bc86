"""What a ledger knows for certain, and how each event changes it: the same events always give the same state.

Every position of an epoch stands in exactly one place: to do, suspect (to do, and something in it failed before),
leased, reported, committed or quarantined. The interval sets refuse to take a position twice or to give one they do
not have, so that an event which would lose work or count it twice cannot be applied at all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from edl.ledger.events import (
    CheckpointBegun,
    CheckpointCommitted,
    CutOffered,
    CutTaken,
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
)
from edl.ledger.intervals import IntervalSet

ERROR_CAP = 3
"""So often a single record may fail before it is quarantined."""
_FINISHED_KEPT = 64  # reports of a session that are recognised when they are repeated
_COMMITTED_KEPT, _PENDING_KEPT = 8, 64
_NOT_SUSPECT = -1


@dataclass(slots=True)
class Lease:
    """A range that one session may train on.

    Attributes:
        errors: how often exactly this range has failed; -1 where nothing in it is suspect.
        cut: where its holder was asked to stop, until the holder's next request.
        cursor: what is before it was consumed; told by heartbeats, so it is not part of the durable state.
        moved_s: when the cursor last moved, or the lease was granted; not durable.
    """

    fence: int
    session: int
    start: int
    end: int
    errors: int = _NOT_SUSPECT
    cut: int | None = None
    cursor: int = 0
    moved_s: float = 0.0


@dataclass(slots=True)
class TrainerSession:
    """One process of a trainer.

    Attributes:
        replied: the last reply that told of something durable.
        done: positions that it reported.
        finished: its last reports: (fence, epoch, start, end).
        leases: fences of what it holds, in the order of their grants.
        ended: a newer process of the same pod has come.
        seq, reply, renewed_s, seen_epoch, lost, rate, counted, mark_s: of the running process of the master only.
    """

    number: int
    pod_uid: str
    incarnation: int | str
    name: str
    replied: Replied | None = None
    done: int = 0
    ended: bool = False
    finished: deque[tuple[int, int, int, int]] = field(default_factory=lambda: deque(maxlen=_FINISHED_KEPT))
    leases: dict[int, Lease] = field(default_factory=dict)
    seq: int = -1
    reply: Replied | None = None
    renewed_s: float = 0.0
    seen_epoch: int = 0
    lost: list[int] = field(default_factory=list)
    rate: float | None = None
    counted: int = 0
    mark_s: float = 0.0

    @property
    def holds_suspect(self) -> bool:
        """Something in one of its leases has failed before."""
        return any(lease.errors > _NOT_SUSPECT for lease in self.leases.values())


@dataclass(slots=True)
class Checkpoint:
    """What a saved model has seen.

    Attributes:
        done: the positions of its epoch that were reported when it was begun.
    """

    number: int
    session: int
    step: int
    epoch: int
    done: IntervalSet
    quarantined: IntervalSet
    suspects: dict[int, tuple[int, int]]
    committed: bool = False


@dataclass(slots=True)
class ClosedEpoch:
    """What an epoch came to."""

    epoch: int
    total: int
    redispatched: int
    quarantined: list[tuple[int, int]]


class LedgerState:
    """The durable state. Only `apply` changes it.

    Attributes:
        serial: the number of the last event.
        epoch: the open one, from 0; equals `dataset.epochs` when the job is finished.
        suspects: start -> (end, how often that range failed).
        redispatched: positions of this epoch that were leased and came back undone.
    """

    def __init__(self) -> None:
        self.serial = 0
        self.dataset: DatasetSet | None = None
        self.epoch = 0
        self.todo, self.reported, self.committed, self.quarantined = (IntervalSet() for _ in range(4))
        self.suspects: dict[int, tuple[int, int]] = {}
        self.leases: dict[int, Lease] = {}
        self.sessions: dict[int, TrainerSession] = {}
        self.session_of: dict[tuple[str, int | str], TrainerSession] = {}
        self.current: dict[str, TrainerSession] = {}
        self.checkpoints: dict[int, Checkpoint] = {}
        self.closed: list[ClosedEpoch] = []
        self.redispatched = 0
        self.election: Elected | None = None
        self.roster: RosterSet | None = None
        self.roster_uids: frozenset[str] = frozenset()
        self._apply: dict[type, Callable[[Any], None]] = {
            DatasetSet: self._dataset_set,
            SessionOpened: self._session_opened,
            SessionForgotten: self._session_forgotten,
            Granted: self._granted,
            Done: self._done,
            Failed: self._failed,
            Returned: self._returned,
            CutOffered: self._cut_offered,
            CutTaken: self._cut_taken,
            EpochClosed: self._epoch_closed,
            CheckpointBegun: self._checkpoint_begun,
            CheckpointCommitted: self._checkpoint_committed,
            Restored: self._restored,
            Elected: self._elected,
            RosterSet: self._roster_set,
            Replied: self._replied,
        }

    @property
    def total(self) -> int:
        """Positions of an epoch; 0 without a data set."""
        return self.dataset.total if self.dataset else 0

    @property
    def is_finished(self) -> bool:
        """Every epoch is closed."""
        return self.dataset is not None and self.epoch >= self.dataset.epochs

    @property
    def is_failed(self) -> bool:
        """More is quarantined than the data set allows."""
        data = self.dataset
        return data is not None and self.quarantined.size > data.max_quarantined_fraction * data.total

    @property
    def is_open(self) -> bool:
        """There is an epoch to work on."""
        return self.dataset is not None and not self.is_finished and not self.is_failed

    @property
    def waiting(self) -> int:
        """Positions that could be leased now."""
        return self.todo.size + sum(end - start for start, (end, _) in self.suspects.items())

    @property
    def latest_checkpoint(self) -> Checkpoint | None:
        """The last begun of those that are committed."""
        return max((c for c in self.checkpoints.values() if c.committed), key=lambda c: c.number, default=None)

    def apply(self, event: Event) -> None:
        """Change the state as the event says.

        Raises:
            JournalError: the event cannot follow what went before; the state is then not to be used any more.
        """
        self.serial += 1
        try:
            self._apply[type(event)](event)
        except (ValueError, KeyError, IndexError) as error:
            raise JournalError(
                f"journal: event {self.serial}, {event!r}, cannot follow those before it: {error}; the journal is"
                " damaged, or edl has a fault"
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
        older = self.current.get(event.pod_uid)
        if older is not None:
            older.ended = True
        self.sessions[session.number] = self.current[event.pod_uid] = session
        self.session_of[event.pod_uid, event.incarnation] = session

    def _session_forgotten(self, event: SessionForgotten) -> None:
        session = self.sessions.pop(event.session)
        del self.session_of[session.pod_uid, session.incarnation]
        if self.current.get(session.pod_uid) is session:
            del self.current[session.pod_uid]

    def _granted(self, event: Granted) -> None:
        lease = Lease(self.serial, event.session, event.start, event.end, cursor=event.start)
        if event.start in self.suspects:
            end, lease.errors = self.suspects.pop(event.start)
            if end != event.end:
                raise ValueError(f"the suspect range ends at {end}")
        else:
            self.todo.remove(event.start, event.end)
        self.leases[lease.fence] = self.sessions[event.session].leases[lease.fence] = lease

    def _drop(self, fence: int, cursor: int) -> Lease:
        """Take a lease away; what is before the cursor counts as reported."""
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
        if errors == _NOT_SUSPECT:
            self.todo.add(start, end)
        else:
            self.suspects[start] = (end, errors)

    def _done(self, event: Done) -> None:
        lease = self.leases[event.fence]
        self._drop(event.fence, lease.end)
        finished = self.sessions[lease.session].finished
        finished.append((lease.fence, self.epoch, lease.start, lease.end))

    def _failed(self, event: Failed) -> None:
        lease = self._drop(event.fence, event.cursor)
        self.sessions[lease.session].finished.append((lease.fence, self.epoch, lease.start, lease.end))
        start, end = event.cursor, lease.end
        middle = (start + end) // 2
        if end - start > 1:
            self._give_back(start, middle, 0)
            self._give_back(middle, end, 0)
        elif end > start:
            same = lease.start == start
            errors = 1 + (max(lease.errors, 0) if same else 0)
            if errors >= ERROR_CAP:
                self.quarantined.add(start, end)
            else:
                self._give_back(start, end, errors)

    def _returned(self, event: Returned) -> None:
        lease = self._drop(event.fence, event.cursor)
        self._give_back(event.cursor, lease.end, lease.errors)

    def _cut_offered(self, event: CutOffered) -> None:
        self.leases[event.fence].cut = event.end

    def _cut_taken(self, event: CutTaken) -> None:
        lease = self.leases[event.fence]
        if not lease.start <= event.end <= lease.end:
            raise ValueError(f"the cut is outside the lease [{lease.start}, {lease.end})")
        self._give_back(event.end, lease.end, lease.errors)
        lease.end, lease.cut = event.end, None
        if lease.start == lease.end:
            self._drop(event.fence, lease.end)

    def _epoch_closed(self, event: EpochClosed) -> None:
        if event.epoch != self.epoch or self.waiting or self.leases:
            raise ValueError("something of the epoch is to do or leased")
        self.closed.append(ClosedEpoch(self.epoch, self.total, self.redispatched, list(self.quarantined)))
        self.epoch += 1
        self._open_epoch()

    def done_ranges(self) -> IntervalSet:
        """What is reported or committed, in one set."""
        return IntervalSet(sorted([*self.reported, *self.committed]))

    def _checkpoint_begun(self, event: CheckpointBegun) -> None:
        done, suspects = self.done_ranges(), dict(self.suspects)
        consumed = {entry[0]: entry[1] for entry in event.cursors}
        for lease in self.leases.values():
            cursor = consumed.get(lease.fence, lease.start)
            done.add(lease.start, cursor)
            if lease.errors != _NOT_SUSPECT and cursor < lease.end:  # a restore gives leases back
                suspects[cursor] = (lease.end, lease.errors)
        self.checkpoints[self.serial] = Checkpoint(
            self.serial, event.session, event.step, self.epoch, done, self.quarantined.copy(), suspects
        )
        self._prune(committed=False, kept=_PENDING_KEPT)

    def _prune(self, *, committed: bool, kept: int) -> None:
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
        self._prune(committed=True, kept=_COMMITTED_KEPT)

    def _restored(self, event: Restored) -> None:
        for fence, lease in list(self.leases.items()):
            self._drop(fence, lease.start)
        undone, before = self.redispatched + self.reported.size + self.committed.size, self.epoch
        checkpoint = self.checkpoints[event.checkpoint] if event.checkpoint else None
        if checkpoint is not None:
            self.epoch = checkpoint.epoch
        self._open_epoch()
        self.redispatched = undone if before == self.epoch else self.total
        self.closed = [closed for closed in self.closed if closed.epoch < self.epoch]
        self.checkpoints = {n: c for n, c in self.checkpoints.items() if c is checkpoint or n < event.checkpoint}
        self.election = None
        if checkpoint is not None and not self.is_finished:
            self._settle(checkpoint)

    def _settle(self, checkpoint: Checkpoint) -> None:
        """Put the positions of an epoch that was just opened where they stood."""
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
        self.sessions[event.session].replied = event
