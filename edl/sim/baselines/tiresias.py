"""Tiresias-like: least attained service in two queues; each job has its fixed size or nothing.

A job whose trainers have had less than a threshold of trainer-seconds comes first; within a queue the oldest does.
Sizes are those that the users chose, and a job is preempted whole.

Source: Gu et al., Tiresias: A GPU Cluster Manager for Distributed Deep Learning, NSDI 2019, section 3 (discretised
2D-LAS).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edl.model.names import JobKey
from edl.sim.baselines.base import JobFacts

THRESHOLD_S = 3600.0
"""Trainer-seconds after which a job falls into the second queue."""


class Tiresias:
    """Discretised least attained service."""

    def share(self, jobs: Sequence[JobFacts], room: float) -> Mapping[JobKey, int]:
        """Return the number of trainers of each job; see `Sharer.share`."""
        shares: dict[JobKey, int] = {}
        for job in sorted(jobs, key=lambda one: (one.attained_s >= THRESHOLD_S, -one.age_s, one.key)):
            if job.fixed * job.size <= room + 1e-9:
                shares[job.key] = job.fixed
                room -= job.fixed * job.size
        return shares
