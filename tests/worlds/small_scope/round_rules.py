"""The rules that one round of the controller must keep, judged by what the controller had seen and what it was asked.

They are judged where the requests leave the controller, so they hold for each order of events outside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from edl.lifecycle.pod_events import is_deleted_with_job
from edl.model.actions import Action, CreatePod, DeletePod, EmitEvent, Intent, MarkPod, Outcome, PatchStatus, ProbePod
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.names import JobKey, Role
from edl.model.plan import ScaleDecision, ScalePlan
from edl.model.pods import Pod, PodPhase
from edl.model.resources import Resources
from edl.model.status import Reason

_BY_PLAN = {
    Reason.SERVING_NEEDS_ROOM,
    Reason.INSUFFICIENT_CAPACITY,
    Reason.MIN_UNSATISFIED,
    Reason.AT_MAX,
    Reason.ADMITTED,
    Reason.PINNED,
    Reason.COOLDOWN,
    Reason.UNSCHEDULABLE,
    Reason.QUOTA_REACHED,
}


class RoundRules:
    """Judges the requests of one round.

    Args:
        minimums_fit: the minimums of all jobs fit at all times, so no job may be taken down.

    Attributes:
        broken: the rules that were broken.
        requested: the actions, in order.
        is_due: a newer plan is due, as the controller could know.
        plans: the plans that it has made; the last one counts.
    """

    def __init__(self, *, minimums_fit: bool) -> None:
        self._minimums_fit = minimums_fit
        self.broken: list[str] = []
        self.requested: list[Action] = []
        self.is_due = False
        self.plans: Sequence[ScalePlan] = ()
        self._open: list[Action] = []
        self._failed: list[Action] = []
        self._stored: set[JobKey] = set()
        self._acting = self._latest = ClusterSnapshot(0.0)
        self._looked = False

    def observe(self) -> None:
        """The controller looks at the cluster; if it has asked the API server before, it will plan again."""
        if any(isinstance(action, ProbePod) for action in self.requested):
            self.is_due, self._looked = False, False

    def observed(self, snapshot: ClusterSnapshot) -> None:
        """The controller was given a snapshot."""
        self._latest = snapshot
        if not self._looked:
            self._acting, self._looked = snapshot, True

    def request(self, action: Action, *, is_held: bool) -> None:
        """The controller requests an action."""
        self.broken += self._judge(action, is_held=is_held)
        self.requested.append(action)
        self._open.append(action)

    def answered(self, outcome: Outcome) -> None:
        """The controller was given an outcome."""
        self._open.remove(outcome.action)
        if not outcome.is_ok:
            self._failed.append(outcome.action)
        elif isinstance(outcome.action, PatchStatus):
            self._stored.add(outcome.action.job)

    def _judge(self, action: Action, *, is_held: bool) -> Iterator[str]:
        if not is_held:
            yield f"{_name(action)} is requested without the lease"
        if self.is_due and isinstance(action, CreatePod | DeletePod | MarkPod | PatchStatus):
            yield f"{_name(action)} is requested although a newer plan is due"
        job = next((job for job in self._acting.jobs if job.key == action.job), None)
        if job is None:
            yield f"{_name(action)} is for a job that the controller does not see"
            return
        match action:
            case CreatePod():
                yield from self._judge_creation(action, job)
            case MarkPod() | DeletePod():
                yield from self._judge_end(action, job)
            case EmitEvent() if action.job not in self._stored and not self._is_of_stored(action):
                yield f"event {action.reason} of {action.job} is sent before the status that it explains is stored"
            case PatchStatus() if action.status.observed_generation != job.generation:
                yield f"the status of {action.job} is of another spec than the one observed"

    def _is_of_stored(self, event: EmitEvent) -> bool:
        """True for the event of a move if no status is to be stored: a move changes none of its counts."""
        has_news = any(isinstance(a, PatchStatus) and a.job == event.job for a in self.requested)
        return event.reason == Intent.MOVED and not has_news

    def _judge_creation(self, action: CreatePod, job: Job) -> Iterator[str]:
        name = action.pod_name
        if job.suspended or job.finished or job.problem:
            yield f"{name} is created for a job that must have no pods"
        if not job.fault_tolerant and any(_is_of_last_run(pod) for pod in job.pods):
            yield f"{name} is created beside pods of the gang's last run"
        if any(isinstance(other, MarkPod | DeletePod) for other in self._open):
            yield f"{name} is created while deletions are under way"
        if name in {pod.name for pod in job.pods}:
            yield f"{name} is created although a pod has that name"
        if name in {other.pod_name for other in self._creations()}:
            yield f"{name} is created twice in a round"
        if action.role is not Role.TRAINER:
            return
        live = len(job.live_trainers) + sum(
            other.job == action.job and other.role is Role.TRAINER for other in self._creations()
        )
        if live >= job.bounds.max_trainers:
            yield f"{name} is created beyond the maximum of {job.bounds.max_trainers}"
        missing = [other for other in self._creations() if other.job == job.key and other.role is not Role.TRAINER]
        if any(other in self._open or other in self._failed for other in missing):
            yield f"{name} is created before the pods that it needs"
        if action.node is not None and not self._has_room(action, job):
            yield f"{name} is created for {action.node}, which has no room for it yet"

    def _creations(self) -> list[CreatePod]:
        return [action for action in self.requested if isinstance(action, CreatePod)]

    def _has_room(self, action: CreatePod, job: Job) -> bool:
        """True if the planned node has room by the snapshot, with all that the round has created on it."""
        node = next((node for node in self._acting.nodes if node.name == action.node), None)
        if node is None:
            return False
        jobs = {job.key: job for job in self._acting.jobs}
        held = [
            pod.shape.request
            for pod in self._pods()
            if (pod.node or pod.planned) == node.name and not pod.is_finished
        ]
        held += [_request(jobs[other.job], other.role) for other in self._creations() if other.node == node.name]
        return _request(job, action.role).fits(node.allocatable - sum(held, Resources()))

    def _pods(self) -> list[Pod]:
        return [*self._acting.pods, *(pod for job in self._acting.jobs for pod in job.pods)]

    def _judge_end(self, action: MarkPod | DeletePod, job: Job) -> Iterator[str]:
        if self._creations():
            yield f"{action.pod} is ended after pods were created"
        pod = next((pod for pod in job.pods if pod.uid == action.pod_uid), None)
        if pod is None:
            yield f"{action.pod} is ended, but the controller does not see it"
        elif isinstance(action, DeletePod) and pod.phase is PodPhase.FAILED and not job.finished:
            yield from self._judge_failed_pod(job, pod)
        elif isinstance(action, DeletePod) and action.intent in _BY_PLAN and pod.is_live and not pod.intent:
            yield from self._judge_victim(action, job)

    def _judge_failed_pod(self, job: Job, pod: Pod) -> Iterator[str]:
        """The number of a failure is on the pod and in the status before the pod is deleted."""
        kind, _, number = pod.intent.partition("/")
        stored = job.status.failures if job.status is not None else 0
        if kind == Intent.POD_FAILED and stored < int(number or 1):
            yield f"{pod.name} is deleted before its failure is stored"
        if not pod.intent and not pod.disruption and not pod.terminating:
            yield f"{pod.name} is deleted before its failure is counted"

    def _judge_victim(self, action: DeletePod, job: Job) -> Iterator[str]:
        if action.intent == Reason.SERVING_NEEDS_ROOM and not any(p.is_waiting_serving for p in self._latest.pods):
            yield f"{action.pod} is deleted for serving, but no serving pod waits"
        decision = self._decision(job)
        if decision is None or action.pod not in {*decision.victims, *decision.moves}:
            yield f"{action.pod} is deleted, but the newest plan does not want that"
            return
        gone = {a.pod_uid for a in self.requested if isinstance(a, DeletePod) and a.intent in _BY_PLAN}
        left = [pod for pod in job.live_trainers if pod.uid not in {*gone, action.pod_uid}]
        new = sum(count for _, count in decision.nodes)  # serving goes first: a job may have to begin again elsewhere
        if decision.admitted and action.pod in decision.victims and len(left) + new < job.bounds.min_trainers:
            yield f"{action.pod} is deleted, which leaves {len(left)} of at least {job.bounds.min_trainers}"
        if not decision.admitted and self._minimums_fit:
            yield f"{job.key} is taken down, although its minimum fits"

    def _decision(self, job: Job) -> ScaleDecision | None:
        return next((d for plan in self.plans[-1:] for d in plan.decisions if d.job == job.key), None)


def _request(job: Job, role: Role) -> Resources:
    return next((fixed.shape for fixed in job.fixed if fixed.role is role), job.trainer).request


def _is_of_last_run(pod: Pod) -> bool:
    return pod.terminating or pod.phase is PodPhase.FAILED or is_deleted_with_job(pod)


def _name(action: Action) -> str:
    match action:
        case CreatePod():
            return f"the creation of {action.pod_name}"
        case MarkPod() | DeletePod():
            return f"the end of {action.pod}"
    return f"{type(action).__name__} for {action.job}"
