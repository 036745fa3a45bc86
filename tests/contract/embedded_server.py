"""The embedded API server in a thread of its own, for tests that are not asynchronous or start other processes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from edl.sandbox.apiserver.cluster import Cluster
from edl.sandbox.apiserver.server import ApiServer

T = TypeVar("T")
_START_S = 90.0


class EmbeddedServer:
    """A running server; use it as a context manager."""

    def __init__(self, kubeconfig: Path, cluster: Cluster | None = None) -> None:
        """Prepare a server.

        Args:
            kubeconfig: written when it listens.
            cluster: its state; None for a new one.
        """
        self.kubeconfig = kubeconfig
        self.server = ApiServer(cluster)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="embedded API server", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.server.start(), self._loop).result(_START_S)
        self.server.write_kubeconfig(self.kubeconfig)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(_START_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_START_S)
        self._loop.close()

    async def _stop(self) -> None:
        """Stop the server and what still serves its last watches."""
        await self.server.stop()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def call(self, function: Callable[[ApiServer], T]) -> T:
        """Run a function on the server's own thread, where nothing else changes meanwhile."""

        async def run() -> T:
            return function(self.server)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(_START_S)
