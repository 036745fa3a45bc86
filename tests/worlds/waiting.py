"""Waiting in tests with real processes: the loop that polls until something is so, and how patient tests are.

A bound of a wait is what a quiet machine needs, with room to spare. It only ends a test that hangs; a test that
claims a time measures it. So each bound is multiplied, for machines that are slow or busy.
"""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 4.0
POLL_S = 0.02


def wait_until(condition: Callable[[], object], what: str | Callable[[], str], timeout_s: float = 30.0) -> None:
    """Poll until a condition holds.

    Args:
        condition: returns a true value once it holds; it may fail an assertion to end the wait early.
        what: the expectation, for the message of the failure.
        timeout_s: how long to poll on a quiet machine, in seconds; multiplied by `PATIENCE`.

    Raises:
        AssertionError: the condition did not hold in time.
    """
    until_s = time.monotonic() + timeout_s * PATIENCE
    while not condition():
        assert time.monotonic() < until_s, what if isinstance(what, str) else what()
        time.sleep(POLL_S)
