"""Chooses a configuration (a number of trainers, or none) for each job at the least cost, by an integer program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from edl.model.names import JobKey
from edl.sim.baselines.base import JobFacts


def cheapest(
    jobs: Sequence[JobFacts], room: float, cost: Callable[[JobFacts, int], float], none: float
) -> Mapping[JobKey, int]:
    """The trainers of each job at the least total cost.

    Args:
        jobs: the jobs.
        room: the part of the cluster that they may use, from 0 to 1.
        cost: of a configuration.
        none: the cost of a job that gets nothing.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415 - slow to load

    choices = [(row, job, count) for row, job in enumerate(jobs) for count in _configurations(job)]
    if not choices:
        return {}
    one_each = np.zeros((len(jobs), len(choices)))
    for column, (row, _, _) in enumerate(choices):
        one_each[row, column] = 1.0
    sizes = np.array([[count * job.size for _, job, count in choices]])
    found = milp(
        c=np.array([cost(job, count) - none for _, job, count in choices]),
        constraints=[LinearConstraint(one_each, -np.inf, 1.0), LinearConstraint(sizes, -np.inf, room + 1e-9)],
        integrality=np.ones(len(choices), dtype=np.int64),
        bounds=Bounds(0, 1),
        options={"mip_rel_gap": 1e-3, "time_limit": 10.0},
    )
    if found.x is None:
        return {job.key: job.current for job in jobs}
    return {job.key: count for (_, job, count), chosen in zip(choices, found.x, strict=True) if chosen > 0.5}


def _configurations(job: JobFacts) -> Iterator[int]:
    """List the counts to choose from: powers of two, whole nodes of four, the bounds and the present count."""
    counts = {job.min_trainers, job.max_trainers, job.current}
    counts |= {2**i for i in range(12)} | set(range(4, job.max_trainers + 1, 4))
    yield from sorted(count for count in counts if job.min_trainers <= count <= min(job.max_trainers, job.slots))
