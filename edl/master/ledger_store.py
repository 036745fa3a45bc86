"""What the master needs from its disk: a place where every record of the ledger survives a crash."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from edl.errors import TemporaryError


class StoreBlockedError(TemporaryError):
    """Nothing can be written for now: the disk is full."""


class LedgerStore(Protocol):
    """Where a ledger's journal lives."""

    @property
    def appended(self) -> int:
        """How many records there are, synced or not."""

    @property
    def blocked(self) -> str | None:
        """Why nothing can be written now; None where it can."""

    def load(self) -> tuple[bytes | None, Iterator[bytes]]:
        """The last snapshot, and the records after it, which must be used up before `start`.

        Raises:
            EdlError: the journal is damaged.
        """

    def start(self) -> None:
        """Begin to write; called in the event loop that will wait."""

    def append(self, record: bytes) -> int:
        """Queue a record; returns its number, for `durable`. Records have no line breaks."""

    def snapshot(self, state: bytes) -> None:
        """Queue the state after all records so far."""

    async def durable(self, number: int) -> None:
        """Wait until that record, and all before it, survive any crash.

        Raises:
            StoreBlockedError: the disk is full; the record is kept and written once there is room.
            EdlError: the disk has failed.
        """

    async def close(self) -> None:
        """Write what is queued, where that is possible."""
