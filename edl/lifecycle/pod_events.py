"""What has happened to the pods of a job, and what the job's policies answer: read, never acted upon.

A fact is read from what outlives a restart of the controller: the pods with what is stated on them, and the stored
status. A deletion of our own is no event: its intent stands on the pod before the pod goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from edl.lifecycle.data_progress import MasterView, unfinished
from edl.model.actions import Intent, MarkPod
from edl.model.job_policies import JobAction, JobEvent
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.pods import Pod, PodPhase

PREEMPTED = "PreemptionByScheduler"
RESTARTING = "Restarting"
TRAINER_LOST = "TrainerLost"
_SINGLE = frozenset({Intent.POD_FAILED.value, Intent.NODE_LOST.value, Intent.REPLACED.value, Intent.MOVED.value})
"""Intents that concern one pod; every other one takes pods down for a reason of the whole job."""
CANNOT_START = "PodCannotStart"
_SHOWN_PODS, _SHOWN_WORDS = 3, 200
_SAYS_NOTHING = "General Error"
"""What the launcher says of exit code 1; what the program has said before says more."""
_LAST_OWN_CODE, _SIGNALLED = 125, 128


@dataclass(frozen=True, slots=True)
class PodEvent:
    """An event of a role and its answer.

    Attributes:
        action: None does nothing.
        message: what happened, for the user.
    """

    event: JobEvent
    role: Role
    action: JobAction | None
    message: str


def pod_events(job: Job, lost: frozenset[str], master_view: MasterView | None = None) -> tuple[PodEvent, ...]:
    """The events that stand now, the most decisive answer first: work that is done, then Abort, Complete, Restart.

    Args:
        job: the job; while it is taken down to start anew nothing that befalls its pods is an event.
        lost: UIDs of pods that no kubelet will ever end.
        master_view: what the job's master says; None where it has none.
    """
    return () if is_restarting(job) else tuple(sorted(_find(job, lost, master_view), key=_rank))


def event_of(pod: Pod, lost: frozenset[str]) -> JobEvent | None:
    """What befell one pod: it failed, or was taken away by somebody else; None where neither, or by our own will."""
    word = _word(pod)
    is_ours = word == Intent.POD_FAILED or not (word or pod.terminating)
    if pod.phase is PodPhase.FAILED and not pod.disruption and is_ours:
        return JobEvent.POD_FAILED
    if word == Intent.NODE_LOST or (not word and (pod.disruption or pod.terminating or pod.uid in lost)):
        return JobEvent.POD_EVICTED
    return None


def is_told_to_go(pod: Pod) -> bool:
    """True where we are taking the pod away for a reason of the whole job; one that is marked so always goes."""
    return bool(pod.intent) and _word(pod) not in _SINGLE


def is_restarting(job: Job) -> bool:
    """True where the stored status says that every pod is taken down before the job starts anew."""
    running = job.status.condition("Running") if job.status else None
    return running is not None and running.reason == RESTARTING


def running_again(job: Job) -> Role | None:
    """The role that the stored status says is to run again, as long as pods of it that exited 0 are left."""
    running = job.status.condition("Running") if job.status else None
    said = running.reason if running is not None else ""
    return next((r for r in Role if said == again_reason(r) and job.completed(r)), None)


def again_reason(role: Role) -> str:
    """The reason of condition Running while a role that completed is taken away to run again."""
    return f"{role.value.capitalize()}RunsAgain"


def cannot_start(job: Job) -> tuple[str, str] | None:
    """(reason, sentence) of the first pod that its node takes and cannot start."""
    pod = next(
        (p for p in job.pods if p.container_message and p.phase is PodPhase.PENDING and not p.terminating), None
    )
    return (CANNOT_START, f"{pod.name} cannot start: {pod.container_message}") if pod is not None else None


def preempted_trainers(job: Job) -> tuple[Pod, ...]:
    """Trainers that kube-scheduler is evicting, or has evicted, for a pod of higher priority."""
    return tuple(
        p for p in job.pods if p.role is Role.TRAINER and p.disruption == PREEMPTED and not p.is_live and not p.intent
    )


def lost_the_last(job: Job, master_view: MasterView | None = None) -> bool:
    """True where the last trainer was lost before somebody has seen the end of the data: it has to be replaced.

    Where the master has closed the last epoch one trainer that has exited 0 is enough, and one is needed. Without a
    data set the others must have; the stored condition remembers the lost one once its pod is gone.
    """
    done = job.completed(Role.TRAINER)
    if job.live_trainers or not job.was_admitted:
        return False
    if master_view is not None and master_view.is_finished:
        return not done
    if not done:
        return False
    unfinished = any(p.role is Role.TRAINER and p not in done for p in job.pods)
    stored = job.status.condition("Complete") if job.status else None
    return unfinished or (stored is not None and stored.reason == TRAINER_LOST)


def count_failures(job: Job) -> tuple[int, tuple[MarkPod, ...]]:
    """Failures so far, and the marks of those that are counted now: each pod, or all at once where they restart all.

    A pod that was evicted, preempted or told to go by us is not a failure of the job, nor one that fails while the
    job is taken down to start anew.
    """
    stored = job.status.failures if job.status else 0
    marked = max((failure_number(p) for p in job.pods), default=0)
    count, together = max(stored, marked), marked if marked > stored else 0
    marks = []
    for pod in () if is_restarting(job) else job.pods:
        if pod.intent or event_of(pod, frozenset()) is not JobEvent.POD_FAILED:
            continue
        number = count + 1
        if pod.role is not None and job.action_for(pod.role, JobEvent.POD_FAILED) is JobAction.RESTART_JOB:
            number = together = together or number
        count = max(count, number)
        marks.append(MarkPod(job.key, job.uid, pod.name, pod.uid, f"{Intent.POD_FAILED.value}/{number}"))
    return count, tuple(marks)


def failure_of(pod: Pod) -> str:
    """How a pod failed: its exit code, and the last words of its container or what to do where there are none."""
    words = pod.container_message.strip().splitlines()
    telling = next((line for line in reversed(words) if line != _SAYS_NOTHING), words[-1] if words else "")
    told = telling[-_SHOWN_WORDS:] or _meaning(pod.exit_code)
    code = "an unknown code" if pod.exit_code is None else str(pod.exit_code)
    return f"{pod.name} exited with {code}{f' ({told})' if told else ''}"


def _meaning(code: int | None) -> str:
    if code is None or not code:
        return ""
    if code <= _LAST_OWN_CODE:
        return "the program's own code, without a word: let it print why it ends"
    return f"ended by signal {code - _SIGNALLED}" if code > _SIGNALLED else ""


def failure_number(pod: Pod) -> int:
    """The number under which the pod's failure was counted; 0 where it was not."""
    word, _, number = pod.intent.partition("/")
    return int(number) if word == Intent.POD_FAILED and number.isdecimal() else 0


