"""Pieces of files in memory: a piece is some lines, a row group, or some samples of a tar file. And their cache.

A window of the epoch's order takes its records from several pieces by turns. The cache keeps each piece until such a
window is over, as far as the memory of this process allows; otherwise every record would read a whole piece.
"""

from __future__ import annotations

import importlib
import io
import logging
import os
import tarfile
from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from edl.errors import ConfigError
from edl.ledger.permutation import WINDOW
from edl.worker.files import LINES, PARQUET, TAR, DatasetError, FileStore, SourceFile
from edl.worker.tar_samples import TarSample, opened_tar, samples

_MEGABYTE = 2**20
_KEPT_BYTES = 64 * _MEGABYTE
_MOST_BYTES = 1024 * _MEGABYTE
_LEAST_PIECES = 2  # a window of the epoch's order may take turns between the pieces at its ends
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_CHUNK_BYTES = 64 * 1024  # of rows that are turned into Python's objects at once
_LEAST_CHUNK_ROWS, _MOST_CHUNK_ROWS = 32, 1024
_CACHED_CHUNKS = 32
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_Object = dict[str, Any]
_log = logging.getLogger(__name__)


class Piece(Protocol):
    """The records of a part of a file, in memory."""

    @property
    def size(self) -> int:
        """The size of the piece in bytes."""

    def record(self, index: int) -> Any:  # noqa: ANN401 - any kind of record
        """Return one record of the piece; `index` counts from the first record of the piece.

        Raises:
            ValueError: this record is bad.
        """


def read_piece(store: FileStore, found: _Object) -> Piece:
    """Read a piece.

    Args:
        store: the store of its file.
        found: what the master says of it.

    Raises:
        DatasetError: the file cannot be read, or differs from what the master counted.
    """
    kinds: dict[str, Callable[[FileStore, _Object], Piece]] = {LINES: _Lines, PARQUET: _Rows, TAR: _Samples}
    return kinds[store.kind](store, found)


