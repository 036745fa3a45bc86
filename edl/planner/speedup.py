"""How fast a job runs with so many trainers, and what one more is worth to it.

Speeds are declared by the job or measured (samples per second by number of trainers). What is worth something under
policy `utility` is the logarithm of the speed relative to the minimum's: one unit is a factor of e for any job,
whatever its samples are, and every further trainer adds less than the one before.

Source: the logarithm as a fair utility (proportional fairness), Kelly, Charging and rate control for elastic traffic,
European Transactions on Telecommunications 8(1), 1997.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import ceil, isfinite, log

from edl.model.jobs import Job

SLOWEST = 1e-9  # samples per second, one in thirty years: below it quotients would lose their digits
UNKNOWN_POWER = 0.75  # speed grows like this power of the count where nothing is known of it
TRUSTED = 2  # times the largest count seen: from there on a curve is flat
SINGLE_STEPS = 8  # trainers above the minimum that have a segment each; then segments grow by STEP_RATIO
STEP_RATIO = 1.125

Point = tuple[int, float]


@dataclass(frozen=True, slots=True)
class Curve:
    """Speed by number of trainers: concave, never falling.

    Attributes:
        points: (trainers, samples per second), ascending, on the upper concave envelope of what was seen; empty where
            nothing was.
        before, beyond: the powers of the count by which the speed grows up to the first point and after the last.
    """

    points: tuple[Point, ...] = ()
    before: float = UNKNOWN_POWER
    beyond: float = UNKNOWN_POWER

    def speed(self, count: int) -> float:
        """Samples per second with that many trainers, >= 1; without any point, relative to one trainer."""
        if not self.points:
            return float(count**self.before)
        first, last = self.points[0], self.points[-1]
        if count <= first[0]:
            return float(first[1] * (count / first[0]) ** self.before)
        if count >= last[0]:
            return float(last[1] * (min(count, TRUSTED * last[0]) / last[0]) ** self.beyond)
        at = bisect_right(self.points, (count, float("inf")))
        (left, slow), (right, fast) = self.points[at - 1 : at + 1]
        return slow + (fast - slow) * (count - left) / (right - left)


def curve_of(seen: Iterable[Point]) -> Curve:
    """The curve through what was declared or measured.

    Args:
        seen: (trainers, samples per second) in any order; several measurements of one count are smoothed into their
            mean, and what is below SLOWEST is no measurement.

    Returns:
        The upper concave envelope of the points, and what follows from it elsewhere: below the first point the speed
        grows like n^0.75, or more steeply where the envelope does; above the last like n^0.75, or less steeply where
        the envelope does; beyond twice the largest count it is flat.
    """
    by_count: dict[int, list[float]] = {}
    for count, speed in seen:
        if count >= 1 and speed >= SLOWEST and isfinite(speed):
            by_count.setdefault(count, []).append(speed)
    means = [(count, sum(speeds) / len(speeds)) for count, speeds in sorted(by_count.items())]
    if not means:
        return Curve()
    top = max(means, key=lambda point: (point[1], -point[0]))
    rising = [point for point in means if point[0] <= top[0]]
    if means[-1][0] > top[0]:
        rising.append((means[-1][0], top[1]))
    points = _envelope(rising)
    (low, slow), (high, fast) = points[0], points[-1]
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(points)] or [UNKNOWN_POWER * slow / low]
    return Curve(
        points,
        before=min(1.0, max(UNKNOWN_POWER, slopes[0] * low / slow)) if low == means[0][0] else 1.0,
        beyond=min(UNKNOWN_POWER, slopes[-1] * high / fast),
    )


def _envelope(points: list[Point]) -> tuple[Point, ...]:
    """The upper concave envelope of the points and of nothing at all (no trainer, no speed), without the latter."""
    hull: list[tuple[int, float]] = [(0, 0.0)]
    for count, speed in points:
        while len(hull) > 1 and _is_below(hull[-2], hull[-1], (count, speed)):
            hull.pop()
        hull.append((count, speed))
    return tuple(hull[1:])


def _is_below(left: Point, middle: Point, right: Point) -> bool:
    """True where the middle point does not rise above the line between the others."""
    return (middle[1] - left[1]) * (right[0] - left[0]) <= (right[1] - left[1]) * (middle[0] - left[0])


@dataclass(frozen=True, slots=True)
class Worth:
    """What trainers above the minimum are worth to a job: concave, and a straight line within each segment.

    Attributes:
        low: the minimum, worth 0.
        segments: (trainers, worth of each of them), never rising.
    """

    low: int
    segments: tuple[tuple[int, float], ...]

    def value(self, count: int) -> float:
        """Worth of that many trainers; what is above the last segment adds nothing."""
        left, total = count - self.low, 0.0
        for length, slope in self.segments:
            total += slope * min(length, left)
            left -= length
            if left <= 0:
                break
        return total

    def next(self, count: int) -> float:
        """Worth of one more than that many trainers."""
        left = count - self.low
        for length, slope in self.segments:
            if left < length:
                return slope
            left -= length
        return 0.0

    def split(self, count: int) -> tuple[tuple[int, float], ...]:
        """The segments, with one of them ending at a count where that is within."""
        left, parts = count - self.low, []
        for length, slope in self.segments:
            if 0 < left < length:
                parts += [(left, slope), (length - left, slope)]
            else:
                parts.append((length, slope))
            left -= length
        return tuple(parts)


def worth_of(job: Job, low: int, high: int) -> Worth:
    """The logarithm of the speed, times the job's weight, over counts from `low` to `high`.

    Between breakpoints, which are whole numbers of trainers, it is a straight line: each of the first few trainers
    has a segment of its own, further ones share theirs in steps of an eighth.
    """
    curve = curve_of(job.throughput)
    counts = _breakpoints(low, high)
    logs = [log(curve.speed(count)) for count in counts]
    slopes = [
        max(0.0, job.weight * (after - before)) / (b - a)
        for (a, before), (b, after) in pairwise(zip(counts, logs, strict=True))
    ]
    lengths = [b - a for a, b in pairwise(counts)]
    return Worth(low, tuple(zip(lengths, accumulate(slopes, min), strict=True)))


def _breakpoints(low: int, high: int) -> list[int]:
    counts = list(range(low, min(high, low + SINGLE_STEPS) + 1))
    while counts[-1] < high:
        counts.append(min(high, max(counts[-1] + 1, ceil(counts[-1] * STEP_RATIO))))
    return counts
