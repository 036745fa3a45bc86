"""The controller as an automaton: what it does next follows from what it remembers and what it was given since.

A state of the automaton is either a controller between two rounds, which is what it remembers, or a controller within
a round, which waits for answers. Each is found once, by running the real controller; later it is looked up. What the
controller remembers is read from all attributes of its parts, so a new attribute is covered without a change here.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Collection, Iterator
from copy import copy
from dataclasses import dataclass, field
from enum import Enum
from types import NoneType
from typing import Any, NamedTuple, TypeVar

from edl.controller.loop import Controller
from edl.controller.pace import Pace
from edl.controller.plan_maker import Planner
from edl.model.actions import Action, CreatePod, DeletePod, MarkPod, Outcome, PatchStatus, Result
from edl.model.cluster import ClusterSnapshot
from edl.planner import guard, packing
from edl.sim.virtual_time import START_S, VirtualLoop
from tests.worlds.fakes import FakeRecorder
from tests.worlds.histories.remembered_plans import UNHURRIED, RememberedPlans
from tests.worlds.small_scope.memories import Memories, uids_in
from tests.worlds.small_scope.round_rules import RoundRules

T = TypeVar("T")
WRITES = 2
"""So many writes may be under way at once."""
FIRST_TURN = 8
"""Each round begins with this number of writes before it; each eighth one is a turn of words (`write_queue`)."""

FORGOTTEN = (
    "last_round_s",
    "_wake_in_s",
    "_is_outdated",
    "_failed_rounds",
    "_recorded_s",
    "_plans._last",
    "_plans._looked_s",
    "_observer._viewed",
    "_observer._seen",
    "_early.",
    "_hand_back.",
    "_executor.last_write_s",
    "_executor.left",
    "_executor.made_progress",
    "_executor._pool._concurrency._usual",
    "_executor._pool._concurrency._recent",
    "_executor._pool._concurrency._patience.",
    "_executor._pool._is_full",
    "_executor._pool._is_held",
)
"""What makes no difference here: a round sets it anew, it is about pauses, or about requests that take time."""


class Answer(NamedTuple):
    """What the controller is given: a snapshot, the time to think, or the outcome of a write.

    Attributes:
        number: of the request that is answered, in the order in which they were made.
        snapshot: the number of a snapshot; -1 for other requests.
        result, reason: of a write.
        is_urgent: the cache has shown something urgent since the last answer.
        is_held: the lease is held.
    """

    number: int
    snapshot: int = -1
    result: Result = Result.DONE
    reason: str = ""
    is_urgent: bool = False
    is_held: bool = True


@dataclass
class Node:
    """A state of the automaton.

    Attributes:
        memory: what the controller remembers, if it is between two rounds.
        pending: its open requests: an action, or "observe" or "think".
        broken: the rules that the round has broken.
        memory_before, given: how it came here: what it remembered, and the answers since the round began.
        names: of the open requests, for traces.
    """

    memory: bytes | None
    pending: tuple[Action | str, ...]
    broken: tuple[str, ...]
    memory_before: bytes
    given: tuple[Answer, ...]
    snapshots: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    next: dict[Answer, int] = field(default_factory=dict)


class Automaton:
    """The controller's automaton, found as far as it is needed.

    Args:
        plans: makes the plans.
        minimums_fit: the minimums of all jobs fit at all times, so no job may be taken down.
    """

    def __init__(self, plans: RememberedPlans, *, minimums_fit: bool) -> None:
        self.snapshots: list[ClusterSnapshot] = []
        self.nodes: list[Node] = []
        self.rounds = 0
        self._idle: dict[bytes, int] = {}
        self.desk = Desk(plans, minimums_fit=minimums_fit)
        self.first = self._between_rounds(self.desk.memory())

    def close(self) -> None:
        """Close the event loop."""
        self.desk.close()

    def start(self, number: int, snapshot: int, *, is_held: bool) -> int:
        """The state after a round has begun and has got its first snapshot."""
        return self.follow(number, Answer(0, snapshot, is_held=is_held))

    def follow(self, number: int, answer: Answer) -> int:
        """The state after an answer."""
        node = self.nodes[number]
        found = node.next.get(answer)
        if found is None:
            before = node.memory if node.memory is not None else node.memory_before
            given = () if node.memory is not None else node.given
            self._play(number, before, (*given, answer))
            found = node.next[answer]
        return found

    def known_uids(self, number: int) -> Collection[str]:
        """The UIDs of the pods that the controller may remember."""
        node = self.nodes[number]
        uids = uids_in(node.memory or node.memory_before)
        for snapshot in node.snapshots:
            uids |= {pod.uid for job in self.snapshots[snapshot].jobs for pod in job.pods}
        return uids

    def _between_rounds(self, memory: bytes, broken: tuple[str, ...] = ()) -> int:
        if broken:
            self.nodes.append(Node(memory, (), broken, memory, ()))
            return len(self.nodes) - 1
        number = self._idle.get(memory)
        if number is None:
            number = self._idle[memory] = len(self.nodes)
            self.nodes.append(Node(memory, (), (), memory, ()))
        return number

    def _play(self, number: int, memory: bytes, given: tuple[Answer, ...]) -> None:
        """Run a round with these answers, and go on with the answers of a cluster in which all goes well."""
        self.rounds += 1
        run = self.desk.begin(memory, self.snapshots)
        for answer in given[:-1]:
            run.give(answer)
        is_held = given[-1].is_held
        while True:
            run.give(given[-1])
            child = self._found(run, memory, given)
            self.nodes[number].next[given[-1]] = child
            node, number = self.nodes[child], child
            if node.memory is not None or node.broken or isinstance(node.pending[0], str):
                break
            given = (*given, Answer(0, is_held=is_held))
        self.desk.end()

    def _found(self, run: Run, memory: bytes, given: tuple[Answer, ...]) -> int:
        if run.is_over:
            return self._between_rounds(self.desk.memory(), tuple(run.broken))
        pending = tuple(request.what for request in run.port.pending)
        snapshots = tuple(sorted({answer.snapshot for answer in given if answer.snapshot >= 0}))
        names = tuple(called(request) for request in pending)
        self.nodes.append(Node(None, pending, tuple(run.broken), memory, given, snapshots, names))
        return len(self.nodes) - 1


@dataclass
class Request:
    """An open request of the controller: what it asks for, and where the answer goes."""

    what: Action | str
    answer: asyncio.Future[Answer]


class Port:
    """The controller's cluster, clock, lease and planner thread: every request waits for its answer."""

    def __init__(self) -> None:
        self.pending: list[Request] = []
        self.snapshots: list[ClusterSnapshot] = []
        self.time_s = START_S
        self.urgent = 0
        self.held = True
        self.has_thought = False
        self.rules = RoundRules(minimums_fit=False)

    def begin(self, snapshots: list[ClusterSnapshot], rules: RoundRules) -> None:
        """A round begins."""
        self.pending, self.snapshots, self.rules, self.time_s = [], snapshots, rules, START_S
        self.urgent, self.held, self.has_thought = 0, True, False

    async def observe(self) -> ClusterSnapshot:
        self.rules.observe()
        snapshot = self.snapshots[(await self._ask("observe")).snapshot]
        self.time_s = snapshot.observed_at_s
        self.rules.observed(snapshot)
        return snapshot

    async def wait_for_change(self, _: float) -> bool:
        return False  # the search begins rounds

    def urgent_changes(self) -> int:
        return self.urgent

    def serving_in_need(self) -> int:
        return 0

    async def apply(self, action: Action) -> Outcome:
        self.rules.request(action, is_held=self.held)
        if not isinstance(action, CreatePod | MarkPod | DeletePod | PatchStatus):
            outcome = Outcome(action, Result.UNCHANGED)
        else:
            answer = await self._ask(action)
            outcome = Outcome(action, answer.result, answer.reason, "a fault" if answer.reason else "")
        self.rules.answered(outcome)
        return outcome

    async def run(self, call: Callable[[], T], _: float) -> T:
        """Run a function of the planner; the first one of a round is the decision, which takes time."""
        if not self.has_thought:
            self.has_thought = True
            await self._ask("think")
        return call()

    def is_held(self) -> bool:
        return self.held

    def now_s(self) -> float:
        return self.time_s

    def monotonic_s(self) -> float:
        return self.time_s

    async def sleep(self, duration_s: float) -> None:
        raise AssertionError(f"a round waits {duration_s} s, but no request takes time here")

    async def _ask(self, what: Action | str) -> Answer:
        request = Request(what, asyncio.get_running_loop().create_future())
        self.pending.append(request)
        return await request.answer


