"""One controller without tasks, that takes over the memory of any other: what happens to it, one turn at a time.

Its parts are those of `edl.controller.loop.Controller`. A turn is that of `Controller._turn`: something happens, then
all is sent that may be sent. What the controller remembers is read from all attributes of its parts, so a new
attribute is covered without a change here.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Hashable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, is_dataclass, replace
from enum import Enum
from itertools import count
from math import inf
from types import NoneType
from typing import Any, TypeVar

from edl.controller.backoff import Backoff
from edl.controller.core import Core
from edl.controller.due_jobs import DueJobs
from edl.controller.early_evictions import EarlyEvictions
from edl.controller.job_writes import JobWrites
from edl.controller.observer import Observer
from edl.controller.pace import Pace
from edl.controller.pending_writes import Write
from edl.controller.plan_cycle import CycleCalls, PlanCycle
from edl.controller.plan_maker import PlanMaker, Planner
from edl.model.actions import Action, CreatePod, DeletePod, MarkPod, Outcome, PatchStatus
from edl.model.cluster import ClusterSnapshot
from edl.planner import guard, starts
from tests.worlds.fakes import FakeRecorder
from tests.worlds.histories.remembered_plans import UNHURRIED, RememberedPlans, situation
from tests.worlds.small_scope.cluster import START_S
from tests.worlds.small_scope.memories import FREE_S, NEVER_S, NOW_S, PAST_S, REMEMBERING, Memories
from tests.worlds.small_scope.request_rules import RequestRules

T = TypeVar("T")
WRITES = 2
"""So many writes may be under way at once."""

FORGOTTEN = (
    "core.looked_at",
    "core._quota",
    "core._due._ends",
    "core._due._in_turn",
    "core._due._away",
    "core._due._returns",
    "core._writes._closed",
    "cycle.timer.",
    "cycle._made",
    "cycle._calm",
    "cycle._plans.",
    "cycle._observer.",
    "cycle._held_requests",
    "evictions._deciding_since_s",
)
"""What makes no difference here: caches, and what decides when something happens that may happen here at any time."""
ORDERED = ("core._due._now", "core._pending._ready")
"""Where the order of a dict says whose turn it is."""


class Clock:
    """A clock that stands still."""

    def now_s(self) -> float:
        """The time of the cluster."""
        return START_S

    def monotonic_s(self) -> float:
        """The controller's clock."""
        return NOW_S

    async def sleep(self, duration_s: float) -> None:
        """Nothing waits here."""
        raise AssertionError(f"a turn waits {duration_s} s")


class Thread:
    """The planner's thread; what takes time is divided where it is used."""

    async def run(self, call: Callable[[], T], _: float) -> T:
        """Run a function of the planner."""
        return call()


@dataclass
class Parts:
    """The controller, and what the search remembers of it.

    Attributes:
        view: what the plan is made from that is being made.
        rules: judge its requests.
    """

    core: Core
    cycle: PlanCycle
    evictions: EarlyEvictions
    rules: RequestRules
    view: ClusterSnapshot | None = None


