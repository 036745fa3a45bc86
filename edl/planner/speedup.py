"""How fast a job runs with a number of trainers, and what one more trainer is worth to it.

The job declares its speeds, or they are measured (samples per second by number of trainers). Under policy `utility`,
worth is the logarithm of the speed relative to that of the minimum. One unit is a factor of e for any job, whatever
its samples are, and every further trainer adds less than the one before.

Source: the logarithm as a fair utility (proportional fairness), Kelly, Charging and rate control for elastic traffic,
European Transactions on Telecommunications 8(1), 1997.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from math import ceil, isfinite, log

from edl.model.jobs import Job

SLOWEST = 1e-9  # samples per second, one in thirty years: smaller speeds would lose digits in quotients
UNKNOWN_POWER = 0.75  # speed grows like this power of the count if nothing is known about it
TRUSTED = 2  # a curve is flat from so many times the largest measured count
SINGLE_STEPS = 8  # trainers above the minimum with a segment each; after them segments grow by STEP_RATIO
STEP_RATIO = 1.125
SLOWER = 0.05  # a speed that is lower by this part or less counts as equal: measurements differ as much

Point = tuple[int, float]


@dataclass(frozen=True, slots=True)
class Curve:
    """Speed by number of trainers: concave, and never falling.

    Attributes:
        points: (trainers, samples per second), ascending, on the upper concave envelope of the measurements; empty if
            there are none.
        before: the speed grows like this power of the count up to the first point.
        beyond: and like this one after the last point.
        flat_from: from this count on it does not grow; at least the last point.
    """

    points: tuple[Point, ...] = ()
    before: float = UNKNOWN_POWER
    beyond: float = UNKNOWN_POWER
    flat_from: int = 0

    def speed(self, count: int) -> float:
        """Samples per second with `count` trainers, >= 1; relative to one trainer if there are no points."""
        if not self.points:
            return float(count**self.before)
        first, last = self.points[0], self.points[-1]
        if count <= first[0]:
            return float(first[1] * (count / first[0]) ** self.before)
        if count >= last[0]:
            return float(last[1] * (min(count, self.flat_from) / last[0]) ** self.beyond)
        at = bisect_right(self.points, (count, float("inf")))
        (left, slow), (right, fast) = self.points[at - 1 : at + 1]
        return slow + (fast - slow) * (count - left) / (right - left)


@dataclass(frozen=True, slots=True)
class SeenSpeed:
    """Speed by number of trainers as it was seen: straight lines between the measurements, which may fall.

    Attributes:
        points: (trainers, samples per second), ascending; empty if there are none.
        curve: the concave curve through the points; beyond them the speed grows in the same proportion as it.
    """

    points: tuple[Point, ...]
    curve: Curve

    def at(self, count: int) -> float:
        """Samples per second of `count` trainers, >= 1; relative to one trainer if there are no points."""
        if not self.points:
            return self.curve.speed(count)
        first, last = self.points[0], self.points[-1]
        if count <= first[0] or count >= last[0]:
            end, speed = first if count <= first[0] else last
            return self.curve.speed(count) * (speed / self.curve.speed(end))
        at = bisect_right(self.points, (count, float("inf")))
        (left, slow), (right, fast) = self.points[at - 1 : at + 1]
        return slow + (fast - slow) * (count - left) / (right - left)


def seen_speed(seen: Iterable[Point], curve: Curve) -> SeenSpeed:
    """The speed through these measurements, of which `curve` is the concave curve."""
    return SeenSpeed(tuple(sorted(seen)), curve)


def seen_of(job: Job) -> SeenSpeed:
    """The speed of a job by what it declares or what was measured of it; several values of one count are averaged."""
    return seen_speed(_means(points_of(job)), curve_of(job.throughput, job.speeds_seen_to))


def points_of(job: Job) -> list[Point]:
    """The speeds of a job that count: none is beyond twice the largest count that was seen."""
    return _trusted(job.throughput, job.speeds_seen_to)


def curve_of(seen: Iterable[Point], seen_to: int = 0) -> Curve:
    """The curve through declared or measured speeds.

    Args:
        seen: (trainers, samples per second) in any order. Several measurements of one count are averaged; a speed
            below SLOWEST does not count as a measurement.
        seen_to: the largest count that was measured, if others were predicted; by default all were.

    Returns:
        The upper concave envelope of the points, and its continuation on both sides. Below the first point the speed
        grows like n^0.75, or more steeply if the envelope does. Above the last point it grows like n^0.75, or less
        steeply if the envelope does. Beyond twice the largest measured count it is flat.
    """
    means = _means(_trusted(seen, seen_to))
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
        flat_from=max(high, TRUSTED * (seen_to or high)),
    )


def most_useful(seen: Iterable[Point]) -> int:
    """The count beyond which more trainers slow a job, by declared or measured speeds.

    Args:
        seen: (trainers, samples per second) in any order.

    Returns:
        The largest count whose speed is the highest one, or at most SLOWER below it; 0 if no larger count is known.
    """
    means = _means(seen)
    top = max((speed for _, speed in means), default=0.0)
    useful = max((count for count, speed in means if speed >= (1.0 - SLOWER) * top), default=0)
    return useful if means and means[-1][0] > useful else 0


def as_useful(job: Job) -> Job:
    """Limit a job to the trainers that make it faster; trainers beyond that which it already has stay."""
    useful = most_useful(points_of(job))
    if not useful or (most := max(useful, len(job.live_trainers))) >= job.max_trainers:
        return job
    return replace(job, slowed_beyond=most)


def _trusted(seen: Iterable[Point], seen_to: int) -> list[Point]:
    """Return the points up to twice the largest count that was measured; all points if none was predicted."""
    return [point for point in seen if not seen_to or point[0] <= TRUSTED * seen_to]


def _means(seen: Iterable[Point]) -> list[Point]:
    """(trainers, mean speed) of each count that was measured, ascending."""
    by_count: dict[int, list[float]] = {}
    for count, speed in seen:
        if count >= 1 and speed >= SLOWEST and isfinite(speed):
            by_count.setdefault(count, []).append(speed)
    return [(count, sum(speeds) / len(speeds)) for count, speeds in sorted(by_count.items())]


def _envelope(points: list[Point]) -> tuple[Point, ...]:
    """The upper concave envelope of the points and of the origin (no trainer, no speed), without the origin."""
    hull: list[tuple[int, float]] = [(0, 0.0)]
    for count, speed in points:
        while len(hull) > 1 and _is_below(hull[-2], hull[-1], (count, speed)):
            hull.pop()
        hull.append((count, speed))
    return tuple(hull[1:])


def _is_below(left: Point, middle: Point, right: Point) -> bool:
    """True if the middle point does not rise above the line between the others."""
    return (middle[1] - left[1]) * (right[0] - left[0]) <= (right[1] - left[1]) * (middle[0] - left[0])


@dataclass(frozen=True, slots=True)
class Worth:
    """The value of trainers above the minimum of a job: concave, and linear within each segment.

    Attributes:
        low: the minimum, which is worth 0.
        segments: (trainers, worth of each of them), never rising.
        ends: trainers above the minimum with which each segment ends.
    """

    low: int
    segments: tuple[tuple[int, float], ...]
    ends: tuple[int, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Note where each segment ends: growth asks for the next trainer a hundred thousand times."""
        object.__setattr__(self, "ends", tuple(accumulate(length for length, _ in self.segments)))

    def value(self, count: int) -> float:
        """The worth of `count` trainers; trainers above the last segment add nothing."""
        left, total = count - self.low, 0.0
        for length, slope in self.segments:
            total += slope * min(length, left)
            left -= length
            if left <= 0:
                break
        return total

    def next(self, count: int) -> float:
        """Return the value of the next trainer after `count` trainers; 0 beyond the last segment."""
        at = bisect_right(self.ends, count - self.low)
        return self.segments[at][1] if at < len(self.segments) else 0.0

    def split(self, count: int) -> tuple[tuple[int, float], ...]:
        """The segments; one that contains `count` is split there."""
        left, parts = count - self.low, []
        for length, slope in self.segments:
            if 0 < left < length:
                parts += [(left, slope), (length - left, slope)]
            else:
                parts.append((length, slope))
            left -= length
        return tuple(parts)


