"""When a job has to be looked at again although nothing about it changes.

What a job needs follows from the job with its pods, its allotment, the facts around it, and the time. The time enters
only through the ends that are listed here: of the deadline, of the time to live, of a cooldown or growth hold, of
the time in which kube-scheduler must bind a pod to its node, and of that in which a pod must start.
"""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

from edl.lifecycle.conditions import has_reason
from edl.lifecycle.node_pinning import REFUSED_AFTER_S
from edl.lifecycle.pod_events import FAILED, steady_s
from edl.lifecycle.trials.unstarted import NOT_STARTED_AFTER_S
from edl.model.jobs import Job
from edl.model.plan import GROWTH_HOLD_S
from edl.model.status import JobStatus

TROUBLE_S = 1.0
"""How often a job is looked at that had trouble with a node: its other trainers confirm that once they do well."""
LOOK_AFTER_S = 300.0
"""A job is looked at again after this time at most, and after half of it at least: each job at its own moment."""


def spread(job_uid: str) -> float:
    """A number from 0 to 1 that depends on the UID alone, so that periodic work of many jobs does not coincide."""
    return crc32(job_uid.encode()) / 2**32


def next_end_s(job: Job, now_s: float) -> float:
    """The first time after now at which what the job needs may change by itself.

    Args:
        job: with its pods and its status.
        now_s: seconds since the epoch, as the result.
    """
    return min(end_s for end_s in _ends(job, now_s) if end_s > now_s)


def _ends(job: Job, now_s: float) -> Iterator[float]:
    is_troubled = job.status is not None and job.status.troubles
    yield now_s + (TROUBLE_S if is_troubled else LOOK_AFTER_S * (0.5 + 0.5 * spread(job.uid)))
    for pod in job.pods:
        if pod.pinned and pod.answered_s is not None:
            yield pod.answered_s + REFUSED_AFTER_S
        if not pod.has_begun and pod.created_s:  # else it is being created
            yield pod.created_s + NOT_STARTED_AFTER_S
    if job.status is not None:
        yield from _ends_of(job, job.status)
        if has_reason(job.status, "Degraded", FAILED):
            yield steady_s(job)


def _ends_of(job: Job, status: JobStatus) -> Iterator[float]:
    if job.active_deadline_s is not None and status.start_s is not None:
        yield status.start_s + job.active_deadline_s
    if job.ttl_s is not None and status.completion_s is not None:
        yield status.completion_s + job.ttl_s
    if (resize := status.last_resize) is not None:
        yield resize.time_s + max(job.cooldown_s, GROWTH_HOLD_S)
        if resize.voluntary_s is not None:
            yield resize.voluntary_s + job.cooldown_s
