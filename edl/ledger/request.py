"""What a trainer sends to a ledger, independent of the transport, and the constants of the ledger's replies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

ACCEPTED, DUPLICATE, STALE = "accepted", "duplicate", "stale"
"""The result of one reported lease: it counts now; it counted before; it matches no current lease of the session."""
RUN, WAIT, EPOCH_END, JOB_END = "run", "wait", "epoch_end", "job_end"
"""The status of a reply: train; no work now, ask again; the epoch in `epoch` is over, ask again; the job is over."""


class SessionKey(NamedTuple):
    """The identity of one trainer process.

    Attributes:
        incarnation: a number that grows from one process of the pod to the next, or a text that is never used twice.
        name: for people.
    """

    pod_uid: str
    incarnation: int | str
    name: str


class Item(Protocol):
    """A lease as its holder reports it."""

    @property
    def epoch(self) -> int:
        """The epoch of the lease."""

    @property
    def start(self) -> int:
        """The first position of the lease."""

    @property
    def end(self) -> int:
        """The end of the lease; after a `truncate`, the position where the holder really stops."""

    @property
    def fence(self) -> int:
        """The fence of the lease."""


class FailedItem(Item, Protocol):
    """A lease that the holder cannot finish."""

    @property
    def error(self) -> str:
        """Why the holder cannot finish the lease; empty if it only returns the lease."""


class ProgressItem(Item, Protocol):
    """A lease that the holder keeps."""

    @property
    def cursor(self) -> int:
        """The first position that is not consumed yet."""

    @property
    def hand(self) -> int:
        """The end of the positions that the training loop already has; 0 if the holder does not report it."""


class SyncRequest(Protocol):
    """One sync call of a trainer."""

    @property
    def seq(self) -> int:
        """A number that grows with each call of the session."""

    @property
    def done(self) -> Sequence[Item]:
        """Leases that are consumed completely."""

    @property
    def failed(self) -> Sequence[FailedItem]:
        """Leases that the holder cannot finish."""

    @property
    def progress(self) -> Sequence[ProgressItem]:
        """Leases that the holder keeps."""

    @property
    def want(self) -> int:
        """How many additional leases the trainer asks for."""
