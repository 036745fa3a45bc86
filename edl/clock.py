"""Time as a parameter: code that needs the time takes a `Clock`, so that tests and the simulator can control it."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """A source of time."""

    def now_s(self) -> float:
        """Seconds since the Unix epoch, for timestamps that others read."""

    def monotonic_s(self) -> float:
        """Seconds of a clock that never runs backwards, for deadlines and durations."""

    async def sleep(self, duration_s: float) -> None:
        """Wait for that many seconds."""


class SystemClock:
    """The clocks of this machine."""

    def now_s(self) -> float:
        """Seconds since the Unix epoch."""
        return time.time()

    def monotonic_s(self) -> float:
        """Seconds of a clock that never runs backwards."""
        return time.monotonic()

    async def sleep(self, duration_s: float) -> None:
        """Wait for that many seconds."""
        await asyncio.sleep(duration_s)
