"""The files of a journal: frames of records with checksums, and snapshots of the state before each file of them.

`journal-N` holds the records after the first N; `snapshot-N` the state after N records, where `journal-N` goes on.
A frame is what was written and synced in one go, and the next frame is begun only when it is on the disk. So a crash
can tear the last frame alone, and that one was never acknowledged: it is cut off. A broken frame with a whole one
behind it is damage, and nobody but a person may decide to lose what was acknowledged.

Frame: `edlJ`, length of the payload, number of its first record, CRC-32 of both and the payload, then the payload:
one record a line. Everything can be read while a master writes, and from a copy made meanwhile.
"""

from __future__ import annotations

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


def frame(first: int, records: list[bytes]) -> bytes:
    """One frame.

    Args:
        first: number of its first record, from 0.
        records: without line breaks.
    """
    payload = b"\n".join(records)
    fields = _FIELDS.pack(len(payload), first)
    return MAGIC + fields + _CRC.pack(zlib.crc32(payload, zlib.crc32(fields))) + payload


@dataclass(frozen=True, slots=True)
class Tail:
    """Where reading a file ended.

    Attributes:
        whole: bytes of whole frames; what is behind them was torn.
        number: records before this point, counted over all files.
    """

    whole: int
    number: int


class JournalFolder:
    """A folder with the files of one journal.

    Args:
        path: the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def journals(self) -> list[tuple[int, Path]]:
        """(records before it, file), ascending."""
        return self._named("journal-")

    def snapshots(self) -> list[tuple[int, Path]]:
        """(records before it, file), ascending."""
        return self._named("snapshot-")

    def journal(self, number: int) -> Path:
        """The file of the records from that number on."""
        return self.path / f"journal-{number:015d}"

    def snapshot(self, number: int) -> Path:
        """The state before that record."""
        return self.path / f"snapshot-{number:015d}"

    def read_snapshot(self, path: Path) -> bytes:
        """What was given to `snapshot_bytes`.

        Raises:
            JournalError: it is damaged.
        """
        data = _read(path)
        head = len(_SNAPSHOT_MAGIC) + _CRC.size
        if data[: len(_SNAPSHOT_MAGIC)] != _SNAPSHOT_MAGIC or data[len(_SNAPSHOT_MAGIC) : head] != _CRC.pack(
            zlib.crc32(data[head:])
        ):
            raise JournalError(
                f"journal {path}: the snapshot is damaged; delete this one file, so that the records before it are"
                " replayed from the snapshot or the journal that came earlier"
            )
        return data[head:]

    def records(self, path: Path, number: int, tails: list[Tail]) -> Iterator[bytes]:
        """The records of one file; puts where they end into `tails`.

        Args:
            path: the file.
            number: of its first record.
            tails: gets one entry when all were read.

        Raises:
            JournalError: it is damaged: a broken frame has whole ones behind it, or records are missing.
        """
        data, at = _read(path), 0
        while at < len(data):
            payload = _payload(data, at)
            if payload is None:
                _refuse_damage(path, data, at)
                break
            first, content = payload
            if first != number:
                raise JournalError(
                    f"journal {path}: record {first} follows record {number - 1} at byte {at}; records are missing:"
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


def snapshot_bytes(state: bytes) -> bytes:
    """The content of a snapshot's file."""
    return _SNAPSHOT_MAGIC + _CRC.pack(zlib.crc32(state)) + state


def _payload(data: bytes, at: int) -> tuple[int, bytes] | None:
    """(number of the first record, payload) of the frame at `at`; None where there is no whole one."""
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


def _refuse_damage(path: Path, data: bytes, at: int) -> None:
    if data[at : at + len(MAGIC)] == MAGIC and len(data) >= at + _HEADER:
        length, _ = _FIELDS.unpack_from(data, at + len(MAGIC))
        if length and at + _HEADER + length < len(data):
            raise _damaged(path, at)
    behind = data.find(MAGIC, at + 1)
    while behind >= 0:
        if _payload(data, behind) is not None:
            raise _damaged(path, at)
        behind = data.find(MAGIC, behind + 1)


def _damaged(path: Path, at: int) -> JournalError:
    return JournalError(
        f"journal {path}: damaged at byte {at}, and more was written behind it; put the journal back from a copy, or"
        " begin the training anew with an empty folder"
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise JournalError(f"journal {path}: cannot be read: {error.strerror}; give a readable folder") from error