class Run:
    """A round under way."""

    def __init__(self, loop: VirtualLoop, controller: Controller, port: Port, recorder: Recorder) -> None:
        self._loop, self.port, self._recorder = loop, port, recorder
        self.rules = port.rules
        self._task = loop.create_task(controller.round())
        run_until_idle(loop)

    @property
    def is_over(self) -> bool:
        """True once the round has ended."""
        return self._task.done()

    @property
    def broken(self) -> list[str]:
        """The rules that the round has broken."""
        faults = [f"edl failed: {line}" for line in (*self._recorder.failures, *self._recorder.problems)]
        if self.is_over and self.port.pending:
            faults.append("the round has ended, and its writes are under way")
        return [*self.rules.broken, *faults]

    def give(self, answer: Answer) -> None:
        """Answer a request, and run on to the next ones."""
        request = self.port.pending.pop(answer.number)
        self.port.urgent += answer.is_urgent
        self.port.held = answer.is_held
        self.rules.is_due |= answer.is_urgent and request.what != "observe"
        request.answer.set_result(answer)
        run_until_idle(self._loop)


class Desk:
    """One controller that takes over the memory of any other, and its event loop."""

    def __init__(self, plans: RememberedPlans, *, minimums_fit: bool) -> None:
        self.plans = plans
        self._loop = VirtualLoop()
        self._loop.ignore_threads()
        self._minimums_fit = minimums_fit
        self._port, self._recorder, self._memories = Port(), Recorder(), Memories()
        self._controller = Controller(
            cluster=self._port,
            clock=self._port,
            lease=self._port,
            recorder=self._recorder,
            planner=Planner(plans.decide, guard.check, packing.startable, lambda: self._port),
            limits=UNHURRIED,
            pace=Pace(unreachable_s=0.0, debounce_s=0.0, writes=WRITES),
        )
        self._attributes = tuple(_attributes(self._controller, "", set()))
        self._unchanged = [
            (holder, name, copy(vars(holder)[name]))
            for path, holder, name in self._attributes
            if path.startswith(FORGOTTEN)
        ]

    def close(self) -> None:
        """Close the event loop."""
        self._loop.watch_threads()
        self._loop.close()

    def memory(self) -> bytes:
        """What the controller remembers now."""
        self._forget()
        turns = self._controller._executor._pool.turns
        turns._served = {uid: n + 1 for n, uid in enumerate(sorted(turns._served, key=turns._served.__getitem__))}
        turns.taken = FIRST_TURN
        return self._memories.write([vars(holder)[name] for _, holder, name in self._attributes])

    def begin(self, memory: bytes, snapshots: list[ClusterSnapshot]) -> Run:
        """Begin a round of a controller with that memory."""
        self._forget()  # the last round may have been left in the middle
        values = self._memories.read(memory)
        for (_, holder, name), value in zip(self._attributes, values, strict=True):
            setattr(holder, name, value)
        self._recorder.clear()
        kept = self._controller._plans._kept._plan
        if kept is not None:  # it counts as new while nothing has changed
            self._recorder.plans.append(kept)
        rules = RoundRules(minimums_fit=self._minimums_fit)
        rules.plans = self._recorder.plans
        self._port.begin(snapshots, rules)
        random.seed(0)
        return Run(self._loop, self._controller, self._port, self._recorder)

    def _forget(self) -> None:
        """Set back what makes no difference; see `FORGOTTEN`."""
        for holder, name, value in self._unchanged:
            setattr(holder, name, copy(value))

    def end(self) -> None:
        """End the round wherever it is."""
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        run_until_idle(self._loop)


class Recorder(FakeRecorder):
    """A recorder of one round after the other."""

    def clear(self) -> None:
        """Forget everything."""
        for kept in vars(self).values():
            kept.clear()


def called(action: Action | str) -> str:
    """The name of a request, unique among those under way; of a write with a colon, for its outcome."""
    match action:
        case CreatePod():
            return f"create {action.pod_name} on {action.node or 'any'}: "
        case MarkPod():
            return f"mark {action.pod} {action.intent}: "
        case DeletePod():
            return f"delete {action.pod} {action.intent}: "
        case PatchStatus():
            return f"status of {action.job.name}: "
    return str(action)


def run_until_idle(loop: VirtualLoop) -> None:
    """Run everything that can run now; the time stands still."""
    ready: deque[Any] = vars(loop)["_ready"]
    while ready:
        loop.call_soon(loop.stop)
        loop.run_forever()


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
        if isinstance(value, int | float | str | dict | set | frozenset | list | tuple | Enum | NoneType):
            yield f"{path}{name}", holder, name
        elif type(value).__module__.startswith("edl.controller.") and hasattr(value, "__dict__"):
            yield from _attributes(value, f"{path}{name}.", seen)
