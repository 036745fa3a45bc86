"""The life of one job: from its pods, the plan and the time to its status and the actions that lead there.

Pure: the same job, decision and time give the same answer, so that a controller that was killed anywhere goes on
where it stopped. It refuses to choose how many trainers a job gets, on which nodes, and which die: that is the plan.

A failure is counted exactly once: the failed pod is first marked with the number of the failure, then the number is
stored in the status, and only when both stand is the pod deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from edl.core.actions import (
    Action,
    CreatePod,
    DeleteJob,
    DeletePod,
    EmitEvent,
    EnsureClaim,
    EnsureSecret,
    EnsureService,
    EventKind,
    Intent,
    MarkPod,
    Outcome,
    PatchStatus,
    Result,
)
from edl.core.model import Job, JobPhase, JobStatus, Pod, PodPhase, Reason, Role
from edl.core.plan import ScaleDecision
from edl.core.status import RESTARTING, TRAINER_LOST, Stage, Step, describe, finished_trainers, recount

__all__ = [
    "Action",
    "CreatePod",
    "DeleteJob",
    "DeletePod",
    "EmitEvent",
    "EnsureClaim",
    "EnsureSecret",
    "EnsureService",
    "EventKind",
    "Intent",
    "MarkPod",
    "Outcome",
    "PatchStatus",
    "Result",
    "Surroundings",
    "as_planned",
    "desired_state",
    "is_over",
]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a job's life depends on beside itself and the plan.

    Attributes:
        lost: UIDs of pods that no kubelet will ever end: bound to a node that is gone, or terminating past their
            grace on one that is not ready.
        trouble: (reason, sentence) of what the API server last refused for the job, or what the cluster lacks.
    """

    lost: frozenset[str] = frozenset()
    trouble: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class _Case:
    """Everything that one call of `desired_state` looks at."""

    job: Job
    decision: ScaleDecision | None
    starts: Sequence[tuple[Role, str]]
    now_s: float
    around: Surroundings


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
    around: Surroundings | None = None,
) -> tuple[JobStatus, tuple[Action, ...]]:
    """What a job should be told and done to now.

    Args:
        job: the job and its pods, as observed.
        decision: the plan's word about the job; None keeps it as it is, without growth.
        starts: (role, node) of the pods that have room now; nothing else is created.
        now_s: seconds since the epoch.
        around: the rest of the world; by default nothing is wrong.

    Returns:
        The status, and the actions: marks and deletions, then what new pods need, then new pods, then the status
        (only where it changed) and its events. Without a change in the world the same call returns the same status,
        and no actions but those whose effect is still outstanding.
    """
    around = around or Surroundings()
    if job.deleting:
        return job.status or JobStatus(), ()
    if is_over(job):
        status = recount(job)
        actions: tuple[Action, ...] = (*_cleanup(job, around), *_expire(job, status, now_s))
        told: tuple[Action, ...] = ()
    else:
        move = _move(_Case(job, decision, starts, now_s, around))
        status, told = describe(job, move.step, now_s)
        actions = move.actions
    said = (PatchStatus(job.key, job.uid, status),) if status != job.status else ()
    return status, (*_once_per_pod(actions), *said, *told)


def is_over(job: Job) -> bool:
    """True where the job has ended; a spec that was refused before any pod ran is judged afresh once it changes."""
    status = job.status
    if status is None:
        return False
    if status.phase is JobPhase.FAILED and status.reason == Reason.INVALID_SPEC and status.start_s is None:
        return bool(job.problem) and status.observed_generation >= job.generation
    ended = (status.condition(kind) for kind in ("Complete", "Failed"))
    return status.phase.is_final or any(c is not None and c.status == "True" for c in ended)


def as_planned(job: Job) -> Job:
    """The job as the planner should see it: once trainers have begun to finish it does not grow, nor need its min."""
    if is_over(job) or not finished_trainers(job):
        return job
    live = max(1, len(job.live_trainers))
    return replace(job, min_trainers=min(job.min_trainers, live), max_trainers=live, pinned=0)


def _move(case: _Case) -> _Move:
    job, around = case.job, case.around
    failures, marks = _account(job)
    ended = _verdict(job, failures, case.now_s)
    if ended is not None:
        return _Move(replace(ended, failures=failures), (*marks, *_ending(job, ended, around)))
    step = _wish(case, failures)
    if step.stage is Stage.WAITING:
        going = () if step.held else job.pods
        return _Move(step, (*marks, *_delete(going, job, step.shrink_reason or step.reason, around)))
    carry_out = _elastic if job.fault_tolerant else _gang
    return carry_out(case, step, marks)


