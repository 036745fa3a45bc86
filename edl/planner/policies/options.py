"""The counts that policy `goodput` may give a job, and what each is worth after the cost of the change to it.

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
from math import log

from edl.model.jobs import Job
from edl.model.sizes import within
from edl.planner.speedup import breakpoints, seen_of, trainers_beside
from edl.planner.trial_packing import TrialPacking
from edl.planner.waits import HORIZON_S, is_arriving

NEAR = 0.02
"""A count is offered if the job is slower there than its concave envelope by this part at most."""

UNKNOWN_RESIZE_S = 30.0
"""What a resize is taken to cost while none was measured: what it cost the jobs of Pollux (OSDI 2021, section 5)."""

REST = 2.0
"""After a resize was decided, a job does not grow for so many times its cost."""


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
    """The options of each member of a packing.

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
    """The options of one member.

    Args:
        packing: before any growth; not changed.
        j: the member.
        most: its most trainers.
        floor: its fewest trainers that no other job may take.
        is_free: it may lose running trainers to others now.
    """
    demand, now = packing.problem.demands[j], packing.count[j]
    job, now_s = demand.job, packing.problem.snapshot.observed_at_s
    is_new = is_arriving(job, now_s) or not job.live_trainers
    low = demand.min_trainers if is_free else max(demand.min_trainers, now)
    high = max(low, most if is_new else min(most, max(now, _growth_limit(job, now_s))))
    seen, beside = seen_of(job), trainers_beside(job)
    known = {count - beside for count, _ in seen.points}
    counts = sorted({*breakpoints(low, high), *(n for n in (*known, now) if low <= n <= high)})
    if job.sizes:
        counts = sorted({low, *within(job.sizes, low, high)})
    counts = [
        n for n in counts if n in (low, now) or seen.at(n + beside) >= (1.0 - NEAR) * seen.curve.speed(n + beside)
    ]
    charge = 0.0 if is_new else resize_cost_s(job) / HORIZON_S
    least = log(seen.at(demand.min_trainers + beside))
    values = [job.weight * (log(seen.at(n + beside)) - least - (charge if n != now else 0.0)) for n in counts]
    return Options(tuple(counts), tuple(values), max(0, bisect_right(counts, floor) - 1))


def resize_cost_s(job: Job) -> float:
    """The training time that a resize costs a job, in seconds: declared, measured, or the usual one."""
    return UNKNOWN_RESIZE_S if job.resize_cost_s is None else job.resize_cost_s


def _growth_limit(job: Job, now_s: float) -> int:
    """The trainers up to which a job may grow: what it was given last, until it has trained for long enough.

    Its last growth may not be complete yet, because trainers of others end first.
    """
    resize = job.status.last_resize if job.status is not None else None
    if job.status is None or resize is None or not 0.0 <= now_s - resize.time_s < REST * resize_cost_s(job):
        return job.max_trainers
    return job.status.trainer.desired
