"""The states of a scene, and the steps from one to the next.

A state is the cluster, the state of the controller's automaton, and how far the writes under way are; equal states
have equal numbers. Each step is one thing that happens, and the turn that the controller takes then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from edl.model.actions import Action, CreatePod, DeletePod, MarkPod, PatchStatus, Result
from tests.worlds.histories.remembered_plans import RememberedPlans
from tests.worlds.small_scope.api_server import Effect, Request, answer, carry_out
from tests.worlds.small_scope.automaton import Automaton, Event, Kind, Node
from tests.worlds.small_scope.cluster import Table, World
from tests.worlds.small_scope.desk import slow_action
from tests.worlds.small_scope.rest_rules import broken_at_rest
from tests.worlds.small_scope.scenes import FAULTS, Fault, Scene
from tests.worlds.small_scope.takeover import taken_over

_WORLD, _NODE = 40, 8
"""A state is one number: the world from this bit on, the controller from that bit on, and eight bits of flags."""
_HELD, _STAGES = 1, 1
"""Flags: the lease is held; from that bit on, two bits for each write under way: its stage."""
_MOST_TO_REST = 1000
NEW, MARKED, DONE = 0, 1, 2
"""The stages of a write: no request of it was carried out; a deletion has marked the pod; it has no answer yet."""


class Step(NamedTuple):
    """A step from one state to the next.

    Attributes:
        is_free: it happens sooner or later by itself; False if it happens at most once, or need not happen.
    """

    name: str
    state: int
    broken: tuple[str, ...] = ()
    is_free: bool = True


class At(NamedTuple):
    """A state, unpacked: the number of the world, of the controller, and whether the lease is held."""

    world: int
    node: int
    stages: tuple[int, ...]
    is_held: bool


class Space:
    """The states of a scene and the steps between them.

    Args:
        scene: what there is and what happens.
        plans: makes the plans; shared by the scenes of a run.
    """

    def __init__(self, scene: Scene, plans: RememberedPlans) -> None:
        self.scene, self.cluster = scene, scene.cluster()
        self.automaton = Automaton(plans, minimums_fit=scene.minimums_fit, waits_for_counts=scene.waits_for_counts)
        self.worlds = Table()
        self._snapshots = Table()
        self._moves: dict[int, list[tuple[str, int, bool]]] = {}
        self._shown: dict[tuple[int, ...], int] = {}
        self._effects: dict[tuple[int, int, int, int], tuple[Effect, int]] = {}
        self._ways: dict[int, list[tuple[str, int]]] = {}
        self._quiet: dict[int, bool] = {}
        world = self.worlds.number(self.cluster.begin(scene.jobs, scene.nodes))
        self.first = self._step("", At(world, self.automaton.first, (), is_held=True), Kind.SEEN).state
        if scene.is_warm:
            self.first = self._at_rest(self.first)

    def _at_rest(self, state: int) -> int:
        """The state at rest that follows if nothing happens but what happens by itself, as soon as it may."""
        for _ in range(_MOST_TO_REST):
            ahead = [step.state for step in self.steps(state) if step.is_free and step.state != state]
            if not ahead:
                return state
            state = ahead[0]
        raise AssertionError(f"scene {self.scene.name} does not come to rest before it begins")

    # --- Steps

    def steps(self, state: int) -> Iterator[Step]:
        """Everything that may happen next."""
        at = self._unpacked(state)
        for name, after, is_free in self._moves_of(at.world):
            yield self._turn(name, at._replace(world=after))._replace(is_free=is_free)
        if any(self.worlds.values[at.world].owed):
            return
        for index in range(len(at.stages)):
            yield from self._written(at, index)
        yield from self._plans(at)
        yield from self._faults_of_controller(at)

    def _plans(self, at: At) -> Iterator[Step]:
        """A plan begins or is published, trainers are evicted ahead of it, and time passes."""
        node = self.automaton.nodes[at.node]
        if at.is_held and node.is_planning:
            yield self._step("plan published", at, Kind.PUBLISHED)
        elif at.is_held:
            begun = self._step("plan begins", at, Kind.PLAN_BEGINS)
            yield begun._replace(is_free=not self._is_quiet(at))
        if at.is_held and self.scene.evicts_early:
            if node.is_searching:
                yield self._step("evicted if refused", at, Kind.EVICTED)._replace(is_free=False)
            elif node.may_search:
                yield self._step("evictions found", at, Kind.SEARCH)._replace(is_free=False)
        yield self._step("time passes", at, Kind.PAUSED)

    def _is_quiet(self, at: At) -> bool:
        """True if a plan that nothing disturbs leaves the controller as it was."""
        if (found := self._quiet.get(at.node)) is None:
            snapshot = self._snapshot(at.world)
            begun = self.automaton.follow(at.node, Event(Kind.PLAN_BEGINS, snapshot))
            found = self.automaton.follow(begun, Event(Kind.PUBLISHED, snapshot)) == at.node
            self._quiet[at.node] = found
        return found

    def _turn(self, name: str, at: At) -> Step:
        """A step that changes the cluster; the controller takes a turn if the cache shows something else."""
        if any(self.worlds.values[at.world].owed):
            return Step(name, _packed(at))
        return self._step(name, at, Kind.SEEN)

    def _step(
        self, name: str, at: At, kind: Kind, *, write: int = -1, result: Result = Result.DONE, why: str = ""
    ) -> Step:
        """A step in which something happens to the controller."""
        snapshot, before = self._snapshot(at.world), self.automaton.nodes[at.node]
        if kind is Kind.SEEN and snapshot == before.snapshot:
            return Step(name, _packed(at))
        number = self.automaton.follow(at.node, Event(kind, snapshot, at.is_held, write, result, why))
        after = self.automaton.nodes[number]
        stages = {before.names[n]: stage for n, stage in enumerate(at.stages) if n != write}
        now = At(at.world, number, tuple(stages.get(name, NEW) for name in after.names), at.is_held)
        return Step(name, _packed(now), after.broken)

    # --- The cluster

    def _moves_of(self, number: int) -> list[tuple[str, int, bool]]:
        if (found := self._moves.get(number)) is None:
            world: World = self.worlds.values[number]
            moves = [(move, True) for move in self.cluster.moves(world)]
            moves += [(move, False) for move in self.cluster.happenings(world)]
            found = self._moves[number] = [(m.name, self.worlds.number(m.world), is_free) for m, is_free in moves]
        return found

    def _snapshot(self, number: int) -> int:
        world: World = self.worlds.values[number]
        key = tuple(versions[0] for versions in world.streams)
        if (found := self._shown.get(key)) is None:
            snapshot = self.cluster.snapshot(world)
            found = self._shown[key] = self._snapshots.number(snapshot)
            if found == len(self.automaton.snapshots):
                self.automaton.snapshots.append(snapshot)
        return found

    # --- Writes

    def _written(self, at: At, index: int) -> Iterator[Step]:
        """The API server carries out a request of the controller or answers it, or something goes wrong with it."""
        node, stage = self.automaton.nodes[at.node], at.stages[index]
        name, action = node.names[index], slow_action(node.writes[index])
        if action is None:
            yield self._step(f"{name}: answered", at, Kind.ENDED, write=index, result=Result.UNCHANGED)
        elif stage == DONE:
            yield self._ended(name, at, index, action, Result.DONE)
        else:
            yield from self._carried_out(name, at, index, action)
        yield from self._faults(name, at, index, action)

    def _carried_out(self, name: str, at: At, index: int, action: Action) -> Iterator[Step]:
        effect, after = self._effect(at, index, action)
        if effect.result is None:
            marked = self.worlds.number(answer(self.cluster, effect.world, _mark_of(action)))
            step = self._turn(f"{name}: marked", _at_stage(at, marked, index, MARKED))
        elif after != at.world and isinstance(action, CreatePod | DeletePod):
            step = self._turn(f"{name}: done", _at_stage(at, after, index, DONE))
        else:
            step = self._ended(name, at._replace(world=after), index, action, effect.result)
        yield step._replace(broken=(*effect.broken, *step.broken))

    def _ended(self, name: str, at: At, index: int, action: Action, result: Result) -> Step:
        """The step in which the controller gets an answer, and the cache shows what it says."""
        world: World = self.worlds.values[at.world]
        is_ok = result in {Result.DONE, Result.UNCHANGED}
        told = self.worlds.number(answer(self.cluster, world, action)) if is_ok else at.world
        return self._step(f"{name}: {result.value}", at._replace(world=told), Kind.ENDED, write=index, result=result)

    def _effect(self, at: At, index: int, action: Action) -> tuple[Effect, int]:
        key = (at.world, at.node, index, at.stages[index])
        if (found := self._effects.get(key)) is None:
            known = self.automaton.known_uids(at.node) if isinstance(action, CreatePod) else frozenset()
            stage, most = int(at.stages[index] == MARKED), self.automaton.nodes[at.node].most[index]
            effect = carry_out(self.cluster, self.worlds.values[at.world], Request(action, stage, known, most))
            found = self._effects[key] = (effect, self.worlds.number(effect.world))
        return found

    def _faults(self, name: str, at: At, index: int, action: Action | None) -> Iterator[Step]:
        """What may go wrong with a request, once each; an answer is lost of a request that took effect."""
        world: World = self.worlds.values[at.world]
        for fault_name in self.scene.faults:
            fault: Fault = FAULTS[fault_name]
            if action is None or self.cluster.has_happened(world, fault_name):
                continue
            is_done, now = at.stages[index] == DONE, world
            if fault.takes_effect and not is_done:
                effect, _ = self._effect(at, index, action)
                is_done, now = isinstance(action, MarkPod | PatchStatus), effect.world
            if fault.takes_effect == is_done:
                after = at._replace(world=self.worlds.number(self.cluster.note(now, fault_name)))
                yield self._step(
                    f"{name}: {fault_name}", after, Kind.ENDED, write=index, result=fault.result, why=fault.reason
                )._replace(is_free=False)

    # --- What happens to the controller

    def _faults_of_controller(self, at: At) -> Iterator[Step]:
        """The controller crashes, a standby takes over, the lease is lost or comes back."""
        for name, after in self._ways_of(at.world):
            if name == "lease lost":
                if at.is_held:
                    lost = at._replace(world=after, is_held=False)
                    yield self._step(name, lost, Kind.LOST)._replace(is_free=False)
                continue
            fresh = At(after, self.automaton.first, (), is_held=True)
            yield self._turn(name, fresh)._replace(is_free=False)
        if not at.is_held:
            yield self._step("lease held again", at._replace(is_held=True), Kind.LEADS)

    def _ways_of(self, number: int) -> list[tuple[str, int]]:
        """What may happen to the controller in a world: the name, and the world after it."""
        if (found := self._ways.get(number)) is None:
            world, cluster = self.worlds.values[number], self.cluster
            later = {"crash": cluster.listed(world), "lease lost": world}
            if world.standby:
                later["takeover"] = taken_over(world)
            may = [name for name in later if not cluster.has_happened(world, name)]
            found = [(name, self.worlds.number(cluster.note(later[name], name))) for name in may]
            self._ways[number] = found
        return found

    def rest(self, state: int) -> list[str]:
        """The rules that are broken if nothing happens any more in this state."""
        at = self._unpacked(state)
        node: Node = self.automaton.nodes[at.node]
        left = [] if node.is_idle else ["the controller has writes to send, and sends none"]
        return [*left, *broken_at_rest(self.cluster, self.worlds.values[at.world])]

    def _unpacked(self, state: int) -> At:
        node, flags = state >> _NODE & (1 << _WORLD - _NODE) - 1, state & (1 << _NODE) - 1
        writes = len(self.automaton.nodes[node].writes)
        stages = tuple(flags >> _STAGES + 2 * n & 3 for n in range(writes))
        return At(state >> _WORLD, node, stages, bool(flags & _HELD))


def _packed(at: At) -> int:
    stages = sum(stage << _STAGES + 2 * n for n, stage in enumerate(at.stages))
    return at.world << _WORLD | at.node << _NODE | stages | int(at.is_held)


def _at_stage(at: At, world: int, index: int, stage: int) -> At:
    stages = tuple(stage if n == index else old for n, old in enumerate(at.stages))
    return at._replace(world=world, stages=stages)


def _mark_of(action: Action) -> MarkPod:
    """The first request of a deletion."""
    assert isinstance(action, DeletePod)
    return MarkPod(action.job, action.job_uid, action.pod, action.pod_uid, action.intent)
