"""Estimates what edl would gain: a mean over minutes, with its uncertainty by a block bootstrap.

The mean of a difference over all intervals, each weighted by the time that was observed in it; between the 5th and
the 95th percentile of a moving-block bootstrap. Blocks of n^(1/3) intervals in a row are drawn together, because a
busy minute follows a busy minute; single minutes would promise too much certainty.

Source: Künsch, The jackknife and the bootstrap for general stationary observations, Annals of Statistics 17 (1989).
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from edl.shadow.document import Estimate, Gain, Interval, ResourceGain

DRAWS = 1000
FEWEST = 5
"""The fewest intervals for which an uncertainty is given; with fewer, low and high are null."""

METHOD = (
    "Each plan is made from the cluster as it is, which edl does not change. The line with edl is what the cluster"
    " would request if the plan of each moment held at once: the time in which trainers end and start is not counted,"
    " and a job that grows would end sooner. So it is a sequence of first steps, not a forecast of a cluster that edl"
    " runs. The gain is the mean difference over intervals of a minute; low and high are the 5th and the 95th"
    f" percentile of {DRAWS:,} draws of a moving-block bootstrap. They cover the luck of these minutes, not the error"
    " of the method."
)


def gain_of(intervals: Sequence[Interval]) -> Gain:
    """Compute the gain of these intervals, in the order of time."""
    block = max(1, round(len(intervals) ** (1 / 3))) if intervals else 0
    made = Gain(method=METHOD, intervals=len(intervals), block=block)
    if not any(one.seconds for one in intervals):
        return made

    for name in sorted({key for one in intervals for key in one.capacity}):
        capacity = _amount(intervals, "capacity", name)
        if capacity <= 0:
            continue
        made.resources.append(
            ResourceGain(
                resource=name,
                capacity=capacity,
                used=_amount(intervals, "used", name) / capacity,
                with_edl=_amount(intervals, "with_edl", name) / capacity,
                training=_amount(intervals, "training", name) / capacity,
                training_with_edl=_amount(intervals, "training_with_edl", name) / capacity,
                gain=estimate([(_gained(one, name), one.seconds) for one in intervals], block),
            )
        )
    serving = [(one.waiting - one.waiting_with_edl, one.seconds) for one in intervals]
    jobs = [(one.jobs_waiting - one.jobs_waiting_with_edl, one.seconds) for one in intervals]
    made.serving_waiting, made.jobs_waiting = estimate(serving, block), estimate(jobs, block)
    return made


def _amount(intervals: Sequence[Interval], field: str, resource: str) -> float:
    """The mean of an amount over the time observed."""
    return _mean([(getattr(one, field).get(resource, 0.0), one.seconds) for one in intervals])


def _gained(interval: Interval, name: str) -> float:
    capacity = interval.capacity.get(name, 0.0)
    return (interval.with_edl.get(name, 0.0) - interval.used.get(name, 0.0)) / capacity if capacity else 0.0


def estimate(pairs: Sequence[tuple[float, float]], block: int, outside: float = 0.05) -> Estimate:
    """The mean of (value, weight) and its uncertainty; equal pairs give equal draws.

    Args:
        pairs: in an order in which neighbours resemble each other.
        block: how many in a row are drawn together.
        outside: the part of the draws below the low end, and above the high end.
    """
    if len(pairs) < FEWEST:
        return Estimate(mean=_mean(pairs), low=None, high=None)
    chance = random.Random(0)  # noqa: S311 - draws, not a secret
    starts = range(len(pairs) - block + 1)
    draws = sorted(_mean(_drawn(pairs, block, starts, chance)) for _ in range(DRAWS))
    return Estimate(mean=_mean(pairs), low=draws[round(DRAWS * outside)], high=draws[-round(DRAWS * outside) - 1])


def _drawn(
    pairs: Sequence[tuple[float, float]], block: int, starts: range, chance: random.Random
) -> list[tuple[float, float]]:
    """Draw as many intervals as there are, with replacement, in whole blocks."""
    drawn: list[tuple[float, float]] = []
    while len(drawn) < len(pairs):
        start = chance.choice(starts)
        drawn += pairs[start : start + block]
    return drawn[: len(pairs)]


def _mean(pairs: Sequence[tuple[float, float]]) -> float:
    return sum(value * weight for value, weight in pairs) / sum(weight for _, weight in pairs)
