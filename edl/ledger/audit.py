"""The audit of a journal: it proves from the events alone that no position was lost and none was counted twice.

It shares only the events and the interval sets with the ledger, and follows each position independently: to do,
leased, done. It does not repeat decisions of the ledger, such as which half of a failed range is suspect, or when a
record is quarantined. It checks that every position of a closed epoch is done or listed as quarantined.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from edl.ledger.events import (
    CheckpointBegun,
    DatasetSet,
    Done,
    EpochClosed,
    Event,
    Failed,
    Granted,
    Restored,
    Returned,
    SessionOpened,
    StepsDone,
    TruncateAccepted,
    WorldFormed,
)
from edl.ledger.intervals import IntervalSet
from edl.ledger.state import LedgerState

_MAX_PROBLEMS = 100


@dataclass(slots=True)
class EpochAudit:
    """The result of one epoch.

    Attributes:
        epoch: its number, from 0.
        total: its positions.
        done: the positions that were reported or committed.
        redispatched: positions that were leased and returned undone; each return counts.
        quarantined: the ranges of quarantined positions.
        done_by: trainer -> the positions that are done by it; those that a restore has undone are nobody's.
        is_closed: no position was left to do.
    """

    epoch: int
    total: int
    done: int = 0
    redispatched: int = 0
    quarantined: list[tuple[int, int]] = field(default_factory=list)
    done_by: Counter[str] = field(default_factory=Counter)
    is_closed: bool = False


class Audit:
    """Follows the events of a journal.

    Args:
        state: the state before the first event; an empty state if the journal is complete. It is only read.

    Attributes:
        problems: one sentence for each broken rule, at most 100.
    """

    def __init__(self, state: LedgerState) -> None:
        self.problems: list[str] = []
        self._serial, self._dataset = state.serial, state.dataset
        self._names = {number: session.name for number, session in state.sessions.items()}
        self._world = state.world
        self._todo = IntervalSet(sorted([*state.todo, *((a, b) for a, (b, _) in state.suspects.items())]))
        self._given_up = state.quarantined.copy()
        self._done = state.done_ranges()
        self._leases = {x.fence: (x.session, x.start, x.end) for x in state.leases.values()}
        self._saved = {n: (c.epoch, c.done.copy(), Counter[str]()) for n, c in state.checkpoints.items()}
        self._closed = [
            EpochAudit(
                c.epoch,
                c.total,
                c.total - sum(b - a for a, b in c.quarantined),
                c.redispatched,
                c.quarantined,
                is_closed=True,
            )
            for c in state.closed
        ]
        self._open = EpochAudit(state.epoch, state.total, redispatched=state.redispatched)

    def follow(self, event: Event) -> None:
        """Apply one event of the journal and check it."""
        self._serial += 1
        try:
            self._apply(event)
        except (ValueError, KeyError) as error:
            self._add_problem(f"event {self._serial}, {event!r}, breaks a rule: {error}")

    def finish(self, state: LedgerState) -> list[EpochAudit]:
        """Compare the audit with the ledger.

        Args:
            state: what the ledger derives from the same journal.

        Returns:
            All epochs, the open one included.
        """
        self._open.done = self._done.size
        self._open.quarantined = list(state.quarantined)
        ledger = {"done": state.done_ranges(), "leased": IntervalSet(self._leased_ranges(state))}
        audit = {"done": self._done, "leased": IntervalSet(sorted((a, b) for _, a, b in self._leases.values()))}
        for place, ranges in ledger.items():
            if ranges != audit[place]:
                self._add_problem(
                    f"epoch {state.epoch}: the ledger and the audit disagree about the positions that are {place}"
                )
        if self._dataset is None or self._open.epoch >= self._dataset.epochs:
            return self._closed
        self._check_partition(state)
        return [*self._closed, self._open]

    @staticmethod
    def _leased_ranges(state: LedgerState) -> list[tuple[int, int]]:
        return sorted((lease.start, lease.end) for lease in state.leases.values())

    def _check_partition(self, state: LedgerState) -> None:
        places = IntervalSet()
        suspects = ((start, end) for start, (end, _) in state.suspects.items())
        held = [*state.todo, *suspects, *self._leased_ranges(state), *self._done, *state.quarantined]
        try:
            for start, end in sorted(held):
                places.add(start, end)
        except ValueError as error:
            self._add_problem(f"epoch {state.epoch}: a position is in two places: {error}")
        if places.gaps(state.total):
            self._add_problem(f"epoch {state.epoch}: these positions are lost: {places.gaps(state.total)[:5]}")

    def _apply(self, event: Event) -> None:
        match event:
            case DatasetSet():
                self._dataset = event
                self._begin_epoch(event.first_epoch)
            case SessionOpened():
                self._names[self._serial] = event.name
            case Granted():
                self._todo.remove(event.start, event.end)
                self._leases[self._serial] = (event.session, event.start, event.end)
            case Done():
                self._end_lease(event.fence, None)
            case Returned() | Failed():
                self._end_lease(event.fence, event.cursor)
            case TruncateAccepted():
                session, start, end = self._leases[event.fence]
                self._give_back(event.end, end)
                self._leases[event.fence] = (session, start, event.end)
                if start == event.end:
                    del self._leases[event.fence]
            case EpochClosed():
                self._close(event)
            case CheckpointBegun():
                self._save(event)
            case Restored():
                self._restore(event)
            case _:
                self._apply_steps(event)

    def _save(self, event: CheckpointBegun) -> None:
        done, done_by = self._done.copy(), self._open.done_by.copy()
        for fence, cursor in event.cursors:
            session, start, _ = self._leases[fence]
            done.add(start, cursor)
            done_by[self._names[session]] += cursor - start
        self._saved[self._serial] = (self._open.epoch, done, done_by)

    def _apply_steps(self, event: Event) -> None:
        """Follow an event of trainers that train in step; other events change nothing."""
        if isinstance(event, WorldFormed):
            self._check_world(event)
        elif isinstance(event, StepsDone):
            self._count_steps(event)

    def _end_lease(self, fence: int, cursor: int | None) -> None:
        """End a lease; the positions before the cursor are done, or all of them if the cursor is None."""
        session, start, end = self._leases.pop(fence)
        cursor = end if cursor is None else cursor
        if not start <= cursor <= end:
            raise ValueError(f"the cursor {cursor} is outside [{start}, {end})")
        self._done.add(start, cursor)
        self._open.done_by[self._names[session]] += cursor - start
        self._give_back(cursor, end)

    def _give_back(self, start: int, end: int) -> None:
        self._todo.add(start, end)
        self._open.redispatched += max(0, end - start)

    def _check_world(self, event: WorldFormed) -> None:
        before, self._world = self._world, event
        if self._leases or (before is not None and event.generation <= before.generation):
            raise ValueError("trainers hold leases, or the generation does not grow")
        known = [position for position in event.positions if position is not None]
        done = self._open.epoch * self._open.total + self._done.size
        if any(position < done for position in known) or (known and max(known) != event.position):
            raise ValueError(f"its trainers have {known} and begin at {event.position}, but {done} are counted")

    def _count_steps(self, event: StepsDone) -> None:
        if self._world is None or event.generation != self._world.generation:
            raise ValueError("the steps are not of the last world")
        if event.start != self._done.size:
            raise ValueError(f"the steps begin at {event.start}, but {self._done.size} positions are counted")
        self._todo.remove(event.start, event.end)
        self._done.add(event.start, event.end)
        self._open.done_by[self._names[self._world.sessions[0]]] += event.end - event.start

    def _begin_epoch(self, epoch: int) -> None:
        self._open = EpochAudit(epoch, self._dataset.total if self._dataset else 0)
        self._done, self._given_up = IntervalSet(), IntervalSet()
        self._todo = IntervalSet([(0, self._open.total)])

    def _close(self, event: EpochClosed) -> None:
        closing = self._open
        if event.epoch != closing.epoch:
            self._add_problem(f"epoch {event.epoch} was closed while epoch {closing.epoch} was open")
        known = IntervalSet(sorted([*self._todo, *self._given_up]))
        named = IntervalSet((a, b) for a, b in event.quarantined)
        if self._leases or known != named:
            self._add_problem(
                f"epoch {event.epoch} was closed with {len(self._leases)} open leases; the positions not done,"
                f" {list(known)[:5]}, must be the quarantined ones, {list(named)[:5]}"
            )
        closing.done, closing.is_closed = self._done.size, True
        closing.quarantined = [(a, b) for a, b in event.quarantined]
        if closing.done + named.size != closing.total:
            self._add_problem(
                f"epoch {event.epoch} was closed with {closing.done} positions done and {named.size} quarantined,"
                f" of {closing.total}"
            )
        self._closed.append(closing)
        self._begin_epoch(event.epoch + 1)

    def _restore(self, event: Restored) -> None:
        epoch, done, done_by = 0 if event.from_first_epoch else self._open.epoch, IntervalSet(), Counter[str]()
        if event.checkpoint:
            epoch, done, done_by = self._saved[event.checkpoint]
        was, undone = self._open, self._done.size - done.size
        self._leases.clear()
        self._closed = [closed for closed in self._closed if closed.epoch < epoch]
        self._begin_epoch(epoch)
        if was.epoch == epoch:
            self._open.redispatched = was.redispatched + undone
        self._open.done_by = done_by.copy()
        for start, end in done:
            self._todo.remove(start, end)
            self._done.add(start, end)

    def _add_problem(self, problem: str) -> None:
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(problem)
