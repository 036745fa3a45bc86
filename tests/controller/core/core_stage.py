"""The state machine of the controller alone: a clock that stands still, and a cache that shows what a test wants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from edl.controller.allotment import Start, serving_needing_capacity
from edl.controller.backoff import Backoff
from edl.controller.core import Core
from edl.controller.job_writes import JobWrites
from edl.controller.pending_writes import Write
from edl.lifecycle.data_progress import MasterView
from edl.model.actions import Action, EnsureService, Outcome, Result
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.names import JobKey, Role
from edl.model.pods import Pod
from tests.controller.loop_stage import plan_of
from tests.worlds.builders import make_job, make_nodes, make_snapshot
from tests.worlds.fakes import FakeRecorder, PodWorld

A, B = JobKey("default", "a"), JobKey("default", "b")
NODE = "n000"
NODES = make_nodes(2)


@dataclass
class Moment:
    """A clock that stands still."""

    at_s: float = 1000.0

    def now_s(self) -> float:
        return self.at_s

    monotonic_s = now_s

    async def sleep(self, duration_s: float) -> None:
        self.at_s += duration_s


@dataclass
class CoreStage:
    """The state machine, and the cluster that it writes to.

    Attributes:
        lost: UIDs of pods whose end no kubelet will confirm.
        answer: the outcome of an action; None carries it out.
        happens: whether an action that `answer` answers takes effect.
    """

    world: PodWorld = field(default_factory=PodWorld)
    clock: Moment = field(default_factory=Moment)
    recorder: FakeRecorder = field(default_factory=FakeRecorder)
    backoff: Backoff = field(default_factory=Backoff)
    limits: Limits = field(default_factory=Limits)
    serving: tuple[Pod, ...] = ()
    missing: tuple[str, ...] = ()
    lost: frozenset[str] = frozenset()
    master_view: MasterView | None = None
    answer: Callable[[Action], Outcome | None] = lambda _: None
    happens: bool = False

    def __post_init__(self) -> None:
        self.writes = JobWrites(self.clock, self.recorder, self.backoff, self.limits, lambda _: self.master_view)
        self.core = Core(self.clock, self.writes, self.backoff)

    def add(self, name: str, trainers: int = 0, **fields: Any) -> Job:
        """Add a job, with running trainers on the first node."""
        self.world.add(make_job(name, trainers=trainers, on=(NODE,) if trainers else (), **fields))
        return self.world.jobs[JobKey("default", name)]

    def alter(self, key: JobKey, **fields: Any) -> None:
        """Change fields of a job, and let the cache show it."""
        self.world.jobs[key] = replace(self.world.jobs[key], **fields)
        self.see()

    def snapshot(self) -> ClusterSnapshot:
        jobs = tuple(self.world.jobs.values())
        found = make_snapshot(NODES, jobs, self.serving, self.clock.at_s)
        return replace(found, missing_priority_classes=self.missing)

    def see(self) -> None:
        self.core.seen(self.snapshot(), self.lost)

    def wait(self, duration_s: float) -> None:
        self.clock.at_s += duration_s

    def begin(self) -> ClusterSnapshot:
        """A plan begins."""
        self.see()
        return self.core.plan_begins()

    def publish(
        self,
        view: ClusterSnapshot,
        targets: dict[str, int],
        reason: str = "AtMax",
        *,
        took_s: float = 0.0,
        awaited: frozenset[str] | None = None,
    ) -> None:
        """Publish a plan that was made from a snapshot; all growth is on the first node, and may start at once."""
        plan = replace(plan_of(view, targets, reason), seconds=took_s)
        starts = [Start(d.job, Role.TRAINER, node) for d in plan.decisions for node, n in d.nodes for _ in range(n)]
        self.core.published(plan, starts, awaited=serving_needing_capacity(view) if awaited is None else awaited)

    def plan(self, targets: dict[str, int], reason: str = "AtMax", *, took_s: float = 0.0) -> None:
        """Make a plan of what the cache shows, and publish it at once."""
        self.publish(self.begin(), targets, reason, took_s=took_s)

    def take(self, count: int = 1000) -> list[Write]:
        """So many writes that are sent now, and do not end."""
        found: list[Write] = []
        while len(found) < count and (write := self.core.take()) is not None:
            found.append(write)
        return found

    def end(self, write: Write) -> None:
        """Let a write end, and let the cache show it."""
        outcomes: list[Outcome] = []
        for action in write.actions:
            answered = self.answer(action)
            if answered is None or self.happens:
                carried_out = self.world.apply(action)
            outcomes.append(answered or carried_out)
            if not outcomes[-1].is_ok:
                break
        self.see()
        self.core.ended(write, outcomes)

    def send(self) -> list[Action]:
        """Send everything that can be sent now; returns the actions."""
        sent: list[Action] = []
        self.see()
        while writes := self.take(1):
            sent += writes[0].actions
            self.end(writes[0])
        return sent

    def settle(self, targets: dict[str, int]) -> None:
        """Plan and send until nothing is left to do."""
        for _ in range(3):
            self.plan(targets)
            self.send()
            self.world.step()
            self.wait(2.0)
            self.send()

    def make_needs(self) -> None:
        """Take for granted that what the pods of all jobs need exists, as for a while after it was made."""
        for job in self.world.jobs.values():
            self.writes.sent(EnsureService(job.key, job.uid), generation=job.generation)

    def count(self, key: JobKey) -> int:
        return len(self.world.jobs[key].live_trainers)


def of_type(kind: type[Any] | Any, actions: Iterable[Action | Write]) -> list[Any]:
    """The actions of one kind, also of writes."""
    flat = [a for one in actions for a in (one.actions if isinstance(one, Write) else (one,))]
    return [action for action in flat if isinstance(action, kind)]


def by_job(actions: Iterable[Action]) -> Counter[str]:
    """How many actions each job has."""
    return Counter(action.job.name for action in actions)


def failed(action: Action) -> Outcome:
    """The API server did not answer."""
    return Outcome(action, Result.FAILED, "Timeout", "no answer")


def at_rest(*names: str, trainers: int = 2) -> CoreStage:
    """Jobs that need nothing."""
    stage = CoreStage()
    for name in names or ("a",):
        stage.add(name, trainers, max_trainers=20)
    stage.settle(dict.fromkeys(names or ("a",), trainers))
    assert stage.send() == []
    stage.make_needs()
    stage.core._turns = 0
    return stage
