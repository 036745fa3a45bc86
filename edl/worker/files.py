"""The files of a data set: how to find them, open them, and notice that one has changed.

The master counts their records and trainers read them, so both must see the same files. The module needs only the
standard library until a file is read; then it needs the extra for such files.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from edl.errors import ConfigError, EdlError, PermanentError

LINES, PARQUET, TAR = "lines", "parquet", "tar"
_STAMPS = ("ETag", "etag", "e_tag", "md5Hash", "content_hash", "mtime", "LastModified", "last_modified", "created")
_READERS = {LINES: ("fsspec",), PARQUET: ("fsspec", "pyarrow"), TAR: ("fsspec",)}


class DatasetError(PermanentError):
    """A data set cannot be read, or differs from the one of the job."""


class SourceFile(NamedTuple):
    """A file and the state in which it was found.

    Attributes:
        path: as its store names it.
        size: in bytes.
        stamp: its entity tag, else its modification time; empty if its store has neither.
    """

    path: str
    size: int
    stamp: str


class FileStore:
    """The store that holds the files of a data set.

    Args:
        source: lines:GLOB, parquet:GLOB or tar:GLOB. A GLOB may begin with a protocol of fsspec, such as s3://.

    Raises:
        ConfigError: a package that reads such files is not installed, or the protocol is unknown.

    Attributes:
        source: as above.
        kind: lines, parquet or tar.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self.kind, _, glob = source.partition(":")
        for module in _READERS[self.kind]:
            self._require(module)
        try:
            self._files, self._glob = importlib.import_module("fsspec.core").url_to_fs(glob)
        except (ValueError, ImportError, OSError) as error:
            raise ConfigError(
                f"dataset {source!r}: its store cannot be opened: {error}; give a path, or install the package for"
                " its protocol (see fsspec)"
            ) from error

    def _require(self, module: str) -> None:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise ConfigError(
                f"dataset {self.source!r} needs the package {module}, which is not installed here; run pip install"
                f" {' '.join(_READERS[self.kind])}"
            ) from error

    def find(self) -> list[SourceFile]:
        """Every file that the glob matches, sorted by path.

        Raises:
            DatasetError: it matches no file, or the files cannot be listed.
        """
        with self._translated_errors(self._glob):
            self._files.invalidate_cache()
            found = self._files.glob(self._glob, detail=True)
        files = [_source_file(path, info) for path, info in sorted(found.items()) if info.get("type") == "file"]
        if not files:
            what = "only folders or devices, no file" if found else "no file"
            raise DatasetError(
                f"dataset {self.source!r}: the glob matches {what}; name files that the master can read,"
                " such as FOLDER/*"
            )
        return files

    @contextmanager
    def opened(self, file: SourceFile) -> Iterator[Any]:
        """Open a file for reading bytes; when the block ends, check that the file is still the same.

        Raises:
            DatasetError: the file is missing, cannot be read, or has changed.
        """
        with self._translated_errors(file.path):
            try:
                with self._files.open(file.path, "rb") as data:
                    yield data
            finally:  # also after an error: a change may be its cause
                self._check(file)

    def _check(self, file: SourceFile) -> None:
        self._files.invalidate_cache()
        now = _source_file(file.path, self._files.info(file.path))
        if now != file:
            raise DatasetError(
                f"dataset {self.source!r}: the file {file.path} has changed: it had {file.size} bytes and the stamp"
                f" {file.stamp!r}, now {now.size} and {now.stamp!r}; restore the old file, or create a new job"
            )

    @contextmanager
    def _translated_errors(self, path: str) -> Iterator[None]:
        """Turn the errors of a store into errors of edl."""
        try:
            yield
        except EdlError:
            raise
        except FileNotFoundError as error:
            raise DatasetError(
                f"dataset {self.source!r}: the file {path} is missing; the master and every trainer need it there"
            ) from error
        except OSError as error:
            why = error.strerror or str(error)
            raise DatasetError(
                f"dataset {self.source!r}: the file {path} cannot be read: {why}; make it readable"
            ) from error


def _source_file(path: str, info: Mapping[str, Any]) -> SourceFile:
    stamp = next((str(info[name]) for name in _STAMPS if info.get(name)), "")
    return SourceFile(path, int(info.get("size") or 0), stamp)
