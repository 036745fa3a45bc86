"""Learns how much the number of serving pods grows, separately for each time since its last rise or fall.

An autoscaler acts periodically, and waits after each change. So new pods are not equally likely at all moments, and
at most moments none will come before capacity for it could be freed.
"""

from __future__ import annotations

from collections import deque

from edl.headroom.growth import MOST_TICKS, TICK_S
from edl.headroom.histogram import Histogram

PART_S = 30.0
MOST_PARTS = 30
"""All moments with so many parts or more since the last change are one kind."""

COLD_S = 500.0
"""A kind of moment that was seen for a shorter time counts as unknown."""

DEARER = 2.5
"""The factor by which idle capacity costs more for a moment: trainers do not come back at once."""


class Moments:
    """Keeps a distribution of growths for each kind of moment."""

    def __init__(self, half_life_s: float) -> None:
        """Start without history; see `Histogram` for the half-life."""
        self._half_life_s = half_life_s
        self._growths: dict[tuple[int, bool], Histogram] = {}
        self._seen_s: dict[tuple[int, bool], float] = {}
        self._changes: deque[tuple[float, bool]] = deque(maxlen=MOST_TICKS + 2)  # (when, whether it rose)
        self._last: int | None = None

    def count(self, at_s: float, pods: int) -> None:
        """Note how many pods there are; call it before `add` of what is known then."""
        before, self._last = self._last, pods
        if before is None or pods == before:
            return
        if self._changes and self._changes[-1][0] // TICK_S == at_s // TICK_S:
            self._changes.pop()
        self._changes.append((at_s, pods > before))

    def add(self, at_s: float, growth: int) -> None:
        """Note the growth that followed a tick at `at_s`; ticks must come in order."""
        while len(self._changes) > 1 and self._changes[1][0] < at_s + TICK_S:
            self._changes.popleft()
        if not self._changes or self._changes[0][0] >= at_s + TICK_S:
            return
        kind = _kind(at_s, *self._changes[0])
        self._growths.setdefault(kind, Histogram(self._half_life_s)).add(at_s, growth, TICK_S)
        self._seen_s[kind] = self._seen_s.get(kind, 0.0) + TICK_S

    def kind(self, at_s: float) -> tuple[int, bool] | None:
        """Classify a moment: the parts of `PART_S` since the last change, and whether that change was a rise."""
        return _kind(at_s, *self._changes[-1]) if self._changes else None

    def quantile(self, at_s: float, level: float) -> int | None:
        """Return the capacity to reserve at a time, where `level` is that of a constant reserve; None if unknown."""
        kind = self.kind(at_s)
        if kind is None or self._seen_s.get(kind, 0.0) < COLD_S:
            return None
        return self._growths[kind].quantile(level_for_a_moment(level))

    def memory(self) -> int:
        """How many numbers are kept; bounded."""
        return sum(len(growths) for growths in self._growths.values()) + 2 * len(self._changes) + len(self._seen_s)


def level_for_a_moment(level: float) -> float:
    """The quantile to reserve for one kind of moment if `level` is the quantile for all moments."""
    return max(0.0, 1.0 - DEARER * (1.0 - level))


def _kind(at_s: float, changed_s: float, rose: bool) -> tuple[int, bool]:
    return min(MOST_PARTS, max(0, int((at_s - changed_s) // PART_S))), rose
