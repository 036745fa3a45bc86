"""The records that a training loop gets: numbers, lines of files, or rows of Parquet files.

A piece of neighbouring records is read at once, and the last pieces stay in memory: a window of the epoch's order
takes its records from few pieces. If a file differs from what the master counted, the loop ends with an error. A
record that cannot be decoded is one bad record.
"""

from __future__ import annotations

import importlib
from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Protocol
from urllib.parse import urlencode

from edl.errors import EdlError
from edl.worker.files import LINES, PARQUET, DatasetError, FileStore, SourceFile
from edl.worker.lease import BadRecord

_CACHE_BYTES = 64 * 1024 * 1024
_CHUNK_BYTES = 64 * 1024  # of rows that are turned into Python's objects at once
_MOST_CHUNK_ROWS = 1024
_CACHED_CHUNKS = 32
_LEAST_PIECES = 2  # a window of the epoch's order may take turns between the pieces at its ends
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

Reader = Callable[[Any], Any]
"""Turns a record (a number, a line or a row) into what the training loop needs."""
_Object = dict[str, Any]


class Source(Protocol):
    """The records of a data set."""

    def record(self, number: int) -> Any:  # noqa: ANN401 - any kind of record
        """Read one record.

        Args:
            number: of the record, from 0.

        Raises:
            ValueError: this record is bad.
            EdlError: the data set cannot be read.
        """


class IndexSource:
    """The records of `index:N`: numbers, whose meaning the training code knows."""

    def record(self, number: int) -> int:
        """The number itself."""
        return number


class _Piece(Protocol):
    """A piece in memory."""

    @property
    def size(self) -> int:
        """Its size in bytes."""

    def record(self, index: int) -> Any:  # noqa: ANN401 - any kind of record
        """One of its records; the index counts from its first record."""


class FileSource:
    """The records of files; the pieces that were read last stay in memory.

    Args:
        source: lines:GLOB or parquet:GLOB.
        locate: asks the master for the piece that holds a record.

    Raises:
        ConfigError: a package that reads such files is not installed.
    """

    def __init__(self, source: str, locate: Callable[[int], _Object]) -> None:
        self._store, self._locate = FileStore(source), locate
        kinds: dict[str, Callable[[FileStore, _Object], _Piece]] = {LINES: _Lines, PARQUET: _Rows}
        self._read = kinds[self._store.kind]
        self._cache: OrderedDict[int, tuple[int, _Piece]] = OrderedDict()  # first record -> (count, piece)
        self._firsts: list[int] = []  # the first records of the cached pieces, sorted
        self._bytes = 0

    def record(self, number: int) -> Any:  # noqa: ANN401 - any kind of record
        """See `Source.record`."""
        at = bisect_right(self._firsts, number) - 1
        if at >= 0:
            first = self._firsts[at]
            count, piece = self._cache[first]
            if number < first + count:
                self._cache.move_to_end(first)
                return piece.record(number - first)
        found = self._locate(number)
        first = int(found["first"])
        piece = self._read(self._store, found)
        self._cache[first] = found["count"], piece
        insort(self._firsts, first)
        self._bytes += piece.size
        while self._bytes > _CACHE_BYTES and len(self._cache) > _LEAST_PIECES:
            old_first, (_, old) = self._cache.popitem(last=False)
            self._firsts.remove(old_first)
            self._bytes -= old.size
        return piece.record(number - first)


def source_of(dataset: _Object, get: Callable[[str], _Object]) -> Source:
    """The records of a data set.

    Args:
        dataset: the field `dataset` of the master's status.
        get: sends a GET request for a path to the master.

    Raises:
        ConfigError: a package that reads such a data set is not installed.
    """
    if dataset["source"].startswith("index:"):
        return IndexSource()
    return FileSource(dataset["source"], lambda number: get(f"/v1/dataset/piece?{urlencode({'record': number})}"))


def read_records(source: Source, numbers: list[int], read: Reader | None) -> list[Any] | BadRecord:
    """Read some records.

    Args:
        source: the records of the data set.
        numbers: which records to read.
        read: turns each record into what the loop needs; None leaves it unchanged.

    Returns:
        The records in the order of `numbers`, or the first bad one.

    Raises:
        EdlError: the data set cannot be read; no record is to blame.
    """
    found = []
    record_of = source.record
    for index, number in enumerate(numbers):
        try:
            record = record_of(number)
            found.append(record if read is None else read(record))
        except EdlError:
            raise
        except Exception as error:
            return BadRecord(f"record {number}: {type(error).__name__}: {error}", index)
    return found


class _Lines:
    """Some lines of a file, without their line ends."""

    def __init__(self, store: FileStore, found: _Object) -> None:
        file = SourceFile(found["path"], found["size"], found["stamp"])
        with store.opened(file) as data:
            data.seek(found["place"])
            text = data.read(found["length"])
        self.size = len(text)
        self._lines: list[bytes] = text.split(b"\n")
        if not self._lines[-1]:
            self._lines.pop()  # the text ends with a line end, and no line follows it
        if len(self._lines) != found["count"]:
            raise DatasetError(
                f"dataset {store.source!r}: the file {file.path} has {len(self._lines)} lines after byte"
                f" {found['place']}, but the master counted {found['count']}; trainers need the master's files"
            )
        if found["place"] == 0:
            self._lines[0] = self._lines[0].removeprefix(_BYTE_ORDER_MARK)
        self._name = f"the file {file.path}: after byte {found['place']}"

    def record(self, index: int) -> str:
        """One line; an empty line is a record too."""
        line = self._lines[index].removesuffix(b"\r")
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{self._name} line {index + 1} is not UTF-8: {error.reason} at byte {error.start + 1} of the line;"
                " convert the file to UTF-8, or decompress it"
            ) from error


class _Rows:
    """A row group of a Parquet file; each row is a dictionary: column name -> value."""

    def __init__(self, store: FileStore, found: _Object) -> None:
        file = SourceFile(found["path"], found["size"], found["stamp"])
        parquet, arrow = importlib.import_module("pyarrow.parquet"), importlib.import_module("pyarrow")
        with store.opened(file) as data:
            try:
                self._table = parquet.ParquetFile(data).read_row_group(found["place"])
            except (arrow.ArrowException, IndexError, OSError) as error:
                raise DatasetError(
                    f"dataset {store.source!r}: the file {file.path}: row group {found['place']} cannot be read:"
                    f" {error}; replace the file by an intact copy"
                ) from error
        self.size = int(self._table.nbytes)
        self._chunk: int = max(
            1, min(_MOST_CHUNK_ROWS, _CHUNK_BYTES * max(1, self._table.num_rows) // max(1, self.size))
        )
        self._chunks: OrderedDict[int, list[_Object]] = OrderedDict()

    def record(self, index: int) -> _Object:
        """One row."""
        number, offset = divmod(index, self._chunk)
        chunk = self._chunks.get(number)
        if chunk is None:
            chunk = self._chunks[number] = self._table.slice(number * self._chunk, self._chunk).to_pylist()
            if len(self._chunks) > _CACHED_CHUNKS:
                self._chunks.popitem(last=False)
        return chunk[offset]
