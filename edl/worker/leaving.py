"""SIGTERM as a question: has this trainer been asked to leave?"""

from __future__ import annotations

import signal
import threading


class LeavingSignal:
    """Notes SIGTERM, from the first question on.

    Kubernetes sends SIGTERM when a pod is deleted, evicted or preempted, and SIGKILL after the grace period.
    """

    def __init__(self) -> None:
        self._is_set = threading.Event()
        self._is_installed = False

    def install(self) -> None:
        """Note SIGTERM from now on; only the main thread of a process can do that, in others nothing changes."""
        if not self._is_installed and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, lambda *_: self._is_set.set())
            self._is_installed = True

    def set(self) -> None:
        """Leave although no signal has arrived."""
        self._is_set.set()

    def is_set(self) -> bool:
        """True if this trainer was asked to leave."""
        return self._is_set.is_set()
