"""Fakes of the controller's ports: pods, a lease, a recorder.

The pods behave like those of a cluster: names are unique, a UID is never reused, a running pod that is deleted first
terminates, and a refused action returns an Outcome.
"""

from __future__ import annotations

import asyncio
from bisect import insort
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from edl.controller.ports import RoundResult
from edl.errors import NotSyncedError, PlanFailure
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
from edl.model.cluster import ClusterSnapshot, Node
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.names import JobKey, Role
from edl.model.plan import ScaleDecision, ScalePlan
from edl.model.pods import Pod, PodPhase
from edl.model.resources import PodShape
from edl.planner.fallback import failure_of
from edl.planner.guard import RefusedPlanError
from edl.waiting import is_set_within

T = TypeVar("T")


@dataclass
class PodWorld:
    """Jobs and their pods. Actions, `step` and the tests change them."""

    jobs: dict[JobKey, Job] = field(default_factory=dict)
    events: list[EmitEvent] = field(default_factory=list)
    writes: list[Action] = field(default_factory=list)
    born: int = 0

    def add(self, job: Job) -> None:
        self.jobs[job.key] = replace(job, pods=tuple(sorted(job.pods, key=_place)))

    def pods(self, key: JobKey) -> dict[str, Pod]:
        return {pod.name: pod for pod in self.jobs[key].pods}

    def put(self, key: JobKey, pod: Pod) -> None:
        """Replace or add a pod."""
        pods = [one for one in self.jobs[key].pods if one.name != pod.name]
        insort(pods, pod, key=_place)  # jobs have thousands of pods here, and get them one by one
        self.jobs[key] = replace(self.jobs[key], pods=tuple(pods))

    def change(self, key: JobKey, name: str, **fields: Any) -> None:
        """Change fields of a pod."""
        self.put(key, replace(self.pods(key)[name], **fields))

    def drop(self, key: JobKey, name: str) -> None:
        pods = tuple(pod for pod in self.jobs[key].pods if pod.name != name)
        self.jobs[key] = replace(self.jobs[key], pods=pods)

    def finish(self, key: JobKey, name: str, exit_code: int = 0) -> None:
        """Let a pod exit."""
        phase = PodPhase.SUCCEEDED if exit_code == 0 else PodPhase.FAILED
        self.change(key, name, phase=phase, exit_code=exit_code, ready=False)

    def preempt(self, key: JobKey, name: str) -> None:
        self.change(key, name, terminating=True, ready=False, disruption="PreemptionByScheduler")

    def step(self, node: str = "n000") -> None:
        """Remove terminating pods and start pending ones."""
        for key, job in list(self.jobs.items()):
            for pod in job.pods:
                if pod.terminating:
                    self.drop(key, pod.name)
                elif pod.phase is PodPhase.PENDING:
                    self.change(
                        key, pod.name, phase=PodPhase.RUNNING, ready=True, node=pod.planned or node, started_s=1.0
                    )

    def apply(self, action: Action) -> Outcome:
        """Carry out one action as the API server does."""
        if isinstance(action, ProbePod):
            return Outcome(action, Result.UNCHANGED)
        self.writes.append(action)
        job = self.jobs.get(action.job)
        if job is None or job.uid != action.job_uid:
            return Outcome(action, Result.CONFLICT, "Conflict", "no such job")
        match action:
            case CreatePod():
                return self._create(job, action)
            case MarkPod() | DeletePod():
                return self._delete(action)
            case PatchStatus():
                self.jobs[job.key] = replace(job, status=action.status)
            case EmitEvent():
                self.events.append(action)
            case DeleteJob():
                del self.jobs[job.key]
        return Outcome(action, Result.DONE)

    def _create(self, job: Job, action: CreatePod) -> Outcome:
        if action.pod_name in [pod.name for pod in job.pods]:
            return Outcome(action, Result.CONFLICT, "AlreadyExists", "the name is taken")
        self.born += 1
        pod = Pod(
            namespace=job.key.namespace,
            name=action.pod_name,
            uid=f"uid-{self.born}",
            shape=_shape(job, action.role),
            planned=action.node or "",
            job=job.key,
            role=action.role,
            index=action.index,
        )
        self.put(job.key, pod)
        return Outcome(action, Result.DONE)

    def _delete(self, action: MarkPod | DeletePod) -> Outcome:
        pod = self.pods(action.job).get(action.pod)
        if pod is None:
            return Outcome(action, Result.UNCHANGED)
        if pod.uid != action.pod_uid:
            return Outcome(action, Result.CONFLICT, "Conflict", "another pod")
        if not (isinstance(action, DeletePod) and action.marked):
            self.change(action.job, pod.name, intent=action.intent)
        if isinstance(action, DeletePod):
            if action.force or pod.is_finished or not pod.node:
                self.drop(action.job, pod.name)
            else:
                self.change(action.job, pod.name, terminating=True, ready=False)
        return Outcome(action, Result.DONE)


def _place(pod: Pod) -> tuple[str, int, str]:
    """Where a pod stands among those of its job."""
    return pod.role or "", pod.index or 0, pod.name


