"""The rules that each request of the controller must keep, judged by what it could know when it was sent.

They are judged where the writes leave the controller, so they hold for each order of events outside. They remember
the newest plan and what was sent since it began, and nothing that the controller says of itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from edl.controller.allotment import Allotment
from edl.controller.pending_writes import Write
from edl.lifecycle.pod_events import is_deleted_with_job
from edl.model.actions import Action, CreatePod, DeletePod, EmitEvent, Intent, MarkPod, Outcome, PatchStatus, Result
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.names import JobKey, Role
from edl.model.plan import ScaleDecision, ScalePlan
from edl.model.pods import Pod, PodPhase
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
Place = tuple[JobKey, Role, str]
"""A pod of a job on a node."""


class RequestRules:
    """Judges one request after the other.

    Args:
        minimums_fit: the minimums of all jobs fit at all times, so no job may be taken down.

    Attributes:
        broken: the rules that were broken.
    """

    def __init__(self, *, minimums_fit: bool) -> None:
        self._minimums_fit = minimums_fit
        self.broken: list[str] = []
        self._decisions: dict[JobKey, ScaleDecision] = {}  # of the newest plan, and of evictions ahead of the next
        self._uids: dict[tuple[JobKey, str], str] = {}  # of the pods that they end, as they were seen
        self._amended: dict[JobKey, ScaleDecision] = {}  # of these the evictions since the next plan began
        self._sent: Counter[Place] = Counter()  # the creations since the newest plan began
        self._begun: Counter[Place] | None = None  # and since the next one did
        self._begun_from = ClusterSnapshot(0.0)
        self._lost: set[CreatePod] = set()  # creations without an answer
        self._refused: set[str] = set()  # UIDs of the jobs of which the API server has rejected something
        self._most: dict[CreatePod, int] = {}  # of those under way the maximum of the job when they were sent

    # --- What happens

    def plan_begins(self, snapshot: ClusterSnapshot) -> None:
        """A plan is being made of a snapshot."""
        self._begun, self._amended, self._begun_from = Counter(), {}, snapshot

    def published(self, plan: ScalePlan | None) -> Sequence[ScaleDecision]:
        """The plan was made; what was evicted ahead of it stays so. Returns these evictions."""
        if self._begun is None:
            return ()
        evictions = tuple(self._amended.values())
        amended = {(key, name) for key in self._amended for name in self._amended[key].victims}
        kept = {pod: self._uids[pod] for pod in amended}
        self._decisions = {d.job: d for d in (plan.decisions if plan is not None else ())} | self._amended
        ends = {(d.job, name) for d in self._decisions.values() for name in (*d.victims, *d.moves)}
        self._uids = {pod: uid for pod, uid in _uids(self._begun_from).items() if pod in ends} | kept
        self._sent, self._begun, self._amended, self._begun_from = self._begun, None, {}, ClusterSnapshot(0.0)
        return evictions

    def check_evictions(self, evictions: Iterable[ScaleDecision], kept: Mapping[JobKey, Allotment]) -> None:
        """Judge whether evictions ahead of a plan (`published`) are among what it grants."""
        for decision in evictions:
            victims = kept[decision.job].decision.victims if decision.job in kept else ()
            lost = [name for name in decision.victims if name not in victims]
            self.broken += [f"{name} was to end ahead of the plan, which has dropped that" for name in lost]

    def amended(self, view: ClusterSnapshot, decisions: Sequence[ScaleDecision]) -> None:
        """Trainers are evicted ahead of the next plan."""
        uids = _uids(view)
        for d in decisions:
            self._decisions[d.job] = d
            self._uids |= {(d.job, name): uids[d.job, name] for name in d.victims}
            if self._begun is not None:
                self._amended[d.job] = d

    def stand_down(self) -> None:
        """The lease is lost: no plan counts any more."""
        self._decisions, self._uids, self._amended = {}, {}, {}
        self._sent, self._begun, self._begun_from = Counter(), None, ClusterSnapshot(0.0)

    def request(self, write: Write, shown: ClusterSnapshot, under_way: Sequence[Write]) -> None:
        """A write is sent.

        Args:
            write: it.
            shown: what the cache shows.
            under_way: the writes that were sent before and have not ended.
        """
        first, *rest = write.actions
        job = next((job for job in shown.jobs if job.key == first.job), None)
        mine = [action for other in under_way for action in other.actions if action.job_uid == first.job_uid]
        if job is None or job.uid != first.job_uid:
            self.broken.append(f"{_name(first)} is for a job that the controller does not see")
            return
        if isinstance(first, EmitEvent):
            self.broken.append(f"event {first.reason} of {job.key} is sent without the write that it explains")
        self.broken += self._judge(first, job, shown, mine)
        if any(isinstance(action, CreatePod | DeletePod | MarkPod | PatchStatus) for action in rest):
            self.broken.append(f"{_name(first)} is sent with another request that depends on nothing of it")
        if isinstance(first, CreatePod):
            self._most[first] = job.bounds.max_trainers
            if first not in self._lost:
                self._count(first, 1)

    def answered(self, outcome: Outcome) -> None:
        """A request was answered. Without an answer a creation may be sent again; one that failed used nothing."""
        action = outcome.action
        if outcome.result is Result.REFUSED:
            self._refused.add(action.job_uid)
        if not isinstance(action, CreatePod):
            return
        del self._most[action]
        if outcome.result is Result.FAILED:
            self._lost.add(action)
            return
        self._lost.discard(action)
        if not outcome.is_ok:
            self._count(action, -1)

    def _count(self, action: CreatePod, number: int) -> None:
        place = (action.job, action.role, action.node or "")
        for counted in (self._sent, self._begun):
            if counted is not None:
                counted[place] = max(0, counted[place] + number)

    def most(self, action: Action) -> int:
        """The maximum of trainers that the controller saw when it sent a creation."""
        return self._most[action] if isinstance(action, CreatePod) else 0

    # --- Rules

    def _judge(self, action: Action, job: Job, shown: ClusterSnapshot, mine: Sequence[Action]) -> Iterator[str]:
        match action:
            case CreatePod():
                yield from self._judge_creation(action, job, mine)
            case MarkPod() | DeletePod():
                yield from self._judge_end(action, job, shown, mine)
            case PatchStatus():
                if action.status.observed_generation != job.generation:
                    yield f"the status of {action.job} is of another spec than the one observed"
                if any(isinstance(other, MarkPod) for other in mine):
                    yield f"the status of {action.job} is sent beside a mark that it counts"
                if any(isinstance(other, PatchStatus) for other in mine):
                    yield f"two statuses of {action.job} are under way"

    def _judge_creation(self, action: CreatePod, job: Job, mine: Sequence[Action]) -> Iterator[str]:
        name, others = action.pod_name, [other for other in mine if isinstance(other, CreatePod)]
        shown = {pod.name for pod in job.pods}  # these count as shown, although a creation has no answer
        if job.suspended or job.finished or job.problem:
            yield f"{name} is created for a job that must have no pods"
        if not job.fault_tolerant and any(_is_of_last_run(pod) for pod in job.pods):
            yield f"{name} is created beside pods of the gang's last run"
        if name in shown:
            yield f"{name} is created although a pod has that name"
        if name in {other.pod_name for other in others}:
            yield f"{name} is created while the same creation is under way"
        if action not in self._lost:
            yield from self._judge_grant(action, job)
            if any(isinstance(other, MarkPod | DeletePod) for other in mine):
                yield f"{name} is created while deletions of its job are under way"
        if action.role is not Role.TRAINER:
            return
        new = {other.pod_name for other in others if other.role is Role.TRAINER} - shown
        if len(new | {pod.name for pod in job.live_trainers}) >= job.bounds.max_trainers:
            yield f"{name} is created beyond the maximum of {job.bounds.max_trainers}"
        if any(sum(pod.role is fixed.role for pod in job.pods) < fixed.count for fixed in job.fixed):
            yield f"{name} is created before the pods that it needs"

    def _judge_grant(self, action: CreatePod, job: Job) -> Iterator[str]:
        """A pod is created only if the newest plan grants it, for this spec, and once."""
        decision = self._decisions.get(job.key)
        if decision is None or decision.generation != job.generation:
            yield f"{action.pod_name} is created, but the newest plan knows another spec of {job.key}"
            return
        nodes = decision.nodes if action.role is Role.TRAINER else _fixed_nodes(decision, action.role)
        granted = sum(count for node, count in nodes if node == action.node)
        if self._sent[job.key, action.role, action.node or ""] >= granted:
            yield f"{action.pod_name} is created on {action.node}, but the newest plan grants {granted} there"

    def _judge_end(
        self, action: MarkPod | DeletePod, job: Job, shown: ClusterSnapshot, mine: Sequence[Action]
    ) -> Iterator[str]:
        if any(isinstance(other, MarkPod | DeletePod) and other.pod_uid == action.pod_uid for other in mine):
            yield f"{action.pod} is ended while the same is under way"
        if action.intent == Reason.PODS_REFUSED and job.uid not in self._refused:
            yield f"{action.pod} is ended as if the API server had rejected a pod of {job.key}"
        pod = next((pod for pod in job.pods if pod.uid == action.pod_uid), None)
        if pod is None:
            yield f"{action.pod} is ended, but the controller does not see it"
        elif isinstance(action, DeletePod) and pod.phase is PodPhase.FAILED and not job.finished:
            yield from _judge_failed_pod(job, pod)
        elif isinstance(action, DeletePod) and action.intent in _BY_PLAN and pod.is_live and not pod.intent:
            yield from self._judge_victim(action, job, shown, mine)

    def _judge_victim(
        self, action: DeletePod, job: Job, shown: ClusterSnapshot, mine: Sequence[Action]
    ) -> Iterator[str]:
        decision = self._decisions.get(job.key)
        if action.intent == Reason.SERVING_NEEDS_ROOM and not any(p.is_waiting_serving for p in shown.pods):
            yield f"{action.pod} is deleted for serving, but no serving pod waits"
        if decision is None or action.pod not in {*decision.victims, *decision.moves}:
            yield f"{action.pod} is deleted, but the newest plan does not want that"
            return
        if decision.generation != job.generation:
            yield f"{action.pod} is deleted by a plan for another spec of {job.key}"
        if self._uids.get((job.key, action.pod)) != action.pod_uid:
            yield f"{action.pod} is deleted, but the newest plan has seen another pod of that name"
        gone = {a.pod_uid for a in mine if isinstance(a, DeletePod)}
        left = [pod for pod in job.live_trainers if pod.uid not in {*gone, action.pod_uid}]
        new = sum(count for _, count in decision.nodes)  # serving goes first: a job may have to begin again elsewhere
        if decision.admitted and action.pod in decision.victims and len(left) + new < job.bounds.min_trainers:
            yield f"{action.pod} is deleted, which leaves {len(left)} of at least {job.bounds.min_trainers}"
        if not decision.admitted and self._minimums_fit:
            yield f"{job.key} is taken down, although its minimum fits"
        if action.intent == Reason.SERVING_NEEDS_ROOM and _is_freed(shown, gone):
            yield f"{action.pod} is deleted for serving, although capacity for it is being freed already"


def _judge_failed_pod(job: Job, pod: Pod) -> Iterator[str]:
    """The number of a failure is on the pod and in the status before the pod is deleted."""
    kind, _, number = pod.intent.partition("/")
    stored = job.status.failures if job.status is not None else 0
    if kind == Intent.POD_FAILED and stored < int(number or 1):
        yield f"{pod.name} is deleted before its failure is stored"
    if not pod.intent and not pod.disruption and not pod.terminating:
        yield f"{pod.name} is deleted before its failure is counted"


def _is_freed(shown: ClusterSnapshot, going: set[str]) -> bool:
    """True if all waiting serving pods fit once the pods have ended that edl has deleted."""
    pods = [*shown.pods, *(pod for job in shown.jobs for pod in job.pods)]
    free = {node.name: node.allocatable for node in shown.nodes if node.ready}
    for pod in pods:
        place = pod.node or pod.planned
        if place in free and not (pod.is_finished or pod.uid in going or (pod.terminating and pod.intent)):
            free[place] = free[place] - pod.shape.request
    for pod in (pod for pod in shown.pods if pod.is_waiting_serving):
        found = next((name for name, left in free.items() if pod.shape.request.fits(left)), None)
        if found is None:
            return False
        free[found] = free[found] - pod.shape.request
    return True


def _uids(snapshot: ClusterSnapshot) -> dict[tuple[JobKey, str], str]:
    return {(job.key, pod.name): pod.uid for job in snapshot.jobs for pod in job.pods}


def _fixed_nodes(decision: ScaleDecision, role: Role) -> Sequence[tuple[str, int]]:
    return [(node, 1) for other, node in decision.fixed_nodes if other is role]


def _is_of_last_run(pod: Pod) -> bool:
    return pod.terminating or pod.phase is PodPhase.FAILED or is_deleted_with_job(pod)


def _name(action: Action) -> str:
    match action:
        case CreatePod():
            return f"the creation of {action.pod_name}"
        case MarkPod() | DeletePod():
            return f"the end of {action.pod}"
    return f"{type(action).__name__} for {action.job}"
