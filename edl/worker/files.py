"""The files of a data set: how they are found and opened, and what tells that one has changed.

Shared by the master, which counts their records, and by trainers, which read them: both must see the same files. It
needs nothing but the standard library until a file is looked at; then it asks for the extra that reads such files.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from edl.errors import ConfigError, EdlError, PermanentError

LINES, PARQUET = "lines", "parquet"
_STAMPS = ("ETag", "etag", "e_tag", "md5Hash", "content_hash", "mtime", "LastModified", "last_modified", "created")
_READERS = {LINES: ("fsspec",), PARQUET: ("fsspec", "pyarrow")}


class DatasetError(PermanentError):
    """A data set cannot be read, or is not the one that is being trained on."""


class SourceFile(NamedTuple):
    """A file as it was when it was looked at.

    Attributes:
        size: bytes.
        stamp: its entity tag or time of change, whichever its store tells; empty where it tells neither.
    """

    path: str
    size: int
    stamp: str


class FileStore:
    """Where the files of a data set lie.

    Args:
        source: lines:GLOB or parquet:GLOB; a GLOB may begin with a protocol that fsspec knows, such as s3://.

    Raises:
        ConfigError: what reads such files is not installed, or their place is not known.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self.kind, _, glob = source.partition(":")
        for module in _READERS[self.kind]:
            self._need(module)
        try:
            self._files, self._glob = importlib.import_module("fsspec.core").url_to_fs(glob)
        except (ValueError, ImportError, OSError) as error:
            raise ConfigError(f"dataset {source!r}: {error}; give a path, or install what reads it") from error

    def _need(self, module: str) -> None:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise ConfigError(
                f"dataset {self.source!r} needs {module}, which is not installed here: pip install 'edl[{self.kind}]'"
            ) from error

    def find(self) -> list[SourceFile]:
        """Every file that the glob names, by path.

        Raises:
            DatasetError: there is none, or they cannot be listed.
        """
        with self._told(self._glob):
            self._files.invalidate_cache()
            found = self._files.glob(self._glob, detail=True)
        files = [_seen(path, info) for path, info in sorted(found.items()) if info.get("type") == "file"]
        if not files:
            what = "only folders or devices are there" if found else "no file is there"
            raise DatasetError(f"dataset {self.source!r}: {what}; name files that the master can read, as FOLDER/*")
        return files

    @contextmanager
    def opened(self, file: SourceFile) -> Iterator[Any]:
        """The bytes of a file, for reading; the file is looked at again when the block ends.

        Raises:
            DatasetError: it is missing, cannot be read, or is not as it was.
        """
        with self._told(file.path):
            try:
                with self._files.open(file.path, "rb") as data:
                    yield data
            finally:  # what is wrong with its content may come from that
                self._check(file)

    def _check(self, file: SourceFile) -> None:
        self._files.invalidate_cache()
        now = _seen(file.path, self._files.info(file.path))
        if now != file:
            raise DatasetError(
                f"dataset {self.source!r}: the file {file.path} has changed: it had {file.size} bytes and the stamp"
                f" {file.stamp!r}, now {now.size} and {now.stamp!r}; put it back, or begin a job of its own"
            )

    @contextmanager
    def _told(self, path: str) -> Iterator[None]:
        """What a store raises, in our words."""
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


def _seen(path: str, info: Mapping[str, Any]) -> SourceFile:
    stamp = next((str(info[name]) for name in _STAMPS if info.get(name)), "")
    return SourceFile(path, int(info.get("size") or 0), stamp)
