"""How many requests the controller has under way at once: as many as the API server takes, from 1 up to a ceiling.

It begins with `FIRST` and adds one each time a full set of requests went well. It halves when the server says that
it is too busy (a 429 or 503 with Retry-After), and takes back one when requests take several times as long as they
could. A request that has to wait keeps its place for that time, so a server that refuses everything gets no more
than one request for each pause. Other failures say nothing about the load: a refused job slows no other job.

Source: additive increase and multiplicative decrease, as TCP does it (RFC 5681); latency as a signal as in TCP Vegas.
"""

from __future__ import annotations

from edl.model.actions import Action, Outcome

FIRST = 16
LONGEST_REST_S = 5.0
"""A place rests for no longer than this; the job itself waits as long as the server asked."""
SLOW_RATIO, NEVER_SLOW_S = 4.0, 0.1
"""A request is slow if it takes this many times the shortest of its kind; faster than this it never is."""
REMEMBERED_S = 60.0
"""The shortest time of each kind is that of the last one to two of these."""


class Concurrency:
    """The number of requests that may be under way.

    Args:
        ceiling: the most, >= 1.
    """

    def __init__(self, ceiling: int) -> None:
        self._ceiling = ceiling
        self._allowed = float(min(FIRST, ceiling))
        self._rests: list[float] = []
        self._lowered_s = float("-inf")
        self._shortest: dict[
            type[Action], tuple[float, float, float]
        ] = {}  # since when, this period's, the last one's

    @property
    def allowed(self) -> int:
        """The number without those places that rest, 1 to the ceiling."""
        return int(self._allowed)

    def places(self, now_s: float) -> int:
        """How many requests may be under way now; 0 while all places rest."""
        self._rests = [until_s for until_s in self._rests if until_s > now_s]
        return max(0, int(self._allowed) - len(self._rests))

    def rest_s(self, now_s: float) -> float:
        """Seconds until the first place has rested; 0 if none rests."""
        return max(0.0, min(self._rests, default=now_s) - now_s)

    def record(self, outcome: Outcome, *, now_s: float, was_full: bool) -> None:
        """Learn from a request that has just ended.

        Args:
            outcome: of it, with the seconds that it took.
            now_s: the monotonic time.
            was_full: every place was in use, so the number mattered.
        """
        sent_s = now_s - outcome.seconds
        if outcome.retry_after_s is not None:
            self._rests.append(now_s + min(max(outcome.retry_after_s, 0.0), LONGEST_REST_S))
            self._lower(self._allowed / 2, sent_s, now_s)
        elif not outcome.is_ok:
            return
        elif self._is_slow(outcome, now_s):
            self._lower(self._allowed - 1, sent_s, now_s)
        elif was_full:
            self._allowed = min(float(self._ceiling), self._allowed + 1 / self._allowed)

    def _lower(self, allowed: float, sent_s: float, now_s: float) -> None:
        """Lower the number, once for all requests that were sent before the last time it was lowered."""
        if sent_s >= self._lowered_s:
            self._allowed, self._lowered_s = max(1.0, allowed), now_s

    def _is_slow(self, outcome: Outcome, now_s: float) -> bool:
        kind = type(outcome.action)
        since_s, shortest_s, before_s = self._shortest.get(kind, (now_s, float("inf"), float("inf")))
        if now_s - since_s >= REMEMBERED_S:
            since_s, shortest_s, before_s = now_s, float("inf"), shortest_s
        self._shortest[kind] = (since_s, min(shortest_s, outcome.seconds), before_s)
        return outcome.seconds > max(NEVER_SLOW_S, SLOW_RATIO * min(shortest_s, before_s, outcome.seconds))
