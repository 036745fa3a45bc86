"""Short names for the folders of temporary files of containers.

The path of a Unix socket has at most 107 bytes (unix(7)), and programs make sockets in TMPDIR: Python's
multiprocessing, and with it the workers of PyTorch's DataLoader. The folder of a container is deep below that of the
kubelet, so TMPDIR is a link to it with a short path.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

_LONGEST = 20
"""The most characters of the folder of links, so that TMPDIR of a container has fewer than 40."""
_OTHERS = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - mkdtemp makes the folder, for this user alone


class TemporaryFolders:
    """Names links to folders of temporary files.

    Args:
        folder: holds the links, and nothing else.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._numbers = count()

    def name(self) -> Path:
        """Choose the path of a new link; `link` makes it."""
        return self.folder / str(next(self._numbers))


@contextmanager
def links_folder() -> Iterator[Path]:
    """Make a folder for links: in the folder of temporary files or, if its path is too long, in a shorter one.

    Raises:
        OSError: no folder of temporary files can be written.
    """
    folder = _made()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _made() -> Path:
    usual = tempfile.gettempdir()
    for place in (usual, *_OTHERS):
        if len(place) <= _LONGEST:
            try:
                return Path(tempfile.mkdtemp(prefix="edl-", dir=place))
            except OSError:
                continue
    return Path(tempfile.mkdtemp(prefix="edl-", dir=usual))


def link(name: Path, folder: Path) -> None:
    """Make a folder and a link with a short path to it.

    Raises:
        OSError: one of them cannot be made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not name.is_symlink():
        name.symlink_to(folder)
