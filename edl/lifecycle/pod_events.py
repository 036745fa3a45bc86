"""The events of a job's pods (failed, evicted, completed) and the actions of the job's policies for them.

This module only reads. It uses what survives a restart of the controller: the pods with their annotations, and the
stored status. A deletion by edl itself is not an event: its intent is on the pod before the pod is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

from edl.lifecycle.container_end import cause_of_end
from edl.lifecycle.data_progress import MasterView, data_at_end, is_awaited
from edl.model.actions import Intent, MarkPod
from edl.model.job_policies import JobAction, JobEvent
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.pods import Pod, PodPhase
from edl.model.status import POD_CANNOT_START
from edl.model.units import count

PREEMPTED = "PreemptionByScheduler"
RESTARTING = "Restarting"
TRAINER_LOST = "TrainerLost"
FAILED = Intent.POD_FAILED.value
STEADY_AFTER_S = 60.0
"""How long each pod of a job must have run after a failure before the job is no longer Degraded."""
_SINGLE_POD = frozenset(
    intent.value
    for intent in (
        Intent.POD_FAILED,
        Intent.NODE_LOST,
        Intent.REPLACED,
        Intent.MOVED,
        Intent.HUNG,
        Intent.NOT_STARTED,
    )
)
"""Intents that concern one pod; every other intent deletes pods for a reason of the whole job."""
_MAX_PODS = 3


@dataclass(frozen=True, slots=True)
class PodEvent:
    """An event of the pods of a role, and the action of the policy for it.

    Attributes:
        action: None does nothing.
        message: what happened, for the user.
    """

    event: JobEvent
    role: Role
    action: JobAction | None
    message: str


def pod_events(job: Job, unreachable: frozenset[str], master_view: MasterView | None = None) -> tuple[PodEvent, ...]:
    """The current events, in the order in which they decide: completed work, then Abort, Complete, Restart.

    Args:
        job: the job; while edl takes it down for a restart there are no events.
        unreachable: UIDs of pods whose end no kubelet will confirm.
        master_view: what the job's master reports; None if it has none.
    """
    return () if is_restarting(job) else tuple(sorted(_find(job, unreachable, master_view), key=_rank))


def event_of(pod: Pod, unreachable: frozenset[str]) -> JobEvent | None:
    """The event of one pod: it failed, or somebody else deleted or evicted it; None otherwise.

    None of a pod that its node rejected before a container ran, either: it is replaced alone.
    """
    if pod.rejection and not pod.terminating:
        return None
    intent = _intent_word(pod)
    is_own_failure = intent == Intent.POD_FAILED or not (intent or pod.terminating)
    if pod.phase is PodPhase.FAILED and not pod.disruption and is_own_failure:
        return JobEvent.POD_FAILED
    if intent == Intent.NODE_LOST:
        return JobEvent.POD_EVICTED
    if not intent and (pod.disruption or pod.terminating or pod.uid in unreachable):
        return JobEvent.POD_EVICTED
    return None


def is_deleted_with_job(pod: Pod) -> bool:
    """True if edl deletes the pod for a reason of the whole job; such a deletion is always completed."""
    return bool(pod.intent) and _intent_word(pod) not in _SINGLE_POD


def is_restarting(job: Job) -> bool:
    """True if the stored status says that edl deletes every pod before it restarts the job."""
    running = job.status.condition("Running") if job.status else None
    return running is not None and running.reason == RESTARTING


def rerun_role(job: Job) -> Role | None:
    """The role that runs again according to the stored status, while completed pods of it exist."""
    running = job.status.condition("Running") if job.status else None
    reason = running.reason if running is not None else ""
    return next((r for r in Role if reason == rerun_reason(r) and job.completed(r)), None)


def rerun_reason(role: Role) -> str:
    """The reason of condition Running while edl replaces the completed pods of a role."""
    return f"{role.value.capitalize()}RunsAgain"


def start_problem(job: Job) -> tuple[str, str] | None:
    """Return the reason and a message that names all pods with the same cause as the first pod that cannot start."""
    pod = next((p for p in job.pods if p.cannot_start), None)
    if pod is None:
        return None
    alike = [p for p in job.pods if p.cannot_start and p.container_message == pod.container_message]
    return POD_CANNOT_START, f"{names_of(alike)} cannot start: {pod.container_message}"


def failure_problem(job: Job, failures: int, now_s: float) -> tuple[str, str] | None:
    """(reason, message) while pods of an admitted job fail, and until their successors have run for a while.

    Args:
        job: the job with its stored status; the condition keeps the message when the failed pod is gone.
        failures: the number of failures, those that are found now included.
        now_s: seconds since the epoch.
    """
    status = job.status
    if status is None or not job.was_admitted:
        return None
    if failures > status.failures:
        return FAILED, failure_message(job, failures)
    stored = status.condition("Degraded")
    if stored is None or stored.reason != FAILED or now_s >= steady_s(job):
        return None
    return FAILED, stored.message


def steady_s(job: Job) -> float:
    """When all pods of a job will have run for `STEADY_AFTER_S`, in seconds since the epoch.

    Infinite without trainers.
    """
    if not job.live_trainers:
        return inf
    began = (pod.created_s if pod.started_s is None else pod.started_s for pod in job.pods if pod.is_live)
    return max(began, default=inf) + STEADY_AFTER_S


def failure_message(job: Job, failures: int) -> str:
    """How the pods failed whose failures are not stored yet, and how many failures there are."""
    stored = job.status.failures if job.status is not None else 0
    failed = [
        p
        for p in job.pods
        if p.phase is PodPhase.FAILED
        and not (p.disruption or p.rejection)
        and (not p.intent or failure_number(p) > stored)
    ]
    how = _list(failed, describe_failure) or "a pod failed"
    return f"{how}; {count(failures, 'pod failure')} so far, spec.backoffLimit is {job.backoff_limit}"


def preempted_trainers(job: Job) -> tuple[Pod, ...]:
    """Trainers that kube-scheduler is preempting, or has preempted, for a pod of higher priority."""
    return tuple(
        p for p in job.pods if p.role is Role.TRAINER and p.disruption == PREEMPTED and not p.is_live and not p.intent
    )


def has_lost_last_trainer(job: Job, master_view: MasterView | None = None) -> bool:
    """True if the last trainer was lost before any trainer saw the end of the data, so that it must be replaced.

    If the master has closed the last epoch, one completed trainer is enough, and one is needed. Without a data set
    every other trainer that has begun must have completed. The stored condition remembers the lost trainer when its
    pod is gone.
    """
    completed = job.completed(Role.TRAINER)
    if job.live_trainers or not job.was_admitted:
        return False
    if master_view is not None and master_view.is_finished:
        return not job.completed_trainers
    if not job.completed_trainers:
        return False
    kept = (*completed, *_cleaned_up(job))
    has_incomplete = any(p.role is Role.TRAINER and p.has_begun and p not in kept for p in job.pods)
    return has_incomplete or _waits_for_last(job)


def _waits_for_last(job: Job) -> bool:
    """True if the stored status says that the last trainer was lost, and no trainer has completed since."""
    stored = job.status.condition("Complete") if job.status else None
    if job.status is None or stored is None or stored.reason != TRAINER_LOST:
        return False
    return job.completed_indexes <= frozenset(job.status.completed)


def count_failures(job: Job) -> tuple[int, tuple[MarkPod, ...]]:
    """The number of failures so far, and the marks of the pods that are counted now.

    Each failed pod counts once, or all pods together if the policy restarts the job. A pod that was evicted,
    preempted or deleted by edl is not a failure, nor is one that fails while edl takes the job down for a restart.
    """
    stored = job.status.failures if job.status else 0
    marked = max((failure_number(p) for p in job.pods), default=0)
    failures, together = max(stored, marked), marked if marked > stored else 0
    marks = []
    for pod in () if is_restarting(job) else job.pods:
        if pod.intent or event_of(pod, frozenset()) is not JobEvent.POD_FAILED:
            continue
        number = failures + 1
        if pod.role is not None and job.action_for(pod.role, JobEvent.POD_FAILED) is JobAction.RESTART_JOB:
            number = together = together or number
        failures = max(failures, number)
        marks.append(MarkPod(job.key, job.uid, pod.name, pod.uid, f"{Intent.POD_FAILED.value}/{number}"))
    return failures, tuple(marks)


def describe_failure(pod: Pod) -> str:
    """How a pod failed: its exit code and the last line of its container, or what the code means."""
    cause = cause_of_end(pod)
    code = "an unknown code" if pod.exit_code is None else f"code {pod.exit_code}"
    which = f"{pod.name}: {pod.ended_in}" if pod.ended_in else pod.name
    return f"{which} exited with {code}{f' ({cause})' if cause else ''}"


def failure_number(pod: Pod) -> int:
    """The number under which the pod's failure was counted; 0 if it was not."""
    word, _, number = pod.intent.partition("/")
    return int(number) if word == Intent.POD_FAILED and number.isdecimal() else 0


