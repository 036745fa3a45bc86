"""Sia-like: an integer program chooses one configuration (a number of trainers, or none) for each job.

The value of a configuration is the job's speed relative to that with its fewest trainers, raised to -0.5 and
minimised with a penalty for jobs that get nothing; a change is discounted by the time that its restart costs. All
GPUs are of one kind here, so a configuration is a count: powers of two, whole nodes of four, and the present one.

Source: Subramanya et al., Sia: Heterogeneity-aware, goodput-optimized ML-cluster scheduling, SOSP 2023, section 3.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from edl.model.names import JobKey
from edl.sim.baselines.base import JobFacts

POWER = -0.5
NO_SHARE = 1.1
"""The cost of a job that gets nothing, where its fewest trainers cost 1."""


class Sia:
    """One program for each round."""

    def share(self, jobs: Sequence[JobFacts], room: float) -> Mapping[JobKey, int]:
        """See `Sharer.share`."""
        from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415 - slow to load

        choices = [(row, job, count) for row, job in enumerate(jobs) for count in _configurations(job)]
        if not choices:
            return {}
        cost = np.array([_cost(job, count) - NO_SHARE for _, job, count in choices])
        one_each = np.zeros((len(jobs), len(choices)))
        for column, (row, _, _) in enumerate(choices):
            one_each[row, column] = 1.0
        sizes = np.array([[count * job.size for _, job, count in choices]])
        found = milp(
            c=cost,
            constraints=[LinearConstraint(one_each, -np.inf, 1.0), LinearConstraint(sizes, -np.inf, room + 1e-9)],
            integrality=np.ones(len(choices), dtype=np.int64),
            bounds=Bounds(0, 1),
            options={"mip_rel_gap": 1e-3, "time_limit": 10.0},
        )
        if found.x is None:
            return {job.key: job.current for job in jobs}
        return {job.key: count for (_, job, count), chosen in zip(choices, found.x, strict=True) if chosen > 0.5}


def _configurations(job: JobFacts) -> Iterator[int]:
    counts = {job.min_trainers, job.max_trainers, job.current}
    counts |= {2**i for i in range(12)} | set(range(4, job.max_trainers + 1, 4))
    yield from sorted(count for count in counts if job.min_trainers <= count <= min(job.max_trainers, job.slots))


def _cost(job: JobFacts, count: int) -> float:
    """Less is better; below 1 for every configuration that is faster than the smallest one."""
    ratio = job.speed(count) / job.speed(job.min_trainers)
    if job.current and count != job.current:
        ratio *= max(0.1, (job.age_s - job.resize_s) / max(job.age_s, 1.0))
    return float(ratio**POWER)
