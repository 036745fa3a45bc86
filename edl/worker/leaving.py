"""Notes SIGTERM, by which the kubelet asks a trainer to leave; the training loop asks for it when it can."""

from __future__ import annotations

import signal
import threading


class LeavingSignal:
    """Notes SIGTERM, once `install` was called.

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
        """Make this trainer leave although it got no SIGTERM."""
        self._is_set.set()

    def is_set(self) -> bool:
        """True if this trainer was asked to leave."""
        return self._is_set.is_set()