def _verdict(job: Job, failures: int, now_s: float) -> Step | None:
    """How the job ends, or that it is suspended; None while it goes on."""
    start_s = job.status.start_s if job.status else None
    if job.problem:
        return Step(Stage.FAILED, 0, Reason.INVALID_SPEC.value, job.problem)
    if job.suspended:
        return Step(Stage.SUSPENDED, 0, Reason.SUSPENDED.value, "spec.suspend is true: the job has no pods")
    if failures > job.backoff_limit:
        message = f"{failures} pods failed, more than spec.backoffLimit {job.backoff_limit}"
        return Step(Stage.FAILED, 0, "BackoffLimitExceeded", message)
    if job.active_deadline_s is not None and start_s is not None and now_s - start_s >= job.active_deadline_s:
        message = f"the job ran longer than spec.activeDeadlineSeconds {job.active_deadline_s}"
        return Step(Stage.FAILED, 0, "DeadlineExceeded", message)
    done = finished_trainers(job)
    if done and job.was_admitted and _is_complete(job):
        return Step(Stage.SUCCEEDED, 0, Reason.FINISHED.value, f"all trainers exited 0 ({len(done)} are kept)")
    return None


def _is_complete(job: Job) -> bool:
    if not job.fault_tolerant:
        return len(finished_trainers(job)) >= job.min_trainers
    return not job.live_trainers and not _lost_the_last(job)


def _lost_the_last(job: Job) -> bool:
    """True where some trainers have finished and the last other one was lost: it has to be replaced.

    The stored condition remembers it once the lost pod itself is gone.
    """
    done = finished_trainers(job)
    if not done or job.live_trainers or not job.was_admitted:
        return False
    unfinished = any(p.role is Role.TRAINER and p not in done for p in job.pods)
    stored = job.status.condition("Complete") if job.status else None
    return unfinished or (stored is not None and stored.reason == TRAINER_LOST)


def _ending(job: Job, ended: Step, around: Surroundings) -> tuple[Action, ...]:
    if ended.stage is Stage.SUSPENDED or ended.reason == Reason.INVALID_SPEC:
        return tuple(_delete(job.pods, job, ended.reason, around))
    return tuple(_delete(_dispensable(job, ended.stage), job, _end_intent(ended.stage), around))


def _cleanup(job: Job, around: Surroundings) -> tuple[Action, ...]:
    status = job.status or JobStatus()
    if status.reason == Reason.INVALID_SPEC:
        return tuple(_delete(job.pods, job, status.reason, around))
    succeeded = status.phase is JobPhase.SUCCEEDED
    stage = Stage.SUCCEEDED if succeeded else Stage.FAILED
    return tuple(_delete(_dispensable(job, stage), job, _end_intent(stage), around))


def _end_intent(stage: Stage) -> str:
    return Reason.FINISHED.value if stage is Stage.SUCCEEDED else Intent.JOB_FAILED.value


def _dispensable(job: Job, stage: Stage) -> tuple[Pod, ...]:
    """The pods that an ended job does not keep for their logs: what still runs, a success's master and pservers."""
    if stage is Stage.SUCCEEDED:
        return tuple(p for p in job.pods if p.role is not Role.TRAINER or not p.is_finished)
    return tuple(p for p in job.pods if not p.is_finished)


def _expire(job: Job, status: JobStatus, now_s: float) -> tuple[Action, ...]:
    if job.ttl_s is None or status.completion_s is None or now_s - status.completion_s < job.ttl_s:
        return ()
    return (DeleteJob(job.key, job.uid),)


def _account(job: Job) -> tuple[int, tuple[MarkPod, ...]]:
    """Failures so far, and the marks of those that are counted now: each pod, in gang mode each restart.

    A pod that was evicted, preempted or told to go by us is not a failure of the job.
    """
    stored = job.status.failures if job.status else 0
    counted = max([stored, *(_failure_number(p) for p in job.pods)])
    new = [p for p in job.pods if p.phase is PodPhase.FAILED and not (p.intent or p.disruption or p.terminating)]
    numbers = [counted + (i if job.fault_tolerant else 0) + 1 for i in range(len(new))]
    marks = tuple(
        MarkPod(job.key, job.uid, p.name, p.uid, f"{Intent.POD_FAILED.value}/{n}")
        for p, n in zip(new, numbers, strict=True)
    )
    return max([counted, *numbers]), marks


def _failure_number(pod: Pod) -> int:
    word, _, number = pod.intent.partition("/")
    return int(number) if word == Intent.POD_FAILED and number.isdecimal() else 0


def _wish(case: _Case, failures: int) -> Step:
    job, decision, around = case.job, case.decision, case.around
    if decision is None:
        old = job.status or JobStatus(reason="", explanation="no plan has been made for the job yet")
        stage = Stage.RUNNING if job.was_admitted else Stage.WAITING
        target = old.trainer.desired if stage is Stage.RUNNING else 0
        return Step(stage, target, old.reason, old.explanation, failures, held=True, trouble=around.trouble)
    return Step(
        stage=Stage.RUNNING if decision.admitted else Stage.WAITING,
        target=min(decision.target, job.max_trainers) if decision.admitted else 0,
        reason=decision.reason.value,
        message=decision.message,
        failures=failures,
        shrink_reason=decision.shrink_reason,
        trouble=around.trouble,
    )


