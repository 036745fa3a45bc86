"""When a cohort is at rest: nothing changes any more, and what is unused or waits stays so."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Protocol

REST_S, UNUSED_S, LONGEST_S = 3.0, 15.0, 60.0
"""At rest nothing has changed for so long, and for the second if something is unused or an owner waits: on a busy
machine the next step may take that long. A wave that never comes to rest is an error: not after the last of these,
times the cohorts that are played at once, because they share the processors of the programs."""
_LOOK_S = 0.2


class Changes(Protocol):
    """What is asked about changes; a `History` is one."""

    @property
    def last_s(self) -> float:
        """When the last one was seen, in monotonic seconds."""

    def changed_after(self, since_s: float) -> list[str]:
        """What has changed since then."""


class Rests:
    """Waits for rests.

    Args:
        changes: of the cohort.
        judge: looks at everything that has happened.
        waiting: the owners that are not admitted, as far as is judged; it may change.
        longest_s: the longest time without a rest.
        now_s: monotonic seconds.
        sleep: waits for some seconds.
    """

    def __init__(
        self,
        changes: Changes,
        judge: Callable[[], None],
        waiting: Collection[str],
        *,
        longest_s: float = LONGEST_S,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._changes, self._judge, self._waiting = changes, judge, waiting
        self._longest_s, self._now_s, self._sleep = longest_s, now_s, sleep

    def wait(self) -> None:
        """Wait until nothing has changed for `REST_S`, and judge.

        Raises:
            AssertionError: it did not come to rest within `longest_s`.
        """
        self._wait(REST_S, lambda: False)
        self._judge()

    def wait_used(self, is_used: Callable[[], bool]) -> None:
        """Wait for a rest at which all is used and nobody waits, or at which nothing more comes, and judge.

        Raises:
            AssertionError: it did not come to rest within `longest_s`.
        """

        def is_done() -> bool:
            return is_used() and not self._waiting

        self.wait()
        if not is_done():
            self._wait(UNUSED_S, is_done)
            self._judge()

    def _wait(self, quiet_s: float, is_done: Callable[[], bool]) -> None:
        """Wait until nothing has changed for so long, or for `REST_S` if by then all is done."""
        start_s = self._now_s()
        while (quiet := (now_s := self._now_s()) - max(start_s, self._changes.last_s)) < quiet_s:
            if now_s - start_s >= self._longest_s:
                self._judge()
                waiting = ", ".join(self._waiting) or "none"
                changed = ", ".join(self._changes.changed_after(now_s - UNUSED_S)) or "nothing"
                raise AssertionError(f"it comes to rest; owners that wait: {waiting}; changed of late: {changed}")
            self._sleep(_LOOK_S)
            if quiet >= REST_S:
                self._judge()
                if is_done():
                    return
