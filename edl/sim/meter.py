"""Records what happens in a run: how much of the cluster pods use, serving against its target, trainers of each job.

It keeps steps, (time, values) whenever something changes; `measures.py` turns them into the figures of a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from edl.controller.ports import RoundResult
from edl.model.actions import Outcome
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.names import JobKey, Role
from edl.model.plan import ScaleDecision, ScalePlan
from edl.model.pods import Pod, PodPhase
from edl.model.resources import CPU
from edl.sim.deployments import NAMESPACE, Deployment
from edl.sim.training import Training
from edl.sim.world import Engine, World

RESIZE_PAUSE_S = 1.0
"""The longest pause between changes of a job's trainers that count as one resize."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The state of the cluster from one moment until the next sample.

    Attributes:
        at_s: seconds since the start of the scenario.
        requested: cores of running pods, with those of the nodes' own daemons.
        useful: of these cores, those of ready serving pods and of jobs that work.
        target, ready: serving pods.
        trainers: running trainers.
        used: cores that pods can use: what running pods declare, on each node at most what it has.
        slowed: running trainers that lend on a node whose pods declare more than it has.
    """

    at_s: float
    requested: float
    useful: float
    target: int
    ready: int
    trainers: int
    used: float = 0.0
    slowed: int = 0


@dataclass(slots=True)
class Decisions:
    """A `Recorder` that keeps what the figures need.

    Attributes:
        gaps: the gap of each plan; problems: the errors, of which there should be none.
    """

    gaps: list[tuple[float, float]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    cut: int = 0

    async def observed(self, snapshot: ClusterSnapshot, *, leader: bool) -> None:
        """Ignore snapshots."""

    def skipped(self, reason: str) -> None:
        """Note that the cluster could not be observed."""
        self.problems.append(reason)

    async def planned(self, snapshot: ClusterSnapshot, _: Limits, plan: ScalePlan) -> None:
        """Note the quality and duration of a plan."""
        self.gaps.append((snapshot.observed_at_s, plan.certificate.gap))
        self.cut += bool(plan.cut)

    def evicted_early(self, snapshot: ClusterSnapshot, limits: Limits, decisions: Sequence[ScaleDecision]) -> None:
        """Ignore evictions ahead of a plan."""

    def not_planned(self, snapshot: ClusterSnapshot, error: Exception) -> None:
        """Note why no plan was made, or which rule a plan broke."""
        self.problems.append(f"{snapshot.observed_at_s:g} s: {error}")

    def failed(self, what: str, error: BaseException) -> None:
        """Note a bug of edl."""
        self.problems.append(f"{what}: {type(error).__name__}: {error}")

    def postponed(self, what: str) -> None:
        """Ignore postponed actions."""

    def acted(self, outcome: Outcome) -> None:
        """Ignore writes."""

    def ended(self, result: RoundResult, seconds: float) -> None:
        """Ignore the ends of plans."""


@dataclass(slots=True)
class _NodeUse:
    """The CPU that the running pods of a node declare, and the number of trainers among them that lend."""

    capacity: int
    declared: int = 0
    lenders: int = 0

    @property
    def used(self) -> int:
        """The CPU that the pods of the node can use, in millicores."""
        return min(self.capacity, self.declared)

    @property
    def slowed(self) -> int:
        """How many trainers have less CPU than they declare if all pods use all that they declare."""
        return self.lenders if self.declared > self.capacity else 0


@dataclass(slots=True)
class Resizes:
    """Counts resizes: changes of a job's trainers in one direction with short pauses between them are one.

    Attributes:
        count: the changes that the policy made; forced: those by preemption.
    """

    count: int = 0
    forced: int = 0
    _last_s: dict[tuple[JobKey, str], float] = field(default_factory=dict)

    def note(self, job: JobKey, at_s: float, *, grows: bool, is_forced: bool = False) -> None:
        """Note that a trainer started, ended or was preempted."""
        kind = "forced" if is_forced else "grows" if grows else "shrinks"
        last_s = self._last_s.get((job, kind))
        self._last_s[job, kind] = at_s
        if last_s is not None and at_s - last_s <= RESIZE_PAUSE_S:
            return
        self.count += not is_forced
        self.forced += is_forced


@dataclass(slots=True)
class Recording:
    """The events of a run, recorded by a `Meter` or by the observer of a real cluster.

    Attributes:
        samples: in the order of time.
        trainers: by job, (second, running trainers) at each change.
        waits_s: the waiting time of each serving pod, from its creation until it was ready, or until the end.
        resizes: the resizes of running jobs.
        prices: by job, the price of lending that its status had last.
        preempted: running trainers that kube-scheduler ended.
        deleted_s: when each trainer that ran was deleted.
    """

    samples: list[Sample] = field(default_factory=list)
    trainers: dict[JobKey, list[tuple[float, int]]] = field(default_factory=dict)
    waits_s: list[float] = field(default_factory=list)
    resizes: Resizes = field(default_factory=Resizes)
    prices: dict[JobKey, float] = field(default_factory=dict)
    preempted: int = 0
    deleted_s: list[float] = field(default_factory=list)

    def count_trainer(self, job: JobKey, at_s: float, change: int) -> None:
        """Count a trainer that begins to run (1), or ceases (-1)."""
        steps = self.trainers.setdefault(job, [])
        steps.append((at_s, (steps[-1][1] if steps else 0) + change))

    def put(self, sample: Sample) -> None:
        """Note the state of the cluster from a moment on."""
        if self.samples and self.samples[-1].at_s == sample.at_s:
            self.samples[-1] = sample
        else:
            self.samples.append(sample)


class Meter(Recording):
    """Records what happens in a simulated world."""

    def __init__(self, world: World, engine: Engine, training: Training, start_s: float) -> None:
        super().__init__()
        self._world, self._engine, self._training, self._start_s = world, engine, training, start_s
        self._deployments: Sequence[Deployment] = ()
        self._on_node: dict[str, _NodeUse] = {}
        self._used_milli, self._slowed = world.system_milli, 0
        self._running_milli = world.system_milli
        self._foreign_milli = 0
        self._of_job: dict[JobKey, int] = {}
        self._count = 0
        world.listeners.append(self._changed)
        world.job_listeners.append(self._note_price)
        training.listeners.append(self.sample)

    def adopt(self, deployments: Sequence[Deployment]) -> None:
        """Record these Deployments from now on; pods that already run count."""
        self._deployments = deployments
        running = [p for p in self._world.pods.values() if _is_running(p)]
        self._foreign_milli = sum(p.shape.request[CPU] for p in running)
        self._running_milli += self._foreign_milli
        for pod in running:
            self._use(pod, 1)
        self.sample()

    def close(self) -> None:
        """Note the end of the run: serving pods that still wait have waited until now."""
        self.sample()
        now_s = self._engine.now_s()
        waiting = [pod for pod in self._world.pods.values() if pod.namespace == NAMESPACE and pod.is_live]
        self.waits_s += [now_s - pod.created_s for pod in waiting if not _is_running(pod)]

    def _now_s(self) -> float:
        return self._engine.now_s() - self._start_s

    def _changed(self, before: Pod | None, after: Pod | None) -> None:
        was, now = _is_running(before), _is_running(after)
        pod = after or before
        if pod is None:
            return
        if pod.role is Role.TRAINER and pod.job is not None:
            self._note_resize(pod.job, before, after)
            if was and before is not None and before.is_live and (after is None or after.terminating):
                self.deleted_s.append(self._now_s())
        if was and now and before is not None and after is not None:
            self._changed_request(before, after)
        if was == now:
            return
        sign = 1 if now else -1
        self._count_running(pod, sign)
        if pod.job is None and now:
            self.waits_s.append(self._engine.now_s() - pod.created_s)
        if pod.job is not None and pod.role is Role.TRAINER:
            self._count += sign
            self.count_trainer(pod.job, self._now_s(), sign)
        self.sample()

    def _note_price(self, key: JobKey) -> None:
        job = self._world.jobs.get(key)
        price = job.status.measured.lending_price if job is not None and job.status is not None else None
        if price is not None:
            self.prices[key] = price

    def _changed_request(self, before: Pod, after: Pod) -> None:
        """Count a running pod again after its request was resized in place."""
        if before.lent_cpu_milli != after.lent_cpu_milli:
            self._count_running(before, -1)
            self._count_running(after, 1)
            self.sample()

    def _count_running(self, pod: Pod, sign: int) -> None:
        """Add the requests of a pod that begins to run, or subtract those of one that ceases."""
        milli = sign * pod.requested[CPU]
        self._use(pod, sign)
        self._running_milli += milli
        if pod.job is None:
            self._foreign_milli += milli
        else:
            self._of_job[pod.job] = self._of_job.get(pod.job, 0) + milli

    def _use(self, pod: Pod, sign: int) -> None:
        """Update what the pods of a node can use, when a pod begins or ceases to run."""
        here = self._on_node.setdefault(pod.node, _NodeUse(self._world.nodes[pod.node].allocatable[CPU]))
        self._used_milli -= here.used
        self._slowed -= here.slowed
        here.declared += sign * pod.shape.request[CPU]
        here.lenders += sign * bool(pod.lent_cpu_milli)
        self._used_milli += here.used
        self._slowed += here.slowed

    def _note_resize(self, job: JobKey, before: Pod | None, after: Pod | None) -> None:
        run = self._training.runs.get(job)
        if run is None or run.is_over or run.first_running_s is None:
            return
        leaves = before is not None and before.is_live and (after is None or after.terminating)
        if leaves and after is not None and after.disruption:
            self.resizes.note(job, self._now_s(), grows=False, is_forced=True)
            self.preempted += 1
        elif leaves or before is None:
            self.resizes.note(job, self._now_s(), grows=before is None)

    def sample(self) -> None:
        """Note the present state."""
        now_s = self._engine.now_s()
        useful = self._world.system_milli + self._foreign_milli
        useful += sum(
            milli for key, milli in self._of_job.items() if milli and self._training.runs[key].working(now_s)
        )
        self.put(
            Sample(
                now_s - self._start_s,
                self._running_milli / 1000,
                useful / 1000,
                sum(one.target for one in self._deployments),
                sum(one.ready for one in self._deployments),
                self._count,
                self._used_milli / 1000,
                self._slowed,
            )
        )


def _is_running(pod: Pod | None) -> bool:
    return pod is not None and pod.phase is PodPhase.RUNNING
