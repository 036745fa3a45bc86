"""The life of one job: from its pods, its decision and the time to its status and the actions that lead there.

Pure: equal jobs, decisions and times give equal results, so a new controller continues where a killed one stopped.
This module does not choose how many trainers a job gets, on which nodes, or which of them are victims: the plan does.

Three facts are stored before the pods from which they were read are deleted. A failed pod is marked with the number
of its failure and the number is stored in the status; the pod is deleted only when both are written. The end of a job
is stored before its pods are deleted. And the status shows a restart until the last old pod no longer exists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from edl.lifecycle.data_progress import MasterView, is_awaited, ledger_warning, master_problem, pods_to_end
from edl.lifecycle.hung_trainers import hung_problem, overdue_trainers
from edl.lifecycle.job_end import cleanup, end_or_suspension, expire
from edl.lifecycle.kueue.gate import decision_under, most_new_under, step_under, taken_back
from edl.lifecycle.kueue.workloads import workload_actions
from edl.lifecycle.measurement import with_measured
from edl.lifecycle.node_pinning import refused_pods
from edl.lifecycle.node_troubles import avoided_problem, node_troubles
from edl.lifecycle.node_watch import UNWATCHED, NodeWatch
from edl.lifecycle.pod_actions import create, delete, once_per_pod, superfluous
from edl.lifecycle.pod_events import (
    PodEvent,
    count_failures,
    failure_problem,
    has_lost_last_trainer,
    is_deleted_with_job,
    is_replaceable,
    is_restarting,
    is_uncounted,
    pod_events,
    rerun_role,
    start_problem,
)
from edl.lifecycle.status import describe, ended_as, is_over
from edl.lifecycle.step import Stage, Step
from edl.lifecycle.trials.unended import unended_problem
from edl.lifecycle.trials.unstarted import is_replacing_last, needless_trainers, unstarted_problem
from edl.model.actions import Action, DeletePod, Intent, PatchStatus
from edl.model.job_policies import JobAction, JobEvent
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.plan import ScaleDecision
from edl.model.pods import Pod, PodPhase
from edl.model.status import JobStatus, Reason
from edl.model.topology import Labels


@dataclass(frozen=True, slots=True)
class JobContext:
    """Facts beside the job and its decision that `desired_state` needs.

    Attributes:
        unreachable: UIDs of pods whose end no kubelet will confirm: bound to a missing node, or terminating beyond
            their grace period on a node that is not ready.
        degraded: (reason, message) of the last refusal of the API server for the job, or of what the cluster lacks.
        master_view: what the job's master reports; None if it has none, or if this controller does not call masters.
        nodes: what is known about nodes on which trainers failed or hung.
        paused: role and index of the pods that failed lately, or were rejected, and are not created yet.
        most_new: so many trainers may be created now; None if as many as the job lacks.
        in_the_way: UIDs of finished pods of ended jobs that are to be deleted; see `edl.planner.queues.kept_pods`.
        labels: the labels of each node, for a job with slices.
    """

    unreachable: frozenset[str] = frozenset()
    degraded: tuple[str, str] | None = None
    master_view: MasterView | None = None
    nodes: NodeWatch = UNWATCHED
    paused: frozenset[tuple[Role, int]] = frozenset()
    most_new: int | None = None
    in_the_way: frozenset[str] = frozenset()
    labels: Mapping[str, Labels] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Input:
    """The arguments of one call of `desired_state`."""

    job: Job
    decision: ScaleDecision | None
    starts: Sequence[tuple[Role, str]]
    now_s: float
    context: JobContext


@dataclass(frozen=True, slots=True)
class _Result:
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
    """The status that a job should have now, and the actions that it needs.

    Args:
        job: the job and its pods, as observed.
        decision: the plan's decision for the job; None keeps its trainers and adds none.
        starts: (role, node) for each pod that fits in the cluster now; no other pod is created.
        now_s: seconds since the epoch.
        context: the other facts; by default there is no problem.

    Returns:
        The status, and the actions: marks and deletions, then the objects that new pods need, then new pods, then the
        status (only if it differs from the stored one) and its events. If nothing changes in the cluster, the same
        call returns the same status, and only actions whose effect is not visible yet.
    """
    context = context or JobContext()
    if job.deleting:  # it may stay for as long as somebody's finalizer does, and its pods must not
        going = () if job.orphans_pods else job.pods
        return job.status or JobStatus(), tuple(delete(going, job, Intent.JOB_DELETED.value, context.unreachable))
    troubles = node_troubles(job, context.nodes, now_s, context.master_view, is_over=is_over(job))
    if is_over(job):
        step = ended_as(job)
        status, events = describe(job, step, now_s, context.master_view)
        actions = (
            *cleanup(job, status, context.in_the_way, context.unreachable),
            *workload_actions(job, step),
            *expire(job, status, now_s),
        )
    else:
        result = _next(_Input(job, decision, starts, now_s, context))
        status, events = describe(job, result.step, now_s, context.master_view)
        grows = decision is not None and decision.target > decision.current
        actions = (*result.actions, *workload_actions(job, result.step, grows=grows))
    status = replace(status, troubles=troubles)
    patch = (PatchStatus(job.key, job.uid, status),) if status != job.status else ()
    return status, (*once_per_pod(actions), *patch, *events)


def as_planned(job: Job, *, is_finishing: bool = False) -> Job:
    """The job for the planner: with measured speeds and resize cost, and with bounds that fit its completed trainers.

    Once a trainer has completed, or the master has closed the last epoch, the job does not grow and needs no minimum.
    A gang then needs the trainers that have not completed; a fault-tolerant job needs none beyond the live ones.
    """
    if job.owner_count is not None:  # what has completed is known to its own controller
        return job
    job = with_measured(job)
    completed = job.completed_trainers
    if not (completed or is_finishing) or is_over(job):
        return job
    if not job.fault_tolerant:
        left = max(1, job.min_trainers - completed)
        return replace(_one_by_one(job), min_trainers=left, max_trainers=left, sizes=(), pinned=0)
    live = max(1, len(job.live_trainers))
    low = min(job.min_trainers, live)
    return replace(_one_by_one(job), min_trainers=low, max_trainers=live, sizes=(), pinned=0)


def _one_by_one(job: Job) -> Job:
    """Return the job without slices, because it is about to end: single trainers of a slice may finish."""
    topology = job.topology
    return job if topology is None else replace(job, topology=replace(topology, slices=None))


def _next(given: _Input) -> _Result:
    job, unreachable = given.job, given.context.unreachable
    failures, marks = count_failures(job)
    events = pod_events(job, unreachable, given.context.master_view)
    ended = end_or_suspension(job, failures, events, given.context.master_view, given.now_s)
    if ended is not None:
        keeps_pods = ended.stage is not Stage.SUSPENDED and ended.reason != Reason.INVALID_SPEC
        going = [] if keeps_pods else _counted_pods_to_end(given)
        return _Result(replace(ended, failures=failures), (*marks, *delete(going, job, ended.reason, unreachable)))
    given = _without_readmission(replace(given, decision=decision_under(job, given.decision)))
    step = step_under(job, _planned_step(given, failures))
    if step.stage is Stage.WAITING:
        going = [] if step.unplanned else _counted_pods_to_end(given)
        return _Result(step, (*marks, *delete(going, job, step.shrink_reason or step.reason, unreachable)))
    cause = _cause_of_restart(given, events)
    if cause:
        result = _restart(given, step, cause)
    else:
        rerun = _role_to_rerun(job, events)
        done = bool(job.completed_trainers) or _is_finished(given.context)
        step = replace(step, rerun=rerun, finishing=done and rerun is not Role.TRAINER)
        result = (_elastic if job.fault_tolerant else _gang)(given, step, _to_replace(given, rerun))
    return replace(result, actions=(*marks, *result.actions))


def _counted_pods_to_end(given: _Input) -> list[Pod]:
    """The pods to delete now of a job that shall have none; a failed pod only once the status counts its failure."""
    job, unreachable = given.job, given.context.unreachable
    return [p for p in pods_to_end(job, unreachable) if p.uid in unreachable or not is_uncounted(job, p)]


def _without_readmission(given: _Input) -> _Input:
    """Drop a decision that would stop a job whose trainers have ended, while its master's last report is due."""
    job, decision = given.job, given.decision
    is_ending = job.was_admitted and job.completed_trainers > 0 and not job.live_trainers
    is_refused = decision is not None and not decision.admitted
    return (
        replace(given, decision=None) if is_ending and is_refused and is_awaited(given.context.master_view) else given
    )


