"""The records that a training loop gets: numbers, lines of files, rows of Parquet files, samples of tar files.

A piece of neighbouring records is read at once, and the last pieces stay in memory: a window of the epoch's order
takes its records from few pieces. If a file differs from what the master counted, the loop ends with an error. A
record that cannot be decoded is one bad record.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol
from urllib.parse import urlencode

from edl.errors import EdlError, PermanentError
from edl.worker.files import FileStore
from edl.worker.lease import BadRecord
from edl.worker.mix import MIX, Mixed, Mixture
from edl.worker.pieces import PieceCache, cache_limit

Reader = Callable[[Any], Any]
"""Turns a record (a number, a line or a row) into what the training loop needs."""
_Object = dict[str, Any]


class Source(Protocol):
    """The records of a data set."""

    def record(self, number: int) -> Any:  # noqa: ANN401 - any kind of record
        """Read one record.

        Args:
            number: the number of the record, from 0.

        Raises:
            ValueError: this record is bad.
            EdlError: the data set cannot be read.
        """


class IndexSource:
    """The records of `index:N`: numbers, whose meaning the training code knows."""

    def record(self, number: int) -> int:
        """The number itself."""
        return number


class FileSource:
    """The records of files; the pieces that are read by turns stay in memory.

    Args:
        source: lines:GLOB, parquet:GLOB or tar:GLOB.
        locate: asks the master for the piece that holds a record.

    Raises:
        ConfigError: a package that reads such files is not installed.
    """

    def __init__(self, source: str, locate: Callable[[int], _Object]) -> None:
        self._cache = PieceCache(FileStore(source), locate, cache_limit(os.environ))
        self.record = self._cache.record


class MixSource:
    """The records of several sources by weight: each is a `Mixed`.

    Args:
        mixture: says which source comes when.
        sources: the sources of its parts, each with its number of records.
    """

    def __init__(self, mixture: Mixture, sources: list[tuple[Source, int]]) -> None:
        self._mixture, self._sources = mixture, sources

    def record(self, number: int) -> Mixed:
        """Read one record of the mixture, from the source that it belongs to."""
        part, place = self._mixture.place(number)
        source, total = self._sources[part]
        return Mixed(part, source.record(place % total))


def source_of(dataset: _Object, get: Callable[[str], _Object]) -> Source:
    """The records of a data set.

    Args:
        dataset: the field `dataset` of the master's status.
        get: sends a GET request for a path to the master.

    Raises:
        ConfigError: a package that reads such a data set is not installed.
    """
    source = str(dataset["source"])
    if not source.startswith(f"{MIX}:"):
        return _source(source, get, "")
    mixture = Mixture(source)
    parts = get("/v1/dataset/sources")["sources"]
    pairs = zip(mixture.parts, parts, strict=True)
    found = [(_source(part.source, get, f"&part={n}"), int(its["total"])) for n, (part, its) in enumerate(pairs)]
    return MixSource(mixture, found)


def _source(source: str, get: Callable[[str], _Object], part: str) -> Source:
    if source.startswith("index:"):
        return IndexSource()
    return FileSource(source, lambda number: get(f"/v1/dataset/piece?{urlencode({'record': number})}{part}"))


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
    found: list[Any] = []
    record_of, add = source.record, found.append
    try:
        if read is None:
            for number in numbers:
                add(record_of(number))
        else:
            for number in numbers:
                add(read(record_of(number)))
    except EdlError:
        raise
    except Exception as error:
        return BadRecord(f"record {numbers[len(found)]}: {type(error).__name__}: {error}", len(found))
    return found


def good_records(found: Any) -> Any:  # noqa: ANN401 - records, or a batch of them
    """The good records among those read, for trainers that train in step.

    Raises:
        PermanentError: it is a bad record.
    """
    if isinstance(found, BadRecord):
        raise PermanentError(
            f"steps: {found.error}; trainers that train in step cannot leave a record out: repair it, or let read="
            " return a sample in its place"
        )
    return found
