"""What it costs to take a job back to its last checkpoint, in trainers that others gain by it."""

from __future__ import annotations

from edl.model.jobs import Job

HORIZON_S = 600.0
"""The gain of a resize or of a trainer is counted over this time."""


def price_in_trainers(job: Job) -> int:
    """How many more trainers in the cluster pay for an interruption that takes the job back to its last checkpoint.

    One in any case. Beyond that, they do as much in the horizon as the trainers of the job would have to repeat. A
    job that has never saved is charged all that it has trained in its epoch.
    """
    return 1 + int(job.unsaved_s * len(job.live_trainers) / HORIZON_S)
