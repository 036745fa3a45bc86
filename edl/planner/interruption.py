"""What it costs to take a job back to its last checkpoint, in trainers that others gain by it, or in time."""

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


def payback_s(job: Job, more: int) -> float:
    """Seconds after which a job that starts again with more trainers has caught up with itself.

    It repeats what it has not saved, and a start costs it what a resize costs. Times that are not known count as 0.

    Args:
        job: the job with its trainers of now.
        more: how many more trainers it would have, > 0.
    """
    return (job.unsaved_s + (job.resize_cost_s or 0.0)) * len(job.live_trainers) / more
