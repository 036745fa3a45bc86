"""Compares a master's journal in an append-only file with SQLite (WAL): `python -m benchmarks.journal [DIR]`.

Clients append a record of 250 bytes, wait until it is durable, and repeat. Both stores sync all waiting records at
once, off the event loop. Prints records/s, CPU microseconds of the process per record, and the median wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from edl.master.journal import GROUP, FileLedgerStore

RECORD = b"x" * 250
SECONDS = 2.0


class Store(Protocol):
    """A store under test."""

    async def put(self, record: bytes) -> None:
        """Return when the record is durable."""

    async def close(self) -> None:
        """Let go of the files."""


class FileStore:
    """The journal of edl."""

    def __init__(self, folder: Path) -> None:
        self._store = FileLedgerStore(folder)
        list(self._store.load()[1])
        self._store.start()

    async def put(self, record: bytes) -> None:
        """Return when the record is durable."""
        await self._store.durable(self._store.append(record))

    async def close(self) -> None:
        """Let go of the files."""
        await self._store.close()


class SqliteStore:
    """SQLite: WAL, synchronous=FULL, so that a commit is a sync."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._path = folder / "journal.db"
        self._queue: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]] | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    async def put(self, record: bytes) -> None:
        """Return when the record is durable."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._queue.put((record, future))
        await future

    async def close(self) -> None:
        """Let go of the files."""
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _write(self) -> None:
        base = sqlite3.connect(self._path, isolation_level=None)
        base.execute("PRAGMA journal_mode=WAL")
        base.execute("PRAGMA synchronous=FULL")
        base.execute("CREATE TABLE journal (number INTEGER PRIMARY KEY, record BLOB NOT NULL)")
        while (entry := self._queue.get()) is not None:
            group = [entry]
            with contextlib.suppress(queue.Empty):
                while len(group) < GROUP and (more := self._queue.get_nowait()) is not None:
                    group.append(more)
            base.execute("BEGIN")
            base.executemany("INSERT INTO journal (record) VALUES (?)", [(record,) for record, _ in group])
            base.execute("COMMIT")
            self._loop.call_soon_threadsafe(_resolve, [future for _, future in group])
        base.close()


def _resolve(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        future.set_result(None)


async def measure(make: Callable[[Path], Store], folder: Path, clients: int) -> tuple[float, float, float]:
    """Measure a store: (records/s, CPU us per record, median wait in ms)."""
    store, waits = make(folder), list[float]()
    end = time.monotonic() + SECONDS

    async def client() -> None:
        while (begun := time.monotonic()) < end:
            await store.put(RECORD)
            waits.append(time.monotonic() - begun)

    begun, cpu = time.monotonic(), time.process_time()
    await asyncio.gather(*(client() for _ in range(clients)))
    passed, used = time.monotonic() - begun, time.process_time() - cpu
    await store.close()
    return len(waits) / passed, 1e6 * used / len(waits), 1e3 * statistics.median(waits)


def main() -> None:
    """Print a line for each store and number of clients."""
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as name:
        kinds: tuple[tuple[str, Callable[[Path], Store]], ...] = (("file", FileStore), ("sqlite", SqliteStore))
        for clients in (1, 8, 64, 256):
            for kind, make in kinds:
                rate, cpu, wait = asyncio.run(measure(make, Path(name) / f"{kind}-{clients}", clients))
                print(f"{kind:8} {clients:4} clients {rate:9.0f} records/s {cpu:7.1f} us/record {wait:7.2f} ms")


if __name__ == "__main__":
    main()
