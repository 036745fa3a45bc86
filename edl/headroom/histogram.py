"""A distribution of whole numbers that forgets: recent values weigh more, and its memory is bounded.

A quantile is always a value that was seen, so it never exceeds the largest of them.
"""

from __future__ import annotations

from itertools import pairwise

MOST_VALUES = 64
_LARGEST_UNIT = 1e100
"""Weights grow instead of old ones shrinking; above this all are scaled down."""


class Histogram:
    """Values with weights that halve every `half_life_s`.

    Attributes:
        half_life_s: seconds after which a value weighs half.
    """

    def __init__(self, half_life_s: float) -> None:
        self.half_life_s = half_life_s
        self._weights: dict[int, float] = {}
        self._unit, self._at_s = 1.0, 0.0

    def __len__(self) -> int:
        """Distinct values that are kept; at most `MOST_VALUES`."""
        return len(self._weights)

    def add(self, at_s: float, value: int, weight: float) -> None:
        """Add a value.

        Args:
            at_s: when it was seen, in seconds; not before the last one.
            value: what was seen, >= 0.
            weight: for how long, in seconds, > 0.
        """
        if self._weights:
            self._unit *= float(2.0 ** min(300.0, (max(0.0, at_s - self._at_s) / self.half_life_s)))
        self._at_s = at_s
        if self._unit > _LARGEST_UNIT:
            self._weights = {known: old / self._unit for known, old in self._weights.items()}
            self._unit = 1.0
        self._weights[value] = self._weights.get(value, 0.0) + weight * self._unit
        if len(self._weights) > MOST_VALUES:
            self._merge()

    def quantile(self, level: float) -> int:
        """Return the smallest value up to which lies at least the part `level` of the weight; 0 if it is empty."""
        below, total = 0.0, sum(self._weights.values())
        for value in sorted(self._weights):
            below += self._weights[value]
            if below >= level * total:
                return value
        return max(self._weights, default=0)

    def _merge(self) -> None:
        """Merge the value closest to its next larger neighbour into that neighbour."""
        values = sorted(self._weights)
        _, low, high = min((high - low, low, high) for low, high in pairwise(values))
        self._weights[high] += self._weights.pop(low)