def is_replaceable(job: Job, pod: Pod) -> bool:
    """True for a finished pod that edl deletes: a failure only once it is counted, and no completed trainer.

    But one whose added containers run on uses its node: it goes once the status knows that it completed.
    """
    if not (pod.is_finished or pod.outlived) or pod.terminating:
        return False
    if pod.phase is PodPhase.SUCCEEDED:
        if pod.outlived and pod.role is Role.TRAINER and job.status is not None:
            return pod.index in job.status.completed or bool(pod.intent or pod.disruption)
        has_completed = not (pod.intent or pod.disruption)
        return not (has_completed and (pod.role is Role.TRAINER or not job.fault_tolerant))
    return not is_uncounted(job, pod) and bool(pod.intent or pod.disruption or pod.rejection)


def is_uncounted(job: Job, pod: Pod) -> bool:
    """Return True if the pod carries the number of a failure that the stored status does not count yet."""
    stored = job.status.failures if job.status is not None else 0
    return failure_number(pod) > stored


def _find(job: Job, unreachable: frozenset[str], master_view: MasterView | None) -> Iterator[PodEvent]:
    for role in Role:
        pods = [p for p in job.pods if p.role is role]
        failed = [p for p in pods if event_of(p, unreachable) is JobEvent.POD_FAILED]
        cleaned_up = _cleaned_up(job) if role is Role.TRAINER else ()
        evicted = [p for p in pods if event_of(p, unreachable) is JobEvent.POD_EVICTED and p not in cleaned_up]
        if failed:
            yield _pod_event(job, role, JobEvent.POD_FAILED, _list(failed, describe_failure))
        if evicted:
            yield _pod_event(job, role, JobEvent.POD_EVICTED, _list(evicted, _describe_eviction))
        elif _has_vanished(job, role):
            yield _pod_event(job, role, JobEvent.POD_EVICTED, f"a {role.value} pod no longer exists")
        if _is_completed(job, role, master_view):
            yield _pod_event(job, role, JobEvent.TASK_COMPLETED, _describe_completion(job, role, master_view))


