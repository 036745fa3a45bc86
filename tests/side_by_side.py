"""Test processes that run side by side on one machine, and tests that need it for themselves.

`pytest -n 2` shares the tests out between two processes. Most of them wait for something most of the time, and do not
mind. A test marked `alone` times what a whole cluster does: it begins when no other test runs, and none begins
beside it.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def turn(folder: Path, *, alone: bool) -> Iterator[None]:
    """Wait until a test may run, and keep others from running beside it where it must be alone.

    Whoever waits for the room stands in the turnstile meanwhile, so that a stream of others cannot pass it by. The
    kernel takes both locks back when a process ends.

    Args:
        folder: of the locks; the same for all that share the machine.
        alone: whether no other may run at the same time.
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
            # A child that was forked meanwhile has the files open, too: closing them would not let go.
            fcntl.flock(room, fcntl.LOCK_UN)
            fcntl.flock(turnstile, fcntl.LOCK_UN)
