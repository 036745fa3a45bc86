"""How far the clock of this machine differs from that of the API server, read from the Date of its responses.

Creation times and transition times are stamps of the API server. Compared with the clock of a machine that is two
seconds ahead, a pod is two seconds older than it is, and a grace time of two seconds never begins.

Source: RFC 9110, 6.6.1 (Date has whole seconds).
"""

from __future__ import annotations

from collections import deque
from datetime import UTC
from email.utils import parsedate_to_datetime

SAMPLES = 32
"""How many responses count, so that a drifting clock is noticed after as many requests."""


class ServerClock:
    """Bounds on the difference, from the last responses.

    The time of the server lies between Date and Date + 1 s at some moment between request and response, so each
    response bounds the difference. If they allow 0, it is 0: a clock that is right stays untouched.
    """

    def __init__(self) -> None:
        self._bounds: deque[tuple[float, float]] = deque(maxlen=SAMPLES)

    def saw(self, date: str, sent_s: float, received_s: float) -> None:
        """Take a response into account.

        Args:
            date: its header; anything else than a date is ignored.
            sent_s: when the request was sent, by this machine's clock.
            received_s: when the header was received, by the same clock.
        """
        try:
            stamp = parsedate_to_datetime(date)
        except (TypeError, ValueError):
            return
        at_s = (stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)).timestamp()
        low, high = at_s - received_s, at_s + 1.0 - sent_s
        if self._bounds and (low > self._high() or high < self._low()):
            self._bounds.clear()  # a clock was set, or another server has another time
        self._bounds.append((low, high))

    @property
    def ahead_s(self) -> float:
        """Seconds that the server's clock is ahead of this machine's; negative if it is behind."""
        if not self._bounds:
            return 0.0
        low, high = self._low(), self._high()
        return 0.0 if low <= 0.0 <= high else (low + high) / 2

    def _low(self) -> float:
        return max(low for low, _ in self._bounds)

    def _high(self) -> float:
        return min(high for _, high in self._bounds)
