"""The port between the master and its disk: a store whose records survive a crash."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from edl.errors import TemporaryError


class StoreBlockedError(TemporaryError):
    """The disk is full; nothing can be written for now."""


class LedgerStore(Protocol):
    """The journal of a ledger."""

    @property
    def appended(self) -> int:
        """How many records the journal has, including those that are not synced yet."""

    @property
    def blocked(self) -> str | None:
        """Why nothing can be written now; None if writing works."""

    def load(self) -> tuple[bytes | None, Iterator[bytes]]:
        """The last snapshot, or None, and the records after it.

        The caller must read all records before it calls `start`.

        Raises:
            EdlError: the journal is damaged.
        """

    def start(self) -> None:
        """Start to write; call it in the event loop that later calls `durable`."""

    def append(self, record: bytes) -> int:
        """Queue a record without line breaks; returns its number, from 1, for `durable`."""

    def snapshot(self, state: bytes) -> None:
        """Queue a snapshot: the state after all records so far."""

    async def durable(self, number: int) -> None:
        """Wait until that record and all records before it survive a crash.

        Raises:
            StoreBlockedError: the disk is full; the store keeps the record, and writes it once there is space.
            EdlError: the disk has failed.
        """

    async def close(self) -> None:
        """Write the queued records if possible, and close the journal."""
