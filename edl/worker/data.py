"""What a trainer's loop is handed: a number, a line of a file, or a row of a Parquet file.

Pieces of neighbouring records are read whole, in the order of the leases, and the last ones are kept: a window of the
epoch's order takes its records from few pieces. A file that is not as the master saw it ends the loop with an error,
because its records are not those that were counted; a record that cannot be decoded is one bad record.
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
from edl.worker.lease import Fault

_KEPT_BYTES = 64 * 1024 * 1024
_CHUNK_ROWS = 1024
_KEPT_CHUNKS = 32
_BOM = b"\xef\xbb\xbf"

Reader = Callable[[Any], Any]
_Object = dict[str, Any]


class Source(Protocol):
    """Where records come from."""

    def record(self, number: int) -> Any:  # noqa: ANN401 whatever the data set holds
        """One record.

        Args:
            number: from 0.

        Raises:
            ValueError: that record is bad.
            EdlError: the data set cannot be read.
        """


class Numbers:
    """`index:N`: the code knows what a number means."""

    def record(self, number: int) -> int:
        """The number."""
        return number


class _Piece(Protocol):
    """A piece that was read."""

    @property
    def size(self) -> int:
        """Bytes that it takes."""

    def record(self, index: int) -> Any:  # noqa: ANN401 whatever the data set holds
        """One of its records, counted from its first."""


class Pieces:
    """Records of files, of which the pieces that were read last are kept.

    Args:
        source: lines:GLOB or parquet:GLOB.
        locate: asks the master where a record lies.

    Raises:
        ConfigError: what reads such files is not installed.
    """

    def __init__(self, source: str, locate: Callable[[int], _Object]) -> None:
        self._store, self._locate = FileStore(source), locate
        kinds: dict[str, Callable[[FileStore, _Object], _Piece]] = {LINES: _Lines, PARQUET: _Rows}
        self._read = kinds[self._store.kind]
        self._kept: OrderedDict[int, tuple[int, _Piece]] = OrderedDict()  # first record -> (count, piece)
        self._firsts: list[int] = []
        self._bytes = 0

    def record(self, number: int) -> Any:  # noqa: ANN401 whatever the data set holds
        """See `Source.record`."""
        at = bisect_right(self._firsts, number) - 1
        if at >= 0:
            first = self._firsts[at]
            count, piece = self._kept[first]
            if number < first + count:
                self._kept.move_to_end(first)
                return piece.record(number - first)
        found = self._locate(number)
        first = int(found["first"])
        piece = self._read(self._store, found)
        self._kept[first] = found["count"], piece
        insort(self._firsts, first)
        self._bytes += piece.size
        while self._bytes > _KEPT_BYTES and len(self._kept) > 1:
            old, (_, gone) = self._kept.popitem(last=False)
            self._firsts.remove(old)
            self._bytes -= gone.size
        return piece.record(number - first)


def source_of(dataset: _Object, ask: Callable[[str], _Object]) -> Source:
    """Where the records of a data set come from.

    Args:
        dataset: as the master's status tells it.
        ask: one GET of the master.

    Raises:
        ConfigError: what reads such a data set is not installed.
    """
    if dataset["source"].startswith("index:"):
        return Numbers()
    return Pieces(dataset["source"], lambda number: ask(f"/v1/dataset/piece?{urlencode({'record': number})}"))


def read_all(source: Source, numbers: list[int], read: Reader | None) -> list[Any] | Fault:
    """Some records, as the loop wants them; or which of them is bad and why.

    Raises:
        EdlError: the data set cannot be read, and no record is to blame.
    """
    found = []
    for index, number in enumerate(numbers):
        try:
            record = source.record(number)
            found.append(record if read is None else read(record))
        except EdlError:
            raise
        except Exception as error:
            return Fault(f"record {number}: {type(error).__name__}: {error}", index)
    return found


class _Lines:
    """Some lines of a file, without their ends."""

    def __init__(self, store: FileStore, found: _Object) -> None:
        file = SourceFile(found["path"], found["size"], found["stamp"])
        with store.opened(file) as data:
            data.seek(found["place"])
            text = data.read(found["length"])
        self.size = len(text)
        self._lines: list[bytes] = text.split(b"\n")
        if not self._lines[-1]:
            self._lines.pop()  # what is behind the last line's end is no line
        if len(self._lines) != found["count"]:
            raise DatasetError(
                f"dataset {store.source!r}: the file {file.path} has {len(self._lines)} lines from byte"
                f" {found['place']} on where the master saw {found['count']}; give trainers the master's files"
            )
        if found["place"] == 0:
            self._lines[0] = self._lines[0].removeprefix(_BOM)
        self._name = f"the file {file.path}: in the lines from byte {found['place']} on"

    def record(self, index: int) -> str:
        """A line; an empty one is a record, too."""
        line = self._lines[index].removesuffix(b"\r")
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{self._name} line {index + 1} is not UTF-8: {error.reason} at its byte {error.start + 1}; convert"
                " the file, or unpack it where it is compressed"
            ) from error


class _Rows:
    """A row group of a Parquet file, as dictionaries by the columns' names."""

    def __init__(self, store: FileStore, found: _Object) -> None:
        file = SourceFile(found["path"], found["size"], found["stamp"])
        parquet, arrow = importlib.import_module("pyarrow.parquet"), importlib.import_module("pyarrow")
        with store.opened(file) as data:
            try:
                self._table = parquet.ParquetFile(data).read_row_group(found["place"])
            except (arrow.ArrowException, IndexError, OSError) as error:
                raise DatasetError(
                    f"dataset {store.source!r}: the file {file.path}: row group {found['place']} cannot be read:"
                    f" {error}; write the file again"
                ) from error
        self.size = int(self._table.nbytes)
        self._chunks: OrderedDict[int, list[_Object]] = OrderedDict()

    def record(self, index: int) -> _Object:
        """A row."""
        number, offset = divmod(index, _CHUNK_ROWS)
        chunk = self._chunks.get(number)
        if chunk is None:
            chunk = self._chunks[number] = self._table.slice(number * _CHUNK_ROWS, _CHUNK_ROWS).to_pylist()
            if len(self._chunks) > _KEPT_CHUNKS:
                self._chunks.popitem(last=False)
        return chunk[offset]
