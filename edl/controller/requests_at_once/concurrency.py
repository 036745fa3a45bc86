"""How many requests the controller has under way at once: as many as the API server takes, from 1 up to a ceiling.

It begins with `FIRST`. While every place is in use and all goes well, it adds one for each request, and after the
first sign of load one for each full set. It halves when the server says that it is too busy (a 429 or 503 with
Retry-After). A request that has to wait keeps its place for that time, so a server that refuses everything gets no
more than one request for each pause. Other failures say nothing about the load: a refused job slows no other job.

Latency takes places back as well, but never below `FLOOR`: a busy machine answers slowly however little it is asked,
and a few requests at once harm no server. A time is compared with what is usual for its kind on this server, and one
slow request alone says nothing: the mean of the logarithms counts, which few long times hardly move.

Source: slow start, additive increase and multiplicative decrease, as TCP does it (RFC 5681); a recent mean against a
long one as in the gradient limit of Netflix's concurrency-limits.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log

from edl.controller.requests_at_once.background_writes import SHORTEST_S, BackgroundWrites
from edl.model.actions import Action, Outcome

FIRST = 16
FLOOR = 8
"""The least number of requests at once while the server is only slow; it is lower if the server asks to wait."""
LONGEST_PAUSE_S = 5.0
"""A place is paused for no longer than this; the job itself waits as long as the server asked."""
SLOW_RATIO, NEVER_SLOW_S = 1.5, 0.25
"""Requests are slow if they take this many times the usual time of their kind; below this mean they never are."""
TOO_LONG_S = 3.0
"""A request that takes this long would soon fail by its time limit, whatever durations are usual."""
KEPT = 0.75
"""The part of the places that slow requests leave."""
RECENT, USUAL = 32, 200
"""The number of requests in the recent mean, and in the usual one."""


@dataclass(slots=True)
class _Usual:
    """The usual duration of a kind of request: the mean of its logarithms over about `USUAL` requests."""

    mean: float = 0.0
    count: int = 0

    def ratio(self, seconds: float) -> float:
        """Compare a duration with the usual one, as a logarithm of the ratio, and let the usual one follow."""
        found = log(max(seconds, SHORTEST_S))
        before = self.mean if self.count else found
        self.count = min(USUAL, self.count + 1)
        self.mean = before + (found - before) / self.count
        return found - before


class Concurrency:
    """Decides how many requests may be under way at once.

    Args:
        ceiling: the most, >= 1.
    """

    def __init__(self, ceiling: int) -> None:
        self._ceiling = ceiling
        self._allowed = float(min(FIRST, ceiling))
        self._pauses: list[float] = []
        self._lowered_s = float("-inf")
        self._usual: dict[type[Action], _Usual] = {}
        self._recent = 0.0
        """The mean logarithm of recent times as multiples of the usual ones, while every place was in use."""
        self._background = BackgroundWrites(ceiling)

    @property
    def allowed(self) -> int:
        """The number of requests allowed at once, without places in a pause; from 1 to the ceiling."""
        return int(self._allowed)

    @property
    def background(self) -> int:
        """How many background writes may be in flight; see `background_writes`."""
        return self._background.allowed

    def places(self, now_s: float) -> int:
        """How many requests may be in flight now; 0 while all places are paused."""
        self._pauses = [until_s for until_s in self._pauses if until_s > now_s]
        return max(0, int(self._allowed) - len(self._pauses))

    def pause_s(self, now_s: float) -> float:
        """Seconds until the first paused place may be used again; 0 if none is paused."""
        return max(0.0, min(self._pauses, default=now_s) - now_s)

    def record(self, outcome: Outcome, *, now_s: float, was_full: bool, was_held: bool = False) -> None:
        """Learn from a request that has just ended.

        Args:
            outcome: its outcome, with the seconds that it took.
            now_s: the monotonic time.
            was_full: every place was in use, so the number mattered.
            was_held: as many background writes as allowed were under way, and only such writes were left.
        """
        if was_held and outcome.is_ok:
            self._background.record(outcome, now_s)
        sent_s = now_s - outcome.seconds
        if outcome.retry_after_s is not None:
            self._pauses.append(now_s + min(max(outcome.retry_after_s, 0.0), LONGEST_PAUSE_S))
            self._lower(self._allowed / 2, sent_s, now_s)
        elif not outcome.is_ok:
            return
        elif self._is_slow(outcome, was_full=was_full):
            self._lower(max(min(self._allowed, FLOOR), self._allowed * KEPT), sent_s, now_s)
        elif was_full:
            is_unburdened = self._lowered_s == float("-inf")
            self._allowed = min(float(self._ceiling), self._allowed + (1 if is_unburdened else 1 / self._allowed))

    def _lower(self, allowed: float, sent_s: float, now_s: float) -> None:
        """Lower the number, once for all requests that were sent before it was last lowered."""
        if sent_s >= self._lowered_s:
            self._allowed, self._lowered_s, self._recent = max(1.0, allowed), now_s, 0.0
            self._background.fall_back(now_s)

    def _is_slow(self, outcome: Outcome, *, was_full: bool) -> bool:
        """True if recent requests are slow compared with requests that were sent while few were in flight."""
        usual = self._usual.setdefault(type(outcome.action), _Usual())
        ratio = usual.ratio(outcome.seconds)
        if outcome.seconds >= TOO_LONG_S:
            return True
        if not was_full:
            return False
        self._recent += (ratio - self._recent) / RECENT
        return self._recent > log(SLOW_RATIO) and exp(usual.mean + self._recent) > NEVER_SLOW_S
