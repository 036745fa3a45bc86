"""Data sets by their source: how many records they have, where each record is, and whether a file has changed.

`index:N` is the numbers from 0 to N-1. The files of `lines:GLOB` are read once from beginning to end, in chunks, so a
line may have any length. Of the files of `parquet:GLOB` only the footers are read, and of `tar:GLOB` only the headers
of the files in them. A mixture has an index for each of its sources. The result is tied to the sizes and the stamps
of the files: a restarted master rejects changed files, and so does a trainer that reads them.
"""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import NamedTuple

from edl.errors import ConfigError, ConflictError
from edl.ledger.events import DatasetSet
from edl.ledger.permutation import BLOCK
from edl.master.bodies import DatasetBody
from edl.master.dataset_index import DatasetIndex, Piece, load_index, version_of
from edl.master.dataset_scan import scan_file
from edl.worker.files import LINES, PARQUET, TAR, DatasetError, FileStore, SourceFile
from edl.worker.mix import MIX, Mixture

MAX_RECORDS = 10**18
_MAX_BLOCK = 2**20
_FILES = {LINES, PARQUET, TAR}
_KINDS = "index:N, lines:GLOB, parquet:GLOB, tar:GLOB, or a mixture, mix:RECORDS;WEIGHT SOURCE;WEIGHT SOURCE"


class _Found(NamedTuple):
    """The records of one source, which is no mixture.

    Attributes:
        version: a hash of its files; empty if it has none.
        total: how many records it has.
        block: how many neighbouring records should be permuted together.
    """

    version: str
    total: int
    block: int


