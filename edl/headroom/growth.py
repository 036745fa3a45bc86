"""Measures by how much a count of pods grows within a window of time, from counts at irregular moments.

Time is cut into ticks. The growth from a tick is the largest count of the ticks in the window after it, less its own
count at its end; it is known once the window is over. A count holds until another one is seen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice

TICK_S = 2.5
MOST_TICKS = 48
"""The longest window: two minutes."""

GAP_S = 600.0
"""Nobody knows what happened in a longer time without a count: what is open is dropped."""


class Growth:
    """Measures the growths of a count of pods within a window of time."""

    def __init__(self) -> None:
        self._open: deque[tuple[int, int]] = deque()  # of each tick: the count at its end, its largest count
        self._tick = 0  # the number of the present tick
        self._last, self._largest = 0, 0  # of the present tick
        self._seen_s: float | None = None

    def __len__(self) -> int:
        """How many ticks wait for the end of their window; at most `MOST_TICKS`."""
        return len(self._open)

    def observe(self, at_s: float, count: int, window: int) -> Iterator[tuple[float, int]]:
        """Note a count; yield the moment of each tick whose growth is known now, in seconds, and that growth.

        Args:
            at_s: when it was seen, in seconds; an earlier moment than the last one counts as that one.
            count: how many there are, >= 0.
            window: ticks, 1 to `MOST_TICKS`.
        """
        if self._seen_s is None or at_s - self._seen_s > GAP_S:
            self._open.clear()
            self._tick, self._largest = int(at_s // TICK_S), count
        self._seen_s = at_s if self._seen_s is None else max(at_s, self._seen_s)
        while self._tick < int(at_s // TICK_S):
            self._open.append((self._last, self._largest))
            self._tick, self._largest = self._tick + 1, self._last
            while len(self._open) > window:
                base, _ = self._open.popleft()
                most = max(largest for _, largest in islice(self._open, window))
                yield (self._tick - len(self._open) - 1) * TICK_S, max(0, most - base)
        self._last, self._largest = count, max(self._largest, count)
