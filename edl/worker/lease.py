"""A trainer's lease: which positions it may work on, and how far it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a lease cannot be finished.

    Attributes:
        index: which record of a batch it was.
    """

    text: str
    index: int = 0


class Holder(Protocol):
    """Whose lease it is."""

    def hand_out(self, lease: Lease) -> int | None:
        """The next position; None at the end."""

    def give_up(self, lease: Lease, error: str) -> None:
        """Something in it cannot be trained on."""


@dataclass(eq=False)
class Lease:
    """A range of positions of an epoch that this trainer may work on.

    Attributes:
        end: where it stops; a `truncate` of the master moves it.
        cursor: what is before it was consumed.
        handed: what is before it was handed out, to the loop or to what reads ahead of it.
        shown: what is before it has reached the loop.
        deadline_s: monotonic; nothing is handed out after it.
        is_gone: the master has taken it back, or it is reported.
    """

    session: Holder
    epoch: int
    start: int
    end: int
    fence: int
    deadline_s: float
    cursor: int = field(init=False)
    handed: int = field(init=False)
    shown: int = field(init=False)
    is_gone: bool = False

    def __post_init__(self) -> None:
        self.cursor = self.handed = self.shown = self.start

    @property
    def item(self) -> dict[str, Any]:
        """As the master names it."""
        return {"epoch": self.epoch, "start": self.start, "end": self.end, "fence": self.fence}

    @property
    def progress(self) -> dict[str, Any]:
        """What a heartbeat tells of it; what is in hand, where more than one position is."""
        hand = {"hand": self.shown} if self.shown > self.cursor + 1 else {}
        return {**self.item, "cursor": self.cursor, **hand}

    def positions(self) -> Iterator[int]:
        """The positions that are not consumed yet, while the lease lasts.

        A position is consumed when the next one is asked for.
        """
        self.handed = self.cursor
        while (position := self.session.hand_out(self)) is not None:
            yield position

    def fail(self, fault: Fault) -> None:
        """The record in hand cannot be trained on."""
        self.session.give_up(self, fault.text)


@dataclass(frozen=True, slots=True)
class Handed:
    """Positions of one epoch that were handed out together, by lease; they count when all of them are consumed."""

    epoch: int
    parts: tuple[tuple[Lease, int, int], ...]

    @property
    def is_ours(self) -> bool:
        """No lease of it was taken back or cut short of it."""
        return all(not lease.is_gone and end <= lease.end for lease, _, end in self.parts)

    @property
    def positions(self) -> list[int]:
        """All of them, in the order of the leases."""
        return [position for _, start, end in self.parts for position in range(start, end)]
