"""The samples of tar files as webdataset has them: neighbouring files whose names differ after the first dot.

`train/000017.jpg` and `train/000017.cls` are the fields `jpg` and `cls` of the sample `train/000017`. Files without a
dot and files named `__NAME__` belong to no sample. The master and the trainers divide the files in the same way.
Source: https://github.com/webdataset/webdataset, "The WebDataset Format".
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from typing import IO, NamedTuple


class TarSample(NamedTuple):
    """A sample of a tar file.

    Attributes:
        key: the common part of the names.
        place: the byte at which the header of its first file begins.
        fields: the name of a field with the file that holds it, in their order; a name may come twice.
    """

    key: str
    place: int
    fields: list[tuple[str, tarfile.TarInfo]]


def samples(archive: tarfile.TarFile) -> Iterator[TarSample]:
    """The samples of an archive, in their order."""
    current: TarSample | None = None
    for member in archive:
        key, name = _divided(member.name) if member.isfile() else ("", "")
        if not name:
            continue
        if current is None or current.key != key:
            if current is not None:
                yield current
            current = TarSample(key, member.offset, [])
        current.fields.append((name, member))
    if current is not None:
        yield current


def opened_tar(file: IO[bytes]) -> tarfile.TarFile:
    """A tar file that is not compressed.

    Raises:
        tarfile.TarError: it is something else.
    """
    return tarfile.open(fileobj=file, mode="r:")


def _divided(path: str) -> tuple[str, str]:
    """The key and the field that the name of a file says; no field if it belongs to no sample."""
    folder, slash, name = path.rpartition("/")
    key, _, field = name.partition(".")
    if not key or (name.startswith("__") and name.endswith("__")):
        return "", ""
    return folder + slash + key, field.lower()