def cache_limit(environment: Mapping[str, str]) -> int:
    """The most bytes of pieces in memory: EDL_DATA_CACHE_MB; else 1 GiB, or a quarter of the memory of this process.

    Raises:
        ConfigError: EDL_DATA_CACHE_MB is no whole number above 0.
    """
    text = environment.get("EDL_DATA_CACHE_MB", "")
    if text:
        if not text.isdecimal() or not int(text):
            raise ConfigError(f"EDL_DATA_CACHE_MB={text!r} is no whole number above 0; set it to one, or unset it")
        return int(text) * _MEGABYTE
    memory = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in map(Path, _LIMITS):
        limit = path.read_text().strip() if path.exists() else ""
        memory += [int(limit)] if limit.isdecimal() else []
    return min(_MOST_BYTES, min(memory) // 4)


class PieceCache:
    """Keeps the pieces of files that were read last in memory.

    Args:
        store: the store of the files.
        locate: asks the master for the piece that holds a record.
        limit: the most bytes of pieces, except that two pieces always stay.
    """

    def __init__(self, store: FileStore, locate: Callable[[int], _Object], limit: int) -> None:
        self._store, self._locate, self._limit = store, locate, limit
        self._cache: OrderedDict[int, tuple[int, Piece]] = OrderedDict()  # first record -> (count, piece)
        self._used: dict[int, int] = {}  # first record -> number of the record that was read last from the piece
        self._firsts: list[int] = []  # the first records of the cached pieces, sorted
        self._bytes = self._reads = 0
        self._has_said = False
        self._first = self._end = 0  # of the current piece
        self._piece_record: Callable[[int], Any] = lambda _: None

    def record(self, number: int) -> Any:  # noqa: ANN401 - any kind of record
        """Read one record; its piece of the file stays in memory for the next ones."""
        self._reads += 1
        if not self._first <= number < self._end:
            self._turn_to(number)
        return self._piece_record(number - self._first)

    def _turn_to(self, number: int) -> None:
        """Make the piece that holds a record the current one."""
        if self._first in self._cache:
            self._used[self._first] = self._reads
        at = bisect_right(self._firsts, number) - 1
        first = self._firsts[at] if at >= 0 else 0
        if at < 0 or number >= first + self._cache[first][0]:
            found = self._locate(number)
            first = int(found["first"])
            piece = read_piece(self._store, found)
            self._cache[first] = found["count"], piece
            insort(self._firsts, first)
            self._bytes += piece.size
            self._used[first] = self._reads
            self._shrink()
        self._cache.move_to_end(first)
        self._used[first] = self._reads
        count, piece = self._cache[first]
        self._first, self._end, self._piece_record = first, first + count, piece.record

    def _shrink(self) -> None:
        while self._bytes > _KEPT_BYTES and len(self._cache) > _LEAST_PIECES:
            oldest = next(iter(self._cache))
            is_wanted = self._reads - self._used[oldest] < WINDOW
            if is_wanted and self._bytes <= self._limit:
                return
            if is_wanted and not self._has_said:
                self._has_said = True
                _log.warning(
                    "dataset %r: the pieces that are read by turns have more than %d MB, so they do not all stay in"
                    " memory and are read again and again; give the trainer more memory and set EDL_DATA_CACHE_MB to"
                    " what %d records need, or make the records smaller",
                    self._store.source,
                    self._limit // _MEGABYTE,
                    WINDOW,
                )
            _, (_, piece) = self._cache.popitem(last=False)
            self._firsts.remove(oldest)
            del self._used[oldest]
            self._bytes -= piece.size


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
        rows = min(_MOST_CHUNK_ROWS, _CHUNK_BYTES * max(1, self._table.num_rows) // max(1, self.size))
        self._chunk: int = rows if rows >= _LEAST_CHUNK_ROWS else 1  # the chunks of a window must stay in the cache
        self._columns = list(zip(self._table.column_names, self._table.columns, strict=True))
        self._chunks: OrderedDict[int, list[_Object]] = OrderedDict()

    def record(self, index: int) -> _Object:
        """One row."""
        if self._chunk == 1:  # large rows: each is made alone
            return {name: column[index].as_py() for name, column in self._columns}
        number = index // self._chunk
        chunk = self._chunks.get(number)
        if chunk is None:
            chunk = self._chunks[number] = self._table.slice(number * self._chunk, self._chunk).to_pylist()
            if len(self._chunks) > _CACHED_CHUNKS:
                self._chunks.popitem(last=False)
        return chunk[index % self._chunk]


class _Samples:
    """Some samples of a tar file; each is a dictionary: field -> its bytes, and `__key__` -> the key."""

    def __init__(self, store: FileStore, found: _Object) -> None:
        file = SourceFile(found["path"], found["size"], found["stamp"])
        with store.opened(file) as data:
            data.seek(found["place"])
            self._data = io.BytesIO(data.read(found["length"]))
        self.size = found["length"]
        self._name = f"the file {file.path}"
        try:
            self._archive = opened_tar(self._data)
            self._samples: list[TarSample] = list(samples(self._archive))
        except tarfile.TarError as error:
            raise DatasetError(
                f"dataset {store.source!r}: {self._name} cannot be read after byte {found['place']}: {error}; replace"
                " the file by an intact copy"
            ) from error
        if len(self._samples) != found["count"]:
            raise DatasetError(
                f"dataset {store.source!r}: {self._name} has {len(self._samples)} samples after byte"
                f" {found['place']}, but the master counted {found['count']}; trainers need the master's files"
            )

    def record(self, index: int) -> _Object:
        """One sample."""
        sample = self._samples[index]
        return {"__key__": sample.key, **dict(self._fields(sample))}

    def _fields(self, sample: TarSample) -> Iterator[tuple[str, bytes]]:
        seen: set[str] = set()
        for name, member in sample.fields:
            if name in seen:
                raise ValueError(f"{self._name}: the sample {sample.key} has two files for the field {name}")
            seen.add(name)
            file = self._archive.extractfile(member)
            data = file.read() if file is not None else b""
            if len(data) != member.size:
                raise ValueError(f"{self._name}: {member.name} has {len(data)} of {member.size} bytes")
            yield name, data
