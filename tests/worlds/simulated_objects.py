"""The true objects of a simulated cluster, and a cache that lags behind them.

Watch events update the cache; they may come late, twice or never. Like the real cache, it stores the answer to each
write of the controller, and of two states of an object it keeps the later one.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, TypeVar

from edl.lifecycle.status import is_over
from edl.model.actions import (
    Action,
    EmitEvent,
    Outcome,
)
from edl.model.cluster import ClusterSnapshot, Node, ResourceQuota
from edl.model.jobs import Job
from edl.model.names import JobKey
from edl.model.pods import Pod, PodPhase
from edl.model.queues import Queue
from tests.worlds.builders import make_serving
from tests.worlds.job_owner import JobOwner, as_read

T = TypeVar("T")
GRACE_S = 5.0


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


def now_s() -> float:
    return asyncio.get_running_loop().time()


PodKey = tuple[str, str]


@dataclass
class Objects:
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
    queues: tuple[Queue, ...] = ()  # by name
    holds_serving: bool = False  # no scheduler serves the serving pods
    shut: set[str] = field(default_factory=set)  # nodes on which no pod starts, for a reason that no object shows
    fate: Callable[[Pod], dict[str, Any] | None] = field(
        default=lambda _: None
    )  # fields of a pod that does not start
    crash_s: Callable[[Pod], float] = field(default=lambda _: inf)  # how long a pod runs before it exits with code 1
    job_owner: JobOwner = field(default_factory=JobOwner)  # of workloads that are no TrainingJobs
    fault: Callable[[Action], tuple[bool, Outcome] | None] = field(default=lambda _: None)

    def __post_init__(self) -> None:
        self.seen_jobs: dict[JobKey, Stored] = {}
        self.seen_pods: dict[PodKey, Owned] = {}
        self.watch: deque[tuple[str, Any, Any, int]] = deque()
        self.buried: dict[tuple[str, Any], int] = {}  # the version at which the cache saw an object of that name go
        self.born = self.revision = 0
        self._shown: dict[JobKey, tuple[Stored, list[Owned], Job]] = {}  # the jobs of the last snapshot
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
            self.revision += 1
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
        self.watch.clear()
        self.seen_jobs, self.seen_pods = dict(self.jobs), dict(self.pods)
        self.changed.set()

    def _tell(self, kind: str, key: Any, value: Any) -> None:
        self.watch.append((kind, key, value, self.revision))
        if not self.holds_back:
            self.deliver()

    def _show(self, kind: str, key: Any, value: Any, revision: int) -> None:
        seen: dict[Any, Any] = self.seen_jobs if kind == "job" else self.seen_pods
        known = seen[key].version if key in seen else self.buried.get((kind, key), 0)
        if revision <= known:
            return
        if value is None:
            seen.pop(key, None)
            self.buried[kind, key] = revision
        else:
            seen[key] = value
        self.changed.set()

    def take_answer(self, kind: str, key: Any) -> None:
        """Show the controller an object as it is now, ahead of its watch."""
        true: Any = (self.jobs if kind == "job" else self.pods).get(key)
        self._show(kind, key, true, self.revision if true is None else true.version)

    # --- What the controller reads

    def snapshot(self) -> ClusterSnapshot:
        self.changed.clear()
        self._shown = {key: self._shown_job(key) for key in sorted(self.seen_jobs)}
        jobs = tuple(job for _, _, job in self._shown.values())
        ours = {pod.uid for job in jobs for pod in job.pods}
        others = [
            replace(o.pod, job=None, role=None)
            for o in self.seen_pods.values()
            if o.pod.uid not in ours and not o.pod.is_finished
        ]
        foreign = sorted((*self.serving.values(), *others), key=lambda p: (p.namespace, p.name))
        nodes = tuple(self.nodes[name] for name in sorted(self.nodes))
        quotas = () if self.hides_quotas else tuple(self.quotas[name] for name in sorted(self.quotas))
        missing = self.classes_missing
        return ClusterSnapshot(
            now_s(), nodes, tuple(foreign), jobs, missing, resource_quotas=quotas, queues=self.queues
        )

    def _shown_job(self, key: JobKey) -> tuple[Stored, list[Owned], Job]:
        """A job as the cache shows it; the same object as in the last snapshot if it has not changed."""
        stored, known = self.seen_jobs[key], self._shown.get(key)
        own = [owned for owned in self.seen_pods.values() if owned.owner == stored.job.uid]
        if known is not None and known[0] is stored and list(map(id, known[1])) == list(map(id, own)):
            return known
        return stored, own, as_read(self._with_pods(stored.job, self.seen_pods))

    def _with_pods(self, job: Job, pods: dict[PodKey, Owned]) -> Job:
        own = [o.pod for o in pods.values() if o.owner == job.uid]
        own.sort(key=lambda p: (p.role or "", p.index or 0, p.name))
        return replace(job, pods=tuple(own))

    def _put_job(self, job: Job) -> None:
        self.revision += 1
        job = replace(job, finished=is_over(job))
        self.jobs[job.key] = Stored(job, self.revision)
        self._tell("job", job.key, self.jobs[job.key])

    def _put_pod(self, owned: Owned) -> None:
        key = (owned.pod.namespace, owned.pod.name)
        self.revision += 1
        self.pods[key] = replace(owned, version=self.revision)
        self._tell("pod", key, self.pods[key])

    def _drop_pod(self, namespace: str, name: str) -> None:
        if self.pods.pop((namespace, name), None) is not None:
            self.revision += 1
            self._tell("pod", (namespace, name), None)
