"""Lets test processes run tests at the same time, except for tests that need the machine for themselves.

`pytest -n 2` divides the tests between two processes. Most tests mainly wait, so two do not disturb each other. A
test marked `alone` measures times of a whole cluster: it starts when no other test runs, and none starts meanwhile.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def turn(folder: Path, *, alone: bool) -> Iterator[None]:
    """Wait until a test may run; while it runs, other tests wait if it must be alone.

    A process that waits for `room` holds the `turnstile`, so that others cannot overtake it. The kernel releases both
    locks when a process ends.

    Args:
        folder: where the lock files are; the same for all processes of the machine.
        alone: if true, no other test runs at the same time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "turnstile").open("w") as turnstile, (folder / "room").open("w") as room:
        fcntl.flock(turnstile, fcntl.LOCK_EX)
        fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        if not alone:
            fcntl.flock(turnstile, fcntl.LOCK_UN)
        try:
            yield
        finally:
            # Closing the files would not release the locks if a child process was forked meanwhile.
            fcntl.flock(room, fcntl.LOCK_UN)
            fcntl.flock(turnstile, fcntl.LOCK_UN)
