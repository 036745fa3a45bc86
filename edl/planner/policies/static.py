"""Policies `static-min` and `static-max`: each job runs at one bound; peers to compare elastic policies with."""

from __future__ import annotations

from dataclasses import replace

from edl.model.jobs import Job
from edl.planner.policies.maxmin import MaxMin


class StaticMin(MaxMin):
    """Every job runs at its minimum, or at the count it is pinned to."""

    name = "static-min"

    def adapt(self, job: Job) -> Job:
        """The job, pinned to its minimum."""
        return replace(job, pinned=job.bounds.min_trainers)


class StaticMax(MaxMin):
    """Every job runs at its maximum, or at the count it is pinned to; jobs for which there is no capacity wait."""

    name = "static-max"

    def adapt(self, job: Job) -> Job:
        """The job, pinned to its maximum."""
        return replace(job, pinned=job.bounds.max_trainers)
