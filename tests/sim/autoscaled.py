"""A small cluster in virtual time with an autoscaler: a node comes some seconds after a pod that only it could take.

The autoscaler is the simplest that has the behaviour of Cluster Autoscaler: it reads pods without a node, and never
what edl decided. A node that holds nothing for a while leaves.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from edl.controller.loop import Controller
from edl.controller.pace import Pace
from edl.controller.plan_maker import Planner
from edl.explain.decision import decide
from edl.lifecycle.status import is_over
from edl.model.cluster import ClusterSnapshot, Node
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.names import JobKey
from edl.model.node_groups import NodeGroup, ScaleUp
from edl.model.plan import ScalePlan
from edl.model.pods import Pod
from edl.model.resources import CPU, MEMORY, PODS, PodShape, Resources
from edl.planner.eligibility import takes
from edl.planner.guard import check
from edl.planner.policies.registry import policy_named
from edl.planner.starts import startable
from edl.sim.kubelet import Kubelet
from edl.sim.meter import Decisions
from edl.sim.port import SimulatedCluster, remove_job
from edl.sim.scenario import LatencySpec, SchedulerSpec
from edl.sim.scheduler import Scheduler
from edl.sim.virtual_time import InlineRunner, LoopClock, run_virtual
from edl.sim.world import Engine, World

GIB = 2**30
COME_S, LEAVE_S = 90.0, 120.0
LABELS = (("pool", "spot"),)
ONE_NODE = Resources.of({CPU: 4000, MEMORY: 16 * GIB, PODS: 110})
SPOT = NodeGroup("spot", ONE_NODE, LABELS, price_per_hour=0.2, limit=4, come_s=COME_S)


def shape(cpu_milli: int = 1000) -> PodShape:
    """The shape of a pod."""
    return PodShape(Resources.of({CPU: cpu_milli, MEMORY: GIB, PODS: 1}))


def job(name: str, low: int, high: int, scale_up: ScaleUp = ScaleUp.NEVER, **more: Any) -> Job:
    """A fault-tolerant job whose trainers request one core."""
    key = JobKey("training", name)
    return Job(key, f"job-{name}", low, high, trainer=shape(), scale_up=scale_up, **more)


@dataclass
class Autoscaled:
    """A cluster with two nodes of its own, and four of group spot that come and go.

    Attributes:
        arrivals: (second, node) of each node that came; departures: of each that left.
        comes: whether the cloud has nodes at all.
    """

    limits: Limits
    own: int = 2
    comes: bool = True
    arrivals: list[tuple[float, str]] = field(default_factory=list)
    departures: list[tuple[float, str]] = field(default_factory=list)
    most_requests: int = 0
    plans: list[ScalePlan] = field(default_factory=list)

    def run(self, play: Callable[[Autoscaled], Coroutine[Any, Any, None]]) -> None:
        """Run the controller and the autoscaler while `play` submits and removes jobs."""
        run_virtual(self._run(play))

    async def _run(self, play: Callable[[Autoscaled], Coroutine[Any, Any, None]]) -> None:
        loop = asyncio.get_running_loop()
        self.engine = Engine(loop.time, loop.call_later, random.Random(1))  # noqa: S311
        own = [Node(f"own-{i}", ONE_NODE, (("pool", "own"),)) for i in range(self.own)]
        spot = [Node(f"spot-{i}", ONE_NODE, LABELS) for i in range(SPOT.limit)]
        self.world = World([*own, *spot])
        for node in spot:
            self.world.remove_node(node.name)
        Kubelet(self.world, self.engine, LatencySpec())
        self.scheduler = Scheduler(self.world, self.engine, SchedulerSpec())
        self.recorder = Decisions()
        self._coming: dict[str, str] = {}
        self._empty_since: dict[str, float] = {}
        stop = asyncio.Event()
        tasks = [asyncio.create_task(self._controller().run(stop)), asyncio.create_task(self._autoscale())]
        await play(self)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert self.recorder.problems == []

    def _controller(self) -> Controller:
        policy = policy_named("")

        def make(snapshot: ClusterSnapshot, limits: Limits) -> ScalePlan:
            plan = decide(snapshot, policy, limits)
            self.plans.append(plan)
            return plan

        return Controller(
            cluster=SimulatedCluster(self.world, self.engine, LatencySpec()),
            clock=LoopClock(),
            lease=_Held(),
            recorder=self.recorder,
            planner=Planner(make, lambda s, plan: check(s, plan, self.limits.quotas), startable, InlineRunner),
            limits=self.limits,
            pace=Pace(),
        )

    # --- The autoscaler

    async def _autoscale(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            waiting = [pod for pod in self.world.pods.values() if not pod.node and pod.is_live and pod.tried]
            self.most_requests = max(self.most_requests, len(self.world.asks))
            for pod in waiting:
                self._add_for(pod)
            self._remove_empty()

    def _add_for(self, pod: Pod) -> None:
        away = [n for n in self.world.names if n.startswith("spot") and not self.is_there(n)]
        away = [name for name in away if name not in self._coming.values()]
        fits = away and takes(self.world.nodes[away[0]], pod.shape.placement) and pod.shape.request.fits(ONE_NODE)
        if (
            self.comes
            and fits
            and not self._has_capacity(pod)
            and pod.priority >= -10
            and pod.uid not in self._coming
        ):
            self._coming[pod.uid] = away[0]
            self.engine.later(COME_S, lambda: self._arrive(pod.uid))

    def _has_capacity(self, pod: Pod) -> bool:
        """True if the pod fits on a node that exists: then its scheduler is about to bind it."""
        wanted = self.world.request_of(pod)
        assert wanted is not None
        fits = np.all(self.world.allocatable - self.world.used >= wanted, axis=1)
        return bool((fits & self.world.eligible(pod.shape.placement)).any())

    def _arrive(self, uid: str) -> None:
        name = self._coming.pop(uid)
        self.arrivals.append((self.engine.now_s(), name))
        self.world.return_node(name)
        self.scheduler.node_came(name)

    def _remove_empty(self) -> None:
        now_s = self.engine.now_s()
        for name in self.world.names:
            if not (name.startswith("spot") and self.is_there(name)) or self.world.on_node[name]:
                self._empty_since.pop(name, None)
            elif now_s - self._empty_since.setdefault(name, now_s) >= LEAVE_S:
                self.departures.append((now_s, name))
                del self._empty_since[name]
                self.world.remove_node(name)

    # --- What a test does and sees

    def is_there(self, node: str) -> bool:
        """True if the node exists now."""
        return bool(self.world.ready_nodes[self.world.row[node]])

    def submit(self, job: Job) -> None:
        """Create a job now."""
        self.world.put_job(replace(job, created_s=self.engine.now_s()))

    def remove(self, name: str) -> None:
        """Delete a job."""
        remove_job(self.world, JobKey("training", name))

    def trainers(self, name: str) -> int:
        """Running trainers of a job."""
        key = JobKey("training", name)
        return sum(p.ready for p in self.world.job(key).live_trainers) if key in self.world.jobs else 0

    def explanation(self, name: str) -> str:
        """What the status of the job says."""
        found = self.world.job(JobKey("training", name))
        assert not is_over(found)
        assert found.status is not None
        return found.status.explanation

    def nodes_there(self) -> int:
        """How many nodes of the group exist."""
        return sum(self.is_there(name) for name in self.world.names if name.startswith("spot"))


class _Held:
    def is_held(self) -> bool:
        """Always true."""
        return True
