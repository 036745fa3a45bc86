"""Optimus: the next trainer goes where it shortens the time to completion most, for the capacity that it takes.

Remaining work and curves are exact here (Optimus estimates both), as in the oracle of the Pollux paper. A job that
never ends gains by the growth of its speed instead.

Source: Peng et al., Optimus: An Efficient Dynamic Resource Scheduler for Deep Learning Clusters, EuroSys 2018,
section 4.1.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from edl.model.names import JobKey
from edl.sim.baselines.base import JobFacts, minimums


class Optimus:
    """Gives each next trainer to the job with the largest marginal gain."""

    def share(self, jobs: Sequence[JobFacts], room: float) -> Mapping[JobKey, int]:
        """Return the number of trainers of each job; see `Sharer.share`."""
        shares, left = minimums(jobs, room)
        by_key = {job.key: job for job in jobs}
        heap = [(-_gain(by_key[key], count), key) for key, count in shares.items()]
        heapq.heapify(heap)
        while heap:
            gain, key = heapq.heappop(heap)
            job = by_key[key]
            if gain >= 0 or shares[key] >= job.max_trainers or job.size > left + 1e-9:
                continue
            shares[key] += 1
            left -= job.size
            heapq.heappush(heap, (-_gain(job, shares[key]), key))
        return shares


def _gain(job: JobFacts, count: int) -> float:
    """How many seconds one more trainer than `count` saves, per part of the cluster that it takes."""
    now, then = job.speed(count), job.speed(count + 1)
    if job.remaining == float("inf"):
        return (then - now) / (job.speed(1) * job.size)
    return (job.remaining / now - job.remaining / then) / job.size