def _is_finished(context: JobContext) -> bool:
    return context.master_view is not None and context.master_view.is_finished


def _degraded(given: _Input, failures: int) -> tuple[str, str] | None:
    """(reason, message) of what is wrong with the job; None if nothing is.

    Some pods may be refused or rejected while others that exist do not start: then both are said.
    """
    job, context = given.job, given.context
    unended = unended_problem(job, context.unreachable, given.now_s)
    unstarted = start_problem(job) or unended or unstarted_problem(job, given.now_s)
    outside = context.degraded
    if outside is not None and unstarted is not None:
        outside = (outside[0], f"{outside[1]}; {unstarted[1]}")
    return (
        master_problem(job, context.master_view)
        or outside
        or unstarted
        or hung_problem(job, context.master_view)
        or avoided_problem(job, context.nodes)
        or failure_problem(job, failures, given.now_s)
        or ledger_warning(job, context.master_view)
    )


def _planned_step(given: _Input, failures: int) -> Step:
    """The step of the plan; without a plan the job keeps its trainers, its reason and its messages."""
    job, decision, degraded = given.job, given.decision, _degraded(given, failures)
    if decision is None:
        old = job.status or JobStatus(reason="", explanation="edl has not planned this job yet")
        admitted = old.condition("Admitted")
        return Step(
            stage=Stage.RUNNING if job.was_admitted else Stage.WAITING,
            target=old.trainer.desired if job.was_admitted else 0,
            reason=admitted.reason if admitted is not None else old.reason,
            message=old.explanation,
            failures=failures,
            details=admitted.message if admitted is not None else "",
            unplanned=True,
            slowed=old.lending.slowed if old.lending is not None else 0,
            degraded=degraded,
        )
    waits = not job.fault_tolerant and degraded is not None and degraded[0] == Reason.PODS_DO_NOT_END
    return Step(
        stage=Stage.RUNNING if decision.admitted else Stage.WAITING,
        target=min(decision.target, job.max_trainers) if decision.admitted else 0,
        reason=decision.reason.value,
        message="it starts once the pods of its last run have ended" if waits else decision.message,
        failures=failures,
        details=decision.details,
        shrink_reason=decision.shrink_reason,
        never_ran=not any(p.node for p in job.live_trainers if p.name in decision.victims),
        slowed=decision.slowed,
        degraded=degraded,
    )


