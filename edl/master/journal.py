"""A journal on disk: a thread of its own writes and syncs records in groups. A synced record survives a crash.

A group holds the records that were queued while the group before it was synced, at most 256. A single record waits
for one sync; under load one sync covers many records.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from edl.errors import ConfigError
from edl.ledger.events import JournalError
from edl.master.journal_files import JournalFolder, Tail, frame, open_plain, snapshot_bytes
from edl.master.ledger_store import StoreBlockedError

GROUP = 256
LOCK = "lock"
_RETRY_S = 1.0
_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_KEPT_BYTES = 256 * 1024 * 1024  # of journal files before the last snapshot; an audit reads them


class FileLedgerStore:
    """The `LedgerStore` in a folder that no other process writes to.

    Args:
        path: the folder; it is created if it is missing.

    Raises:
        ConfigError: the folder cannot be used, or another master uses it.

    Attributes:
        appended: how many records the journal has, including those that are not synced yet.
        blocked: why nothing can be written now; None if writing works.
    """

    def __init__(self, path: Path) -> None:
        self._folder = JournalFolder(path)
        self._lock = _lock(path)
        self._file, self._path = -1, path
        self._offset = 0
        self._pending: deque[bytes | tuple[int, bytes]] = deque()  # records, and (number, state) for snapshots
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_closing = False
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._error: OSError | None = None
        self._synced = 0
        self.appended = 0
        self.blocked: str | None = None

    def load(self) -> tuple[bytes | None, Iterator[bytes]]:
        """The last snapshot, or None, and the records after it; read all records before `start`."""
        snapshots = self._folder.snapshots()
        state = self._folder.read_snapshot(snapshots[-1][1]) if snapshots else None
        return state, self._records(snapshots[-1][0] if snapshots else 0)

    def _records(self, number: int) -> Iterator[bytes]:
        self.appended = begin = number
        files = [(n, p) for n, p in self._folder.journals() if n >= number]
        for at, (first, path) in enumerate(files):
            if first != self.appended:
                raise JournalError(
                    f"journal {path}: the records from {self.appended} to {first} are missing; put their file back"
                )
            tails: list[Tail] = []
            yield from self._folder.records(path, first, tails)
            (tail,) = tails
            torn = path.stat().st_size - tail.valid_bytes
            if torn and at + 1 < len(files):
                raise JournalError(
                    f"journal {path}: damaged at byte {tail.valid_bytes}; put the file back from a copy"
                )
            self.appended, self._offset, begin = tail.number, tail.valid_bytes, first
        self._synced = self.appended
        try:
            self._open(begin)
        except OSError as error:
            raise JournalError(
                f"journal {self._folder.path}: cannot be written: {error.strerror}; free space on its volume, or make"
                " it writable"
            ) from error

    def _open(self, number: int) -> None:
        """Write to the file that starts with the record of that number from now on.

        Raises:
            OSError: the file cannot be used; the store goes on with the one before it.
        """
        path = self._folder.journal(number)
        file = open_plain(path, os.O_WRONLY | os.O_CREAT)
        try:
            os.ftruncate(file, self._offset)
            os.fsync(file)
            _sync_folder(self._folder.path)
        except OSError:
            os.close(file)
            raise
        before, self._file, self._path = self._file, file, path
        if before >= 0:
            os.close(before)

    def _check_alone(self) -> None:
        """Check that no other process writes this journal; without its lock a second master could start.

        Raises:
            OSError: the lock or the file is another one now, or the file has grown.
        """
        for path, file in ((self._folder.path / LOCK, self._lock), (self._path, self._file)):
            try:
                found = path.lstat()
            except FileNotFoundError:
                found = None
            own = os.fstat(file)
            if found is None or (found.st_dev, found.st_ino) != (own.st_dev, own.st_ino):
                raise OSError(errno.ESTALE, f"{path.name} was removed or replaced, so another master may write here")
        if own.st_size != self._offset:
            raise OSError(
                errno.ESTALE,
                f"{self._path.name} has {own.st_size} bytes, of which this master wrote {self._offset}: another one"
                " writes here",
            )

    def start(self) -> None:
        """Start to write; call it in the event loop that later calls `durable`."""
        loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._write, args=(loop,), name="edl-journal", daemon=True)
        self._thread.start()

    def append(self, record: bytes) -> int:
        """Queue a record; returns its number, from 1, for `durable`."""
        with self._changed:
            self._pending.append(record)
            self._changed.notify()
        self.appended += 1
        return self.appended

    def snapshot(self, state: bytes) -> None:
        """Queue a snapshot: the state after all records so far; a restart begins with it."""
        with self._changed:
            self._pending.append((self.appended, state))
            self._changed.notify()

    async def durable(self, number: int) -> None:
        """Wait until that record and all records before it are on the disk.

        Raises:
            StoreBlockedError: the disk is full; the store keeps the record, and writes it once there is space.
            JournalError: the disk has failed, and no further record can be written.
        """
        if self._error is not None:
            raise JournalError(self._failure(self._error)) from self._error
        if number <= self._synced:
            return
        if self.blocked is not None:
            raise StoreBlockedError(self.blocked, retry_after_s=5.0)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((number, future))
        await future

    async def close(self) -> None:
        """Write the queued records if possible, and release the folder."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
        if self._file >= 0:
            os.close(self._file)
        os.close(self._lock)

    def _write(self, loop: asyncio.AbstractEventLoop) -> None:
        """The body of the thread: write one group after the other."""
        number = self._synced
        try:
            while True:
                group = self._next_group()
                if group is None:
                    return
                if isinstance(group, tuple):
                    self._rotate(*group)
                elif self._write_synced(loop, frame(number, group)):
                    number += len(group)
                    _call_on_loop(loop, self._on_synced, number)
                else:
                    return
        except OSError as error:
            _call_on_loop(loop, self._on_failed, error)

    def _next_group(self) -> list[bytes] | tuple[int, bytes] | None:
        """The next records to write, or the next snapshot; None if the store is closed and nothing is left."""
        with self._changed:
            while not self._pending:
                if self._is_closing:
                    return None
                self._changed.wait()
            if isinstance(self._pending[0], tuple):
                entry = self._pending.popleft()
                assert isinstance(entry, tuple)  # noqa: S101 - for the type checker
                return entry
            group: list[bytes] = []
            while self._pending and len(group) < GROUP and isinstance(self._pending[0], bytes):
                record = self._pending.popleft()
                if isinstance(record, bytes):
                    group.append(record)
            return group

    def _write_synced(self, loop: asyncio.AbstractEventLoop, data: bytes) -> bool:
        """Write a frame and sync it. Wait while the disk is full; return False if the store is closed meanwhile."""
        self._check_alone()
        was_full = False
        while True:
            try:
                _write_all(self._file, data, self._offset)
                os.fdatasync(self._file)
            except OSError as error:
                if error.errno not in _DISK_FULL:
                    raise
                with contextlib.suppress(OSError):
                    os.ftruncate(self._file, self._offset)
                was_full = True
                why = f"journal {self._folder.path}: {error.strerror}; free space on its volume"
                _call_on_loop(loop, self._on_blocked, why)
                with self._changed:
                    if self._is_closing or (self._changed.wait(_RETRY_S) and self._is_closing):
                        return False
            else:
                self._offset += len(data)
                if was_full:
                    _call_on_loop(loop, self._on_blocked, None)
                return True

    def _rotate(self, number: int, state: bytes) -> None:
        """Start a new file, then let the snapshot count; after a crash in between, the old file is still complete."""
        path = self._folder.snapshot(number)
        draft = path.with_suffix(".draft")
        written = self._offset
        try:
            self._check_alone()
            draft.unlink(missing_ok=True)
            with os.fdopen(open_plain(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
                file.write(snapshot_bytes(state))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            draft.unlink(missing_ok=True)
            if error.errno in _DISK_FULL:
                return  # continue with the old file
            raise
        try:
            self._offset = 0
            self._open(number)
        except OSError as error:
            self._offset = written
            draft.unlink(missing_ok=True)
            if error.errno not in _DISK_FULL:
                raise
            with contextlib.suppress(OSError):
                self._folder.journal(number).unlink(missing_ok=True)
            return  # continue with the old file
        try:
            draft.replace(path)
            _sync_folder(self._folder.path)
        except OSError as error:
            draft.unlink(missing_ok=True)
            if error.errno not in _DISK_FULL:
                raise
            return  # a restart begins with the snapshot before, and reads both files
        self._delete_old_files()

    def _delete_old_files(self) -> None:
        kept, files = 0, self._folder.journals()[:-1]
        for number, path in reversed(files):
            kept += path.stat().st_size
            if kept > _KEPT_BYTES:
                # The snapshot goes first: alone it would make the next start report missing records.
                self._folder.snapshot(number).unlink(missing_ok=True)
                path.unlink()

    def _on_synced(self, number: int) -> None:
        self._synced = number
        while self._waiting and self._waiting[0][0] <= number:
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)

    def _on_blocked(self, why: str | None) -> None:
        self.blocked = why
        if why is not None:
            self._fail_waiting(StoreBlockedError(why, retry_after_s=5.0))

    def _on_failed(self, error: OSError) -> None:
        self._error = error
        self._fail_waiting(JournalError(self._failure(error)))

    def _failure(self, error: OSError) -> str:
        return (
            f"journal {self._folder.path}: writing failed: {error.strerror or error}; check the disk, then restart"
            " the master"
        )

    def _fail_waiting(self, error: Exception) -> None:
        while self._waiting:
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_exception(error)


def _lock(path: Path) -> int:
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = open_plain(path / LOCK, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        user = f" for user {os.geteuid()}" if isinstance(error, PermissionError) else ""
        raise ConfigError(
            f"--journal {path}: {error.strerror}{user}; give a folder or a volume that this user can write to"
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise ConfigError(
            f"--journal {path}: another master uses this folder; give each master its own folder"
        ) from error
    return lock


def _write_all(file: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, offset)
        view, offset = view[written:], offset + written


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _call_on_loop(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *values: object) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed, so nothing waits for the result
        loop.call_soon_threadsafe(callback, *values)
