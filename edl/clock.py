"""Time as a parameter: code that needs the time takes a `Clock`, so that tests and the simulator can control it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """A source of time."""

    def now_s(self) -> float:
        """Seconds since the Unix epoch, for timestamps that others read."""

    def monotonic_s(self) -> float:
        """Seconds of a clock that never runs backwards, for deadlines and durations."""

    async def sleep(self, duration_s: float) -> None:
        """Wait for that many seconds."""


class AdjustedClock:
    """A clock whose time of day is that of somebody else, for stamps that are compared with theirs.

    Args:
        clock: for everything else.
        ahead_s: returns by how many seconds their time is ahead of that clock's.
    """

    def __init__(self, clock: Clock, ahead_s: Callable[[], float]) -> None:
        self._clock, self._ahead_s = clock, ahead_s

    def now_s(self) -> float:
        """Seconds since the Unix epoch, by their clock."""
        return self._clock.now_s() + self._ahead_s()

    def monotonic_s(self) -> float:
        """Seconds of a clock that never runs backwards."""
        return self._clock.monotonic_s()

    async def sleep(self, duration_s: float) -> None:
        """Wait for that many seconds."""
        await self._clock.sleep(duration_s)


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
