"""A controller on one node with a planner that the test controls: the world of the tests of its rounds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from edl.controller.loop import Controller, Partners
from edl.controller.pace import Pace
from edl.controller.plan_maker import Planner
from edl.controller.planner_thread import PlannerThread
from edl.model.actions import Action, Outcome
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.limits import Limits, ServingLimits
from edl.model.names import JobKey, Role
from edl.model.plan import Certificate, ScaleDecision, ScalePlan
from edl.model.pods import Pod
from edl.model.status import Reason
from edl.sim.virtual_time import LoopClock, run_virtual
from tests.worlds.builders import make_job, make_node
from tests.worlds.fakes import FakeCluster, FakeLease, FakeRecorder, PodWorld

A, B = JobKey("default", "a"), JobKey("default", "b")
NODE = make_node("n000")
T = TypeVar("T")


@dataclass(frozen=True)
class FittingPod:
    job: JobKey
    role: Role
    node: str


def plan_of(snapshot: ClusterSnapshot, targets: dict[str, int], reason: str = "AtMax") -> ScalePlan:
    """A plan that gives each job its target; the last trainers are the victims."""
    return ScalePlan(tuple(_decide(job, targets.get(job.key.name, 0), reason) for job in snapshot.jobs), _CERTIFICATE)


_CERTIFICATE = Certificate("fulfilment", 1.0, 1.0)


def _decide(job: Job, target: int, reason: str) -> ScaleDecision:
    live = job.live_trainers
    return ScaleDecision(
        job=job.key,
        generation=job.generation,
        current=len(live),
        target=target,
        min_trainers=job.min_trainers,
        max_trainers=job.max_trainers,
        admitted=target > 0,
        reason=Reason.AT_MAX,
        message="as planned",
        victims=tuple(p.name for p in live[target:]),
        nodes=((NODE.name, target - len(live)),) if target > len(live) else (),
        shrink_reason=reason if target < len(live) else "",
    )


class SlowThread(PlannerThread):
    """A planner thread that takes so many seconds of virtual time for each plan, and for what may start."""

    def __init__(self, plan_s: Callable[[], float]) -> None:
        super().__init__()
        self._plan_s = plan_s

    async def run(self, call: Callable[[], T], deadline_s: float) -> T:
        if plan_s := self._plan_s():
            await asyncio.sleep(plan_s)
        return await super().run(call, deadline_s)


@dataclass
class Stage:
    """A controller and everything around it, with a planner that the test controls."""

    targets: dict[str, int] = field(default_factory=dict)
    reason: str = "AtMax"
    world: PodWorld = field(default_factory=PodWorld)
    lease: FakeLease = field(default_factory=FakeLease)
    recorder: FakeRecorder = field(default_factory=FakeRecorder)
    failure: Exception | None = None
    shown: list[ScalePlan] = field(default_factory=list)
    serving: tuple[Pod, ...] = ()
    dry: bool = False
    pace: Pace = field(default_factory=Pace)
    plan_s: float = 0.0

    def __post_init__(self) -> None:
        self.decided = 0
        self.on_decide: Callable[[], object] = lambda: None

    def build(self) -> Controller:
        self.cluster = FakeCluster(self.world, (NODE,), self.serving)
        self.controller = Controller(
            cluster=self.cluster,
            clock=LoopClock(),
            lease=self.lease,
            recorder=self.recorder,
            planner=Planner(
                self._decide, lambda _snapshot, _plan: (), self._startable, lambda: SlowThread(lambda: self.plan_s)
            ),
            limits=Limits(serving=ServingLimits(grace_s=2.0)),
            pace=self.pace,
            partners=Partners(show=(lambda _, plan: self.shown.append(plan)) if self.dry else None),
        )
        return self.controller

    def _decide(self, snapshot: ClusterSnapshot, _: Limits) -> ScalePlan:
        self.decided += 1
        self.on_decide()
        if self.failure is not None:
            raise self.failure
        return replace(plan_of(snapshot, self.targets, self.reason), seconds=self.plan_s)

    def _startable(self, _: ClusterSnapshot, plan: ScalePlan) -> list[FittingPod]:
        new = [(turn, d.job, node) for d in plan.decisions for node, n in d.nodes for turn in range(n)]
        return [FittingPod(job, Role.TRAINER, node) for _, job, node in sorted(new)]

    def alter(self, key: JobKey, **fields: Any) -> None:
        """Change fields of a job; the controller is not woken up."""
        self.world.jobs[key] = replace(self.world.jobs[key], **fields)

    def count(self, key: JobKey) -> int:
        return len(self.world.jobs[key].live_trainers)


def play(stage: Stage, script: Callable[[Controller], Awaitable[None]]) -> None:
    async def main() -> None:
        await script(stage.build())

    run_virtual(main())


@asynccontextmanager
async def at_work(controller: Controller) -> AsyncIterator[None]:
    """The controller runs while the block does; it then stops as after SIGTERM."""
    stop = asyncio.Event()
    running = asyncio.ensure_future(controller.run(stop))
    yield
    stop.set()
    await running


Diary = list[tuple[float, Action]]
"""What was written when; seconds since the controller began to run, to a hundredth."""


def at_work_during(stage: Stage, script: Callable[[], Awaitable[None]]) -> Diary:
    """Let the controller run during the script; returns what it wrote."""
    diary: Diary = []

    async def main(controller: Controller) -> None:
        began_s = asyncio.get_running_loop().time()

        def note(action: Action) -> Outcome | None:
            diary.append((round(asyncio.get_running_loop().time() - began_s, 2), action))
            return None

        stage.cluster.policies = note
        async with at_work(controller):
            await script()

    play(stage, main)
    return diary


def rounds(stage: Stage, count: int = 1) -> None:
    async def script(controller: Controller) -> None:
        for _ in range(count):
            await controller.round()
            stage.world.step()

    play(stage, script)


def with_jobs(**targets: int) -> Stage:
    """Two jobs of four running trainers each."""
    stage = Stage(targets=dict(targets))
    for name in targets:
        stage.world.add(make_job(name, trainers=4, min_trainers=1, on=(NODE.name,)))
    return stage
