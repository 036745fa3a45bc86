"""Waiting in tests with real processes: the one loop that polls until something is so."""

from __future__ import annotations

import time
from collections.abc import Callable

POLL_S = 0.02


def wait_until(condition: Callable[[], object], what: str | Callable[[], str], timeout_s: float = 30.0) -> None:
    """Poll until a condition holds.

    Args:
        condition: returns a true value once it holds; it may fail an assertion to end the wait early.
        what: the expectation, for the message of the failure.
        timeout_s: how long to poll, in seconds.

    Raises:
        AssertionError: the condition did not hold in time.
    """
    until_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until_s, what if isinstance(what, str) else what()
        time.sleep(POLL_S)
