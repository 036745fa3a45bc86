"""Learns for how many serving pods of one shape to keep capacity: the newsvendor problem over past growth.

Capacity that is kept costs idle cores, and a pod without capacity waits for as long as freeing takes. If a waiting
pod-second costs as much as `slo` idle core-seconds, the capacity at which both cost least together is the quantile
slo / (slo + cores) of the growth within that time (Arrow, Harris and Marschak 1951). Four accounts of the growth
compete: of the last hour, of all days, of this hour of all days, and of the moments so long after a change. The last
one knows when an autoscaler acts. The one that cost least lately speaks.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from edl.headroom.growth import MOST_TICKS, TICK_S, Growth
from edl.headroom.histogram import Histogram
from edl.headroom.moments import Moments, level_for_a_moment

HOUR_S, DAY_S = 3600.0, 86_400.0
COLD_WINDOWS = 20
"""How many windows must have been seen before any capacity is kept."""

DEAD_BAND = 0.1
"""The part by which a new answer must differ from the last one to replace it."""

RENEWED_S = 60.0
"""How often the forecasts are asked again while nothing grows."""

RETURN_S = 40.0
"""How long freed capacity stays idle if no pod uses it any more: jobs pause before they grow."""

_RECENT, _ALL, _HOUR, _MOMENT = range(4)
_NAMES = ("the last hour", "all days", "this hour of the day", "the moments so long after a change")


@dataclass(frozen=True, slots=True)
class Answer:
    """For how many pods to keep capacity, and why."""

    pods: int
    reason: str


class Learner:
    """Learns from the number of pods of one shape.

    Attributes:
        peak: the largest growth within a window so far.
    """

    def __init__(self, cores: float, slo: float) -> None:
        """Start without history.

        Args:
            cores: what one pod requests, > 0.
            slo: idle core-seconds that one waiting pod-second costs, > 0.
        """
        self._cores, self._slo = cores, slo
        self._growth = Growth()
        self._recent, self._all = Histogram(HOUR_S), Histogram(3 * DAY_S)
        self._hours = [Histogram(3 * DAY_S) for _ in range(24)]
        self._hours_s = [0.0] * 24  # how long each hour was seen
        self._moments = Moments(3 * DAY_S)
        self._costs = [0.0, 0.0, 0.0, 0.0]
        self._guesses = [0, 0, 0, 0]
        self._made: deque[tuple[float, list[int]]] = deque([(0.0, self._guesses)], maxlen=MOST_TICKS + 2)
        self._guessed_at: tuple[object, ...] = ()
        self._history_s = 0.0
        self._answer = Answer(0, "cold start: no history yet, so no capacity is kept")
        self.peak = 0

    @property
    def level(self) -> float:
        """The quantile of the growth that is kept, 0 to 1."""
        return self._slo / (self._slo + self._cores)

    def guesses(self) -> tuple[int, ...]:
        """For how many pods each forecast would keep capacity: of the last hour, all days, this hour, this moment."""
        return tuple(self._guesses)

    def memory(self) -> int:
        """How many numbers are kept; bounded."""
        histograms = (self._recent, self._all, *self._hours)
        return sum(len(histogram) for histogram in histograms) + 2 * len(self._growth) + self._moments.memory()

    def observe(self, at_s: float, pods: int, window: int) -> Answer:
        """Note how many pods there are, and say how much capacity to keep.

        Args:
            at_s: seconds since the epoch; hours are those of UTC.
            pods: live pods of the shape, waiting ones included.
            window: how long freeing takes, in ticks of `growth.TICK_S`.
        """
        self._moments.count(at_s, pods)
        known = list(self._growth.observe(at_s, pods, window))
        for tick_s, growth in known:
            self._learn(tick_s, growth)
        if self._history_s < COLD_WINDOWS * window * TICK_S:
            return self._answer
        self._guess(at_s, is_new=any(growth for _, growth in known))
        best = min((_ALL, _RECENT, _HOUR, _MOMENT), key=lambda account: self._costs[account])
        wanted, before = min(self._guesses[best], self.peak), self._answer
        if before.reason.startswith("cold") or abs(wanted - before.pods) > DEAD_BAND * before.pods:
            self._answer = Answer(wanted, self._reason(best, window))
        return self._answer

    def _learn(self, at_s: float, growth: int) -> None:
        """Charge each forecast for what it answered at that tick, then let it learn the growth."""
        hour = int(at_s % DAY_S // HOUR_S)
        fading = 0.5 ** (TICK_S / DAY_S)
        while len(self._made) > 1 and self._made[1][0] < at_s + TICK_S:
            self._made.popleft()
        for account, kept in enumerate(self._made[0][1]):
            cost = self._cores * max(0, kept - growth) + self._slo * max(0, growth - kept)
            self._costs[account] = self._costs[account] * fading + cost
        for histogram in (self._recent, self._all, self._hours[hour]):
            histogram.add(at_s, growth, TICK_S)
        self._moments.add(at_s, growth)
        self._hours_s[hour] += TICK_S
        self._history_s += TICK_S
        self.peak = max(self.peak, growth)

    def _guess(self, at_s: float, *, is_new: bool) -> None:
        """Ask each forecast again, if something grew or the last answers are old."""
        hour, moment, kind = int(at_s % DAY_S // HOUR_S), int(at_s // RENEWED_S), self._moments.kind(at_s)
        if not is_new and self._guessed_at == (hour, moment, kind):
            return
        self._guessed_at = (hour, moment, kind)
        of_all = self._all.quantile(self.level)
        knows_hour = self._history_s > DAY_S and self._hours_s[hour] > HOUR_S / 2
        of_hour = self._hours[hour].quantile(self.level) if knows_hour else of_all
        known = self._moments.quantile(at_s, self.level)
        of_moment = of_all if known is None else known
        before, self._guesses = self._guesses, [self._recent.quantile(self.level), of_all, of_hour, of_moment]
        for account, (old, new) in enumerate(zip(before, self._guesses, strict=True)):
            self._costs[account] += self._cores * max(0, new - old) * RETURN_S / TICK_S
        if len(self._made) > 1 and self._made[-1][0] // TICK_S == at_s // TICK_S:
            self._made.pop()
        self._made.append((at_s, self._guesses))

    def _reason(self, account: int, window: int) -> str:
        level = level_for_a_moment(self.level) if account == _MOMENT else self.level
        return (
            f"{level:.1%} of the growths within {window * TICK_S:g} s are no larger, by {_NAMES[account]}"
            f" (a waiting pod-second costs {self._slo:g} idle core-seconds)"
        )