def _elastic(given: _Input, step: Step, replaced: list[Pod]) -> _Result:
    """The step of a fault-tolerant job: replace lost pods, delete victims, and add trainers up to the target."""
    job, decision, unreachable = given.job, given.decision, given.context.unreachable
    lost_last = has_lost_last_trainer(job, given.context.master_view)
    step = replace(step, trainer_lost=lost_last or is_replacing_last(job))
    named = set(decision.victims) if decision else set()
    victims = [p for p in job.live_trainers if p.name in named]
    back = taken_back(job, named)
    replaced = [p for p in replaced if not (lost_last and p.role is Role.TRAINER)]
    moving = [p for p in job.pods if decision and p.name in decision.moves and p.is_live]
    step = replace(step, moving=tuple(p.name for p in moving))
    deletions = (
        *delete(victims, job, step.shrink_reason or step.reason, unreachable),
        *delete(back, job, Reason.QUOTA_REACHED.value, unreachable),
        *delete(replaced, job, Intent.REPLACED.value, unreachable),
        *(delete(needless_trainers(job), job, Intent.NOT_STARTED.value, unreachable) if step.finishing else ()),
        *delete(moving, job, Intent.MOVED.value, unreachable),
        *delete(overdue_trainers(job, given.context.master_view), job, Intent.HUNG.value, unreachable),
        *_complete_deletions(given),
    )
    kept = len(job.live_trainers) - len(victims) - len(back)
    missing = (1 if lost_last else 0) if step.finishing else max(0, step.target - kept)
    may_create = not (step.unplanned or victims or back or moving or step.rerun)
    return _Result(step, (*deletions, *(_create(given, missing) if may_create else ())))


