"""The counts that policy `goodput` may give a job, and the value of each, less the cost of the resize to it.

A real curve is not concave. The ninth GPU is on a third node, say, and slows a job of eight, while sixteen are faster
again. A concave envelope promises a job of nine more than it gets. So a job is offered the counts at which it is as
fast as its envelope says, or nearly, and its present one; what a count is worth follows from the speed that was seen.

A change of the count stops the job for as long as its last resizes cost. That counts over the horizon, so a job that
a resize stops for 30 s of the next 600 s must become 5 % faster by it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, log

from edl.model.jobs import Job
from edl.model.sizes import within
from edl.planner.speedup import breakpoints, seen_of, trainers_beside
from edl.planner.trial_packing import TrialPacking
from edl.planner.waits import HORIZON_S, is_arriving, resize_cost_s, rest_left_s

NEAR = 0.02
"""A count is offered if the job is slower there than its concave envelope by this part at most."""


@dataclass(frozen=True, slots=True)
class Options:
    """The counts that one job may be given.

    Attributes:
        counts: trainers, ascending; not empty.
        values: what each count is worth, in the unit of `Worth`, less the cost of the change to it.
        floor: position of the largest count up to the floor of the job: its fewest trainers.
    """

    counts: tuple[int, ...]
    values: tuple[float, ...]
    floor: int

    def at(self, count: int) -> int:
        """The position of the largest option up to `count`; that of the floor if all are larger."""
        return max(self.floor, bisect_right(self.counts, count) - 1)


def options_of(
    packing: TrialPacking,
    ceiling: Mapping[int, int],
    floor: Mapping[int, int],
    may_shrink: Mapping[int, int],
) -> dict[int, Options]:
    """The counts that each job of a packing may be given.

    Args:
        packing: before any growth; not changed.
        ceiling: the most trainers that each job may have now.
        floor: its fewest trainers that no other job may take.
        may_shrink: the jobs that may lose running trainers to others now.
    """
    return {
        j: _options(packing, j, max(ceiling[j], packing.count[j]), floor[j], is_free=j in may_shrink)
        for j in packing.members
    }


def _options(packing: TrialPacking, j: int, most: int, floor: int, *, is_free: bool) -> Options:
    """The counts that one job may be given.

    Args:
        packing: before any growth; not changed.
        j: the member.
        most: its most trainers.
        floor: its fewest trainers that no other job may take.
        is_free: it may lose running trainers to others now.
    """
    demand, now = packing.problem.demands[j], packing.count[j]
    job, now_s = demand.job, packing.problem.snapshot.observed_at_s
    low = demand.min_trainers if is_free else max(demand.min_trainers, now)
    high = max(low, most if rest_left_s(job, now_s) <= 0 else min(most, max(now, _decided(job))))
    counts = offered(job, low, high, now)
    charge = charge_of(job, now_s)
    seen, beside = seen_of(job), trainers_beside(job)
    least = log(seen.at(demand.min_trainers + beside))
    values = [job.weight * (log(seen.at(n + beside)) - least - (charge if n != now else 0.0)) for n in counts]
    return Options(tuple(counts), tuple(values), max(0, bisect_right(counts, floor) - 1))


def offered(job: Job, low: int, high: int, now: int) -> list[int]:
    """The counts from `low` to `high` that a job may be given, ascending, with `low` and `now` if that is among them.

    Args:
        job: the job as the policy sees it.
        low: its fewest trainers now.
        high: its most trainers now, at least `low`.
        now: what it has.
    """
    seen, beside = seen_of(job), trainers_beside(job)
    known = {count - beside for count, _ in seen.points}
    counts = sorted({*breakpoints(low, high), *(n for n in (*known, now) if low <= n <= high)})
    if job.sizes:
        counts = sorted({low, *within(job.sizes, low, high)})
    return [
        n for n in counts if n in (low, now) or seen.at(n + beside) >= (1.0 - NEAR) * seen.curve.speed(n + beside)
    ]


def charge_of(job: Job, now_s: float) -> float:
    """The cost of resizing a job, in the unit of `Worth` for a job of weight 1; 0 while the job starts."""
    is_new = is_arriving(job, now_s) or not job.live_trainers
    return 0.0 if is_new else resize_cost_s(job) / HORIZON_S


def gain_for(charge: float) -> float:
    """Turn the cost of a resize, in the unit of `Worth`, into the part by which a job must get faster to pay it."""
    return exp(charge) - 1.0


def would_gain(packing: TrialPacking, j: int, ceiling: int) -> bool:
    """True if some larger count would gain the job more than the resize costs, whatever capacity is free."""
    job, now = packing.problem.demands[j].job, packing.count[j]
    seen, beside = seen_of(job), trainers_beside(job)
    least = log(seen.at(now + beside)) + charge_of(job, packing.problem.snapshot.observed_at_s)
    return any(log(seen.at(n + beside)) > least for n in offered(job, now, max(now, ceiling), now))


def _decided(job: Job) -> int:
    """How many trainers the last plan gave the job. It may still have fewer, because trainers of others end first."""
    return job.status.trainer.desired if job.status is not None else 0
