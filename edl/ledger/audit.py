"""Proves from a journal alone that nothing was lost and nothing counted twice, with accounts of its own.

It shares no code with the ledger but events and interval sets, and follows each position: to do, leased, done.
What a ledger derives (which half of a failed range is suspect, when a record is given up) it need not know: it asks
only that an epoch is closed when every position is done or named as quarantined.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from edl.ledger.events import (
    CheckpointBegun,
    CutTaken,
    DatasetSet,
    Done,
    EpochClosed,
    Event,
    Failed,
    Granted,
    Restored,
    Returned,
    SessionOpened,
)
from edl.ledger.intervals import IntervalSet
from edl.ledger.state import LedgerState

_PROBLEMS_KEPT = 100


@dataclass(slots=True)
class EpochAudit:
    """What one epoch came to.

    Attributes:
        total: its positions.
        done: those that count as trained on.
        redispatched: how many were leased and came back undone, counted as often as it happened.
        quarantined: ranges that were given up.
        by: trainer -> positions done.
        is_closed: nothing of it was left.
    """

    epoch: int
    total: int
    done: int = 0
    redispatched: int = 0
    quarantined: list[tuple[int, int]] = field(default_factory=list)
    by: Counter[str] = field(default_factory=Counter)
    is_closed: bool = False


class Audit:
    """Follows the events of a journal.

    Args:
        state: where the journal begins; empty where it is whole. It is only read.
    """

    def __init__(self, state: LedgerState) -> None:
        self.problems: list[str] = []
        self._serial, self._dataset = state.serial, state.dataset
        self._names = {number: session.name for number, session in state.sessions.items()}
        self._todo = IntervalSet(sorted([*state.todo, *((a, b) for a, (b, _) in state.suspects.items())]))
        self._given_up = state.quarantined.copy()
        self._done = state.done_ranges()
        self._leases = {x.fence: (x.session, x.start, x.end) for x in state.leases.values()}
        self._saved = {n: (c.epoch, c.done.copy()) for n, c in state.checkpoints.items()}
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

    def take(self, event: Event) -> None:
        """Follow one event."""
        self._serial += 1
        try:
            self._follow(event)
        except (ValueError, KeyError) as error:
            self._say(f"event {self._serial}, {event!r}: {error}")

    def finish(self, state: LedgerState) -> list[EpochAudit]:
        """Compare with what the ledger makes of the same journal; returns all epochs."""
        self._open.done = self._done.size
        self._open.quarantined = list(state.quarantined)
        theirs = {"done": state.done_ranges(), "leased": IntervalSet(self._ranges_leased(state))}
        mine = {"done": self._done, "leased": IntervalSet(sorted((a, b) for _, a, b in self._leases.values()))}
        for place, ranges in theirs.items():
            if ranges != mine[place]:
                self._say(f"epoch {state.epoch}: what is {place} differs between the ledger and this audit")
        if self._dataset is None or self._open.epoch >= self._dataset.epochs:
            return self._closed
        self._check_partition(state)
        return [*self._closed, self._open]

    @staticmethod
    def _ranges_leased(state: LedgerState) -> list[tuple[int, int]]:
        return sorted((lease.start, lease.end) for lease in state.leases.values())

    def _check_partition(self, state: LedgerState) -> None:
        places = IntervalSet()
        suspects = ((start, end) for start, (end, _) in state.suspects.items())
        held = [*state.todo, *suspects, *self._ranges_leased(state), *self._done, *state.quarantined]
        try:
            for start, end in sorted(held):
                places.add(start, end)
        except ValueError as error:
            self._say(f"epoch {state.epoch}: a position stands in two places: {error}")
        if places.gaps(state.total):
            self._say(f"epoch {state.epoch}: positions stand nowhere: {places.gaps(state.total)[:5]}")

    def _follow(self, event: Event) -> None:
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
                self._settle(event.fence, None)
            case Returned() | Failed():
                self._settle(event.fence, event.cursor)
            case CutTaken():
                session, start, end = self._leases[event.fence]
                self._give_back(event.end, end)
                self._leases[event.fence] = (session, start, event.end)
                if start == event.end:
                    del self._leases[event.fence]
            case EpochClosed():
                self._close(event)
            case CheckpointBegun():
                done = self._done.copy()
                for fence, cursor in event.cursors:
                    done.add(self._leases[fence][1], cursor)
                self._saved[self._serial] = (self._open.epoch, done)
            case Restored():
                self._restore(event.checkpoint)
            case _:
                pass

    def _settle(self, fence: int, cursor: int | None) -> None:
        """A lease ends; what is before the cursor (all of it, where there is none) is done."""
        session, start, end = self._leases.pop(fence)
        cursor = end if cursor is None else cursor
        if not start <= cursor <= end:
            raise ValueError(f"the cursor {cursor} is outside [{start}, {end})")
        self._done.add(start, cursor)
        self._open.by[self._names[session]] += cursor - start
        self._give_back(cursor, end)

    def _give_back(self, start: int, end: int) -> None:
        self._todo.add(start, end)
        self._open.redispatched += max(0, end - start)

    def _begin_epoch(self, epoch: int) -> None:
        self._open = EpochAudit(epoch, self._dataset.total if self._dataset else 0)
        self._done, self._given_up = IntervalSet(), IntervalSet()
        self._todo = IntervalSet([(0, self._open.total)])

    def _close(self, event: EpochClosed) -> None:
        closing = self._open
        if event.epoch != closing.epoch:
            self._say(f"epoch {event.epoch} is closed while {closing.epoch} is open")
        known = IntervalSet(sorted([*self._todo, *self._given_up]))
        named = IntervalSet((a, b) for a, b in event.quarantined)
        if self._leases or known != named:
            self._say(f"epoch {event.epoch} was closed with work left: {list(known)[:5]}, {len(self._leases)} leases")
        closing.done, closing.is_closed = self._done.size, True
        closing.quarantined = [(a, b) for a, b in event.quarantined]
        if closing.done + named.size != closing.total:
            self._say(f"epoch {event.epoch}: {closing.done} done and {named.size} quarantined of {closing.total}")
        self._closed.append(closing)
        self._begin_epoch(event.epoch + 1)

    def _restore(self, checkpoint: int) -> None:
        epoch, done = self._saved[checkpoint] if checkpoint else (self._open.epoch, IntervalSet())
        was, undone = self._open, self._done.size - done.size
        self._leases.clear()
        self._closed = [closed for closed in self._closed if closed.epoch < epoch]
        self._begin_epoch(epoch)
        if was.epoch == epoch:
            self._open.redispatched, self._open.by = was.redispatched + undone, was.by
        for start, end in done:
            self._todo.remove(start, end)
            self._done.add(start, end)

    def _say(self, problem: str) -> None:
        if len(self.problems) < _PROBLEMS_KEPT:
            self.problems.append(problem)