class Catalog:
    """Finds the records of the data set that a master shards.

    Args:
        folder: where to store the index, so that a restarted master finds it; None stores nothing.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._indexes: dict[str, DatasetIndex] = {}
        self._mixtures: dict[str, tuple[Mixture, list[_Found]]] = {}
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
        kind = _kind(dataset.source)
        if kind == MIX:
            mixture = Mixture(dataset.source)
            found = [self._find(part.source) for part in mixture.parts]
            if _mixed_version(found) != dataset.version:
                raise DatasetError(_changed(dataset.source, ""))
            self._mixtures[dataset.version] = mixture, found
        elif kind in _FILES:
            store = FileStore(dataset.source)
            files = store.find()
            stored = load_index(self._folder, dataset.version) if self._folder is not None else None
            if version_of(files) != dataset.version:
                differences = _differences(stored.files, files) if stored is not None else ""
                raise DatasetError(_changed(dataset.source, differences))
            index = stored if stored is not None and stored.total == dataset.total else self._index(store, files)
            self._indexes[dataset.version] = index

    def piece(self, dataset: DatasetSet | None, record: int, part: int | None = None) -> Piece:
        """The piece that holds a record.

        Args:
            dataset: the dataset of the job.
            record: its number; in a mixture that in its source.
            part: the number of that source in a mixture.

        Raises:
            ConflictError: the data set has no files.
            ConfigError: the data set has no such record or source.
        """
        version = dataset.version if dataset is not None else ""
        if version in self._mixtures:
            found = self._mixtures[version][1]
            if part is None or not 0 <= part < len(found):
                raise ConfigError(f"part {part} does not exist; the mixture has the sources 0 to {len(found) - 1}")
            version = found[part].version
        index = self._indexes.get(version)
        if index is None:
            raise ConflictError(
                "the data set has no files, so its records have no file and position;"
                " only lines:GLOB, parquet:GLOB and tar:GLOB do"
            )
        if not 0 <= record < index.total:
            raise ConfigError(f"record {record} does not exist; the data set has the records 0 to {index.total - 1}")
        return index.piece(record)

    def mixture(self, dataset: DatasetSet | None) -> tuple[DatasetSet, Mixture, list[int]]:
        """Return a data set that mixes several sources, its mixture, and the number of records of each source.

        Raises:
            ConflictError: the data set is no mixture.
        """
        if dataset is None or dataset.version not in self._mixtures:
            raise ConflictError("the data set is no mixture, so it has no sources; only mix:RECORDS;... has")
        mixture, found = self._mixtures[dataset.version]
        return dataset, mixture, [part.total for part in found]

    def _describe(self, body: DatasetBody) -> DatasetSet:
        try:
            if _kind(body.source) == MIX:
                return self._describe_mixture(body)
            found = self._find(body.source)
        except DatasetError as error:
            raise ConfigError(str(error)) from error
        return dataset_event(body, *found)

    def _describe_mixture(self, body: DatasetBody) -> DatasetSet:
        mixture = Mixture(body.source)
        if body.epochs != 1:
            raise ConfigError(
                f"dataset {body.source!r}: a mixture with {body.epochs} epochs would take the same records of each"
                f" source in all of them; set epochs to 1, and the number of records to {mixture.records} times"
                f" {body.epochs}: a source that has no more records begins anew"
            )
        found = [self._find(part.source) for part in mixture.parts]
        pairs = zip(mixture.parts, found, strict=True)
        wanted = max(its.block * mixture.length // part.weight for part, its in pairs)
        block, total = mixture.blocks(min(wanted, _MAX_BLOCK))
        kinds = {(its.version, _kind(part.source)) for part, its in zip(mixture.parts, found, strict=True)}
        if len(kinds) > len({version for version, _ in kinds}):
            raise ConfigError(
                f"dataset {body.source!r}: two of its sources read the same files as different kinds of records; name"
                " each file in one kind of source"
            )
        version = _mixed_version(found)
        self._mixtures[version] = mixture, found
        return dataset_event(body, version, total, block)

    def _find(self, source: str) -> _Found:
        """Count the records of a source that is no mixture."""
        kind = _kind(source)
        if kind == "index":
            return _Found("", _index_size(source), BLOCK)
        if kind not in _FILES:
            raise ConfigError(f"dataset {source!r}: unknown kind; give {_KINDS}")
        store = FileStore(source)
        files = store.find()
        stored = load_index(self._folder, version_of(files)) if self._folder is not None else None
        index = stored if stored is not None else self._index(store, files)
        self._indexes[index.version] = index
        return _Found(index.version, index.total, max(BLOCK, min(index.largest, _MAX_BLOCK)))

    def _index(self, store: FileStore, files: list[SourceFile]) -> DatasetIndex:
        index = DatasetIndex(files)
        for number in range(len(files)):
            scan_file(store, index, number)
        if not index.total:
            raise DatasetError(
                f"dataset {store.source!r}: its files hold no record (files: {len(files)}); name files with records"
            )
        self._indexes[index.version] = index
        if self._folder is not None:
            index.save(self._folder)
        return index


def dataset_event(body: DatasetBody, version: str, total: int, block: int) -> DatasetSet:
    """Convert a data set to the event that the ledger stores.

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


def _mixed_version(found: list[_Found]) -> str:
    """A hash that changes when a source of a mixture does."""
    return hashlib.sha256(repr([(one.version, one.total) for one in found]).encode()).hexdigest()[:32]


def _changed(source: str, differences: str) -> str:
    return (
        f"dataset {source!r} has changed since the training began{differences}; restore the old files, or create"
        " a new job with an empty journal"
    )


def _differences(old: list[SourceFile], new: list[SourceFile]) -> str:
    """Name up to three files that differ."""
    before, after = {file.path: file for file in old}, {file.path: file for file in new}
    changes = [f"{path} is gone" for path in before.keys() - after.keys()]
    changes += [f"{path} is new" for path in after.keys() - before.keys()]
    for path in before.keys() & after.keys():
        a, b = before[path], after[path]
        if a != b:
            changes.append(f"{path} had {a.size} bytes and the stamp {a.stamp}, now {b.size} and {b.stamp}")
    more = f" and {len(changes) - 3} more" if len(changes) > 3 else ""
    return ": " + ", ".join(sorted(changes)[:3]) + more
