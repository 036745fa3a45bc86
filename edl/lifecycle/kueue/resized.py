"""A workload that Kueue admits through Workloads that edl makes, and whose own controller makes the pods.

The Workloads are those of a TrainingJob: a base for the minimum, and one for each further pod. Here they become a
count. While the base is not admitted the workload is suspended, and its count never exceeds what is admitted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from edl.lifecycle.kueue.gate import admitted_trainers, decision_under, owned, step_under
from edl.lifecycle.kueue.workloads import workload_actions
from edl.lifecycle.step import Stage, Step
from edl.model.actions import WorkloadAction
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.plan import ScaleDecision
from edl.model.quota_trees import KueueState
from edl.model.sizes import at_most
from edl.model.status import JobPhase, Reason, Unseen
from edl.model.units import count

SEEN_WITHIN_S = 1.5
"""How long after a lower count was written a workload's controller may still act on a higher one."""


def own_workload_actions(job: Job, decision: ScaleDecision | None) -> Iterator[WorkloadAction]:
    """Return what has to be done with the Workloads of a workload whose pods another controller makes.

    Args:
        job: with its pods and its Workloads.
        decision: of the plan; None if there is none.
    """
    if job.kueue is None or not job.kueue.is_owned or job.deleting:
        return
    allowed = decision_under(job, decision)
    grows = allowed is not None and allowed.target > allowed.current
    yield from workload_actions(job, step_under(job, _step(job, allowed)), grows=grows)


def count_under(job: Job, wanted: int | None) -> int:
    """Return how many pods the controller of a workload may keep, of those that a plan wants.

    Args:
        job: one whose Workloads edl makes.
        wanted: the count of the plan; None keeps the count as far as Kueue allows it.

    Returns:
        0 while Kueue has not admitted the base. A workload that edl has started keeps its count while it is not
        known what Kueue has decided, and while somebody has deleted its base. What Kueue has taken back lowers the
        count at once. A growth waits for the end of pods that still hold quota.
    """
    before, state = job.owner_count or 0, owned(job)
    if state is None or state.is_unknown:
        return before
    most = admitted_trainers(state)
    if not most:
        return before if _is_between_bases(job, state) else 0
    target = min(before if wanted is None else wanted, most)
    if target > before:  # its controller makes pods although others still end, and those hold quota, too
        target = max(before, min(target, most - _ending(job)))
    allowed = at_most(job.sizes, target)
    return allowed if allowed or not target else min(before, most)


def reason_under(job: Job, wanted: int, kept: int) -> tuple[str, str] | None:
    """Return (reason, message) if Kueue, and no plan, is the cause of a lower count; else None.

    Args:
        job: as for `count_under`.
        wanted: the count of the plan.
        kept: the count that Kueue allows.
    """
    state = owned(job)
    if state is None or kept >= wanted:
        return None
    base = state.base
    if kept and base is not None:
        return Reason.QUOTA_REACHED.value, f"Kueue admits {count(admitted_trainers(state), 'pod')} of it"
    step = step_under(job, Step(Stage.RUNNING, wanted, "", ""))
    message = step.message or f"Kueue has not admitted it in LocalQueue {state.local_queue}"
    return Reason.QUOTA_REACHED.value, message


def without_seen(job: Job, now_s: float) -> Job:
    """Return the workload without an earlier count that its controller must have seen replaced by now.

    Args:
        job: the workload.
        now_s: seconds since the epoch.
    """
    status, unseen = job.status, _unseen(job)
    if status is None or status.last_resize is None or unseen is None:
        return job
    if now_s < unseen.until_s <= now_s + 2 * SEEN_WITHIN_S:
        return job
    return replace(job, status=replace(status, last_resize=replace(status.last_resize, unseen=None)))


def unseen_after(job: Job, before: int, after: int, now_s: float) -> Unseen | None:
    """Return the earlier count for which the workload's controller may still make pods after edl has written another.

    Once it has made all pods of a count, they are there to be counted until they have ended. Before that it may be
    making them, and neither a Job nor a PyTorchJob says which count its controller has seen.

    Args:
        job: one whose Workloads edl makes, without an earlier count whose time is over.
        before: the count until now.
        after: the count that is written.
        now_s: seconds since the epoch.
    """
    unseen = _unseen(job)
    if after < before and len(job.live_trainers) < before:
        unseen = Unseen(max(before, unseen.count if unseen is not None else 0), now_s + SEEN_WITHIN_S)
    return unseen if unseen is not None and unseen.count > after else None


def _unseen(job: Job) -> Unseen | None:
    last = job.status.last_resize if job.status is not None else None
    return last.unseen if last is not None else None


def _ending(job: Job) -> int:
    """Count the pods of the workload that are terminating and have not ended."""
    return sum(pod.role is Role.TRAINER and pod.terminating and not pod.is_finished for pod in job.pods)


def _is_between_bases(job: Job, state: KueueState) -> bool:
    """Return True if edl has started the workload, pods of it live, and Kueue has not evicted its base Workload."""
    base = state.base
    last = job.status.last_resize if job.status is not None else None
    return bool(job.live_trainers) and last is not None and last.to_count > 0 and not (base and base.evicted)


def _step(job: Job, decision: ScaleDecision | None) -> Step:
    """Translate the state of the workload into the step of a TrainingJob.

    If edl does not resize it, it is suspended.
    """
    status = job.status
    if job.finished and status is not None:
        stage = Stage.SUCCEEDED if status.phase is JobPhase.SUCCEEDED else Stage.FAILED
        return Step(stage, 0, status.reason, f"the workload has ended: {status.reason}")
    if job.problem and not job.finishing:
        return Step(Stage.SUSPENDED, 0, Reason.NOT_RESIZED.value, job.problem)
    if decision is None or job.finishing:
        stage = Stage.RUNNING if job.owner_count else Stage.WAITING
        return Step(stage, job.owner_count or 0, "", "", unplanned=True)
    stage = Stage.RUNNING if decision.admitted else Stage.WAITING
    return Step(stage, decision.target if decision.admitted else 0, decision.reason.value, decision.message)
