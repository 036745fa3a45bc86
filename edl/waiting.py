"""Waiting: for the first of several events, and between the attempts of a request that fails."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable
from random import SystemRandom
from typing import Any

from edl.clock import Clock

_MAX_DOUBLINGS = 16
_JITTER = SystemRandom()


async def wait_for_first(*awaitables: Awaitable[Any]) -> tuple[asyncio.Future[Any], ...]:
    """Wait until one of them is done, then cancel the others and wait until they have ended.

    Returns:
        One future for each awaitable, in the same order; each is done, and cancelled unless it came first.
    """
    tasks = tuple(asyncio.ensure_future(awaitable) for awaitable in awaitables)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return tasks


async def is_set_within(event: asyncio.Event, timeout_s: float) -> bool:
    """Wait until an event is set; False if it is not set within the given seconds."""
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return False
    return True


def retry_pause_s(failures: int, first_s: float, longest_s: float) -> float:
    """How many seconds to wait after a number of failures in a row: doubled each time, limited, with jitter."""
    pause_s = first_s * 2.0 ** min(failures - 1, 10)
    return min(pause_s, longest_s) * _JITTER.uniform(0.5, 1.0)


class RetryPauses:
    """Pauses between attempts: each one twice as long as the one before, up to a limit, with jitter.

    Args:
        clock: sleeps.
        first_s: the upper bound of the pause after the first failure, in seconds.
        longest_s: the upper bound of every pause, in seconds.
        rng: for jitter, so that many clients do not retry at the same moment.

    Attributes:
        failures: how many attempts in a row have failed.
    """

    def __init__(self, clock: Clock, *, first_s: float, longest_s: float, rng: random.Random) -> None:
        self.failures = 0
        self._clock, self._rng = clock, rng
        self._first_s, self._longest_s = first_s, longest_s

    def reset(self) -> None:
        """Forget the failures: the next pause is a first one."""
        self.failures = 0

    async def after_failure(self, *, retry_after_s: float | None = None, at_once: bool = False) -> None:
        """Count a failure and wait.

        Args:
            retry_after_s: how long the server asks the client to wait; None if it does not.
            at_once: do not wait, unless the server asks for it.
        """
        bound_s = min(self._longest_s, self._first_s * 2 ** min(self.failures, _MAX_DOUBLINGS))
        self.failures += 1
        if retry_after_s is not None:
            await self._clock.sleep(retry_after_s * self._rng.uniform(1.0, 1.1))
        elif not at_once:
            await self._clock.sleep(bound_s * self._rng.uniform(0.5, 1.0))


class PauseLengths:
    """The lengths of the pauses between tries, for code that sleeps by itself: each is twice the one before.

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
