"""What trainers say to a ledger, whatever carries it there, and the words of its answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

ACCEPTED, DUPLICATE, STALE = "accepted", "duplicate", "stale"
"""Of one report: it counts; it was counted before; it names no present lease of the session and has no effect."""
RUN, WAIT, EPOCH_END, JOB_END = "run", "wait", "epoch_end", "job_end"
"""Of a reply: go on; nothing for you now; the epoch in `epoch` is over, ask again; stop."""


class SessionKey(NamedTuple):
    """A trainer's process: a later process of the same pod has a greater incarnation, or one never seen."""

    pod_uid: str
    incarnation: int | str
    name: str


class Item(Protocol):
    """A lease as its holder names it."""

    @property
    def epoch(self) -> int:
        """Of the lease."""

    @property
    def start(self) -> int:
        """Of the lease."""

    @property
    def end(self) -> int:
        """Of the lease; after a `truncate` where its holder really stops."""

    @property
    def fence(self) -> int:
        """Of the lease."""


class FailedItem(Item, Protocol):
    """A lease that could not be finished."""

    @property
    def error(self) -> str:
        """Why; empty where the holder just gives it back."""


class ProgressItem(Item, Protocol):
    """A lease in work."""

    @property
    def cursor(self) -> int:
        """The first position that is not consumed yet."""

    @property
    def hand(self) -> int:
        """What is before it is in the hands of the training loop, consumed or not; 0 where nobody says."""


class SyncRequest(Protocol):
    """What a trainer says in one call."""

    @property
    def seq(self) -> int:
        """Counts up per session."""

    @property
    def done(self) -> Sequence[Item]:
        """Leases consumed whole."""

    @property
    def failed(self) -> Sequence[FailedItem]:
        """Leases that could not be finished."""

    @property
    def progress(self) -> Sequence[ProgressItem]:
        """Leases in work or not begun."""

    @property
    def want(self) -> int:
        """How many leases more."""