def _shape(job: Job, role: Role) -> PodShape:
    return next((f.shape for f in job.fixed if f.role is role), job.trainer)


class FakeCluster:
    """A Cluster on a PodWorld.

    Attributes:
        policies: called first for each action; if it returns an Outcome, the PodWorld is not changed.
        problem: if set, `observe` raises NotSyncedError with this message.
    """

    def __init__(self, world: PodWorld, nodes: tuple[Node, ...] = (), serving: tuple[Pod, ...] = ()) -> None:
        self.world, self.nodes, self._serving = world, nodes, serving
        self.problem = ""
        self.policies: Callable[[Action], Outcome | None] = lambda _: None
        self.on_observe: Callable[[], None] = lambda: None
        self.observed = 0
        self.missing_priority_classes: tuple[str, ...] = ()
        self._changed = asyncio.Event()
        self._urgent: set[str] = set()
        self._in_need = 0
        self.under_way, self.delay_s = 0, 0.01
        self.most_under_way = 0
        self.in_turn: asyncio.Lock | None = None
        """If set, `delay_s` passes for one request after the other: the server has as much to do as it can."""

    @property
    def serving(self) -> tuple[Pod, ...]:
        """The serving pods; whoever sets them wakes up the controller."""
        return self._serving

    @serving.setter
    def serving(self, pods: tuple[Pod, ...]) -> None:
        self._serving = pods
        self.touch()

    def touch(self) -> None:
        """Wake up the controller."""
        self._changed.set()

    def urge(self, namespace: str = "default", *, in_need: bool = False) -> None:
        """Something has changed that cannot wait; `in_need`: for a serving pod that only edl may help."""
        self._changed.set()
        self._urgent.add(namespace)
        self._in_need += in_need

    def urgent_changes(self) -> frozenset[str]:
        urgent, self._urgent = frozenset(self._urgent), set()
        return urgent

    async def observe(self) -> ClusterSnapshot:
        self.on_observe()
        if self.problem:
            raise NotSyncedError(self.problem)
        self.observed += 1
        self._changed.clear()
        return ClusterSnapshot(
            observed_at_s=asyncio.get_running_loop().time(),
            nodes=self.nodes,
            pods=self._serving,
            jobs=tuple(self.world.jobs[key] for key in sorted(self.world.jobs)),
            missing_priority_classes=self.missing_priority_classes,
        )

    async def wait_for_change(self, timeout_s: float) -> bool:
        return await is_set_within(self._changed, timeout_s)

    async def apply(self, action: Action) -> Outcome:
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        async with self.in_turn or nullcontext():
            await asyncio.sleep(self.delay_s)
        self.under_way -= 1
        return self.policies(action) or self.world.apply(action)


@dataclass
class FakeLease:
    """A lease that a test sets to held or lost."""

    held: bool = True

    def is_held(self) -> bool:
        return self.held


@dataclass
class FakeRecorder:
    """A recorder that keeps everything it is given."""

    results: list[RoundResult] = field(default_factory=list)
    skips: list[str] = field(default_factory=list)
    snapshots: list[ClusterSnapshot] = field(default_factory=list)
    views: list[ClusterSnapshot] = field(default_factory=list)
    limits: list[Limits] = field(default_factory=list)
    plans: list[ScalePlan] = field(default_factory=list)
    searches: list[tuple[ClusterSnapshot, tuple[ScaleDecision, ...]]] = field(default_factory=list)
    refusals: list[ScalePlan] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    undecided_by: list[PlanFailure] = field(default_factory=list)
    put_off: list[str] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    leads: list[bool] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    async def observed(self, snapshot: ClusterSnapshot, *, leader: bool) -> None:
        self.snapshots.append(snapshot)
        self.leads.append(leader)

    def skipped(self, reason: str) -> None:
        self.skips.append(reason)

    async def planned(self, snapshot: ClusterSnapshot, limits: Limits, plan: ScalePlan) -> None:
        self.snapshots.append(snapshot)
        self.views.append(snapshot)
        self.limits.append(limits)
        self.plans.append(plan)

    def evicted_early(self, snapshot: ClusterSnapshot, _: Limits, decisions: Sequence[ScaleDecision]) -> None:
        self.searches.append((snapshot, tuple(decisions)))

    def not_planned(self, snapshot: ClusterSnapshot, error: Exception) -> None:
        self.snapshots.append(snapshot)
        self.undecided_by.append(failure_of(error))
        if isinstance(error, RefusedPlanError):
            self.refusals.append(error.plan)
            self.problems += error.problems
        else:
            self.failures.append(f"plan: {error}")

    def failed(self, what: str, error: BaseException) -> None:
        self.failures.append(f"{what}: {error}")

    def postponed(self, what: str) -> None:
        self.put_off.append(what)

    def acted(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)

    def ended(self, result: RoundResult, seconds: float) -> None:
        self.results.append(result)
        self.seconds.append(seconds)


class Compared(str):
    """A name that counts how often it is compared: a cost that no clock has to measure."""

    __slots__ = ()
    times = 0

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__
