"""Forks of a trainer and the threads of edl: no lock of a library is taken by such a thread at a fork.

A DataLoader forks its processes. A child has copies of all locks, and only the thread that forked. If another thread
held a lock then, nobody releases it in the child. PyTorch and numpy seed under such locks, Python imports a module
under one (`encodings.idna`, when it looks up its first name), and the C library and OpenSSL have their own. So edl's
own code makes these calls within `LIBRARY_CALL`, and a fork waits until no other thread is within it. Threads of the
script are not covered.
"""

from __future__ import annotations

import os
import sys
import threading

from edl.errors import ConfigError


class ForkGate:
    """A context for calls during which another thread may not fork; a thread may enter it again within itself.

    Any number of threads may be within it. A fork waits for them, and threads that come meanwhile wait for the fork.
    """

    def __init__(self) -> None:
        self._begin()
        os.register_at_fork(before=self._close, after_in_parent=self._open, after_in_child=self._begin)

    def _begin(self) -> None:
        """Begin with no thread within: in a child only the thread that forked exists."""
        self._changed = threading.Condition(threading.Lock())
        self._inside = self._forks = 0
        self._own = threading.local()

    def __enter__(self) -> None:
        depth = self._depth
        with self._changed:
            if not depth:
                self._changed.wait_for(lambda: not self._forks)
            self._inside += 1
        self._own.depth = depth + 1

    def __exit__(self, *_: object) -> None:
        self._own.depth -= 1
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    def _close(self) -> None:
        with self._changed:
            self._forks += 1
            self._changed.wait_for(lambda: self._inside == self._depth)

    def _open(self) -> None:
        with self._changed:
            self._forks -= 1
            self._changed.notify_all()

    @property
    def _depth(self) -> int:
        """How often this thread is within it."""
        return int(getattr(self._own, "depth", 0))


LIBRARY_CALL = ForkGate()
"""The gate of this process."""


def check_is_no_import() -> None:
    """Refuse to connect while a process that multiprocessing has begun imports the script.

    Processes that are begun by `spawn` or `forkserver` run the script up to its end, under another `__name__`. A
    script without a guard would connect as the trainer that began them, and train beside it.

    Raises:
        ConfigError: this process imports the script.
    """
    module = sys.modules.get("multiprocessing.process")
    process = module.current_process() if module is not None else None
    if getattr(process, "_inheriting", False):  # what multiprocessing itself checks before it begins a process
        raise ConfigError(
            "connect: multiprocessing has begun this process, which imports the script and would train once more"
            " under the name of this trainer; put the lines that train into a function main(), and call it behind"
            ' `if __name__ == "__main__":`'
        )
