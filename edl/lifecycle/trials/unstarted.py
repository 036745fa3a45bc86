"""Trainers that have not begun, or fail: they are growth that is withdrawn.

Growth is immediate as long as a job is healthy. Once its pods say that they cannot start, or fail, or none has
started for two minutes, it keeps its minimum alone until one of its trainers has run. So capacity that it cannot use
goes to others.
"""

from __future__ import annotations

from dataclasses import replace

from edl.lifecycle.conditions import has_reason
from edl.lifecycle.container_end import DEFAULT_NAMESPACE
from edl.lifecycle.pod_events import FAILED, STEADY_AFTER_S, TRAINER_LOST, names_of
from edl.model.jobs import Job, Refusal
from edl.model.names import Role
from edl.model.pods import Pod, PodPhase
from edl.model.status import POD_CANNOT_START, Reason

_NOT_STARTED = {POD_CANNOT_START, Reason.PODS_NOT_STARTED.value}
NOT_STARTED_AFTER_S = 120.0
"""A pod that has not started within this time has a problem, whatever its kubelet reports."""


def runs_well(job: Job, now_s: float) -> bool:
    """True if a trainer of the job has run for `STEADY_AFTER_S`."""
    return any(
        pod.phase is PodPhase.RUNNING and pod.started_s is not None and now_s - pod.started_s >= STEADY_AFTER_S
        for pod in job.live_trainers
    )


def is_overdue(pod: Pod, now_s: float) -> bool:
    """True if a pod has existed for `NOT_STARTED_AFTER_S` and has not begun; not one that is only being created."""
    return not pod.has_begun and 0.0 < pod.created_s <= now_s - NOT_STARTED_AFTER_S


def unstarted_problem(job: Job, now_s: float) -> tuple[str, str] | None:
    """(reason, message) of the pods that exist for two minutes and have not begun; None if there is none."""
    late = [pod for pod in job.pods if pod.is_live and is_overdue(pod, now_s)]
    if not late or not job.was_admitted:
        return None
    verb, first = ("has" if len(late) == 1 else "have"), late[0]
    waits = "held by its scheduling gates until their owner removes them" if first.gated else "without a node"
    place = f"on node {first.node}" if first.node else waits
    namespace = f" -n {first.namespace}" if first.namespace != DEFAULT_NAMESPACE else ""
    return Reason.PODS_NOT_STARTED.value, (
        f"{names_of(late)} {verb} not started for {NOT_STARTED_AFTER_S / 60:g} minutes ({first.name} is {place});"
        f" `kubectl describe pod {first.name}{namespace}` shows the events"
    )


def as_started(job: Job, now_s: float) -> Job:
    """The job for the planner, with no more than its minimum while its trainers do not start or fail.

    Args:
        job: with the bounds that it would have otherwise.
        now_s: seconds since the epoch.
    """
    low, high = job.bounds
    if low == high or job.owner_count is not None or job.refusal is not None or not job.is_schedulable:
        return job
    if not _suffers(job, now_s) or job.completed_trainers:
        return job
    begun = sum(pod.has_begun for pod in job.live_trainers)
    if (allowed := max(low, begun)) >= high:
        return job
    message = "its trainers fail or do not start, so it does not grow until one has run"
    reason = Reason.PODS_NOT_STARTED
    return replace(job, refusal=Refusal(allowed, is_tried=False, reason=reason, message=message, details=""))


def _suffers(job: Job, now_s: float) -> bool:
    """Return True if no trainer of the job works, and its condition Degraded or the pods themselves say why."""
    condition = job.status.condition("Degraded") if job.status is not None else None
    stored = condition.reason if condition is not None and condition.status == "True" else ""
    if stored == FAILED:
        return not runs_well(job, now_s)
    if any(pod.has_begun and pod.is_live and pod.role is Role.TRAINER for pod in job.pods):  # nearly every job
        return False
    live = job.live_trainers
    is_late = any(is_overdue(pod, now_s) for pod in live)
    return bool(live) and (is_late or stored in _NOT_STARTED or any(pod.cannot_start for pod in live))


def is_replacing_last(job: Job) -> bool:
    """True while the replacement of the last trainer, which was lost before it completed, has not begun."""
    is_lost = job.status is not None and has_reason(job.status, "Complete", TRAINER_LOST)
    return is_lost and bool(job.live_trainers) and not any(pod.has_begun for pod in job.live_trainers)


def needless_trainers(job: Job) -> tuple[Pod, ...]:
    """Trainers that have not started although others have finished: no data is left for them.

    The job needs one trainer that sees the end of the data. So the last one, and its replacement, stay.
    """
    waiting = tuple(pod for pod in job.live_trainers if not pod.has_begun)
    has_others = bool(job.completed_trainers) or len(waiting) < len(job.live_trainers)
    return waiting if has_others and not is_replacing_last(job) else ()
