"""Pollux-like: the highest power mean of the jobs' speedups, with a penalty for jobs that are restarted often.

The speedup of a job is its goodput over that with an equal part of the cluster. The mean has the power -1, so the sum
of the inverse speedups is least. A change multiplies the speedup by (age - restarts x cost) / (age + cost). A job
gets at most twice the trainers that it has had, as Pollux does not trust its model further. An integer program finds
what Pollux looks for with a genetic algorithm; configurations are those of `program`. The controller asks at each
event and not once in a minute, as for every baseline.

Source: Qiao et al., Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning, OSDI 2021, section
4.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edl.model.names import JobKey
from edl.sim.baselines.base import JobFacts
from edl.sim.baselines.program import cheapest

LEAST = 0.05
"""No penalty takes more of a speedup than leaves this part."""

NO_SHARE = 100.0
"""The cost of a job that gets nothing, where its equal part costs 1."""


class Pollux:
    """Solves one program for each round; it counts how often each job was restarted."""

    def __init__(self) -> None:
        self._now: dict[JobKey, int] = {}
        self._most: dict[JobKey, int] = {}
        self._restarts: dict[JobKey, int] = {}

    def share(self, jobs: Sequence[JobFacts], room: float) -> Mapping[JobKey, int]:
        """Return the number of trainers of each job; see `Sharer.share`."""
        for job in jobs:
            before = self._now.get(job.key, 0)
            self._restarts[job.key] = self._restarts.get(job.key, 0) + (before > 0 and job.current != before)
            self._now[job.key] = job.current
            self._most[job.key] = max(self._most.get(job.key, job.min_trainers), job.current)

        def cost(job: JobFacts, count: int) -> float:
            if count > 2 * self._most[job.key]:
                return 2.0 * NO_SHARE
            fair = max(job.min_trainers, min(job.max_trainers, int(room * job.slots / len(jobs))))
            speedup = job.speed(count) / job.speed(fair)
            if job.current and count != job.current:
                kept = job.age_s - self._restarts[job.key] * job.resize_s
                speedup *= max(LEAST, kept / max(1.0, job.age_s + job.resize_s))
            return 1.0 / speedup

        return cheapest(jobs, room, cost, NO_SHARE)
