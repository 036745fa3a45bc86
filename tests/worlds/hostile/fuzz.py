"""Changed inputs for every reader: it reads them or refuses them, within some seconds and with little memory."""

from __future__ import annotations

import resource
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import FrameType

from edl.errors import EdlError
from tests.worlds.hostile.changed_bytes import changed
from tests.worlds.hostile.readers import READERS, Reader

GoesOn = Callable[[int], bool]
"""Whether to go on after so many inputs."""

HANGS_AFTER_S = 30
MOST_MIB = 256
"""Memory that this process may need more than before, at any time."""


class FoundError(Exception):
    """An input did harm; the message names the reader and the input."""


def peak_mib() -> float:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def read_changed(name: str, random: Random, goes_on: GoesOn) -> int:
    """Let one reader read changed inputs; returns how many it refused.

    Args:
        name: of the reader.
        random: draws the changes.
        goes_on: whether to go on after so many inputs.

    Raises:
        FoundError: it raised what nobody expects, took too long, or needed too much memory.
    """
    reader, tried, refused = READERS[name], 0, 0
    with tempfile.TemporaryDirectory() as place:
        for seed in reader.seeds:
            if _read(reader, seed, Path(place)):
                raise FoundError(f"{name}: a valid input is refused: {seed[:2000]!r}")
        before_mib = peak_mib()
        while goes_on(tried):
            data = changed(random.choice(reader.seeds), random)
            try:
                refused += _read(reader, data, Path(place))
            except Exception as error:
                raise FoundError(f"{name}: {type(error).__name__}: {error}; input {data[:2000]!r}") from error
            if peak_mib() > before_mib + MOST_MIB:
                raise FoundError(f"{name}: {peak_mib() - before_mib:.0f} MiB more; input {data[:2000]!r}")
            tried += 1
    return refused


def _read(reader: Reader, data: bytes, place: Path) -> bool:
    """Read one input; True if it was refused."""
    folder = place / "one"
    folder.mkdir()
    try:
        with _within(HANGS_AFTER_S):
            reader.read(data, folder)
    except Exception as error:
        if isinstance(error, (EdlError, *reader.refusals)):
            return True
        raise
    finally:
        shutil.rmtree(folder)
    return False


@contextmanager
def _within(seconds: int) -> Iterator[None]:
    """Raise a RuntimeError in what takes longer."""

    def late(_: int, __: FrameType | None) -> None:
        raise RuntimeError(f"it takes longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
