"""Limits the background writes under way (growth above minimums, and events), for which nobody waits.

An urgent write waits for the requests that are under way: with 64 on a busy server that takes 0.3 to 0.5 s, with 16 a
quarter of it, and as many are written in a second. But if each request takes long because of a webhook and
not because of the load, 64 write four times as many as 16. So the number is raised in steps, and a step is taken back
unless more is then written in a second. Latency alone cannot tell the two apart: on a busy server that takes requests
in turn, all are equally slow.

Source: what is written in a second is what is under way divided by how long it takes (Little's law).
"""

from __future__ import annotations

from math import exp, log

from edl.model.actions import Action, Outcome

LEAST = 16
STEP = 1.5
"""The factor by which the number is raised for a try."""
WORTH = 0.5
"""A larger number stays if at least this part of what it grows by is written more in a second."""
SETS = 3
"""The number of full sets of requests after which a number of requests at once is judged."""
TRY_AGAIN_S = 60.0
"""How long the number is not raised again after a raise was undone."""
SHORTEST_S = 1e-4


class _Times:
    """The usual durations of requests by kind: mean logarithms, on which single long requests have little effect."""

    def __init__(self) -> None:
        self.count = 0
        self._kinds: dict[type[Action], tuple[int, float]] = {}

    def add(self, outcome: Outcome) -> None:
        kind, found = type(outcome.action), log(max(outcome.seconds, SHORTEST_S))
        count, total = self._kinds.get(kind, (0, 0.0))
        self._kinds[kind], self.count = (count + 1, total + found), self.count + 1

    def over(self, before: _Times) -> float:
        """The ratio of the durations of two sets of requests, over the kinds that both have; 1 if they share none."""
        both = [(self._kinds[kind], before._kinds[kind]) for kind in self._kinds if kind in before._kinds]
        weight = sum(count for (count, _), _ in both)
        slower = sum(total - count * past / number for (count, total), (number, past) in both)
        return exp(slower / weight) if weight else 1.0


class BackgroundWrites:
    """Decides how many background writes may be under way at once.

    Args:
        ceiling: the most, >= 1.
    """

    def __init__(self, ceiling: int) -> None:
        self._ceiling = ceiling
        self.allowed = min(LEAST, ceiling)
        self._times = _Times()
        self._before: tuple[int, _Times] | None = None
        """The number before a step that is being tried, and its times."""
        self._next_step_s = float("-inf")

    def record(self, outcome: Outcome, now_s: float) -> None:
        """Learn from a request that went well while as many as allowed were under way.

        Args:
            outcome: its outcome, with the seconds that it took.
            now_s: the monotonic time.
        """
        self._times.add(outcome)
        if self._times.count >= SETS * self.allowed:
            self._judge(now_s)

    def fall_back(self, now_s: float) -> None:
        """Return to the least number, because the API server is too busy, and wait before raising it."""
        self.allowed, self._next_step_s = min(LEAST, self._ceiling), now_s + TRY_AGAIN_S
        self._times, self._before = _Times(), None

    def _judge(self, now_s: float) -> None:
        """Keep or undo the last change of the limit, and make the next change if one is due."""
        if self._before is not None:
            number, times = self._before
            step = self.allowed / number
            if step / self._times.over(times) < 1 + WORTH * (step - 1):
                self.allowed, self._next_step_s = number, now_s + TRY_AGAIN_S
        self._before = None
        if now_s >= self._next_step_s and self.allowed < self._ceiling:
            self._before = (self.allowed, self._times)
            self.allowed = min(self._ceiling, int(self.allowed * STEP))
        self._times = _Times()
