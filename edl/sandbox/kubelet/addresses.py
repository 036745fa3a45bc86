"""The addresses of pods: loopback addresses that no other kubelet of this machine uses.

Linux answers on every address of 127.0.0.0/8. Another system, or a container with a narrow loopback interface, may
have 127.0.0.1 alone. Then pods still get addresses of their own, which only the Python programs of the sandbox
understand: see `network_hook.py`.
"""

from __future__ import annotations

import errno
import random
import socket
from typing import Self

from edl.errors import TemporaryError

_LOCK_PORT = 47_001
_BLOCKS = range(16, 240)
_LOWEST, _HIGHEST = 2, 254 * 250
_JITTER = random.SystemRandom()


class AddressPool:
    """Addresses 127.B.y.z of one block B; use `open`, and `close` at the end.

    Attributes:
        has_aliases: the system answers on these addresses.
    """

    def __init__(self, block: int, lock: socket.socket | None) -> None:
        self.has_aliases = lock is not None
        self._block, self._lock = block, lock
        self._used: set[str] = set()
        self._next = _LOWEST

    @classmethod
    def open(cls) -> Self:
        """Reserve a block; it is free again once this process has ended.

        Raises:
            TemporaryError: other kubelets use every block.
        """
        for block in _JITTER.sample(_BLOCKS, len(_BLOCKS)):
            lock = socket.socket()
            try:
                lock.bind((f"127.{block}.255.254", _LOCK_PORT))
            except OSError as error:
                lock.close()
                if error.errno == errno.EADDRINUSE:
                    continue
                return cls(block, None)
            return cls(block, lock)
        raise TemporaryError("other kubelets use every block of loopback addresses; stop one of them")

    def take(self) -> str:
        """Take an address that no pod has.

        Raises:
            TemporaryError: all are in use.
        """
        for _ in range(_LOWEST, _HIGHEST):
            number, self._next = self._next, self._next + 1 if self._next + 1 < _HIGHEST else _LOWEST
            address = f"127.{self._block}.{number // 250}.{number % 250 + 1}"
            if address not in self._used:
                self._used.add(address)
                return address
        raise TemporaryError("the pods of this kubelet use every address of its block; delete some")

    def release(self, address: str) -> None:
        """Return an address to the pool."""
        self._used.discard(address)

    def close(self) -> None:
        """Release the block of addresses."""
        if self._lock is not None:
            self._lock.close()
