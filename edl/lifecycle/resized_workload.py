"""What edl does with a workload whose own controller makes the pods: it sets their count, and says why.

Pure, as `desired_state` is for TrainingJobs. The count, and the record of the last resize on the object, are written
together, so a new controller continues where a killed one stopped.
"""

from __future__ import annotations

from edl.lifecycle.kueue.gate import decision_under, flavors_of
from edl.lifecycle.kueue.resized import count_under, own_workload_actions, reason_under, unseen_after, without_seen
from edl.model.actions import Action, EmitEvent, EventKind, ResizeWorkload
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.plan import VOLUNTARY_SHRINKS, ScaleDecision
from edl.model.sizes import at_most
from edl.model.status import Reason, Resize


def workload_actions(job: Job, decision: ScaleDecision | None, free: int, now_s: float) -> tuple[Action, ...]:
    """The actions that bring a workload closer to its decision: a resize with its event, or none; and its Workloads.

    Args:
        job: the workload; its `owner_count` is what its controller keeps now.
        decision: the plan's decision; None leaves the count as it is.
        free: how many of its new trainers fit in the cluster now.
        now_s: seconds since the epoch.

    Returns:
        What has to be done with Workloads of Kueue that edl has made for it. Then the resize and its event, in this
        order. For a workload that edl does not resize, an event that says why: each time, so the caller leaves out
        what the object has already. That it is finishing is no warning.
    """
    job = without_seen(job, now_s)
    return (*own_workload_actions(job, decision), *_resize(job, decision, free, now_s))


def _resize(job: Job, decision: ScaleDecision | None, free: int, now_s: float) -> tuple[Action, ...]:
    if job.deleting or job.finished or job.suspended:
        return ()
    if job.finishing:
        message = f"edl resizes this workload no more: {job.problem}"
        return (EmitEvent(job.key, job.uid, EventKind.NORMAL, Reason.FINISHING.value, message),)
    if problem := job.problem or _found_in_plan(decision):
        message = f"edl does not resize this workload: {problem}"
        return (EmitEvent(job.key, job.uid, EventKind.WARNING, Reason.NOT_RESIZED.value, message),)
    before, is_owned = job.owner_count, job.kueue is not None and job.kueue.is_owned
    decision = decision_under(job, decision)
    if before is None or (decision is None and not is_owned):
        return ()
    wanted = before if decision is None else wanted_count(job, decision, free)
    count = count_under(job, wanted) if is_owned else wanted
    if count == before:
        return ()
    reason, message = reason_under(job, wanted, count) or _reason(decision, is_shrink=count < before)
    voluntary_s = _voluntary_s(job, reason, now_s, is_shrink=count < before)
    unseen = unseen_after(job, before, count, now_s) if is_owned else None
    resize = Resize(float(int(now_s)), before, count, reason, voluntary_s, unseen=unseen)
    message = f"edl changes the number of pods from {before} to {count}: {message}"
    event = EmitEvent(job.key, job.uid, EventKind.NORMAL, reason, message)
    requests = None if job.declared is None else (job.declared, job.trainer.request)
    flavors = () if before else flavors_of(job, Role.TRAINER)
    victims = _victims(job, count)
    return ResizeWorkload(job.key, job.uid, before, count, resize, victims, requests, flavors), event


def _reason(decision: ScaleDecision | None, *, is_shrink: bool) -> tuple[str, str]:
    """(reason, message) of the plan for another count."""
    if decision is None:
        return Reason.QUOTA_REACHED.value, ""
    return (decision.shrink_reason if is_shrink else "") or decision.reason.value, decision.message


def _found_in_plan(decision: ScaleDecision | None) -> str:
    """The message of a plan that leaves the workload alone because its pods list more than the planner can count."""
    return decision.message if decision is not None and decision.reason is Reason.NOT_RESIZED else ""


def wanted_count(job: Job, decision: ScaleDecision, free: int) -> int:
    """How many pods the controller of the workload should keep now.

    A growth waits until the capacity of its next size is free, and a workload that starts waits until its minimum
    fits. Pods that its controller is still making count as asked for. While Kueue may be admitting another size,
    none grows beyond its minimum: Kueue would admit the size that it has read, and let the pods of the larger one
    run. Whether a job of Kueue runs is not decided here: while it waits, it asks for its minimum, and one that runs
    keeps that. So does one that must not be stopped.
    """
    before = job.owner_count or 0
    if job.keeps_minimum and not decision.admitted:
        return min(before, job.bounds.min_trainers)
    is_sized = job.kueue is not None and not job.kueue.is_owned  # by edl beside Workloads that Kueue makes
    if not decision.admitted or (is_sized and decision.target < job.bounds.min_trainers):
        return job.bounds.min_trainers if is_sized else 0
    if decision.target <= before:
        return decision.target
    is_held = job.kueue is not None and job.kueue.is_pending
    target = max(before, job.bounds.min_trainers) if is_held else decision.target
    count = max(before, at_most(job.sizes, min(target, decision.current - len(decision.victims) + free)))
    return count if count >= job.bounds.min_trainers else before


def _victims(job: Job, count: int) -> tuple[str, ...]:
    """Return the names of the trainers to delete, sorted: all beyond the first `count` live ones."""
    kept = {pod.uid for pod in job.live_trainers[:count]}
    trainers = (pod for pod in job.pods if pod.role is Role.TRAINER and not pod.is_finished)
    return tuple(sorted(pod.name for pod in trainers if pod.uid not in kept))


def _voluntary_s(job: Job, reason: str, now_s: float, *, is_shrink: bool) -> float | None:
    """When the workload last lost pods to another job, in seconds since the epoch, while its cooldown lasts."""
    if is_shrink and reason in VOLUNTARY_SHRINKS:
        return float(int(now_s))
    last = job.status.last_resize if job.status is not None else None
    before_s = last.voluntary_s if last is not None else None
    return before_s if before_s is not None and abs(now_s - before_s) < job.cooldown_s else None
