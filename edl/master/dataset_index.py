"""The index of a data set: which file holds a record, and where. It lists pieces of neighbouring records.

A piece is some lines of a file, or one row group. A trainer reads a piece at once. The index takes 24 bytes for each
piece, whatever the size of the records. It is stored in a file next to the journal, so that a restarted master does
not read the data set again.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from array import array
from bisect import bisect_right
from pathlib import Path
from typing import NamedTuple

from edl.worker.files import SourceFile

_MAGIC = b"edlI"


class Piece(NamedTuple):
    """Neighbouring records of one file.

    Attributes:
        file: the file that holds it.
        first: the number of its first record.
        records: how many records it holds.
        place: where it begins: a byte offset, or the number of a row group.
        length: its size in bytes; meaningless for a row group.
    """

    file: SourceFile
    first: int
    records: int
    place: int
    length: int


def version_of(files: list[SourceFile]) -> str:
    """A hash that changes when a file is added, removed or changed."""
    return hashlib.sha256(json.dumps(files).encode()).hexdigest()[:32]


class DatasetIndex:
    """The pieces of a data set, in the order of their files.

    Args:
        files: the files of the data set, sorted by path.

    Attributes:
        version: a hash of the files.
        total: how many records the pieces hold.
        largest: how many records the largest piece holds.
    """

    def __init__(self, files: list[SourceFile]) -> None:
        self.files = files
        self.version = version_of(files)
        self.total = self.largest = 0
        # For each piece: its first record, its place in its file, and the index of its file.
        self._firsts, self._places, self._files = array("Q"), array("Q"), array("Q")

    def add(self, file: int, place: int, count: int) -> None:
        """Append a piece.

        Args:
            file: the index of its file.
            place: where in the file it begins.
            count: how many records it holds, at least 1.
        """
        self._firsts.append(self.total)
        self._places.append(place)
        self._files.append(file)
        self.total += count
        self.largest = max(self.largest, count)

    def piece(self, record: int) -> Piece:
        """The piece that holds a record.

        Args:
            record: in `[0, total)`.
        """
        number = bisect_right(self._firsts, record) - 1
        file, place, first = self._files[number], self._places[number], self._firsts[number]
        is_last = number + 1 == len(self._firsts)
        end = self.total if is_last else self._firsts[number + 1]
        same = not is_last and self._files[number + 1] == file
        stop = self._places[number + 1] if same else self.files[file].size
        return Piece(self.files[file], first, end - first, place, stop - place)

    def save(self, folder: Path) -> None:
        """Write the index to a file, completely or not at all.

        A write that fails is not an error: a restarted master builds the index again.
        """
        head = {
            "files": self.files,
            "total": self.total,
            "largest": self.largest,
            "pieces": len(self._firsts),
            "order": sys.byteorder,
        }
        arrays = b"".join(part.tobytes() for part in (self._firsts, self._places, self._files))
        line = json.dumps(head).encode() + b"\n"
        path = folder / f"dataset-{self.version}"
        new = path.with_suffix(".new")
        try:
            with new.open("wb") as file:
                file.write(_MAGIC + hashlib.sha256(line + arrays).digest() + line + arrays)
                file.flush()
                os.fsync(file.fileno())
            new.replace(path)
        except OSError:
            new.unlink(missing_ok=True)


def load_index(folder: Path, version: str) -> DatasetIndex | None:
    """Read a stored index.

    Returns:
        The index; None if it is missing or damaged, and the caller has to build it again.
    """
    try:
        data = (folder / f"dataset-{version}").read_bytes()
    except OSError:
        return None
    magic, digest, rest = data[:4], data[4:36], data[36:]
    if magic != _MAGIC or hashlib.sha256(rest).digest() != digest:
        return None
    line, _, arrays = rest.partition(b"\n")
    head = json.loads(line)
    if head["order"] != sys.byteorder:
        return None
    index = DatasetIndex([SourceFile(*file) for file in head["files"]])
    index.total, index.largest = head["total"], head["largest"]
    size = 8 * head["pieces"]
    for number, part in enumerate((index._firsts, index._places, index._files)):  # noqa: SLF001 - the same module
        part.frombytes(arrays[number * size : (number + 1) * size])
    return index