def _elastic(case: _Case, step: Step, marks: tuple[MarkPod, ...]) -> _Move:
    """Fault-tolerant mode: a lost pod is replaced, named victims go, and trainers grow to the target."""
    job, decision, around = case.job, case.decision, case.around
    lost_last = _lost_the_last(job)
    finishing = bool(finished_trainers(job))
    step = replace(step, finishing=finishing, trainer_lost=lost_last)
    named = set(decision.victims) if decision else set()
    victims = [p for p in job.live_trainers if p.name in named]
    spent = [p for p in job.pods if _is_spent(job, p) and not (lost_last and p.role is Role.TRAINER)]
    deletions = (
        *_delete(victims, job, step.shrink_reason or step.reason, around),
        *_delete(spent, job, Intent.REPLACED.value, around),
        *_delete([p for p in job.pods if p.uid in around.lost], job, Intent.NODE_LOST.value, around),
    )
    kept = len(job.live_trainers) - len(victims)
    wanted = (1 if lost_last else 0) if finishing else max(0, step.target - kept)
    creations = () if step.held or victims else _create(job, case.starts, wanted)
    return _Move(step, (*marks, *deletions, *creations))


def _is_spent(job: Job, pod: Pod) -> bool:
    """True for a pod that ended and has to make way: counted if it counts, and not kept as a finished trainer."""
    if not pod.is_finished or pod.terminating:
        return False
    if pod.phase is PodPhase.SUCCEEDED:
        return pod.role is not Role.TRAINER or bool(pod.intent or pod.disruption)
    if pod.intent.startswith(Intent.POD_FAILED.value):
        return job.status is not None and job.status.failures >= _failure_number(pod)
    return bool(pod.intent or pod.disruption)


def _gang(case: _Case, step: Step, marks: tuple[MarkPod, ...]) -> _Move:
    """Gang mode: the loss of any pod takes all of them down; they start anew once the last is gone."""
    job, around = case.job, case.around
    if job.pods and _is_broken(job, around):
        going = [p for p in job.pods if p.phase is not PodPhase.FAILED or _is_spent(job, p)]
        restarting = replace(step, restarting=True)
        return _Move(restarting, (*marks, *_delete(going, job, Intent.RESTART.value, around)))
    step = replace(step, finishing=bool(finished_trainers(job)))
    wanted = 0 if step.finishing else max(0, step.target - len(job.live_trainers))
    return _Move(step, () if step.held else _create(job, case.starts, wanted))


def _is_broken(job: Job, around: Surroundings) -> bool:
    """True where a gang has lost a pod, or is still being taken down."""
    done = finished_trainers(job)
    whole = [p for p in job.pods if p in done or (p.is_live and p.uid not in around.lost)]
    if len(whole) < len(job.pods):
        return True
    running = job.status.condition("Running") if job.status else None
    if running is None:
        return False
    size = job.min_trainers + sum(f.count for f in job.fixed)
    return running.reason == RESTARTING or (running.status == "True" and len(whole) < size)


def _delete(pods: Iterable[Pod], job: Job, intent: str, around: Surroundings) -> list[DeletePod]:
    """Deletions of those pods that are not on their way out, or that nobody will end but us."""
    return [
        DeletePod(
            job.key,
            job.uid,
            pod.name,
            pod.uid,
            pod.intent or (Intent.NODE_LOST.value if pod.uid in around.lost else intent),
            force=pod.uid in around.lost,
            marked=bool(pod.intent),
        )
        for pod in pods
        if not pod.terminating or pod.uid in around.lost
    ]


def _create(job: Job, starts: Sequence[tuple[Role, str]], trainers: int) -> tuple[Action, ...]:
    """Missing masters and pservers under their own names, and that many trainers at the lowest free numbers."""
    used = {(p.role, p.index) for p in job.pods}
    free = {role: [node for r, node in starts if r is role] for role in Role}
    created: list[CreatePod] = []
    for fixed in job.fixed:
        missing = [i for i in range(fixed.count) if (fixed.role, i) not in used]
        created += [
            CreatePod(job.key, job.uid, fixed.role, index, node or None)
            for index, node in zip(missing, free[fixed.role], strict=False)
        ]
    nodes = free[Role.TRAINER][:trainers]
    indexes = (i for i in range(len(job.pods) + len(nodes)) if (Role.TRAINER, i) not in used)
    created += [
        CreatePod(job.key, job.uid, Role.TRAINER, i, node or None) for node, i in zip(nodes, indexes, strict=False)
    ]
    return (*_needs(job), *created) if created else ()


def _needs(job: Job) -> tuple[Action, ...]:
    service = EnsureService(job.key, job.uid)
    if not any(f.role is Role.MASTER for f in job.fixed):
        return (service,)
    return service, EnsureSecret(job.key, job.uid), EnsureClaim(job.key, job.uid)


def _once_per_pod(actions: Sequence[Action]) -> Iterator[Action]:
    """One word to each pod: a mark waits until its number is stored, so it puts a deletion off, unless forced."""
    marked = {a.pod_uid for a in actions if isinstance(a, MarkPod)}
    deleted: set[str] = set()
    for action in actions:
        if isinstance(action, DeletePod):
            if action.pod_uid in deleted or (action.pod_uid in marked and not action.force):
                continue
            deleted.add(action.pod_uid)
        yield action
