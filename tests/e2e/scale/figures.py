"""Times of many events in one line."""

from __future__ import annotations

import math
from collections.abc import Sequence


def quantile(seconds: Sequence[float], part: float) -> float:
    """The smallest time that at least this part of the times does not exceed."""
    ranked = sorted(seconds)
    return ranked[max(0, math.ceil(part * len(ranked)) - 1)]


def quantiles(seconds: Sequence[float]) -> str:
    """Median, 99th percentile and number; with fewer than a hundred times the percentile is the largest."""
    if not seconds:
        return "did not happen"
    return f"p50 {quantile(seconds, 0.5):.2f} s, p99 {quantile(seconds, 0.99):.2f} s, of {len(seconds)}"
