"""One random history of a small cluster: jobs, serving, nodes and API calls that go wrong, all from one seed.

The real controller runs in virtual time on a `simulated_cluster`, with the plans of `remembered_plans`. In most
histories it runs as in a cluster, with plans and writes that take time; in each fourth one whole rounds follow each
other. `broken` lists the rules that a history broke; it is empty after a good one. The same seed gives the same
history.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import replace

from edl.controller.loop import Controller
from edl.controller.pace import Pace
from edl.controller.plan_maker import Planner
from edl.lifecycle.status import is_over
from edl.model.actions import Action, EmitEvent, Outcome, Result
from edl.model.jobs import FixedPods, Job
from edl.model.names import JobKey, Role
from edl.model.pods import Pod, PodPhase
from edl.model.resources import Resources
from edl.model.status import Reason
from edl.planner.guard import check
from edl.planner.starts import startable
from edl.sim.virtual_time import InlineRunner, LoopClock, VirtualLoop
from tests.worlds.builders import make_job, make_shape
from tests.worlds.fakes import FakeLease, FakeRecorder
from tests.worlds.histories.reach import NODES, Reach
from tests.worlds.histories.remembered_plans import UNHURRIED, RememberedPlans
from tests.worlds.simulated_cluster import STRANDED_S, World
from tests.worlds.simulated_controller import Crash

A, B = JobKey("default", "a"), JobKey("default", "b")
MOST_EVENTS = 5
STEP_S, SLICES = 10.0, 4
MOST_STEPS = 60
QUIET_STEPS = 5
PLANS_S = (0.0, 0.05, 0.3, 1.0, 3.0)
WRITES_S = (0.0, 0.02, 0.3)
Weather = Callable[[Action], tuple[bool, Outcome] | None]

FAULTS: dict[str, tuple[bool, Result, str, float | None]] = {
    "404": (False, Result.CONFLICT, "NotFound", None),
    "409": (False, Result.CONFLICT, "Conflict", None),
    "422": (False, Result.REFUSED, "Invalid", None),
    "429": (False, Result.FAILED, "TooManyRequests", 1.0),
    "500": (False, Result.FAILED, "InternalError", None),
    "timeout": (False, Result.FAILED, "Timeout", None),
    "timeout after commit": (True, Result.FAILED, "Timeout", None),
    "reset": (False, Result.FAILED, "Unavailable", None),
}
"""How a write goes wrong: whether it takes effect, and what the controller hears. A stale read: the watch is slow."""


class History:
    """A cluster, its controller and what happens to them.

    Attributes:
        broken: the rules that were broken; empty after a good history.
        happened: what happened, by name.
        faults: the ways in which writes went wrong.
    """

    def __init__(self, seed: int, plans: RememberedPlans) -> None:
        self.chance = random.Random(seed)  # noqa: S311 - not a secret
        self.world = World(nodes={node.name: node for node in NODES})
        self.plans = plans
        self.broken: list[str] = []
        self.happened: list[str] = []
        self.faults: set[str] = set()
        self._made = 0
        self.runs = seed % 4 > 0
        self._stop = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._slow_s = self.chance.choice(WRITES_S) if self.runs else 0.0
        self._start()

    def _start(self) -> None:
        """Start a controller."""
        self.reach = Reach(self.world, self.broken, self._slow_s)
        self.recorder = FakeRecorder()
        self.controller = Controller(
            cluster=self.reach,
            clock=LoopClock(),
            lease=FakeLease(),
            recorder=self.recorder,
            planner=Planner(self.plans.decide, check, startable, lambda: InlineRunner(self._plan_s)),
            limits=UNHURRIED,
            pace=Pace(unreachable_s=STRANDED_S, debounce_s=0.3 if self.runs else 0.0, writes=2),
        )
        if self.runs:
            self._stop = asyncio.Event()
            self._running = asyncio.ensure_future(self.controller.run(self._stop))

    def _plan_s(self) -> float:
        return self.chance.choice(PLANS_S) if self.runs else 0.0

    async def play(self) -> None:
        """Let the history happen, then let the cluster come to rest, and judge both."""
        self._add(A)
        await self._step()
        for _ in range(self.chance.randint(2, MOST_EVENTS)):
            happening = self.chance.choice(HAPPENINGS)
            self.happened.append(happening.__name__)
            happening(self)
            if self.runs:  # so that the next one may come while a plan is made
                await self._live_for(self.chance.choice([0.0, 0.1, 1.0, 3.0]))
            for _ in range(self.chance.choice([1, 1, 2])):
                await self._step()
        self._heal()
        await self._rest()
        if self._running is not None:
            self._stop.set()
            await self._running
        self.broken += self.world.violations
        self.broken += [f"at rest: {happened}" for happened in self._at_rest()]

    # Time and the controller

    async def _step(self) -> None:
        if self.runs:
            for _ in range(SLICES):
                await self._live_for(STEP_S / SLICES)
            return
        try:
            await self.controller.round()
        except Crash:
            await asyncio.sleep(0)
        self._start_again()
        await self._live_for(STEP_S)

    async def _live_for(self, duration_s: float) -> None:
        await asyncio.sleep(duration_s)
        self.world.live()
        if not self.reach.alive and self._running is not None:
            await asyncio.gather(self._running, return_exceptions=True)
        self._start_again()

    def _start_again(self) -> None:
        """Start another controller if this one has crashed; it lists everything first."""
        if not self.reach.alive:
            self.world.list_again()
            self._start()

    async def _rest(self) -> None:
        quiet = 0
        for _ in range(MOST_STEPS):
            before = len(self.world.writes), set(self.world.pods)
            await self._step()
            is_quiet = before == (len(self.world.writes), set(self.world.pods)) and not self._waits_for_a_retry()
            quiet = quiet + 1 if is_quiet else 0
            if quiet == QUIET_STEPS:
                return
        self.broken.append(f"the cluster does not come to rest: {self.world.writes[-4:]}")

    def _waits_for_a_retry(self) -> bool:
        """True if a job whose pods were refused has none yet: edl tries again after minutes."""
        jobs = (stored.job for stored in self.world.jobs.values())
        return any(job.status is not None and job.status.reason == Reason.PODS_REFUSED for job in jobs)

    def _heal(self) -> None:
        """No more faults: writes succeed, the watch shows everything, and nodes that are not ready come back."""
        self.world.fault = _no_fault
        self.world.holds_back = False
        self.world.nodes = {n.name: n for n in NODES if n.name in self.world.nodes or self.chance.random() < 0.5}
        self.world.list_again()

    # What happens

    def _add(self, key: JobKey) -> None:
        self._made += 1
        job = replace(make_job(key.name, min_trainers=1, max_trainers=3), uid=f"job-{self._made}", cooldown_s=0.0)
        if key == B:
            pservers = FixedPods(Role.PSERVER, make_shape(0.5), 1)
            job = replace(job, min_trainers=2, max_trainers=2, fault_tolerant=False, fixed=(pservers,))
        self.world.add(replace(job, created_s=asyncio.get_running_loop().time()))

    def a_job_comes(self) -> None:
        for key in (A, B):
            if key not in self.world.jobs:
                self._add(key)
                return

    def a_job_is_deleted(self) -> None:
        if self.world.jobs:
            self.world.delete_job(self.chance.choice(sorted(self.world.jobs)))

    def a_job_is_edited(self) -> None:
        if A in self.world.jobs:
            low, high = self.chance.choice([(1, 2), (2, 3), (1, 3)])
            self.world.edit(A, min_trainers=low, max_trainers=high)

    def a_job_is_suspended_or_resumed(self) -> None:
        if self.world.jobs:
            key = self.chance.choice(sorted(self.world.jobs))
            self.world.edit(key, suspended=not self.world.jobs[key].job.suspended)

    def serving_comes(self) -> None:
        self.world.serve(self.chance.choice(["web-0", "web-1"]), cpu=3)

    def serving_goes(self) -> None:
        if self.world.serving:
            self.world.serving.pop(self.chance.choice(sorted(self.world.serving)))

    def a_node_is_lost(self) -> None:
        self.world.lose_node(self.chance.choice(NODES).name)

    def a_node_is_not_ready(self) -> None:
        node = self.chance.choice(NODES)
        self.world.nodes[node.name] = replace(node, ready=False)

    def the_nodes_come_back(self) -> None:
        self.world.nodes = {node.name: node for node in NODES}

    def a_pod_fails(self) -> None:
        if (pod := self._some_pod()) is not None and pod.phase is PodPhase.RUNNING:
            self.world.finish(pod.name, self.chance.choice([1, 137]))

    def a_pod_is_evicted(self) -> None:
        if (pod := self._some_pod()) is not None and not pod.terminating:
            self.world.take_away(pod.name)

    def a_pod_vanishes(self) -> None:
        if (pod := self._some_pod()) is not None:
            self.world.vanish(pod.name)

    def _some_pod(self) -> Pod | None:
        pods = [owned.pod for _, owned in sorted(self.world.pods.items())]
        return self.chance.choice(pods) if pods else None

    def the_api_fails(self) -> None:
        """From now on some writes go wrong, each in a way of its own."""
        often = self.chance.choice([0.3, 0.7])

        def fault(action: Action) -> tuple[bool, Outcome] | None:
            if isinstance(action, EmitEvent) or self.chance.random() > often:
                return None
            name = self.chance.choice(list(FAULTS))
            self.faults.add(name)
            happens, result, reason, retry_s = FAULTS[name]
            return happens, Outcome(action, result, reason, "a fault", retry_after_s=retry_s)

        self.world.fault = fault

    def the_api_recovers(self) -> None:
        self.world.fault = _no_fault

    def the_watch_is_slow(self) -> None:
        self.world.holds_back = not self.world.holds_back
        if not self.world.holds_back:
            self.world.deliver()

    def the_watch_loses_or_repeats_an_event(self) -> None:
        self.world.holds_back = True
        self.chance.choice([World.lose_event, World.repeat_event])(self.world)

    def the_controller_crashes(self) -> None:
        self.reach.dies_at = self.reach.wrote + self.chance.randint(1, 4)

    def something_urgent_changes(self) -> None:
        """After some of the next writes something changes that cannot wait."""
        self.reach.urges_at = self.reach.wrote + self.chance.randint(1, 4)

    # What must hold at rest

    def _at_rest(self) -> Iterator[str]:
        free = {name: self.world._held(name) for name in self.world.nodes}
        free = {name: node.allocatable - free[name] for name, node in self.world.nodes.items()}
        yield from self._serving_at_rest(free)
        for key in self.world.jobs:
            yield from self._job_at_rest(self.world.job(key), free)
        yield from (f"a round failed: {happened}" for happened in self.recorder.failures)

    def _serving_at_rest(self, free: dict[str, Resources]) -> Iterator[str]:
        trainers = [owned.pod for owned in self.world.pods.values()]
        for name, room in free.items():
            for pod in trainers:
                if pod.node == name and not pod.is_finished and pod.role is Role.TRAINER:
                    room = room + pod.shape.request  # noqa: PLW2901 - summed up
            for pod in self.world.serving.values():
                if not pod.node and pod.shape.request.fits(room):
                    yield f"serving pod {pod.name} waits, and trainers hold its capacity on {name}"

    def _job_at_rest(self, job: Job, free: dict[str, Resources]) -> Iterator[str]:
        live = len(job.live_trainers)
        if job.status is None or job.status.observed_generation != job.generation:
            yield f"{job.key} has no status of its generation"
        elif job.suspended or is_over(job):
            yield from (f"{job.key} has pod {pod.name} though it must have none" for pod in job.pods if pod.is_live)
        elif live == 0:
            if sum(_copies(job.trainer.request, room) for room in free.values()) > job.min_trainers and not job.fixed:
                yield f"{job.key} is lost: it has no trainers, and its minimum fits ({job.status.explanation})"
        elif not job.min_trainers <= live <= job.max_trainers:
            yield f"{job.key} has {live} trainers, not {job.min_trainers} to {job.max_trainers}"
        elif any(pod.phase is not PodPhase.RUNNING for pod in job.pods if pod.is_live):
            yield f"a pod of {job.key} does not run"


def _copies(request: Resources, room: Resources) -> int:
    count = 0
    while request.fits(room):
        room, count = room - request, count + 1
    return count


def _no_fault(_: Action) -> tuple[bool, Outcome] | None:
    return None


HAPPENINGS = (
    History.a_job_comes,
    History.a_job_is_deleted,
    History.a_job_is_edited,
    History.a_job_is_suspended_or_resumed,
    History.serving_comes,
    History.serving_comes,
    History.serving_goes,
    History.a_node_is_lost,
    History.a_node_is_not_ready,
    History.the_nodes_come_back,
    History.a_pod_fails,
    History.a_pod_is_evicted,
    History.a_pod_vanishes,
    History.the_api_fails,
    History.the_api_fails,
    History.the_api_recovers,
    History.the_watch_is_slow,
    History.the_watch_loses_or_repeats_an_event,
    History.the_controller_crashes,
    History.something_urgent_changes,
    History.something_urgent_changes,
)


def play(seeds: range, plans: RememberedPlans) -> list[History]:
    """Play one history for each seed."""

    async def one(seed: int) -> History:
        history = History(seed, plans)
        await history.play()
        return history

    loop = VirtualLoop()
    loop.ignore_threads()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        try:
            return [runner.run(one(seed)) for seed in seeds]
        finally:
            loop.watch_threads()
