"""Visits every state of a scene once, breadth first, so that the trace of a broken rule is as short as possible.

A state is the cluster, the state of the controller's automaton and the writes under way; equal states have equal
numbers and are expanded once. A trace is the names of the steps from the first state on; it replays, because no two
steps of a state have the same name.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from edl.model.actions import Action, CreatePod, Result
from tests.worlds.histories.remembered_plans import RememberedPlans
from tests.worlds.small_scope.api_server import Effect, carry_out
from tests.worlds.small_scope.automaton import Answer, Automaton
from tests.worlds.small_scope.cluster import Move, Table, World
from tests.worlds.small_scope.rest_rules import broken_at_rest
from tests.worlds.small_scope.scenes import FAULTS, Scene
from tests.worlds.small_scope.takeover import taken_over

_WORLD, _NODE = 36, 8
"""A state is one number: the world from this bit on, the controller from that bit on, and eight bits of flags."""
_URGENT, _HELD, _STAGES = 1, 2, 2
"""Flags: the cache has shown something urgent since the last answer; the lease is held; from that bit on, which of
the writes under way have carried out their first request."""


class _Write(NamedTuple):
    """A write under way: the state of the automaton, the number of the request, and the flags of the state."""

    node: int
    request: int
    flags: int


class Step(NamedTuple):
    """A step from one state to the next.

    Attributes:
        is_free: it happens sooner or later by itself; False if it happens at most once, or need not happen.
    """

    name: str
    state: int
    broken: tuple[str, ...] = ()
    is_free: bool = True


@dataclass
class Figures:
    """What a search found.

    Attributes:
        states, steps: how many it visited and tried.
        depth: the steps to the farthest state.
        at_rest: states in which nothing happens any more.
        rounds, snapshots, plans: how often the real controller ran, and for how many different inputs.
        seconds: CPU time.
        is_whole: every state was visited.
        broken, trace: the first broken rule, and the steps that lead to it; empty if there is none.
    """

    scene: str
    states: int = 0
    steps: int = 0
    depth: int = 0
    at_rest: int = 0
    rounds: int = 0
    snapshots: int = 0
    plans: int = 0
    seconds: float = 0.0
    is_whole: bool = False
    broken: tuple[str, ...] = ()
    trace: tuple[str, ...] = ()


class Space:
    """The states of a scene and the steps between them.

    Args:
        scene: what there is and what happens.
        plans: makes the plans; shared by the scenes of a run.
    """

    def __init__(self, scene: Scene, plans: RememberedPlans) -> None:
        self.scene, self.cluster = scene, scene.cluster()
        self.automaton = Automaton(plans, minimums_fit=scene.minimums_fit)
        self.worlds = Table()
        self._snapshots = Table()
        self._moves: dict[int, list[tuple[Move, int, bool]]] = {}
        self._shown: dict[tuple[object, ...], int] = {}
        self._effects: dict[tuple[int, int, int, int], tuple[Effect, int, bool]] = {}
        self._ways: dict[int, list[tuple[str, int]]] = {}
        world = self.cluster.begin(scene.jobs, scene.nodes)
        self.first = _packed(self.worlds.number(world), self.automaton.first, _HELD)
        if scene.is_warm:
            self.first = self._at_rest(self.first)

    def close(self) -> None:
        """Close the event loop of the controller."""
        self.automaton.close()

    def _at_rest(self, state: int) -> int:
        """The state at rest that follows if nothing happens but what happens by itself."""
        while True:
            ahead = [step.state for step in self.steps(state) if step.is_free and step.state != state]
            if not ahead:
                return state
            state = ahead[0]

    def steps(self, state: int) -> Iterator[Step]:
        """Everything that may happen next."""
        world_number, number, flags = state >> _WORLD, state >> _NODE & 0xFFFFFFF, state & 0xFF
        node = self.automaton.nodes[number]
        idle = node.memory is not None
        for move, after, is_free in self._moves_of(world_number):
            urges = _URGENT if move.is_urgent and not idle else 0
            yield Step(move.name, _packed(after, number, flags | urges), (), is_free)
        world: World = self.worlds.values[world_number]
        if not idle:
            yield from self._answers(world_number, world, number, flags)
        elif not (any(world.owed) or world.doubted):
            after = self.automaton.start(number, self._snapshot(world), is_held=bool(flags & _HELD))
            is_free = not self._is_quiet(number, after, flags, self._snapshot(world))
            yield self._step("round", world_number, after, flags & _HELD)._replace(is_free=is_free)
        if idle or "observe" in node.pending:
            for pod in world.doubted:
                read, is_urgent = self.cluster.read(world, pod)
                urges = _URGENT if is_urgent and not idle else 0
                yield Step(f"{pod} read", _packed(self.worlds.number(read), number, flags | urges))
        yield from self._faults_of_controller(world_number, number, flags)

    def _is_quiet(self, before: int, number: int, flags: int, snapshot: int) -> bool:
        """True if a round that nothing disturbs writes nothing and leaves the controller as it was."""
        while (pending := self.automaton.nodes[number].pending) and isinstance(pending[0], str):
            number = self.automaton.follow(
                number, _answer(0, flags, snapshot=snapshot if pending[0] == "observe" else -1)
            )
        return number == before

    def _step(self, name: str, world: int, number: int, flags: int) -> Step:
        """A step after which the controller may have done something that breaks a rule."""
        return Step(name, _packed(world, number, flags), self.automaton.nodes[number].broken)

    def _moves_of(self, number: int) -> list[tuple[Move, int, bool]]:
        if (found := self._moves.get(number)) is None:
            world: World = self.worlds.values[number]
            moves = [(move, True) for move in self.cluster.moves(world)]
            moves += [(move, False) for move in self.cluster.happenings(world)]
            found = self._moves[number] = [(m, self.worlds.number(m.world), is_free) for m, is_free in moves]
        return found

    def _snapshot(self, world: World) -> int:
        key = (*(versions[0] for versions in world.streams), world.pauses)
        if (found := self._shown.get(key)) is None:
            snapshot = self.cluster.snapshot(world)
            found = self._shown[key] = self._snapshots.number(snapshot)
            if found == len(self.automaton.snapshots):
                self.automaton.snapshots.append(snapshot)
        return found

    def _answers(self, world_number: int, world: World, number: int, flags: int) -> Iterator[Step]:
        """The API server carries out a request of the controller, or something goes wrong with it."""
        node = self.automaton.nodes[number]
        for index, asked in enumerate(node.pending):
            if isinstance(asked, str):
                snapshot = self._snapshot(world) if asked == "observe" else -1
                if not (asked == "observe" and (any(world.owed) or world.doubted)):
                    answer = _answer(index, flags, snapshot=snapshot)
                    after = self.automaton.follow(number, answer)
                    yield self._step(asked, world_number, after, flags & _HELD)
                continue
            yield from self._written(world_number, world, _Write(number, index, flags), asked)

    def _written(self, world_number: int, world: World, at: _Write, action: Action) -> Iterator[Step]:
        effect, after, is_urgent = self._effect(world_number, at, action)
        urged = at.flags | (_URGENT if is_urgent else 0)
        request_name = self.automaton.nodes[at.node].names[at.request]
        if effect.result is None:
            marked = urged | 1 << _STAGES + at.request
            yield Step(f"{request_name}marked", _packed(after, at.node, marked), effect.broken)
        else:
            step = self._answered(f"{request_name}{effect.result.value}", after, at, urged, (effect.result, ""))
            yield step._replace(broken=(*effect.broken, *step.broken))
        yield from self._faults(request_name, effect, world, at, action)

    def _effect(self, world: int, at: _Write, action: Action) -> tuple[Effect, int, bool]:
        stage = at.flags >> _STAGES + at.request & 1
        key = (world, at.node, at.request, stage)
        if (found := self._effects.get(key)) is None:
            known = self.automaton.known_uids(at.node) if isinstance(action, CreatePod) else ()
            effect = carry_out(self.cluster, self.worlds.values[world], action, stage, known)
            told, urges = self.cluster.tell(effect.world, effect.told)
            found = self._effects[key] = (effect, self.worlds.number(told), urges or effect.is_urgent)
        return found

    def _answered(self, name: str, world: int, at: _Write, flags: int, outcome: tuple[Result, str]) -> Step:
        """The step in which the controller gets an outcome."""
        result, reason = outcome
        after = self.automaton.follow(at.node, _answer(at.request, flags, result=result, reason=reason))
        stages = flags >> _STAGES
        left = stages & ((1 << at.request) - 1) | stages >> at.request + 1 << at.request
        return self._step(name, world, after, flags & _HELD | left << _STAGES)

    def _faults(self, request_name: str, effect: Effect, world: World, at: _Write, action: Action) -> Iterator[Step]:
        """What may go wrong with a request, once each."""
        for name in self.scene.faults:
            fault = FAULTS[name]
            if self.cluster.has_happened(world, name) or (fault.takes_effect and effect.result is None):
                continue
            before = effect.world if fault.takes_effect else world
            if isinstance(action, CreatePod) and fault.result is Result.FAILED:
                before = self.cluster.doubt(before, action.pod_name)
            urged = at.flags | (_URGENT if fault.takes_effect and effect.is_urgent else 0)
            after = self.worlds.number(self.cluster.note(before, name))
            step = self._answered(f"{request_name}{name}", after, at, urged, (fault.result, fault.reason))
            yield step._replace(is_free=False)

    def _faults_of_controller(self, world: int, number: int, flags: int) -> Iterator[Step]:
        """The controller crashes, a standby takes over, the lease is lost or comes back, time passes."""
        for name, after in self._ways_of(world):
            if name == "time passes":
                if self.automaton.nodes[number].memory is not None:
                    yield Step(name, _packed(after, number, flags))
            elif name != "lease lost":
                yield Step(name, _packed(after, self.automaton.first, _HELD), (), is_free=False)
            elif flags & _HELD:
                yield Step(name, _packed(after, number, flags & ~_HELD), (), is_free=False)
        if not flags & _HELD:
            yield Step("lease held again", _packed(world, number, flags | _HELD))

    def _ways_of(self, number: int) -> list[tuple[str, int]]:
        """What may happen to the controller in a world: the name, and the world after it."""
        if (found := self._ways.get(number)) is None:
            world, cluster = self.worlds.values[number], self.cluster
            later = {
                "crash": cluster.listed(world),
                "another crash": cluster.listed(world),
                "takeover": taken_over(world) if world.standby else world,
                "lease lost": world,
            }
            if not cluster.has_happened(world, "crash"):
                del later["another crash"]
            may = [name for name in later if not cluster.has_happened(world, name)]
            found = [(name, self.worlds.number(cluster.note(later[name], name))) for name in may]
            # A refused request is sent again after a pause.
            if world.pauses < self.scene.pauses and cluster.has_happened(world, "refused"):
                found.append(("time passes", self.worlds.number(world._replace(pauses=world.pauses + 1))))
            self._ways[number] = found
        return found

    def rest(self, state: int) -> list[str]:
        """The rules that are broken if nothing happens any more in this state."""
        return broken_at_rest(self.cluster, self.worlds.values[state >> _WORLD])


def _packed(world: int, number: int, flags: int) -> int:
    return world << _WORLD | number << _NODE | flags


def _answer(index: int, flags: int, *, snapshot: int = -1, result: Result = Result.DONE, reason: str = "") -> Answer:
    return Answer(index, snapshot, result, reason, bool(flags & _URGENT), bool(flags & _HELD))


@dataclass
class Search:
    """A search through a space.

    Attributes:
        most: so many states are visited at most.
    """

    space: Space
    most: int
    _number: dict[int, int] = field(default_factory=dict)
    _parents: array[int] = field(default_factory=lambda: array("I"))
    _names: array[int] = field(default_factory=lambda: array("H"))
    _edges: tuple[array[int], array[int], array[int]] = field(
        default_factory=lambda: (array("I"), array("I"), array("H"))
    )
    _labels: Table = field(default_factory=Table)

    def run(self) -> Figures:
        """Visit the states until a rule is broken or `most` are visited."""
        began_s = time.process_time()
        figures = Figures(self.space.scene.name)
        plans = self.space.automaton.desk.plans
        made = plans.made
        self._visit(figures)
        if figures.is_whole and not figures.broken:
            self._look_for_circles(figures)
        figures.states, figures.seconds = len(self._number), time.process_time() - began_s
        figures.rounds, figures.snapshots = self.space.automaton.rounds, len(self.space.automaton.snapshots)
        figures.plans = plans.made - made
        return figures

    def _visit(self, figures: Figures) -> None:
        layer = [self.space.first]
        self._add(self.space.first, 0, "")
        while layer:
            later: list[int] = []
            for state in layer:
                if len(self._number) >= self.most:
                    return
                if self._expand(state, later, figures):
                    return
            layer = later
            figures.depth += bool(later)
        figures.is_whole = True

    def _expand(self, state: int, later: list[int], figures: Figures) -> bool:
        """Visit what follows a state; True if a rule is broken."""
        number, is_at_rest = self._number[state], True
        sources, targets, labels = self._edges
        for step in self.space.steps(state):
            figures.steps += 1
            is_at_rest &= not step.is_free or step.state == state
            found = self._number.get(step.state)
            if found is None:
                found = self._add(step.state, number, step.name)
                later.append(step.state)
            if step.broken:
                figures.broken, figures.trace = step.broken, (*self._trace(number), step.name)
                return True
            if step.is_free and step.state != state:
                sources.append(number)
                targets.append(found)
                labels.append(self._labels.number(step.name))
        if is_at_rest:
            figures.at_rest += 1
            if broken := self.space.rest(state):
                figures.broken, figures.trace = tuple(f"at rest, {rule}" for rule in broken), self._trace(number)
        return bool(figures.broken)

    def _add(self, state: int, parent: int, name: str) -> int:
        number = self._number[state] = len(self._number)
        self._parents.append(parent)
        self._names.append(self._labels.number(name))
        return number

    def _trace(self, number: int) -> tuple[str, ...]:
        names = []
        while number:
            names.append(self._labels.values[self._names[number]])
            number = self._parents[number]
        return tuple(reversed(names))

    def _look_for_circles(self, figures: Figures) -> None:
        """A circle is a fault unless a step that could leave it is possible in each of its states."""
        sources, targets, labels = (np.asarray(edge) for edge in self._edges)
        if not len(sources):
            return
        shape = (len(self._number),) * 2
        graph = coo_array((np.ones(len(sources), np.int8), (sources, targets)), shape=shape)
        _, component = connected_components(graph, directed=True, connection="strong")
        sizes = np.bincount(component)
        inside = (component[sources] == component[targets]) & (sizes[component[sources]] > 1)
        for circle in np.unique(component[sources[inside]]):
            mine = component[sources] == circle
            leaving = set(labels[mine & ~inside].tolist()) - set(labels[mine & inside].tolist())
            size = int(sizes[circle])
            if not any(len(np.unique(sources[mine & (labels == label)])) == size for label in leaving):
                first = int(np.flatnonzero(component == circle)[0])
                names = sorted({self._labels.values[label] for label in labels[mine & inside]})
                figures.broken = (f"never at rest: {size} states follow each other in circles by {', '.join(names)}",)
                figures.trace = self._trace(first)
                return


def replay(space: Space, trace: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Take the steps of a trace one after the other; yields the name of each and the rules that it breaks.

    Raises:
        ValueError: a step is not possible where the trace has it.
    """
    state = space.first
    for name in trace:
        possible = list(space.steps(state))
        step = next((step for step in possible if step.name == name), None)
        if step is None:
            names = ", ".join(step.name for step in possible)
            raise ValueError(f"step {name!r} is not possible here; possible are: {names}")
        yield name, step.broken
        if step.broken:
            return
        state = step.state
    if all(not step.is_free or step.state == state for step in space.steps(state)):
        yield "(at rest)", tuple(space.rest(state))
