"""Data sets by their source: how many records they have, where these lie, and what tells that files have changed.

`index:N` is N numbers. `lines:GLOB` is read once from its beginning to its end, in chunks, so that lines may be of
any length; of `parquet:GLOB` only the ends of the files are read. What was found is bound to the files' sizes and
stamps: a master that starts again refuses other files, and so does a trainer that reads them.
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

MOST_RECORDS = 10**18
_CHUNK_BYTES = 64 * 1024
_PIECE_LINES, _PIECE_BYTES = 1024, 1024 * 1024
_LARGEST_BLOCK = 2**20


class Catalog:
    """The data set that a master shards, and where its records are.

    Args:
        folder: where an index is kept over a restart; None keeps none.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._indexes: dict[str, DatasetIndex] = {}
        self._looking: dict[DatasetBody, asyncio.Task[DatasetSet]] = {}

    async def describe(self, body: DatasetBody) -> DatasetSet:
        """Look at a data set. Those who ask for the same one meanwhile share the look, and it goes on without them.

        Raises:
            ConfigError: it is empty, cannot be read, or is of a kind that is not known.
        """
        task = self._looking.get(body)
        if task is None:
            task = self._looking[body] = asyncio.create_task(asyncio.to_thread(self._describe, body))
            task.add_done_callback(lambda done: self._looked(body, done))
        return await asyncio.shield(task)

    def _looked(self, body: DatasetBody, done: asyncio.Task[DatasetSet]) -> None:
        del self._looking[body]
        if not done.cancelled():
            done.exception()  # known, whether or not anybody still waits for it

    def reopen(self, dataset: DatasetSet) -> None:
        """Find the data set of a journal again.

        Raises:
            ConfigError: what reads it is not installed.
            DatasetError: it is not the same any more, or cannot be read.
        """
        if _kind(dataset.source) not in {LINES, PARQUET}:
            return
        store = FileStore(dataset.source)
        files = store.find()
        kept = load_index(self._folder, dataset.version) if self._folder is not None else None
        if version_of(files) != dataset.version:
            raise DatasetError(
                f"dataset {dataset.source!r} has changed since the training began"
                f"{_differences(kept.files, files) if kept is not None else ''}; put the files back as they were, or"
                " begin a job of its own with an empty journal"
            )
        index = kept if kept is not None and kept.total == dataset.total else self._index(store, files)
        self._indexes[dataset.version] = index

    def piece(self, dataset: DatasetSet | None, record: int) -> Piece:
        """Where a record lies.

        Raises:
            ConflictError: the data set has no files.
            ConfigError: it has no such record.
        """
        index = self._indexes.get(dataset.version) if dataset is not None else None
        if index is None:
            raise ConflictError("dataset: it has no files; only lines:GLOB and parquet:GLOB have pieces")
        if not 0 <= record < index.total:
            raise ConfigError(f"record {record}: the data set has records 0 to {index.total - 1}")
        return index.piece(record)

    def _describe(self, body: DatasetBody) -> DatasetSet:
        kind = _kind(body.source)
        if kind == "index":
            return asked(body, "", _whole(body.source), BLOCK)
        if kind not in {LINES, PARQUET}:
            raise ConfigError(f"dataset {body.source!r}: give index:N, lines:GLOB or parquet:GLOB")
        try:
            store = FileStore(body.source)
            index = self._index(store, store.find())
        except DatasetError as error:
            raise ConfigError(str(error)) from error
        block = BLOCK if kind == LINES else max(BLOCK, min(index.largest, _LARGEST_BLOCK))
        return asked(body, index.version, index.total, block)

    def _index(self, store: FileStore, files: list[SourceFile]) -> DatasetIndex:
        index = DatasetIndex(files)
        scan = _scan_lines if store.kind == LINES else _scan_parquet
        for number in range(len(files)):
            scan(store, index, number)
        if not index.total:
            raise DatasetError(
                f"dataset {store.source!r}: it is empty: no record is in its {len(files)} files; name files with"
                " something in them"
            )
        self._indexes[index.version] = index
        if self._folder is not None:
            index.save(self._folder)
        return index


def asked(body: DatasetBody, version: str, total: int, block: int) -> DatasetSet:
    """A body as the ledger takes it, with what was found of its records."""
    fraction = body.max_quarantined_fraction
    return DatasetSet(
        body.source, version, total, body.epochs, body.seed, body.shard_size, fraction, first_epoch=0, block=block
    )


def _kind(source: str) -> str:
    return source.partition(":")[0]


def _whole(source: str) -> int:
    rest = source.partition(":")[2]
    if not rest.isascii() or not rest.isdecimal() or len(rest) > 19 or not 0 < int(rest) <= MOST_RECORDS:
        raise ConfigError(f"dataset {source!r}: index:N needs N between 1 and {MOST_RECORDS}, such as index:60000")
    return int(rest)


def _scan_lines(store: FileStore, index: DatasetIndex, number: int) -> None:
    """Cut a file into pieces that end with a line, as soon as enough lines or bytes have gathered."""
    begin = end = place = lines = 0  # of the piece; `place` is where the chunk begins
    last, size = b"\n", index.files[number].size
    with store.opened(index.files[number]) as file:
        while place <= size and (chunk := file.read(_CHUNK_BYTES)):  # one that grows is not read for ever
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
            f"dataset {store.source!r}: the file {index.files[number].path} says that it has"
            f" {size} bytes, and at least {place} were read; give files that nobody writes to"
        )


def _scan_parquet(store: FileStore, index: DatasetIndex, number: int) -> None:
    """A piece for each row group."""
    parquet, arrow = importlib.import_module("pyarrow.parquet"), importlib.import_module("pyarrow")
    path = index.files[number].path
    with store.opened(index.files[number]) as file:
        try:
            metadata = parquet.ParquetFile(file).metadata
        except arrow.ArrowException as error:
            raise DatasetError(
                f"dataset {store.source!r}: the file {path} is no Parquet file: {error}; name only Parquet files"
            ) from error
        for group in range(metadata.num_row_groups):
            rows = metadata.row_group(group).num_rows
            if rows:
                index.add(number, group, rows)


def _differences(old: list[SourceFile], new: list[SourceFile]) -> str:
    """Up to three of the files that differ."""
    was, now = {file.path: file for file in old}, {file.path: file for file in new}
    told = [f"{path} is gone" for path in was.keys() - now.keys()]
    told += [f"{path} is new" for path in now.keys() - was.keys()]
    for path in was.keys() & now.keys():
        a, b = was[path], now[path]
        if a != b:
            told.append(f"{path} had {a.size} bytes and the stamp {a.stamp}, now {b.size} and {b.stamp}")
    return ": " + ", ".join(sorted(told)[:3]) + (f" and {len(told) - 3} more" if len(told) > 3 else "")
