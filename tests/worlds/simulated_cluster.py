"""A cluster simulated in virtual time: its true objects, and a cache that lags behind them.

Actions, tests, and the simulated kubelets, scheduler and garbage collector (`live`) change the true objects. Watch
events update the cache; they may come late, twice or never. Like the real cache, it cannot be read until it shows the
controller's own writes, and it lists all objects again if one is overdue. Every action that breaks a rule is noted in
`violations`.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from edl.errors import NotSyncedError
from edl.lifecycle.pod_events import is_deleted_with_job
from edl.lifecycle.status import is_over
from edl.model.actions import (
    Action,
    CreatePod,
    DeleteJob,
    DeletePod,
    EmitEvent,
    MarkPod,
    Outcome,
    PatchStatus,
    ProbePod,
    Result,
)
from edl.model.cluster import ClusterSnapshot, Node, ResourceQuota
from edl.model.jobs import Job
from edl.model.names import JobKey, Role
from edl.model.pods import Pod, PodPhase
from edl.model.resources import PodShape
from tests.worlds.builders import make_serving

T = TypeVar("T")
GRACE_S = 5.0
OVERDUE_S = 10.0
STRANDED_S = 30.0


@dataclass(frozen=True)
class Owned:
    """One version of a pod, with the UID of its job."""

    pod: Pod
    owner: str
    version: int = 0
    ends_s: float | None = None


@dataclass(frozen=True)
class Stored:
    """One version of a job; its pods are stored separately."""

    job: Job
    version: int = 0


@dataclass(frozen=True)
class Expected:
    """A write that the cache must show before it can be read."""

    is_met: Callable[[], bool]
    due_s: float
    lists: int


def now_s() -> float:
    return asyncio.get_running_loop().time()


PodKey = tuple[str, str]


@dataclass
class World:
    """The true objects, and the cache of them."""

    nodes: dict[str, Node] = field(default_factory=dict)
    jobs: dict[JobKey, Stored] = field(default_factory=dict)
    pods: dict[PodKey, Owned] = field(default_factory=dict)
    serving: dict[str, Pod] = field(default_factory=dict)
    events: list[EmitEvent] = field(default_factory=list)
    writes: list[Action] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    failed: Counter[str] = field(default_factory=Counter)
    owners: dict[str, str] = field(default_factory=dict)
    classes_missing: tuple[str, ...] = ()
    holds_back: bool = False
    quotas: dict[str, ResourceQuota] = field(default_factory=dict)  # by namespace; the API server enforces them
    hides_quotas: bool = False  # edl may not read them
    holds_serving: bool = False  # no scheduler serves the serving pods
    shut: set[str] = field(default_factory=set)  # nodes on which no pod starts, for a reason that no object shows
    fault: Callable[[Action], tuple[bool, Outcome] | None] = field(default=lambda _: None)

    def __post_init__(self) -> None:
        self.seen_jobs: dict[JobKey, Stored] = {}
        self.seen_pods: dict[PodKey, Owned] = {}
        self.watch: deque[tuple[str, Any, Any]] = deque()
        self.buried: set[str] = set()
        self.lists, self.born = 0, 0
        self.expected: list[Expected] = []
        self.changed = asyncio.Event()

    # --- What tests and users change

    def add(self, job: Job) -> None:
        self._put_job(job)

    def job(self, key: JobKey) -> Job:
        """The true job, with its pods."""
        return self._with_pods(self.jobs[key].job, self.pods)

    def edit(self, key: JobKey, **fields: Any) -> None:
        job = self.jobs[key].job
        self._put_job(replace(job, generation=job.generation + 1, **fields))

    def forge(self, key: JobKey, **fields: Any) -> None:
        job = self.jobs[key].job
        if job.status is not None:
            self._put_job(replace(job, status=replace(job.status, **fields)))

    def delete_job(self, key: JobKey) -> None:
        """Delete a job; the garbage collector deletes its pods later."""
        stored = self.jobs.pop(key, None)
        if stored is not None:
            self._tell("job", key, None)

    def change(self, name: str, namespace: str = "default", **fields: Any) -> None:
        owned = self.pods[namespace, name]
        self._put_pod(replace(owned, pod=replace(owned.pod, **fields)))

    def finish(self, name: str, exit_code: int = 0) -> None:
        """Let a pod exit."""
        owned = self.pods["default", name]
        if exit_code and not (owned.pod.intent or owned.pod.terminating):
            self.failed[owned.owner] += 1
        phase = PodPhase.FAILED if exit_code else PodPhase.SUCCEEDED
        self.change(name, phase=phase, exit_code=exit_code, ready=False)

    def take_away(self, name: str, disruption: str = "EvictionByEvictionAPI") -> None:
        """Delete a pod, not through edl; an empty disruption is a plain deletion."""
        owned = self.pods["default", name]
        self._put_pod(
            replace(
                owned,
                pod=replace(owned.pod, terminating=True, ready=False, disruption=disruption),
                ends_s=now_s() + GRACE_S,
            )
        )

    def vanish(self, name: str) -> None:
        self._drop_pod("default", name)

    def lose_node(self, name: str) -> None:
        self.nodes.pop(name, None)
        self.changed.set()

    def serve(self, name: str, cpu: float) -> None:
        self.serving[name] = replace(make_serving(name, cpu=cpu, memory_gib=1), created_s=now_s() - 10)
        self.changed.set()

    # --- What the cluster does by itself

    def live(self) -> None:
        """Let scheduler, kubelets and garbage collector do what they can now."""
        uids = {stored.job.uid for stored in self.jobs.values()}
        for (namespace, name), owned in list(self.pods.items()):
            pod = owned.pod
            if owned.owner not in uids and not pod.terminating:
                self._put_pod(
                    replace(owned, pod=replace(pod, terminating=True, ready=False), ends_s=now_s() + GRACE_S)
                )
            elif pod.terminating:
                node = self.nodes.get(pod.node)
                is_ended = not pod.node or (node is not None and node.ready and now_s() >= (owned.ends_s or 0.0))
                if is_ended or pod.is_finished:
                    self._drop_pod(namespace, name)
            elif pod.phase is PodPhase.PENDING:
                self._start(owned)
        for name, pod in list(self.serving.items()):
            if not pod.node and not self.holds_serving and (place := self._node_for(pod.shape, "")):
                self.serving[name] = replace(pod, node=place, phase=PodPhase.RUNNING, ready=True)
                self.changed.set()

    def _start(self, owned: Owned) -> None:
        pod = owned.pod
        if not pod.node:
            place = self._node_for(pod.shape, pod.planned)
            if place and (place == pod.planned or not pod.pinned):
                self._put_pod(replace(owned, pod=replace(pod, node=place, tried=False)))
            elif not pod.tried:
                self._put_pod(replace(owned, pod=replace(pod, tried=True, answered_s=now_s())))
        elif (node := self.nodes.get(pod.node)) is not None and node.ready:
            self._put_pod(replace(owned, pod=replace(pod, phase=PodPhase.RUNNING, ready=True, started_s=now_s())))

    def _node_for(self, shape: PodShape, planned: str) -> str:
        """The node that the scheduler chooses: the planned one if the pod fits, else any other."""
        for name in sorted(self.nodes, key=lambda n: (n != planned, n)):
            node = self.nodes[name]
            if (
                node.ready
                and not node.cordoned
                and name not in self.shut
                and shape.request.fits(node.allocatable - self._held(name))
            ):
                return name
        return ""

    def _held(self, node: str) -> Any:
        pods = [o.pod for o in self.pods.values()] + list(self.serving.values())
        held = self.nodes[node].reserved
        for pod in pods:
            if pod.node == node and not pod.is_finished:
                held = held + pod.shape.request
        return held

    # --- The watch

    def deliver(self, count: int = 1_000_000) -> None:
        """Deliver watch events to the cache."""
        for _ in range(min(count, len(self.watch))):
            self._show(*self.watch.popleft())

    def lose_event(self) -> None:
        if self.watch:
            self.watch.popleft()

    def repeat_event(self) -> None:
        if self.watch:
            self._show(*self.watch[0])

    def list_again(self) -> None:
        """Replace the cache by a new list."""
        self.buried |= {o.pod.uid for o in self.seen_pods.values()} - {o.pod.uid for o in self.pods.values()}
        self.watch.clear()
        self.seen_jobs, self.seen_pods = dict(self.jobs), dict(self.pods)
        self.lists += 1
        self.changed.set()

    def _tell(self, kind: str, key: Any, value: Any) -> None:
        self.watch.append((kind, key, value))
        if not self.holds_back:
            self.deliver()

    def _show(self, kind: str, key: Any, value: Any) -> None:
        seen: dict[Any, Any] = self.seen_jobs if kind == "job" else self.seen_pods
        if value is None:
            gone = seen.pop(key, None)
            if isinstance(gone, Owned):
                self.buried.add(gone.pod.uid)
        else:
            seen[key] = value
        self.changed.set()

    # --- The API

    def snapshot(self) -> ClusterSnapshot:
        self.expected = [e for e in self.expected if not (self.lists > e.lists or e.is_met())]
        if any(now_s() >= e.due_s for e in self.expected):
            self.list_again()
        if self.expected:
            raise NotSyncedError(f"{len(self.expected)} of our own writes are not seen yet")
        self.changed.clear()
        jobs = tuple(self._with_pods(self.seen_jobs[key].job, self.seen_pods) for key in sorted(self.seen_jobs))
        ours = {pod.uid for job in jobs for pod in job.pods}
        others = [
            replace(o.pod, job=None, role=None)
            for o in self.seen_pods.values()
            if o.pod.uid not in ours and not o.pod.is_finished
        ]
        foreign = sorted((*self.serving.values(), *others), key=lambda p: (p.namespace, p.name))
        nodes = tuple(self.nodes[name] for name in sorted(self.nodes))
        quotas = () if self.hides_quotas else tuple(self.quotas[name] for name in sorted(self.quotas))
        return ClusterSnapshot(now_s(), nodes, tuple(foreign), jobs, self.classes_missing, resource_quotas=quotas)

    def apply(self, action: Action) -> Outcome:
        """Carry out an action as edl.kube and the API server do."""
        self._judge(action)
        faulty = self.fault(action)
        if faulty is not None and not faulty[0]:
            return faulty[1]
        refused = self._over_quota(action) if isinstance(action, CreatePod | ProbePod) else ""
        outcome = Outcome(action, Result.REFUSED, "Forbidden", refused) if refused else self._apply(action)
        if outcome.result is Result.DONE:
            self.writes.append(action)
        return faulty[1] if faulty is not None else outcome

    def _apply(self, action: Action) -> Outcome:
        seen = self.seen_jobs.get(action.job)
        if seen is None or seen.job.uid != action.job_uid:
            return Outcome(action, Result.CONFLICT, "Conflict", "the job is another one now")
        match action:
            case CreatePod():
                return self._create(action, seen.job)
            case MarkPod() | DeletePod():
                return self._delete(action)
            case PatchStatus():
                return self._patch(action, seen)
            case EmitEvent():
                self.events.append(action)
            case DeleteJob():
                self.delete_job(action.job)
            case _:
                return Outcome(action, Result.UNCHANGED)
        return Outcome(action, Result.DONE)

    def _over_quota(self, action: CreatePod | ProbePod) -> str:
        """The API server's words for a pod beyond the quota of its namespace; terminating pods count."""
        quota = self.quotas.get(action.job.namespace)
        if quota is None or action.job not in self.jobs:
            return ""
        job = self.jobs[action.job].job
        shape = next((f.shape for f in job.fixed if f.role is action.role), job.trainer)
        pods = [o.pod for (namespace, _), o in self.pods.items() if namespace == action.job.namespace]
        for resource, hard in quota.hard:
            used = sum(pod.shape.request[resource] for pod in pods if not pod.is_finished)
            if used + dict(quota.others).get(resource, 0) + shape.request[resource] > hard:
                return (
                    f'pods "{action.pod_name}" is forbidden: exceeded quota: {quota.name}, requested: {resource}=...'
                )
        return ""

    def _create(self, action: CreatePod, job: Job) -> Outcome:
        key = (action.job.namespace, action.pod_name)
        there = self.pods.get(key)
        if there is not None:
            is_ours = there.owner == action.job_uid and not there.pod.terminating
            if is_ours:
                self._expect_pod(key, there.pod.uid)
            return Outcome(action, Result.UNCHANGED if is_ours else Result.CONFLICT, "Conflict")
        self.born += 1
        pod = Pod(
            namespace=key[0],
            name=key[1],
            uid=f"pod-{self.born}",
            shape=next((f.shape for f in job.fixed if f.role is action.role), job.trainer),
            planned=action.node or "",
            pinned=action.pinned,
            created_s=now_s(),
            priority=-5,
            job=action.job,
            role=action.role,
            index=action.index,
        )
        self.owners[pod.uid] = action.job_uid
        self._put_pod(Owned(pod, action.job_uid))
        self._expect_pod(key, pod.uid)
        return Outcome(action, Result.DONE)

    def _delete(self, action: MarkPod | DeletePod) -> Outcome:
        key = (action.job.namespace, action.pod)
        owned = self.pods.get(key)
        if owned is None:
            return Outcome(action, Result.UNCHANGED)
        if owned.pod.uid != action.pod_uid:
            return Outcome(action, Result.CONFLICT, "Conflict", "another pod")
        if not (isinstance(action, DeletePod) and action.marked):
            owned = replace(owned, pod=replace(owned.pod, intent=action.intent))
            self._put_pod(owned)
        if isinstance(action, DeletePod):
            if action.force or owned.pod.is_finished or not owned.pod.node:
                self._drop_pod(*key)
            else:
                gone = replace(owned.pod, terminating=True, ready=False)
                self._put_pod(replace(owned, pod=gone, ends_s=now_s() + GRACE_S))
        version = self.pods[key].version if key in self.pods else 0
        self._expect(
            lambda: (
                key not in self.seen_pods
                or self.seen_pods[key].pod.uid != action.pod_uid
                or self.seen_pods[key].version >= version > 0
            )
        )
        return Outcome(action, Result.DONE)

    def _patch(self, action: PatchStatus, seen: Stored) -> Outcome:
        stored = self.jobs.get(action.job)
        if stored is None or stored.version != seen.version:
            return Outcome(action, Result.CONFLICT, "Conflict", "the object has been modified")
        if stored.job.status == action.status:
            return Outcome(action, Result.UNCHANGED)
        self._put_job(replace(stored.job, status=action.status))
        key, version = action.job, self.jobs[action.job].version
        self._expect(lambda: key not in self.seen_jobs or self.seen_jobs[key].version >= version)
        return Outcome(action, Result.DONE)

    def _expect_pod(self, key: PodKey, uid: str) -> None:
        self._expect(lambda: uid in self.buried or (key in self.seen_pods and self.seen_pods[key].pod.uid == uid))

    def _expect(self, is_met: Callable[[], bool]) -> None:
        self.expected.append(Expected(is_met, now_s() + OVERDUE_S, self.lists))

    def _judge(self, action: Action) -> None:
        """Note an action that breaks a rule, whether the API server would refuse it or not."""
        if isinstance(action, MarkPod | DeletePod) and self.owners.get(action.pod_uid) != action.job_uid:
            self.violations.append(f"{action} touches a pod that is not the job's")
        if isinstance(action, CreatePod):
            seen = self.seen_pods.get((action.job.namespace, action.pod_name))
            if seen is not None and seen.owner == action.job_uid:
                self.violations.append(f"{action} takes a name that is in use")
            if action.job in self.seen_jobs:
                self._judge_creation(action, self._with_pods(self.seen_jobs[action.job].job, self.seen_pods))

    def _judge_creation(self, action: CreatePod, job: Job) -> None:
        if job.suspended or job.problem or job.finished:
            self.violations.append(f"{action} for a job that must have no pods")
        if job.fault_tolerant or job.policies:
            return
        if any(p.terminating or p.phase is PodPhase.FAILED or is_deleted_with_job(p) for p in job.pods):
            self.violations.append(f"{action} beside pods of the gang's last run")
        if action.role is Role.TRAINER and action.index >= job.min_trainers:
            self.violations.append(f"{action} has a rank beyond the size of the gang")

    def _with_pods(self, job: Job, pods: dict[PodKey, Owned]) -> Job:
        own = [o.pod for o in pods.values() if o.owner == job.uid]
        own.sort(key=lambda p: (p.role or "", p.index or 0, p.name))
        return replace(job, pods=tuple(own))

    def _put_job(self, job: Job) -> None:
        version = self.jobs[job.key].version + 1 if job.key in self.jobs else 1
        job = replace(job, finished=is_over(job))
        self.jobs[job.key] = Stored(job, version)
        self._tell("job", job.key, self.jobs[job.key])

    def _put_pod(self, owned: Owned) -> None:
        key = (owned.pod.namespace, owned.pod.name)
        self.pods[key] = replace(owned, version=owned.version + 1)
        self._tell("pod", key, self.pods[key])

    def _drop_pod(self, namespace: str, name: str) -> None:
        if self.pods.pop((namespace, name), None) is not None:
            self._tell("pod", (namespace, name), None)