class Desk:
    """Takes over a memory, lets something happen, and gives the memory back.

    Args:
        plans: makes the plans.
        minimums_fit: the minimums of all jobs fit at all times, so no job may be taken down.
        waits_for_counts: a status waits for further changes (`status_pace`).
    """

    def __init__(self, plans: RememberedPlans, *, minimums_fit: bool, waits_for_counts: bool) -> None:
        self.plans, self.memories, self.recorder = plans, Memories(), FakeRecorder()
        self.parts = self._new(Clock(), minimums_fit=minimums_fit)
        self.parts.core.at_once = not waits_for_counts
        self._alike: dict[Hashable, ClusterSnapshot] = {}
        self._same: set[int] = set()
        self._attributes = tuple(_attributes(self.parts, "", set()))
        forgotten = FORGOTTEN if waits_for_counts else (*FORGOTTEN, "core._statuses.")
        self._unchanged = [
            (holder, name, copy(vars(holder)[name]))
            for path, holder, name in self._attributes
            if path.startswith(forgotten)
        ]
        self._attributes = tuple(one for one in self._attributes if not one[0].startswith(forgotten))

    def _new(self, clock: Clock, *, minimums_fit: bool) -> Parts:
        backoff, recorder = Backoff(), self.recorder
        planner = Planner(self.plans.decide, guard.check, starts.startable, Thread, self.plans.early_evictions)
        plans = PlanMaker(planner, UNHURRIED, recorder)
        writes = JobWrites(clock, recorder, backoff, UNHURRIED, lambda _job: None)
        core = Core(clock, writes, backoff, retry_s=1.0, retry_at_most_s=1.0)
        observer = Observer(clock, recorder, plans, 0.0, UNHURRIED)
        self._observer, self._plans = observer, plans
        cycle = PlanCycle(
            core,
            clock,
            plans,
            observer,
            backoff=backoff,
            pace=Pace(),
            limits=UNHURRIED,
            calls=CycleCalls(recorder, _is_not, _looked, _nothing),
        )
        evictions = EarlyEvictions(core, clock, plans, recorder, view=self._view, wake=_nothing)
        return Parts(core, cycle, evictions, RequestRules(minimums_fit=minimums_fit))

    def _view(self, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        return self._observer.view_between_plans(snapshot, self._observer.watch(snapshot), _is_not)

    # --- Memory

    def memory(self) -> Hashable:
        """What the controller remembers now."""
        self._simplify()
        freeze = self.memories.freeze
        return tuple(
            freeze(vars(holder)[name], is_ordered=path in ORDERED) for path, holder, name in self._attributes
        )

    def _simplify(self) -> None:
        """Make equal what makes no difference: the order of the writes under way, counts for pauses and turns, ...

        ... when a job is looked at that is dirty already, and how long what a job needs is taken for granted.
        """
        core, writes, due = self.parts.core, self.parts.core._writes, self.parts.core._due
        core.look_at([uid for uid, at_s in due._later.items() if at_s <= NOW_S])
        core._done._of_job.clear()  # it is for a cache that does not show what was answered
        due._later = {uid: at_s for uid, at_s in due._later.items() if uid not in due._now}
        due._now = {uid: replace(place, number=number) for number, (uid, place) in enumerate(due._now.items())}
        core.under_way.writes.sort(key=called)
        core._turns = 0
        due._backoffs = {uid: (1, until_s) for uid, (_, until_s) in due._backoffs.items() if until_s > NOW_S}
        self._simplify_pauses()
        writes._ensured = {uid: (generation, NEVER_S) for uid, (generation, _) in writes._ensured.items()}
        if (planning := core.allotments.planning) is not None:
            planning.snapshot = self._like(planning.snapshot)
        if self.parts.view is not None:
            self.parts.view = self._like(self.parts.view)

    def _simplify_pauses(self) -> None:
        """How long the next pause would be, when what lasts began, and when creations succeeded while none fails."""
        backoff, cycle = self.parts.core._backoff, self.parts.cycle
        if not backoff._failed_s:
            backoff._succeeded_s = -inf
        for known in backoff.retries._of_job.values():
            known.shared = replace(known.shared, count=min(1, known.shared.count))
            known.pauses = {slot: replace(pause, count=min(1, pause.count)) for slot, pause in known.pauses.items()}
        cycle._unstarted._of_job = {
            uid: replace(known, pause_s=min(1.0, known.pause_s)) for uid, known in cycle._unstarted._of_job.items()
        }
        cycle._undone._of_job = {
            uid: replace(
                known,
                started_s=-inf if known.started_s is not None and known.started_s <= PAST_S else known.started_s,
                pause_s=min(1.0, known.pause_s),
                lasted_s=0.0,
            )
            for uid, known in cycle._undone._of_job.items()
        }

    def _like(self, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        """The first snapshot of which a plan is made that grants the same: the statuses of jobs hardly matter."""
        if id(snapshot) not in self._same:
            jobs = tuple((job.uid, job.generation, *(pod.uid for pod in job.pods)) for job in snapshot.jobs)
            key = (situation(snapshot), jobs, tuple(pod.uid for pod in snapshot.pods))
            first = self._alike.setdefault(key, snapshot)
            if first is not snapshot:
                return first
            self._same.add(id(snapshot))
        return snapshot

    def take_over(self, memory: Any, *, older_s: float = 0.0) -> None:
        """Remember what another controller did."""
        for holder, name, value in self._unchanged:
            setattr(holder, name, copy(value) if type(value) in {dict, list, set} else value)
        for (_, holder, name), frozen in zip(self._attributes, memory, strict=True):
            setattr(holder, name, self.memories.thaw(frozen, older_s))
        self._queue_anew()
        allotments = self.parts.core.allotments
        if older_s and allotments.held_since_s is not None:
            allotments.held_since_s = FREE_S if allotments.held_since_s + older_s == NOW_S else None
        for kept in vars(self.recorder).values():
            kept.clear()
        self.parts.rules.broken = []

    def _queue_anew(self) -> None:
        """Put the jobs to look at into their queues."""
        due = self.parts.core._due
        empty = DueJobs(1.0, 1.0)
        due._in_turn, due._away, due._returns, due._numbers = empty._in_turn, set(), [], count(len(due._now))
        due._ends = sorted((at_s, uid) for uid, at_s in due._later.items())
        for uid in due._now:
            due._push(uid)

    # --- What happens

    def seen(self, snapshot: ClusterSnapshot) -> None:
        """The cache shows something else."""
        self.parts.core.seen(snapshot, self._observer.lost_pods(snapshot))

    def plan_begins(self) -> None:
        """A plan begins."""
        self.parts.view = _finished(self.parts.cycle.begin())
        planning = self.parts.core.allotments.planning
        assert planning is not None
        planning.snapshot = self._like(planning.snapshot)
        self.parts.rules.plan_begins(planning.snapshot)

    def publish(self) -> None:
        """The plan that is being made is published."""
        view, self.parts.view = self.parts.view, None
        assert view is not None
        plan = _finished(self._plans.plan(view))
        evictions = self.parts.rules.published(plan)
        _finished(self.parts.cycle.publish(view, plan))
        self.parts.rules.check_evictions(evictions, self.parts.core.allotments.by_job)

    def search(self) -> None:
        """Trainers are found for a serving pod ahead of the plan."""
        self.parts.evictions.begin(UNHURRIED)

    def evict(self) -> None:
        """The trainers that were found are evicted if kube-scheduler has answered by now."""
        search = self.parts.evictions.search
        assert search is not None
        before = len(self.recorder.searches)
        search.decisions = _finished(self._plans.early_evictions(search.view))
        self.parts.evictions.look(UNHURRIED)
        if (still := self.parts.evictions.search) is not None:
            still.decisions = None  # equal views give equal decisions
        for view, decisions in self.recorder.searches[before:]:
            self.parts.rules.amended(view, decisions)

    def ended(self, name: str, outcomes: Sequence[Outcome]) -> None:
        """The write of that name has ended."""
        write = next(write for write in self.parts.core.under_way.writes if called(write) == name)
        self.parts.rules.answered(outcomes[0])
        self.parts.core.ended(write, outcomes)

    def stand_down(self) -> None:
        """The lease is lost."""
        self.parts.core.stand_down()
        self.parts.view = None
        self.parts.rules.stand_down()

    def send(self) -> None:
        """The rest of a turn with the lease: evictions for serving are looked at, and what may be sent is sent."""
        parts, core = self.parts, self.parts.core
        parts.evictions.look(UNHURRIED)
        while len(core.under_way.writes) < WRITES:
            before = tuple(core.under_way.writes)
            write = core.take()
            if write is not None:
                parts.rules.request(write, core.snapshot, before)
            elif not core.has_more:
                break

    @property
    def broken(self) -> tuple[str, ...]:
        """The rules that were broken since the memory was taken over."""
        faults = [f"edl failed: {line}" for line in (*self.recorder.failures, *self.recorder.problems)]
        return (*self.parts.rules.broken, *faults)


def called(write: Write) -> str:
    """The name of a write, unique among those under way."""
    action = write.actions[0]
    match action:
        case CreatePod():
            return f"create {action.pod_name} on {action.node or 'any'}"
        case MarkPod():
            return f"mark {action.pod} {action.intent}"
        case DeletePod():
            return f"delete {action.pod}{' by force' if action.force else ''} {action.intent}"
        case PatchStatus():
            return f"status of {action.job.name}"
    return f"{' and '.join(type(one).__name__ for one in write.actions)} for {action.job.name}"


def slow_action(write: Write) -> Action | None:
    """The action of a write that changes the cluster; the others are answered with it."""
    action = write.actions[0]
    return action if isinstance(action, CreatePod | MarkPod | DeletePod | PatchStatus) else None


def _finished(coroutine: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns that waits for nothing but its turn."""
    while True:
        try:
            coroutine.send(None)
        except StopIteration as end:
            value: T = end.value
            return value


def _is_not(_job: object) -> bool:
    return False


def _nothing() -> None:
    pass


async def _looked() -> None:
    pass


def _attributes(holder: Any, path: str, seen: set[int]) -> Iterator[tuple[str, Any, str]]:
    """(path, object, name) of everything that the controller's parts remember: values, and no other parts.

    A part that several others hold has the path of the first one.

    Args:
        holder: a part.
        path: its own path, with a dot.
        seen: the ids of the parts that were visited; this one and those in it are added.
    """
    if id(holder) in seen:
        return
    seen.add(id(holder))
    for name, value in vars(holder).items():
        is_of_edl = type(value).__module__.startswith("edl.") and is_dataclass(value)
        is_part = type(value).__module__.startswith((*REMEMBERING, "tests.worlds.small_scope."))
        if isinstance(value, int | float | str | dict | set | frozenset | list | tuple | Enum | NoneType) or (
            is_of_edl and not isinstance(value, Planner)
        ):
            yield f"{path}{name}", holder, name
        elif is_part and not is_of_edl:
            yield from _attributes(value, f"{path}{name}.", seen)