def _gang(given: _Input, step: Step, replaced: list[Pod]) -> _Result:
    """The step of a job in gang mode without a restart: replace pods by the policies; the gang starts as a whole."""
    job, unreachable = given.job, given.context.unreachable
    deletions = (*delete(replaced, job, Intent.REPLACED.value, unreachable), *_complete_deletions(given))
    missing = max(0, step.target - len(job.live_trainers))
    may_create = not (step.unplanned or step.rerun)
    return _Result(step, (*deletions, *(_create(given, missing) if may_create else ())))


def _create(given: _Input, missing: int) -> tuple[Action, ...]:
    """The creations for missing trainers and other pods, as far as neither a pause nor Kueue holds them back."""
    most = most_new_under(given.job, given.context.most_new)
    trainers = missing if most is None else min(missing, most)
    return create(given.job, given.starts, trainers, given.context.paused, given.context.labels)


def _restart(given: _Input, step: Step, cause: str) -> _Result:
    """Delete every pod; the job starts again once the status shows that the last pod no longer exists.

    The status shows the restart also if no pod is left to delete, so that what completed before is forgotten.

    A failed pod is kept until its failure is stored, unless it failed because of the restart.
    """
    job = given.job
    going = [p for p in job.pods if p.phase is not PodPhase.FAILED or is_restarting(job) or is_replaceable(job, p)]
    actions = delete(going, job, Intent.RESTART.value, given.context.unreachable)
    is_shown = bool(job.pods) or not is_restarting(job)
    return _Result(replace(step, restarting=cause if is_shown else ""), tuple(actions))


def _cause_of_restart(given: _Input, events: Sequence[PodEvent]) -> str:
    """Why edl restarts the job, or continues a restart; empty if it does not."""
    job = given.job
    restart = next((e for e in events if e.action is JobAction.RESTART_JOB), None)
    if restart is not None:
        return restart.message
    if is_restarting(job) or any(p.intent == Intent.RESTART for p in job.pods):
        return "the restart of the job is not complete"
    if job.fault_tolerant or not job.pods:
        return ""
    if any(is_deleted_with_job(p) for p in job.pods):
        return "pods of the gang's last run still exist"
    if given.decision is not None and given.decision.victims:
        return f"the plan deletes trainers of the gang ({given.decision.shrink_reason})"
    return "the size of the gang has changed" if _is_resized(job) else ""


def _is_resized(job: Job) -> bool:
    """True if the pods of a gang are not those of its current spec: the size of a gang is fixed while it runs."""
    is_new = job.status is not None and job.status.observed_generation != job.generation
    size = job.min_trainers + sum(fixed.count for fixed in job.fixed)
    return bool(superfluous(job)) or (_was_whole(job) and is_new and len(job.pods) < size)


def _was_whole(job: Job) -> bool:
    running = job.status.condition("Running") if job.status else None
    return running is not None and running.status == "True"


def _role_to_rerun(job: Job, events: Sequence[PodEvent]) -> Role | None:
    """The role whose pods all completed and run again; the status shows it before the first of them is deleted."""
    by_policy = (e.role for e in events if (e.event, e.action) == (JobEvent.TASK_COMPLETED, JobAction.RESTART_POD))
    return rerun_role(job) or next(by_policy, None)


def _to_replace(given: _Input, rerun: Role | None) -> list[Pod]:
    """Pods to delete so that successors can start: ended, refused by kube-scheduler, or no longer in the spec."""
    job = given.job
    ended = [p for p in job.pods if is_replaceable(job, p) and p.role is not rerun]
    completed = job.completed(rerun) if rerun is not None and rerun_role(job) is rerun else ()
    return [*ended, *completed, *refused_pods(job, given.now_s), *(superfluous(job) if job.fault_tolerant else [])]


def _complete_deletions(given: _Input) -> list[DeletePod]:
    """Deletions that were announced on the pod but not carried out, and forced deletions of unreachable pods."""
    unreachable = given.context.unreachable
    pods = [p for p in given.job.pods if p.uid in unreachable or (p.intent and p.is_live)]
    return delete(pods, given.job, Intent.NODE_LOST.value, unreachable)
