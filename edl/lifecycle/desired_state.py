"""The life of one job: from its pods, the plan and the time to its status and the actions that lead there.

Pure: the same job, decision and time give the same answer, so that a controller that was killed anywhere goes on
where it stopped. It refuses to choose how many trainers a job gets, on which nodes, and which die: that is the plan.

Three things are stored before what they were read from may go. A failed pod is marked with the number of its failure,
the number is stored in the status, and only when both stand is the pod deleted. A job's end is stored before its pods
are deleted. And a job that starts anew is so in its status until the last old pod is gone, and no longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from edl.lifecycle.data_progress import (
    FINISH_GRACE_S,
    LEDGER_LOST,
    MasterView,
    ledger_warning,
    loss,
    master_problem,
    quarantine_of,
)
from edl.lifecycle.measurement import with_measured
from edl.lifecycle.node_pinning import refused
from edl.lifecycle.pod_actions import create, delete, once_per_pod, superfluous
from edl.lifecycle.pod_events import (
    PodEvent,
    cannot_start,
    count_failures,
    is_restarting,
    is_spent,
    is_told_to_go,
    lost_the_last,
    pod_events,
    running_again,
)
from edl.lifecycle.status import Stage, Step, describe, ended_as, is_over
from edl.model.actions import (
    Action,
    DeleteJob,
    DeletePod,
    Intent,
    PatchStatus,
)
from edl.model.job_policies import JobAction, JobEvent
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.plan import ScaleDecision
from edl.model.pods import Pod, PodPhase
from edl.model.status import JobPhase, JobStatus, Reason


@dataclass(frozen=True, slots=True)
class JobContext:
    """What a job's life depends on beside itself and the plan.

    Attributes:
        lost: UIDs of pods that no kubelet will ever end: bound to a node that is gone, or terminating past their
            grace on one that is not ready.
        trouble: (reason, sentence) of what the API server last refused for the job, or what the cluster lacks.
        heard: what its master says; None where it has none, or where nobody listens.
    """

    lost: frozenset[str] = frozenset()
    trouble: tuple[str, str] | None = None
    master_view: MasterView | None = None


@dataclass(frozen=True, slots=True)
class _Case:
    """Everything that one call of `desired_state` looks at."""

    job: Job
    decision: ScaleDecision | None
    starts: Sequence[tuple[Role, str]]
    now_s: float
    context: JobContext


@dataclass(frozen=True, slots=True)
class _Move:
    """A step and the pod actions that carry it out."""

    step: Step
    actions: tuple[Action, ...] = ()


def desired_state(
    job: Job,
    decision: ScaleDecision | None,
    starts: Sequence[tuple[Role, str]],
    now_s: float,
    context: JobContext | None = None,
) -> tuple[JobStatus, tuple[Action, ...]]:
    """What a job should be told and done to now.

    Args:
        job: the job and its pods, as observed.
        decision: the plan's word about the job; None keeps it as it is, without growth.
        starts: (role, node) of the pods that have room now; nothing else is created.
        now_s: seconds since the epoch.
        context: the rest of the world; by default nothing is wrong.

    Returns:
        The status, and the actions: marks and deletions, then what new pods need, then new pods, then the status
        (only where it changed) and its events. Without a change in the world the same call returns the same status,
        and no actions but those whose effect is still outstanding.
    """
    context = context or JobContext()
    if job.deleting:
        return job.status or JobStatus(), ()
    if is_over(job):
        status, told = describe(job, ended_as(job), now_s, context.master_view)
        actions = (*_cleanup(job, status, context), *_expire(job, status, now_s))
    else:
        move = _move(_Case(job, decision, starts, now_s, context))
        status, told = describe(job, move.step, now_s, context.master_view)
        actions = move.actions
    said = (PatchStatus(job.key, job.uid, status),) if status != job.status else ()
    return status, (*once_per_pod(actions), *said, *told)


def as_planned(job: Job, *, is_finishing: bool = False) -> Job:
    """The job as the planner should see it: with what was measured of it where its spec says nothing.

    Once trainers have begun to finish, or the master has closed the last epoch, it does not grow, nor need its min: a
    gang needs those that have not finished; in fault-tolerant mode those that live are enough.
    """
    job = with_measured(job)
    done = len(job.completed(Role.TRAINER))
    if not (done or is_finishing) or is_over(job):
        return job
    if not job.fault_tolerant:
        left = max(1, job.min_trainers - done)
        return replace(job, min_trainers=left, max_trainers=left, pinned=0)
    live = max(1, len(job.live_trainers))
    return replace(job, min_trainers=min(job.min_trainers, live), max_trainers=live, pinned=0)


def _move(case: _Case) -> _Move:
    job, lost = case.job, case.context.lost
    failures, marks = count_failures(job)
    events = pod_events(job, lost, case.context.master_view)
    ended = _verdict(case, failures, events)
    if ended is not None:
        stays = ended.stage is not Stage.SUSPENDED and ended.reason != Reason.INVALID_SPEC
        going = () if stays else job.pods
        return _Move(replace(ended, failures=failures), (*marks, *delete(going, job, ended.reason, lost)))
    step = _wish(case, failures)
    if step.stage is Stage.WAITING:
        going = () if step.held else job.pods
        return _Move(step, (*marks, *delete(going, job, step.shrink_reason or step.reason, lost)))
    cause = _cause_of_restart(case, events)
    if cause:
        move = _restart(case, step, cause)
    else:
        again = _runs_again(job, events)
        done = bool(job.completed(Role.TRAINER)) or _is_finished(case.context)
        step = replace(step, again=again, finishing=done and again is not Role.TRAINER)
        move = (_elastic if job.fault_tolerant else _gang)(case, step, _to_replace(case, again))
    return replace(move, actions=(*marks, *move.actions))


def _is_finished(context: JobContext) -> bool:
    return context.master_view is not None and context.master_view.is_finished


def _verdict(case: _Case, failures: int, events: Sequence[PodEvent]) -> Step | None:
    """How the job ends, or that it is suspended; None while it goes on."""
    job, now_s = case.job, case.now_s
    start_s = job.status.start_s if job.status else None
    if job.problem:
        return Step(Stage.FAILED, 0, Reason.INVALID_SPEC.value, job.problem)
    if job.suspended:
        return Step(Stage.SUSPENDED, 0, Reason.SUSPENDED.value, "spec.suspend is true: the job has no pods")
    ended = _policy_verdict(events) or _ledger_verdict(job, case.context.master_view)
    if ended is not None:
        return ended
    if failures > job.backoff_limit:
        message = f"failed pods: {failures}, more than spec.backoffLimit {job.backoff_limit}"
        said = [h.message for h in events if h.event is JobEvent.POD_FAILED]
        message += f": {'; '.join(said)}; kubectl logs says why" if said else ""
        return Step(Stage.FAILED, 0, "BackoffLimitExceeded", message)
    if job.active_deadline_s is not None and start_s is not None and now_s - start_s >= job.active_deadline_s:
        message = f"the job ran longer than spec.activeDeadlineSeconds {job.active_deadline_s}"
        return Step(Stage.FAILED, 0, "DeadlineExceeded", message)
    return None


def _ledger_verdict(job: Job, master_view: MasterView | None) -> Step | None:
    """How the job ends by what its master says."""
    if lost := loss(job):
        return Step(Stage.FAILED, 0, LEDGER_LOST, lost)
    if too_many := quarantine_of(master_view):
        return Step(Stage.FAILED, 0, "TooManyQuarantined", too_many)
    if master_view is not None and master_view.is_finished and master_view.finished_for_s >= FINISH_GRACE_S:
        message = f"the data set was used up {FINISH_GRACE_S:g} s ago; trainers that still run are ended"
        return Step(Stage.SUCCEEDED, 0, Reason.FINISHED.value, message)
    return None


def _policy_verdict(events: Sequence[PodEvent]) -> Step | None:
    if not events:
        return None
    first = events[0]
    message = first.message
    if (first.event, first.role) != (JobEvent.TASK_COMPLETED, Role.TRAINER):
        message += f": the policy for {first.event} of the {first.role.value} is {first.action}"
    if first.action is JobAction.ABORT_JOB:
        return Step(Stage.FAILED, 0, "Aborted", message)
    if first.action is JobAction.COMPLETE_JOB:
        return Step(Stage.SUCCEEDED, 0, Reason.FINISHED.value, message)
    return None


def _cleanup(job: Job, status: JobStatus, context: JobContext) -> tuple[Action, ...]:
    """Deletions of the pods that an ended job does not keep for their logs."""
    if status.phase is JobPhase.SUCCEEDED:
        going = [p for p in job.pods if p.role is not Role.TRAINER or not p.is_finished]
        intent = Reason.FINISHED.value
    elif status.reason == Reason.INVALID_SPEC:
        going, intent = list(job.pods), status.reason
    else:
        going, intent = [p for p in job.pods if not p.is_finished], Intent.JOB_FAILED.value
    return tuple(delete(going, job, intent, context.lost))


def _expire(job: Job, status: JobStatus, now_s: float) -> tuple[Action, ...]:
    if job.ttl_s is None or status.completion_s is None or now_s - status.completion_s < job.ttl_s:
        return ()
    return (DeleteJob(job.key, job.uid),)


def _wish(case: _Case, failures: int) -> Step:
    job, decision, context = case.job, case.decision, case.context
    trouble = (
        master_problem(job, context.master_view)
        or context.trouble
        or cannot_start(job)
        or ledger_warning(job, context.master_view)
    )
    if decision is None:
        old = job.status or JobStatus(reason="", explanation="no plan has been made for the job yet")
        stage = Stage.RUNNING if job.was_admitted else Stage.WAITING
        target = old.trainer.desired if stage is Stage.RUNNING else 0
        return Step(stage, target, old.reason, old.explanation, failures, held=True, trouble=trouble)
    return Step(
        stage=Stage.RUNNING if decision.admitted else Stage.WAITING,
        target=min(decision.target, job.max_trainers) if decision.admitted else 0,
        reason=decision.reason.value,
        message=decision.message,
        failures=failures,
        shrink_reason=decision.shrink_reason,
        never_ran=not any(p.node for p in job.live_trainers if p.name in decision.victims),
        trouble=trouble,
    )


def _elastic(case: _Case, step: Step, spent: list[Pod]) -> _Move:
    """Fault-tolerant mode: a lost pod is replaced, named victims go, and trainers grow to the target."""
    job, decision = case.job, case.decision
    lost_last = lost_the_last(job, case.context.master_view)
    step = replace(step, trainer_lost=lost_last)
    named = set(decision.victims) if decision else set()
    victims = [p for p in job.live_trainers if p.name in named]
    spent = [p for p in spent if not (lost_last and p.role is Role.TRAINER)]
    moving = [p for p in job.pods if decision and p.name in decision.moves and p.is_live]
    step = replace(step, moving=tuple(p.name for p in moving))
    deletions = (
        *delete(victims, job, step.shrink_reason or step.reason, case.context.lost),
        *delete(spent, job, Intent.REPLACED.value, case.context.lost),
        *delete(moving, job, Intent.MOVED.value, case.context.lost),
        *_finish_what_is_marked(case),
    )
    kept = len(job.live_trainers) - len(victims)
    wanted = (1 if lost_last else 0) if step.finishing else max(0, step.target - kept)
    is_free = not (step.held or victims or moving or step.again)
    return _Move(step, (*deletions, *(create(job, case.starts, wanted) if is_free else ())))


def _gang(case: _Case, step: Step, spent: list[Pod]) -> _Move:
    """Gang mode, while nothing asks for a restart: what the policies replace is replaced, all start or none."""
    job = case.job
    deletions = (*delete(spent, job, Intent.REPLACED.value, case.context.lost), *_finish_what_is_marked(case))
    wanted = max(0, step.target - len(job.live_trainers))
    is_free = not (step.held or step.again)
    return _Move(step, (*deletions, *(create(job, case.starts, wanted) if is_free else ())))


def _restart(case: _Case, step: Step, cause: str) -> _Move:
    """Every pod goes; once the status has said that the last one is gone, the job starts anew.

    A failed pod stays until its failure is stored, unless it failed in the course of the restart.
    """
    job = case.job
    going = [p for p in job.pods if p.phase is not PodPhase.FAILED or is_restarting(job) or is_spent(job, p)]
    actions = delete(going, job, Intent.RESTART.value, case.context.lost)
    return _Move(replace(step, restarting=cause if job.pods else ""), tuple(actions))


def _cause_of_restart(case: _Case, events: Sequence[PodEvent]) -> str:
    """Why the job has to be taken down, or is being taken down; empty where it goes on."""
    job = case.job
    asked = next((h for h in events if h.action is JobAction.RESTART_JOB), None)
    if asked is not None:
        return asked.message
    if is_restarting(job) or any(p.intent == Intent.RESTART for p in job.pods):
        return "the job is being taken down"
    if job.fault_tolerant or not job.pods:
        return ""
    if any(is_told_to_go(p) for p in job.pods):
        return "pods of the gang's last run are still going"
    if case.decision is not None and case.decision.victims:
        return f"trainers of the gang make way: {case.decision.shrink_reason}"
    return "the size of the gang has changed" if _is_resized(job) else ""


def _is_resized(job: Job) -> bool:
    """True where a gang's pods are not those that its spec asks for now: a gang's size is fixed while it runs."""
    is_new = job.status is not None and job.status.observed_generation != job.generation
    size = job.min_trainers + sum(fixed.count for fixed in job.fixed)
    return bool(superfluous(job)) or (_was_whole(job) and is_new and len(job.pods) < size)


def _was_whole(job: Job) -> bool:
    running = job.status.condition("Running") if job.status else None
    return running is not None and running.status == "True"


def _runs_again(job: Job, events: Sequence[PodEvent]) -> Role | None:
    """The role whose pods all exited 0 and are to run again; the status says so before the first of them goes."""
    asked = (h.role for h in events if (h.event, h.action) == (JobEvent.TASK_COMPLETED, JobAction.RESTART_POD))
    return running_again(job) or next(asked, None)


def _to_replace(case: _Case, again: Role | None) -> list[Pod]:
    """Pods that make way for others: those that ended, and those that kube-scheduler keeps from their node."""
    job = case.job
    spent = [p for p in job.pods if is_spent(job, p) and p.role is not again]
    redone = job.completed(again) if again is not None and running_again(job) is again else ()
    return [*spent, *redone, *refused(job, case.now_s), *(superfluous(job) if job.fault_tolerant else [])]


def _finish_what_is_marked(case: _Case) -> list[DeletePod]:
    """Deletions that were stated but not carried out, and those that only we can carry out."""
    pods = [p for p in case.job.pods if p.uid in case.context.lost or (p.intent and p.is_live)]
    return delete(pods, case.job, Intent.NODE_LOST.value, case.context.lost)
