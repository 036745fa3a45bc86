"""Data sets by their source: how many records they have, where each record is, and whether a file has changed.

`index:N` is the numbers from 0 to N-1. The files of `lines:GLOB` are read once from beginning to end, in chunks, so a
line may have any length. Of the files of `parquet:GLOB` only the footers are read. The result is tied to the sizes
and the stamps of the files: a restarted master refuses changed files, and so does a trainer that reads them.
"""

from __future__ import annotations

import asyncio
import importlib
from pathlib import Path

from edl.errors import ConfigError, ConflictError
from edl.ledger.events import DatasetSet
from edl.ledger.permutation import BLOCK
from edl.master.bodies import DatasetBody
from edl.master.dataset_index import DatasetIndex, Piece, load_index, version_of
from edl.worker.files import LINES, PARQUET, DatasetError, FileStore, SourceFile

MAX_RECORDS = 10**18
_CHUNK_BYTES = 64 * 1024
_PIECE_LINES, _PIECE_BYTES = 1024, 1024 * 1024
_MAX_BLOCK = 2**20


class Catalog:
    """Finds the records of the data set that a master shards.

    Args:
        folder: where to store the index, so that a restarted master finds it; None stores nothing.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._indexes: dict[str, DatasetIndex] = {}
        self._scans: dict[DatasetBody, asyncio.Task[DatasetSet]] = {}

    async def describe(self, body: DatasetBody) -> DatasetSet:
        """Count the records of a data set.

        Concurrent calls for the same data set share one scan. The scan continues if its callers go away.

        Raises:
            ConfigError: the data set is empty or unreadable, or its kind is unknown.
        """
        task = self._scans.get(body)
        if task is None:
            task = self._scans[body] = asyncio.create_task(asyncio.to_thread(self._describe, body))
            task.add_done_callback(lambda done: self._end_scan(body, done))
        return await asyncio.shield(task)

    def _end_scan(self, body: DatasetBody, done: asyncio.Task[DatasetSet]) -> None:
        del self._scans[body]
        if not done.cancelled():
            done.exception()  # retrieve it: asyncio warns about an exception that nobody retrieves

    def reopen(self, dataset: DatasetSet) -> None:
        """Find the data set of a journal again.

        Raises:
            ConfigError: a package that reads such files is not installed.
            DatasetError: a file has changed, or cannot be read.
        """
        if _kind(dataset.source) not in {LINES, PARQUET}:
            return
        store = FileStore(dataset.source)
        files = store.find()
        stored = load_index(self._folder, dataset.version) if self._folder is not None else None
        if version_of(files) != dataset.version:
            raise DatasetError(
                f"dataset {dataset.source!r} has changed since the training began"
                f"{_differences(stored.files, files) if stored is not None else ''}; restore the old files, or create"
                " a new job with an empty journal"
            )
        index = stored if stored is not None and stored.total == dataset.total else self._index(store, files)
        self._indexes[dataset.version] = index

    def piece(self, dataset: DatasetSet | None, record: int) -> Piece:
        """The piece that holds a record.

        Raises:
            ConflictError: the data set has no files.
            ConfigError: the data set has no such record.
        """
        index = self._indexes.get(dataset.version) if dataset is not None else None
        if index is None:
            raise ConflictError(
                "the data set has no files, so its records have no file and position;"
                " only lines:GLOB and parquet:GLOB do"
            )
        if not 0 <= record < index.total:
            raise ConfigError(f"record {record} does not exist; the data set has the records 0 to {index.total - 1}")
        return index.piece(record)

    def _describe(self, body: DatasetBody) -> DatasetSet:
        kind = _kind(body.source)
        if kind == "index":
            return dataset_event(body, "", _index_size(body.source), BLOCK)
        if kind not in {LINES, PARQUET}:
            raise ConfigError(f"dataset {body.source!r}: unknown kind; give index:N, lines:GLOB or parquet:GLOB")
        try:
            store = FileStore(body.source)
            index = self._index(store, store.find())
        except DatasetError as error:
            raise ConfigError(str(error)) from error
        block = BLOCK if kind == LINES else max(BLOCK, min(index.largest, _MAX_BLOCK))
        return dataset_event(body, index.version, index.total, block)

    def _index(self, store: FileStore, files: list[SourceFile]) -> DatasetIndex:
        index = DatasetIndex(files)
        scan = _scan_lines if store.kind == LINES else _scan_parquet
        for number in range(len(files)):
            scan(store, index, number)
        if not index.total:
            raise DatasetError(
                f"dataset {store.source!r}: its files hold no record (files: {len(files)}); name files with records"
            )
        self._indexes[index.version] = index
        if self._folder is not None:
            index.save(self._folder)
        return index


def dataset_event(body: DatasetBody, version: str, total: int, block: int) -> DatasetSet:
    """A data set as the ledger stores it.

    Args:
        body: as the caller sent it.
        version: a hash of its files; empty if it has none.
        total: how many records it has.
        block: how many neighbouring records are permuted together.
    """
    fraction = body.max_quarantined_fraction
    return DatasetSet(
        body.source, version, total, body.epochs, body.seed, body.shard_size, fraction, first_epoch=0, block=block
    )


def _kind(source: str) -> str:
    return source.partition(":")[0]


def _index_size(source: str) -> int:
    text = source.partition(":")[2]
    if not text.isascii() or not text.isdecimal() or len(text) > 19 or not 0 < int(text) <= MAX_RECORDS:
        raise ConfigError(f"dataset {source!r}: N of index:N must be from 1 to {MAX_RECORDS}, such as index:60000")
    return int(text)


def _scan_lines(store: FileStore, index: DatasetIndex, number: int) -> None:
    """Divide a file into pieces of whole lines; a piece ends once it has enough lines or bytes."""
    begin = end = place = lines = 0  # `begin`, `end` and `lines` of the piece; `place` is where the chunk begins
    last, size = b"\n", index.files[number].size
    with store.opened(index.files[number]) as file:
        while place <= size and (chunk := file.read(_CHUNK_BYTES)):  # do not follow a file that grows
            found = chunk.count(b"\n")
            if found:
                lines, end = lines + found, place + chunk.rindex(b"\n") + 1
            place, last = place + len(chunk), chunk[-1:]
            if lines and (lines >= _PIECE_LINES or end - begin >= _PIECE_BYTES):
                index.add(number, begin, lines)
                begin, lines = end, 0
    if last != b"\n":
        lines += 1
    if lines:
        index.add(number, begin, lines)
    if place != size:
        raise DatasetError(
            f"dataset {store.source!r}: the file {index.files[number].path} should have {size} bytes, but the master"
            f" read {place}; name files that no program writes to"
        )


def _scan_parquet(store: FileStore, index: DatasetIndex, number: int) -> None:
    """Add a piece for each row group of a file."""
    parquet, arrow = importlib.import_module("pyarrow.parquet"), importlib.import_module("pyarrow")
    path = index.files[number].path
    with store.opened(index.files[number]) as file:
        try:
            metadata = parquet.ParquetFile(file).metadata
        except arrow.ArrowException as error:
            raise DatasetError(
                f"dataset {store.source!r}: the file {path} is not a Parquet file: {error}; name only Parquet files"
            ) from error
        for group in range(metadata.num_row_groups):
            rows = metadata.row_group(group).num_rows
            if rows:
                index.add(number, group, rows)


def _differences(old: list[SourceFile], new: list[SourceFile]) -> str:
    """Up to three files that differ."""
    before, after = {file.path: file for file in old}, {file.path: file for file in new}
    changes = [f"{path} is gone" for path in before.keys() - after.keys()]
    changes += [f"{path} is new" for path in after.keys() - before.keys()]
    for path in before.keys() & after.keys():
        a, b = before[path], after[path]
        if a != b:
            changes.append(f"{path} had {a.size} bytes and the stamp {a.stamp}, now {b.size} and {b.stamp}")
    more = f" and {len(changes) - 3} more" if len(changes) > 3 else ""
    return ": " + ", ".join(sorted(changes)[:3]) + more
