"""A job that fills two nodes, serving pods that come, and a planner whose plan takes two virtual seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from edl.controller.loop import Controller
from edl.controller.pace import Pace
from edl.controller.plan_maker import Planner
from edl.controller.policy_planner import PolicyPlanner
from edl.model.actions import Action, CreatePod, DeletePod, Outcome
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import SERVING_GRACE_S, Limits, ServingLimits
from edl.model.plan import ScaleDecision, ScalePlan
from edl.model.pods import Pod
from edl.planner.guard import check
from edl.planner.policies.registry import policy_named
from edl.sim.virtual_time import LoopClock, run_virtual
from tests.controller.loop_stage import at_work
from tests.worlds.builders import make_job, make_nodes, make_serving
from tests.worlds.fakes import FakeCluster, FakeLease, FakeRecorder, PodWorld

PLAN_S, FIND_S = 2.0, 0.1

COME_S = 21.0
"""Between two plans: at rest one is due each five seconds."""
T = TypeVar("T")


@dataclass
class Scene:
    """One job that fills two nodes of 8 cores, and what the controller wrote, with the seconds since the start.

    It is also the planner thread: a plan takes `plan_s`.
    """

    plan_s: float = PLAN_S
    trainers: int = 16
    max_trainers: int = 16
    cpu: float = 1
    delay_s: float = 0.01
    writes: int = 64
    nodes: int = 2
    world: PodWorld = field(default_factory=PodWorld)
    lease: FakeLease = field(default_factory=FakeLease)
    recorder: FakeRecorder = field(default_factory=FakeRecorder)
    diary: list[tuple[float, Action]] = field(default_factory=list)
    planned: list[float] = field(default_factory=list)
    searches: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        job = make_job("a", trainers=self.trainers, max_trainers=self.max_trainers, on=("n000", "n001"), cpu=self.cpu)
        self.world.add(job)
        self.planner = PolicyPlanner(policy_named("maxmin"))
        self.cluster = FakeCluster(self.world, make_nodes(self.nodes))
        self.cluster.delay_s = self.delay_s
        self.asked = 0
        self.has_searched, self.has_created = asyncio.Event(), asyncio.Event()

    @property
    def now_s(self) -> float:
        return round(asyncio.get_running_loop().time() - self.began_s, 2)

    def build(self) -> Controller:
        self.began_s = asyncio.get_running_loop().time()

        def note(action: Action) -> Outcome | None:
            self.diary.append((self.now_s, action))
            if isinstance(action, CreatePod):
                self.has_created.set()
            return None

        self.cluster.policies = note
        return Controller(
            cluster=self.cluster,
            clock=LoopClock(),
            lease=self.lease,
            recorder=self.recorder,
            planner=Planner(
                self.decide,
                check,
                self.planner.startable,
                lambda: self,
                early_evictions=self.early_evictions,
            ),
            limits=Limits(serving=ServingLimits(grace_s=SERVING_GRACE_S)),
            pace=Pace(writes=self.writes),
        )

    def decide(self, snapshot: ClusterSnapshot, limits: Limits) -> ScalePlan:
        return replace(self.planner.decide(snapshot, limits), seconds=self.plan_s)

    def early_evictions(self, snapshot: ClusterSnapshot, limits: Limits) -> tuple[ScaleDecision, ...]:
        self.asked += 1
        return self.planner.early_evictions(snapshot, limits)

    async def run(self, call: Callable[[], T], deadline_s: float) -> T:
        assert deadline_s > self.plan_s
        result = call()
        if not isinstance(result, ScalePlan):
            if isinstance(result, tuple) and any(isinstance(one, ScaleDecision) for one in result):
                self.searches.append(self.now_s)
                self.has_searched.set()
                await asyncio.sleep(FIND_S)
            return result
        await asyncio.sleep(self.plan_s)
        self.planned.append(self.now_s)
        return result

    def serve(self, *pods: Pod) -> None:
        """Serving pods come that kube-scheduler has no room for."""
        self.cluster.serving += tuple(replace(pod, tried=True, created_s=self.now_s) for pod in pods)
        self.cluster.urge()

    def come(self, *pods: Pod) -> None:
        """Serving pods come that kube-scheduler has not tried yet, and that must not preempt."""
        now_s = asyncio.get_running_loop().time()
        self.cluster.serving += tuple(replace(pod, created_s=now_s, may_preempt=False) for pod in pods)
        self.cluster.urge()

    def say(self, *, no_room: bool = True) -> None:
        """kube-scheduler has tried all pods: it has no room for any, or room for each."""
        say = {"tried": True} if no_room else {"nominated": "n000"}
        self.cluster.serving = tuple(replace(pod, **say) for pod in self.cluster.serving)
        self.cluster.urge()

    def deleted(self) -> list[float]:
        return [at for at, action in self.diary if isinstance(action, DeletePod)]


def play(scene: Scene, script: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with at_work(scene.build()):
            await script()

    run_virtual(main())


def wide(name: str = "s", cpu: float = 3) -> Pod:
    return make_serving(name, cpu=cpu)


def after(*comes: tuple[float, tuple[Pod, ...]], scene: Scene) -> Callable[[], Awaitable[None]]:
    """Pods come at these times; the script ends ten seconds after the last of them."""

    async def script() -> None:
        for at_s, pods in comes:
            await asyncio.sleep(at_s - scene.now_s)
            scene.serve(*pods)
        await asyncio.sleep(10.0)

    return script
