"""The real controller and planner on a `simulated_cluster`, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any, TypeVar

from edl.controller.loop import Controller, Partners
from edl.controller.pace import Pace
from edl.controller.plan_maker import Planner
from edl.controller.policy_planner import PolicyPlanner
from edl.controller.ports import QueueReporter
from edl.model.actions import Action, CreatePod, DeletePod, EmitEvent, MarkPod, Outcome, PatchStatus, Result
from edl.model.cluster import ClusterSnapshot, Node
from edl.model.limits import Limits
from edl.model.names import JobKey
from edl.model.status import JobStatus
from edl.planner.guard import check
from edl.planner.policies.registry import policy_named
from edl.sim.virtual_time import InlineRunner, LoopClock, VirtualLoop
from tests.worlds.fakes import FakeLease, FakeRecorder
from tests.worlds.simulated_cluster import STRANDED_S, World
from tests.worlds.write_rules import WriteRules

T = TypeVar("T")
LIMITS = Limits()
SLOW = CreatePod | DeletePod | MarkPod | PatchStatus
"""What takes longer on a slow server."""


class Crash(BaseException):
    """The controller crashes; it is no Exception, so that the controller cannot catch it."""


class Access:
    """The Cluster port of one controller; it ends when that controller crashes.

    A status takes longer to write than a pod, so that pods written at the same time come first.

    Attributes:
        effects: for each action, whether it changed the cluster.
        kill_at: (index of an action, whether it still takes effect) at which the controller crashes.
        meanwhile: (index of an action, what happens when it begins); once.
        delay_s: how much longer than usual each write of a pod or a status takes.
        begun: how many writes have begun.
        rules: judges each action.
    """

    def __init__(self, world: World, rules: WriteRules) -> None:
        self.world, self.rules = world, rules
        self.meanwhile: tuple[int, Callable[[], None]] | None = None
        self.delay_s, self.begun = 0.0, 0
        self._urged: set[str] = set()
        self.effects: list[bool] = []
        self.kill_at: tuple[int, bool] | None = None
        self.alive = True

    async def observe(self) -> ClusterSnapshot:
        return self.world.snapshot()

    async def wait_for_change(self, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await self.world.changed.wait()
        except TimeoutError:
            return False
        return True

    def urgent_changes(self) -> frozenset[str]:
        urged, self._urged = frozenset(self._urged), set()
        return urged

    def urge(self) -> None:
        """Something has changed that cannot wait."""
        self._urged.add("default")
        self.world.changed.set()

    async def apply(self, action: Action) -> Outcome:
        with self.rules.writing(action):
            return await self._apply(action)

    async def _apply(self, action: Action) -> Outcome:
        self.begun += 1
        if self.meanwhile is not None and self.begun > self.meanwhile[0]:
            (_, happen), self.meanwhile = self.meanwhile, None
            happen()
        await asyncio.sleep(0.2 if isinstance(action, PatchStatus) else 0.01)
        await asyncio.sleep(self.delay_s if isinstance(action, SLOW) else 0.0)
        if not self.alive:
            raise Crash
        is_killed = self.kill_at is not None and len(self.effects) == self.kill_at[0]
        self.effects.append(False)
        if is_killed:
            self.alive = False
            if self.kill_at is not None and not self.kill_at[1]:
                raise Crash
        outcome = self.world.apply(action)
        self.effects[-1] = outcome.result is Result.DONE and not isinstance(action, EmitEvent)
        if is_killed:
            raise Crash
        return outcome


class Living:
    """A simulated cluster and its controller; virtual time continues between the calls.

    Args:
        runs: the controller runs as in a cluster; else whole rounds are run one by one.

    Attributes:
        plan_s: how long each plan takes; none takes any time by default.
    """

    def __init__(
        self,
        nodes: Iterable[Node],
        limits: Limits = LIMITS,
        recorder: FakeRecorder | None = None,
        *,
        pace: Pace = Pace(unreachable_s=STRANDED_S),  # noqa: B008 - it is frozen
        queues: QueueReporter | None = None,
        runs: bool = False,
    ) -> None:
        self.runner = asyncio.Runner(loop_factory=VirtualLoop)
        self.world = World(nodes={node.name: node for node in nodes})
        self.recorder = recorder or FakeRecorder()
        self.lease = FakeLease()
        self.limits, self.pace, self.queues = limits, pace, queues
        self.broken: list[str] = []
        self.changed_limits: Limits | None = None
        self.plan_s = 0.0
        self._runs, self._stop = runs, asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self.run(self._new())

    def run(self, what: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(what)

    def close(self) -> None:
        if self._running is not None:
            self.run(self._end(self._running))
        self.runner.close()

    async def _end(self, running: asyncio.Task[None]) -> None:
        self._stop.set()
        await asyncio.gather(running, return_exceptions=True)

    async def _new(self) -> None:
        rules = WriteRules(self.world, self.lease.is_held, self.broken)
        self.access = Access(self.world, rules)
        deciding = PolicyPlanner(policy_named("maxmin"))
        self.controller = Controller(
            cluster=self.access,
            clock=LoopClock(),
            lease=self.lease,
            recorder=self.recorder,
            planner=Planner(deciding.decide, check, deciding.startable, lambda: InlineRunner(lambda: self.plan_s)),
            limits=self.limits,
            pace=self.pace,
            partners=Partners(queues=self.queues, changed_limits=self._changed_limits),
        )
        if self._runs:
            self._stop = asyncio.Event()
            self._running = asyncio.ensure_future(self.controller.run(self._stop))

    async def _changed_limits(self) -> Limits | None:
        changed, self.changed_limits = self.changed_limits, None
        return changed

    def crash(self) -> None:
        """Crash the controller and start another one, which lists all objects first."""
        self.access.alive = False
        if self._running is not None:
            self.run(self._end(self._running))
        self.world.list_again()
        self.run(self._new())

    def copy(self) -> Living:
        """A copy of the cluster at the same time, with a new controller."""
        other = Living(self.world.nodes.values(), self.limits)
        loop = other.runner.get_loop()
        assert isinstance(loop, VirtualLoop)
        loop._now_s = self.runner.get_loop().time()
        for name in ("jobs", "pods", "serving", "failed", "owners"):
            setattr(other.world, name, copy(getattr(self.world, name)))
        other.world.born, other.world.revision = self.world.born, self.world.revision
        other.world.list_again()
        return other

    def do(self, event: Callable[[World], None]) -> None:
        """Apply a change to the cluster."""

        async def now() -> None:
            event(self.world)

        self.run(now())

    def trainers(self, key: JobKey) -> int:
        """How many live trainers a job has."""
        return len(self.world.job(key).live_trainers)

    def status_of(self, key: JobKey) -> JobStatus:
        """The status of a job that has one."""
        status = self.world.job(key).status
        assert status is not None
        return status

    def soon(self, after: int, happen: Callable[[], None]) -> None:
        """Let something happen when the controller has begun so many further writes."""
        self.access.meanwhile = (self.access.begun + after, happen)

    @contextmanager
    def slow_plans(self, plan_s: float) -> Iterator[None]:
        """Each plan takes so long."""
        self.plan_s = plan_s
        yield
        self.plan_s = 0.0

    def round(self) -> None:
        """Run one round, or let the controller run for a moment; if it crashes, start another one."""

        async def once() -> bool:
            if self._runs:
                await asyncio.sleep(self.plan_s + 2.0)
                return self.access.alive
            try:
                await self.controller.round()
            except Crash:
                await asyncio.sleep(0)
                return False
            return True

        if not self.run(once()):
            self.crash()

    def wait(self, duration_s: float) -> None:
        self.run(asyncio.sleep(duration_s))

    def step(self, duration_s: float = 1.0) -> None:
        """Run a round, then let the cluster react."""
        self.round()
        self.wait(duration_s)
        self.do(World.live)

    def settle(self, most: int = 120, *, quiet_s: float = 16.0) -> None:
        """Run steps until nothing was written and no pod was removed for `quiet_s`."""
        since_s = self.runner.get_loop().time()
        for _ in range(most):
            before = len(self.world.writes), len(self.world.pods)
            self.step(2.0)
            if before != (len(self.world.writes), len(self.world.pods)):
                since_s = self.runner.get_loop().time()
            if self.runner.get_loop().time() - since_s >= quiet_s:
                return
        raise AssertionError(f"the cluster does not come to rest: {self.world.writes[-6:]}")
