"""Time as a parameter: what may ask for the time takes a `Clock`, so that tests and the simulator can set it."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Time as a parameter."""

    def now_s(self) -> float:
        """Seconds since the epoch: for stamps that others read."""

    def monotonic_s(self) -> float:
        """Seconds that never run backwards: for deadlines and durations."""

    async def sleep(self, duration_s: float) -> None:
        """Wait that long."""


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
