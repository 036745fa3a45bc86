"""The files of a journal: frames of records with checksums, and a snapshot of the state before each file.

`journal-N` holds the records after the first N, and `snapshot-N` the state after N records. A frame is written and
synced at once, and the next frame is written only after that. A crash can therefore damage only the last frame, whose
records were never acknowledged: reading drops it. A damaged frame with a valid one after it means lost records that
were acknowledged. Reading refuses it, because only a person may decide to lose them.

Frame: `edlJ`, length of the payload, number of its first record, CRC-32 of these two and of the payload, then the
payload with one record per line. The files can be read while a master writes them, and so can a copy made meanwhile.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from edl.ledger.events import JournalError

MAGIC = b"edlJ"
_FIELDS = struct.Struct(">IQ")  # length of the payload, number of its first record
_CRC = struct.Struct(">I")
_HEADER = len(MAGIC) + _FIELDS.size + _CRC.size
_SNAPSHOT_MAGIC = b"edlS"
_NOT_PLAIN = {errno.ELOOP, errno.EISDIR, errno.ENXIO}  # a link, a folder, a socket or a pipe without a reader


def frame(first: int, records: list[bytes]) -> bytes:
    """The bytes of one frame.

    Args:
        first: the number of its first record, from 0.
        records: without line breaks.
    """
    payload = b"\n".join(records)
    fields = _FIELDS.pack(len(payload), first)
    return MAGIC + fields + _CRC.pack(zlib.crc32(payload, zlib.crc32(fields))) + payload


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of the valid part of a file.

    Attributes:
        valid_bytes: the size of the valid frames; a crash damaged the bytes after them.
        number: how many records come before this point, counted over all files.
    """

    valid_bytes: int
    number: int


class JournalFolder:
    """A folder with the files of one journal.

    Args:
        path: the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def journals(self) -> list[tuple[int, Path]]:
        """(number of records before it, file) of each journal file, in ascending order."""
        return self._named("journal-")

    def snapshots(self) -> list[tuple[int, Path]]:
        """(number of records before it, file) of each snapshot, in ascending order."""
        return self._named("snapshot-")

    def journal(self, number: int) -> Path:
        """The file that starts with the record of that number."""
        return self.path / f"journal-{number:015d}"

    def snapshot(self, number: int) -> Path:
        """The file with the state before the record of that number."""
        return self.path / f"snapshot-{number:015d}"

    def read_snapshot(self, path: Path) -> bytes:
        """The state in a snapshot.

        Raises:
            JournalError: the snapshot is damaged, or cannot be read.
        """
        data = _read(path)
        head = len(_SNAPSHOT_MAGIC) + _CRC.size
        if data[: len(_SNAPSHOT_MAGIC)] != _SNAPSHOT_MAGIC or data[len(_SNAPSHOT_MAGIC) : head] != _CRC.pack(
            zlib.crc32(data[head:])
        ):
            raise JournalError(
                f"journal {path}: the snapshot is damaged; delete this one file, so that the master replays the"
                " records from an earlier snapshot, or from the beginning of the journal"
            )
        return data[head:]

    def records(self, path: Path, number: int, tails: list[Tail]) -> Iterator[bytes]:
        """The records of one file.

        Args:
            path: the file.
            number: the number of its first record.
            tails: the end of the valid part is appended to this list once all records are read.

        Raises:
            JournalError: a damaged frame has valid frames after it, or records are missing.
        """
        data, at = _read(path), 0
        while at < len(data):
            payload = _payload(data, at)
            if payload is None:
                _check_is_torn_tail(path, data, at)
                break
            first, content = payload
            if first != number:
                raise JournalError(
                    f"journal {path}: at byte {at} record {first} follows record {number - 1}: records are missing;"
                    " put the whole journal back from a copy"
                )
            records = content.split(b"\n")
            yield from records
            number += len(records)
            at += _HEADER + len(content)
        tails.append(Tail(at, number))

    def _named(self, prefix: str) -> list[tuple[int, Path]]:
        names = [p for p in self.path.glob(prefix + "*") if p.name[len(prefix) :].isdecimal()]
        return sorted((int(p.name[len(prefix) :]), p) for p in names)


def open_plain(path: Path, flags: int) -> int:
    """Open a file of a journal, which must be a plain file; returns its descriptor.

    Somebody else may have written the folder: a symbolic link would lead a master to overwrite, and an audit to read,
    a file elsewhere, and a pipe would never end.

    Args:
        path: the file; it is created with mode 600 if the flags say so.
        flags: the flags of `os.open`.

    Raises:
        JournalError: it is a link, a pipe, a device, a socket or a folder.
        OSError: it cannot be opened.
    """
    problem = f"journal {path}: is not a plain file; replace it by the file itself, from a copy of the journal"
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno in _NOT_PLAIN:
            raise JournalError(problem) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise JournalError(problem)
    return descriptor


def snapshot_bytes(state: bytes) -> bytes:
    """The content of a snapshot file that holds this state."""
    return _SNAPSHOT_MAGIC + _CRC.pack(zlib.crc32(state)) + state


def _payload(data: bytes, at: int) -> tuple[int, bytes] | None:
    """(number of the first record, payload) of the frame at a byte; None if there is no valid frame."""
    begin = at + len(MAGIC)
    if data[at:begin] != MAGIC or len(data) < at + _HEADER:
        return None
    fields = data[begin : begin + _FIELDS.size]
    length, first = _FIELDS.unpack(fields)
    content = data[at + _HEADER : at + _HEADER + length]
    (checksum,) = _CRC.unpack_from(data, begin + _FIELDS.size)
    if len(content) < length or zlib.crc32(content, zlib.crc32(fields)) != checksum:
        return None
    return first, content


def _check_is_torn_tail(path: Path, data: bytes, at: int) -> None:
    """Refuse a damaged frame, unless it is the last one, which a crash may have torn."""
    if data[at : at + len(MAGIC)] == MAGIC and len(data) >= at + _HEADER:
        length, _ = _FIELDS.unpack_from(data, at + len(MAGIC))
        if length and at + _HEADER + length < len(data):
            raise _damaged(path, at)
    later = data.find(MAGIC, at + 1)
    while later >= 0:
        if _payload(data, later) is not None:
            raise _damaged(path, at)
        later = data.find(MAGIC, later + 1)


def _damaged(path: Path, at: int) -> JournalError:
    return JournalError(
        f"journal {path}: damaged at byte {at}, and more data follows; put the journal back from a copy, or start the"
        " training again with an empty folder"
    )


def _read(path: Path) -> bytes:
    try:
        with os.fdopen(open_plain(path, os.O_RDONLY), "rb") as file:
            return file.read()
    except OSError as error:
        raise JournalError(f"journal {path}: cannot be read: {error.strerror}; make the file readable") from error
