"""Time as a parameter: code that needs the time takes a `Clock`, so that tests and the simulator can control it."""

from __future__ import annotations

import asyncio
import random
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


class RetryPauses:
    """The pauses between tries of one call: each is twice the one before, up to a limit.

    Args:
        first_s: the first pause, in seconds.
        longest_s: the limit, in seconds.
        jitter: in [0, 1): each pause is multiplied by a random factor between 1 - jitter and 1 + jitter, so that
            many clients do not return at the same moment.
    """

    def __init__(self, first_s: float, longest_s: float, jitter: float = 0.0) -> None:
        self._next_s, self._longest_s, self._jitter = first_s, longest_s, jitter

    def next_s(self, retry_after_s: float | None = None) -> float:
        """The next pause, in seconds.

        Args:
            retry_after_s: a pause that the other side asked for; it replaces this one.
        """
        pause_s = retry_after_s or self._next_s
        self._next_s = min(self._next_s * 2, self._longest_s)
        return pause_s * random.uniform(1 - self._jitter, 1 + self._jitter)  # noqa: S311 jitter, not a secret