def worth_of(job: Job, low: int, high: int) -> Worth:
    """The logarithm of the speed, times the job's weight, for counts from `low` to `high`.

    It is a straight line between breakpoints, which are whole numbers of trainers. Each of the first few trainers has
    a segment of its own; further ones share segments that grow by an eighth. Live pods without a role are trainers
    that stay beside any count; see `owners.order`.
    """
    curve = curve_of(job.throughput, job.speeds_seen_to)
    counts, beside = breakpoints(low, high), trainers_beside(job)
    logs = [log(curve.speed(count + beside)) for count in counts]
    slopes = [
        max(0.0, job.weight * (after - before)) / (b - a)
        for (a, before), (b, after) in pairwise(zip(counts, logs, strict=True))
    ]
    lengths = [b - a for a, b in pairwise(counts)]
    return Worth(low, tuple(zip(lengths, accumulate(slopes, min), strict=True)))


def worth_knots(job: Job, low: int, cap: int, high: int) -> tuple[tuple[int, float], ...]:
    """The points (trainers, worth) between which the worth of a job's trainers is linear, for weight 1.

    Args:
        job: the job as the policy sees it.
        low: its minimum, which is worth 0.
        cap: up to this count the knots are those of `worth_of`; a job whose cap is its minimum cannot grow.
        high: its maximum, at least `cap`.

    Returns:
        (trainers, worth), ascending from `low`; worth never falls.
    """
    curve, beside = curve_of(job.throughput, job.speeds_seen_to), trainers_beside(job)
    counts = [low] if cap <= low else _stretched(breakpoints(low, cap), high)
    least = log(curve.speed(low + beside))
    return tuple(zip(counts, accumulate((log(curve.speed(n + beside)) - least for n in counts), max), strict=True))


def trainers_beside(job: Job) -> int:
    """Count the live pods without a role: trainers that exist in addition to any planned count."""
    return sum(pod.role is None and pod.is_live for pod in job.pods)


def breakpoints(low: int, high: int) -> list[int]:
    """The counts at which segments begin and end, from `low` to `high`."""
    return _stretched(list(range(low, min(high, low + SINGLE_STEPS) + 1)), high)


def _stretched(counts: list[int], high: int) -> list[int]:
    """Extend a list of counts up to `high`, in steps that grow."""
    while counts[-1] < high:
        counts.append(min(high, max(counts[-1] + 1, ceil(counts[-1] * STEP_RATIO))))
    return counts
