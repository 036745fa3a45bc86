"""The leases that a trainer holds: which positions it may train on, and how many of them are consumed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that cannot be read.

    Attributes:
        error: why; the master stores it and gives the record to other trainers to try.
        index: the place of the record in its batch, from 0.
    """

    error: str
    index: int = 0


class LeaseHolder(Protocol):
    """The session that holds a lease."""

    def next_position(self, lease: HeldLease) -> int | None:
        """The next position of a lease; None at its end."""

    def end_lease(self, lease: HeldLease, error: str) -> None:
        """Give a lease back; a text says that a record of it cannot be trained on."""


@dataclass(eq=False)
class HeldLease:
    """A range of positions of one epoch that this trainer may train on.

    Attributes:
        session: the session that holds it.
        epoch, start, end, fence: as the master granted them; a `truncate` of the master lowers `end`.
        deadline_s: monotonic seconds; the loop gets no position of the lease after it.
        cursor: the positions before it are consumed.
        handed_out: the positions before it were handed out, to the loop or to a pipeline that reads ahead.
        delivered: the positions before it have reached the loop.
        is_ended: the lease was reported, or the master has taken it back.
    """

    session: LeaseHolder
    epoch: int
    start: int
    end: int
    fence: int
    deadline_s: float
    cursor: int = field(init=False)
    handed_out: int = field(init=False)
    delivered: int = field(init=False)
    is_ended: bool = False

    def __post_init__(self) -> None:
        self.cursor = self.handed_out = self.delivered = self.start

    @property
    def item(self) -> dict[str, Any]:
        """The lease as a report names it."""
        return {"epoch": self.epoch, "start": self.start, "end": self.end, "fence": self.fence}

    @property
    def progress(self) -> dict[str, Any]:
        """The lease as a heartbeat reports it; `hand` is only there if the loop has more than one position."""
        hand = {"hand": self.delivered} if self.delivered > self.cursor + 1 else {}
        return {**self.item, "cursor": self.cursor, **hand}

    def positions(self) -> Iterator[int]:
        """The positions that are not consumed yet, while the lease lasts.

        A position counts as consumed when the caller asks for the next one.
        """
        self.handed_out = self.cursor
        while (position := self.session.next_position(self)) is not None:
            yield position

    def fail(self, bad: BadRecord) -> None:
        """Report that the record at the current position cannot be trained on."""
        self.session.end_lease(self, bad.error)

    def give_back(self) -> None:
        """Return what is not consumed to the master, without blaming a record."""
        self.session.end_lease(self, "")


@dataclass(frozen=True, slots=True)
class PositionBatch:
    """Positions of one epoch that were handed out together; they count once all of them are consumed.

    Attributes:
        epoch: the epoch of all positions.
        parts: (lease, start, end) for each lease that contributes positions.
    """

    epoch: int
    parts: tuple[tuple[HeldLease, int, int], ...]

    @property
    def is_valid(self) -> bool:
        """True if none of its leases has ended, or was truncated below its positions."""
        return all(not lease.is_ended and end <= lease.end for lease, _, end in self.parts)

    @property
    def positions(self) -> list[int]:
        """All positions, in the order of the leases."""
        return [position for _, start, end in self.parts for position in range(start, end)]
