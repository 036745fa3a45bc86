"""The gradient noise scale of a training, from gradients that its steps add up anyway.

The gradient of n records has the expectation G and, summed over its components, the variance S / n. The noise scale
S / |G|^2, in records, says up to which batch a step gets better in proportion to its records. A step adds up the
gradients of groups of records: those of its trainers, or of their passes. How far these differ from each other
measures S without bias, as the mean square between groups in an analysis of variance does.

Sources: McCandlish, Kaplan, Amodei et al., "An Empirical Model of Large-Batch Training", arXiv:1812.06162, section
2.2 and appendix A.1, which has the case of two batch sizes; Qiao et al., "Pollux", OSDI 2021, section 3.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

KEPT = 0.97
"""The part of a smoothed value that each measurement keeps: a mean over about 33 measurements."""
ENOUGH = 8
"""The fewest measurements for a noise scale: a single one may be off by its own size."""
LARGEST = 1e12
"""The largest noise scale, in records: the gradient cannot be told from zero."""


class Spread(NamedTuple):
    """How far the gradients of the groups of one step differ.

    Attributes:
        squares: the sum over groups of w |g|^2; g is the mean gradient of a group, and w its part of the step's
            records, so that all w add up to 1.
        groups: how many groups there are.
        records: the records of the step.
    """

    squares: float
    groups: int
    records: int

    def variance(self, square: float) -> float:
        """The variance S of the gradient of one record, without bias; it may be below 0 by chance.

        Args:
            square: |g|^2 of the whole step.
        """
        return (self.squares - square) * self.records / (self.groups - 1)

    def signal(self, square: float) -> float:
        """An unbiased estimate of |G|^2, the square of the expected gradient; it may be below 0 by chance.

        Args:
            square: |g|^2 of the whole step.
        """
        return square - self.variance(square) / self.records


class NoiseScale:
    """The smoothed noise scale.

    Variance and signal are smoothed on their own, since the mean of their ratios is biased. The first values count
    in full (the sums are divided by the weights that they have had so far, as Adam does it).
    """

    def __init__(self) -> None:
        self._variance = self._signal = self._weight = 0.0
        self._count = 0

    @property
    def value(self) -> float | None:
        """The noise scale in records, from 0 to `LARGEST`; None before `ENOUGH` measurements."""
        if self._count < ENOUGH:
            return None
        if self._variance <= 0:
            return 0.0
        return min(LARGEST, self._variance / self._signal) if self._signal > 0 else LARGEST

    @property
    def variance(self) -> float:
        """The smoothed variance of the gradient of one record; 0 before the first measurement."""
        return self._variance / self._weight if self._weight else 0.0

    def add(self, spread: Spread, square: float) -> None:
        """Add the measurement of a step; one that is not finite, as after an overflow, is left out.

        Args:
            spread: of a step of at least two groups.
            square: |g|^2 of the whole step.
        """
        variance, signal = spread.variance(square), spread.signal(square)
        if not (math.isfinite(variance) and math.isfinite(signal)):
            return
        self._variance = KEPT * self._variance + (1 - KEPT) * variance
        self._signal = KEPT * self._signal + (1 - KEPT) * signal
        self._weight = KEPT * self._weight + (1 - KEPT)
        self._count += 1

    def state_dict(self) -> dict[str, Any]:
        """The state as plain numbers."""
        return {"variance": self._variance, "signal": self._signal, "weight": self._weight, "count": self._count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a state of `state_dict`."""
        self._variance, self._signal = float(state["variance"]), float(state["signal"])
        self._weight, self._count = float(state["weight"]), int(state["count"])