def is_spent(job: Job, pod: Pod) -> bool:
    """True for a pod that ended and has to make way: counted if it counts, and not kept as a finished one."""
    if not pod.is_finished or pod.terminating:
        return False
    if pod.phase is PodPhase.SUCCEEDED:
        is_own_end = not (pod.intent or pod.disruption)
        return not (is_own_end and (pod.role is Role.TRAINER or not job.fault_tolerant))
    if failure_number(pod):
        return job.status is not None and job.status.failures >= failure_number(pod)
    return bool(pod.intent or pod.disruption)


def _find(job: Job, lost: frozenset[str], master_view: MasterView | None) -> Iterator[PodEvent]:
    for role in Role:
        pods = [p for p in job.pods if p.role is role]
        failed = [p for p in pods if event_of(p, lost) is JobEvent.POD_FAILED]
        evicted = [p for p in pods if event_of(p, lost) is JobEvent.POD_EVICTED]
        if failed:
            yield _pod_event(job, role, JobEvent.POD_FAILED, _list(failed, failure_of))
        if evicted:
            yield _pod_event(job, role, JobEvent.POD_EVICTED, _list(evicted, _eviction))
        elif _has_vanished(job, role):
            yield _pod_event(job, role, JobEvent.POD_EVICTED, f"a {role.value} is gone")
        if _is_completed(job, role, master_view):
            said = _completion(job, role) + (unfinished(master_view) if role is Role.TRAINER else "")
            yield _pod_event(job, role, JobEvent.TASK_COMPLETED, said)


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
    """True where all pods of the role exited 0 of their own accord, and the master has been heard since."""
    done = len(job.completed(role))
    if not done or not job.was_admitted:
        return False
    if role is not Role.TRAINER:
        return done >= sum(f.count for f in job.fixed if f.role is role)
    if not job.fault_tolerant:
        return done >= job.min_trainers
    is_told = master_view is None or master_view.is_current
    return is_told and not (job.live_trainers or lost_the_last(job, master_view))


def _has_vanished(job: Job, role: Role) -> bool:
    """True where a job that ran whole has too few pods of the role and nobody saw them go.

    Not of trainers in fault-tolerant mode, whose number moves: one that vanished unseen is replaced.
    """
    status = job.status
    running = status.condition("Running") if status else None
    if status is None or running is None or running.status != "True" or status.observed_generation != job.generation:
        return False
    if not job.pods or any(is_told_to_go(p) for p in job.pods):
        return False
    if role is Role.TRAINER:
        expected = 0 if job.fault_tolerant else job.min_trainers
    else:
        expected = sum(f.count for f in job.fixed if f.role is role)
    return sum(p.role is role for p in job.pods) < expected


def _word(pod: Pod) -> str:
    return pod.intent.partition("/")[0]


def _list(pods: Sequence[Pod], say: Callable[[Pod], str]) -> str:
    said = [say(pod) for pod in pods[:_SHOWN_PODS]]
    more = len(pods) - len(said)
    return ", ".join([*said, f"and {more} more"] if more else said)


def _eviction(pod: Pod) -> str:
    if pod.disruption:
        return f"{pod.name} was evicted ({pod.disruption})"
    return f"{pod.name} was {'deleted' if pod.terminating and not pod.intent else 'lost with its node'}"


def _completion(job: Job, role: Role) -> str:
    done = len(job.completed(role))
    return f"all {role.value}s exited 0" + (f" ({done} are kept)" if role is Role.TRAINER else "")
