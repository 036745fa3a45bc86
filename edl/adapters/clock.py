"""The real time, as the ports want it."""

from __future__ import annotations

import asyncio
import time


class SystemClock:
    """The machine's clocks."""

    def now_s(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def monotonic_s(self) -> float:
        """Seconds that never run backwards."""
        return time.monotonic()

    async def sleep(self, duration_s: float) -> None:
        """Wait that long."""
        await asyncio.sleep(duration_s)
