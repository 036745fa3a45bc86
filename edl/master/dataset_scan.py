"""Counts the records of a file of a data set, and notes its pieces in an index."""

from __future__ import annotations

import importlib
import tarfile

from edl.master.dataset_index import DatasetIndex
from edl.worker.files import LINES, PARQUET, TAR, DatasetError, FileStore
from edl.worker.tar_samples import opened_tar, samples

_CHUNK_BYTES = 64 * 1024
_PIECE_RECORDS, _PIECE_BYTES = 1024, 1024 * 1024


def scan_file(store: FileStore, index: DatasetIndex, number: int) -> None:
    """Add the pieces of a file to an index.

    Args:
        store: the store of the file.
        index: the index of its data set.
        number: the number of the file in the index.

    Raises:
        DatasetError: the file cannot be read, or is of another kind.
    """
    {LINES: _scan_lines, PARQUET: _scan_parquet, TAR: _scan_tar}[store.kind](store, index, number)


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
            if lines and (lines >= _PIECE_RECORDS or end - begin >= _PIECE_BYTES):
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


def _scan_tar(store: FileStore, index: DatasetIndex, number: int) -> None:
    """Divide a file into pieces of whole samples; a piece ends once it has enough samples or bytes."""
    begin = count = 0
    path, size = index.files[number].path, index.files[number].size
    with store.opened(index.files[number]) as file:
        try:
            for sample in samples(opened_tar(file)):
                if count and (count >= _PIECE_RECORDS or sample.place - begin >= _PIECE_BYTES):
                    index.add(number, begin, count)
                    count = 0
                begin, count = (begin if count else sample.place), count + 1
                last = sample.fields[-1][1]
                if last.offset_data + last.size > size:
                    raise tarfile.ReadError(f"it ends within {last.name}")
        except tarfile.TarError as error:
            raise DatasetError(
                f"dataset {store.source!r}: the file {path} is not a whole tar file: {error}; name tar files that are"
                " complete and not compressed (such as .tar, not .tar.gz)"
            ) from error
    if count:
        index.add(number, begin, count)
