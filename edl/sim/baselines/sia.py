"""Sia-like: an integer program chooses one configuration (a number of trainers, or none) for each job.

The value of a configuration is the job's speed relative to that with its fewest trainers, raised to -0.5 and
minimised with a penalty for jobs that get nothing; a change is discounted by the time that its restart costs. All
GPUs are of one kind here, so a configuration is a count: powers of two, whole nodes of four, and the present one. Of
a job that may change its batch the speed is its goodput.

Source: Subramanya et al., Sia: Heterogeneity-aware, goodput-optimized ML-cluster scheduling, SOSP 2023, section 3.4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edl.model.names import JobKey
from edl.sim.baselines.base import JobFacts
from edl.sim.baselines.program import cheapest

POWER = -0.5
NO_SHARE = 1.1
"""The cost of a job that gets nothing, where its fewest trainers cost 1."""


class Sia:
    """Solves one integer program for each round."""

    def share(self, jobs: Sequence[JobFacts], room: float) -> Mapping[JobKey, int]:
        """Return the number of trainers of each job; see `Sharer.share`."""
        return cheapest(jobs, room, _cost, NO_SHARE)


def _cost(job: JobFacts, count: int) -> float:
    """The cost of a configuration of a job; below 1 for each that is faster than the smallest one."""
    ratio = job.speed(count) / job.speed(job.min_trainers)
    if job.current and count != job.current:
        ratio *= max(0.1, (job.age_s - job.resize_s) / max(job.age_s, 1.0))
    return float(ratio**POWER)
