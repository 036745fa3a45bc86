"""Trainers that have not begun: growth that is withdrawn once the job does not need it any more."""

from __future__ import annotations

from edl.lifecycle.conditions import has_reason
from edl.lifecycle.pod_events import STEADY_AFTER_S, TRAINER_LOST
from edl.model.jobs import Job
from edl.model.pods import Pod, PodPhase

NOT_STARTED_AFTER_S = 120.0
"""A pod that has not begun by then has a problem, whatever its kubelet says."""


def runs_well(job: Job, now_s: float) -> bool:
    """True if a trainer of the job has run for `STEADY_AFTER_S`."""
    return any(
        pod.phase is PodPhase.RUNNING and pod.started_s is not None and now_s - pod.started_s >= STEADY_AFTER_S
        for pod in job.live_trainers
    )


def is_overdue(pod: Pod, now_s: float) -> bool:
    """True if a pod has existed for `NOT_STARTED_AFTER_S` and has not begun."""
    return not pod.has_begun and now_s - pod.created_s >= NOT_STARTED_AFTER_S


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
