"""Trainers that have not begun: growth that is withdrawn once the job does not need it any more."""

from __future__ import annotations

from edl.lifecycle.conditions import has_reason
from edl.lifecycle.pod_events import TRAINER_LOST
from edl.model.jobs import Job
from edl.model.pods import Pod


def is_replacing_last(job: Job) -> bool:
    """True while the replacement of the last trainer, which was lost before it completed, has not begun."""
    is_lost = job.status is not None and has_reason(job.status, "Complete", TRAINER_LOST)
    return is_lost and bool(job.live_trainers) and not any(pod.has_begun for pod in job.live_trainers)


def needless_trainers(job: Job) -> tuple[Pod, ...]:
    """The trainers of a fault-tolerant job in which others finish that have not begun: nothing is left for them.

    The job needs one trainer that sees the end of the data. So the last one, and its replacement, stay.
    """
    waiting = tuple(pod for pod in job.live_trainers if not pod.has_begun)
    has_others = bool(job.completed_trainers) or len(waiting) < len(job.live_trainers)
    return waiting if has_others and not is_replacing_last(job) else ()