def _cleaned_up(job: Job) -> tuple[Pod, ...]:
    """The trainers that completed, by the status, and that edl or somebody else deletes now.

    A pod that exits with code 0 because it is being deleted looks the same, but the status did not know it before.
    """
    stored = frozenset(job.status.completed) if job.status is not None else frozenset()
    return tuple(
        p
        for p in job.pods
        if p.role is Role.TRAINER
        and p.index in stored
        and p.phase is PodPhase.SUCCEEDED
        and (p.intent == Intent.REPLACED or (p.terminating and not p.intent))
        and not p.disruption
    )


def _pod_event(job: Job, role: Role, event: JobEvent, message: str) -> PodEvent:
    return PodEvent(event, role, job.action_for(role, event), message)


_ORDER = (
    JobAction.ABORT_JOB,
    JobAction.COMPLETE_JOB,
    JobAction.RESTART_JOB,
    JobAction.RESTART_POD,
    None,
)


def _rank(event: PodEvent) -> tuple[bool, int]:
    is_done = event.event is JobEvent.TASK_COMPLETED and event.action is JobAction.COMPLETE_JOB
    return (not is_done, _ORDER.index(event.action))


def _is_completed(job: Job, role: Role, master_view: MasterView | None) -> bool:
    """True if all pods of the role exited with code 0; for trainers, if the master has reported since."""
    completed = job.completed_trainers if role is Role.TRAINER else len(job.completed(role))
    if not completed or not job.was_admitted:
        return False
    if role is not Role.TRAINER:
        return completed >= sum(f.count for f in job.fixed if f.role is role)
    if is_awaited(master_view):
        return False
    if not job.fault_tolerant:
        return completed >= job.min_trainers
    return not (job.live_trainers or has_lost_last_trainer(job, master_view))


def _has_vanished(job: Job, role: Role) -> bool:
    """True if a job that was complete has too few pods of the role, or none at all, and edl did not see them go.

    Never for trainers in fault-tolerant mode: their number changes, and one that vanished is replaced. If no pod is
    left at all, edl may have deleted them itself before its status was written: then only a restart follows, which is
    no harm.
    """
    status = job.status
    running = status.condition("Running") if status else None
    if status is None or running is None or running.status != "True" or status.observed_generation != job.generation:
        return False
    if any(is_deleted_with_job(p) for p in job.pods):
        return False
    if not job.pods and job.action_for(role, JobEvent.POD_EVICTED) is not JobAction.RESTART_JOB:
        return False
    if role is Role.TRAINER:
        cleaned_up = job.completed_trainers - len(job.completed(role)) - len(_cleaned_up(job))
        expected = 0 if job.fault_tolerant else job.min_trainers - cleaned_up
    else:
        expected = sum(f.count for f in job.fixed if f.role is role)
    return sum(p.role is role for p in job.pods) < expected


def _intent_word(pod: Pod) -> str:
    """The reason for which edl deletes a pod, without the number of a failure."""
    return pod.intent.partition("/")[0]


def _list(pods: Sequence[Pod], describe: Callable[[Pod], str]) -> str:
    texts = [describe(pod) for pod in pods[:_MAX_PODS]]
    more = len(pods) - len(texts)
    return ", ".join([*texts, f"and {more} more"] if more else texts)


def names_of(pods: Sequence[Pod]) -> str:
    """The names of at most three pods, and how many more there are."""
    more = len(pods) - _MAX_PODS
    named = ", ".join(pod.name for pod in pods[:_MAX_PODS])
    return f"{named} and {count(more, 'more pod')}" if more > 0 else named


def _describe_eviction(pod: Pod) -> str:
    if pod.disruption:
        return f"{pod.name} was evicted ({pod.disruption})"
    return f"{pod.name} was {'deleted' if pod.terminating and not pod.intent else 'lost with its node'}"


def _describe_completion(job: Job, role: Role, master_view: MasterView | None) -> str:
    message = f"all {role.value}s exited with code 0"
    if role is not Role.TRAINER:
        return message
    kept = sum(pod.is_finished for pod in job.completed(role))
    logs = f" (edl keeps {count(kept, 'pod')} for the logs)" if kept else ""
    return f"{message}{data_at_end(job, master_view)}{logs}"
