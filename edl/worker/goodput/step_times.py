"""Estimates the time of a step by number of trainers and global batch: measured, else fitted to measurements.

A step takes a time for each pass, one for each record of a trainer, and one to exchange gradients, which grows with
the trainers (Pollux, OSDI 2021, section 3.2, without its overlap: edl exchanges after the last pass). The four
coefficients are at least 0, and fit the relative errors in the least squares. Where a few measurements leave a
choice, the fit takes the one that makes a larger batch look better: it is tried, and then measured.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

SAMPLES, ENOUGH, MOST_KINDS = 15, 5, 64
"""How many of the last times of a kind of step are kept, how many make a median, and how many kinds are kept."""
BEYOND = 2.0
"""Nothing is predicted beyond this factor of what was seen."""
_CLOSE = 1e-9


class StepKind(NamedTuple):
    """Steps that take equally long.

    Attributes:
        trainers: how many processes share the records of a step.
        batch: records of a step.
        passes: passes of each trainer.
    """

    trainers: int
    batch: int
    passes: int

    @property
    def share(self) -> float:
        """How many records each trainer computes in such a step."""
        return self.batch / self.trainers

    @property
    def terms(self) -> tuple[float, float, float, float]:
        """The factors of the model's four coefficients for such a step."""
        return float(self.passes), self.share, float(self.trainers > 1), float(max(0, self.trainers - 2))


class TimeModel:
    """Predicts the time of a kind of step.

    Args:
        times: kind -> median time in seconds, above 0; at least one.
    """

    def __init__(self, times: dict[StepKind, float]) -> None:
        self._times = times
        self._coefficients = _fitted([(kind.terms, seconds) for kind, seconds in times.items()])
        shares = [kind.share for kind in times]
        self._shares = min(shares) / BEYOND, max(shares) * BEYOND
        self.most_trainers = BEYOND * max(kind.trainers for kind in times)
        self._most_batch = BEYOND * max(kind.batch for kind in times)

    def seconds(self, kind: StepKind) -> float | None:
        """Predict how many seconds such a step takes.

        None beyond twice the trainers, batches and shares that were seen.
        """
        if kind in self._times:
            return self._times[kind]
        low, high = self._shares
        if not low <= kind.share <= high or kind.trainers > self.most_trainers or kind.batch > self._most_batch:
            return None
        return sum(a * b for a, b in zip(self._coefficients, kind.terms, strict=True)) or None


class StepTimes:
    """The measured times of the steps of a job."""

    def __init__(self) -> None:
        self._samples: dict[StepKind, deque[float]] = {}

    def add(self, kind: StepKind, seconds: float) -> None:
        """Add the time of a step, above 0; of too many kinds the one that was not seen for longest is dropped."""
        samples = self._samples.pop(kind, None) or deque[float](maxlen=SAMPLES)
        samples.append(seconds)
        self._samples[kind] = samples
        if len(self._samples) > MOST_KINDS:
            del self._samples[next(iter(self._samples))]

    def known(self) -> dict[StepKind, float]:
        """Kind -> median time in seconds, of kinds with enough samples."""
        enough = ((kind, times) for kind, times in self._samples.items() if len(times) >= ENOUGH)
        return {kind: statistics.median(times) for kind, times in enough}

    def model(self) -> TimeModel | None:
        """The fit; None before the first kind has enough samples."""
        known = self.known()
        return TimeModel(known) if known else None

    def state_dict(self) -> list[Any]:
        """The samples as plain numbers."""
        return [[*kind, list(times)] for kind, times in self._samples.items()]

    def load_state_dict(self, state: Sequence[Any]) -> None:
        """Take over a state of `state_dict`."""
        self._samples = {
            StepKind(int(trainers), int(batch), int(passes)): deque(map(float, times), SAMPLES)
            for trainers, batch, passes, times in state
        }


def _fitted(points: list[tuple[tuple[float, ...], float]]) -> list[float]:
    """The coefficients of at least 0 with the least squares of relative errors, by trying which of them are above 0.

    Of equally good ones those come first that have fewer terms, and terms that do not grow with the batch.
    """
    rows = [[term / seconds for term in terms] for terms, seconds in points]
    width = len(rows[0])
    best, least = [0.0] * width, math.inf
    for count in range(1, width + 1):
        for chosen in itertools.combinations(range(width), count):
            found = _solved([[row[place] for place in chosen] for row in rows])
            if found is None or min(found) < 0:
                continue
            whole = [0.0] * width
            for place, value in zip(chosen, found, strict=True):
                whole[place] = value
            error = sum((sum(a * b for a, b in zip(whole, row, strict=True)) - 1) ** 2 for row in rows)
            if error < least - _CLOSE:
                best, least = whole, error
    return best


def _solved(rows: list[list[float]]) -> list[float] | None:
    """The x with the least squares of rows x - 1; None if several have."""
    width = len(rows[0])
    whole = [[*row, 1.0] for row in rows]
    matrix = [[math.fsum(row[a] * row[b] for row in whole) for b in range(width + 1)] for a in range(width)]
    scale = [math.sqrt(matrix[place][place]) or 1.0 for place in range(width)]  # columns of length 1: a fair pivot
    for a, line in enumerate(matrix):
        matrix[a] = [value / scale[a] / (scale[b] if b < width else 1.0) for b, value in enumerate(line)]
    for place in range(width):
        pivot = max(range(place, width), key=lambda at: abs(matrix[at][place]))
        if abs(matrix[pivot][place]) < _CLOSE:
            return None
        matrix[place], matrix[pivot] = matrix[pivot], matrix[place]
        for other in range(width):
            if other != place:
                factor = matrix[other][place] / matrix[place][place]
                matrix[other] = [a - factor * b for a, b in zip(matrix[other], matrix[place], strict=True)]
    return [matrix[place][width] / matrix[place][place] / scale[place] for place in range(width)]
