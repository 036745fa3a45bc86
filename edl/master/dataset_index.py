"""Where the records of a data set lie: pieces of neighbouring records that are read in one go.

A piece is some lines of a file, or a row group of one. The index takes 24 bytes a piece, whatever the records are,
and is kept in a file beside the journal, so that a master that starts again need not read the data set again.
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
        first: the number of its first record.
        records: how many it holds.
        place: where it begins: a byte offset, or the number of a row group.
        length: bytes of it; without a meaning for a row group.
    """

    file: SourceFile
    first: int
    records: int
    place: int
    length: int


def version_of(files: list[SourceFile]) -> str:
    """What changes when a file comes, goes or changes."""
    return hashlib.sha256(json.dumps(files).encode()).hexdigest()[:32]


class DatasetIndex:
    """The pieces of a data set, in the order of their files.

    Args:
        files: what is read, by path.

    Attributes:
        total: records so far.
        largest: records of the largest piece.
    """

    def __init__(self, files: list[SourceFile]) -> None:
        self.files = files
        self.version = version_of(files)
        self.total = self.largest = 0
        self._firsts, self._places, self._owners = array("Q"), array("Q"), array("Q")

    def add(self, owner: int, place: int, count: int) -> None:
        """The next piece of a file.

        Args:
            owner: which of the files.
            place: where in it the piece begins.
            count: its records, at least 1.
        """
        self._firsts.append(self.total)
        self._places.append(place)
        self._owners.append(owner)
        self.total += count
        self.largest = max(self.largest, count)

    def piece(self, record: int) -> Piece:
        """The piece that holds a record.

        Args:
            record: in `[0, total)`.
        """
        number = bisect_right(self._firsts, record) - 1
        owner, place, first = self._owners[number], self._places[number], self._firsts[number]
        is_last = number + 1 == len(self._firsts)
        end = self.total if is_last else self._firsts[number + 1]
        same = not is_last and self._owners[number + 1] == owner
        stop = self._places[number + 1] if same else self.files[owner].size
        return Piece(self.files[owner], first, end - first, place, stop - place)

    def save(self, folder: Path) -> None:
        """Keep it in a file, whole or not at all; where there is no room it is made again after a restart."""
        head = {
            "files": self.files,
            "total": self.total,
            "largest": self.largest,
            "pieces": len(self._firsts),
            "order": sys.byteorder,
        }
        arrays = b"".join(part.tobytes() for part in (self._firsts, self._places, self._owners))
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
    """The index that was kept; None where it is missing or damaged: it can be made again."""
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
    for number, part in enumerate((index._firsts, index._places, index._owners)):  # noqa: SLF001 of our own class
        part.frombytes(arrays[number * size : (number + 1) * size])
    return index
