"""The controller as an automaton: what it does next follows from what it remembers and from what happens to it.

A state of the automaton is what a controller remembers after a turn. Each is found once, by letting the real
controller take the turn; later it is looked up.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from edl.controller.pending_writes import Lane, Write
from edl.model.actions import EmitEvent, Outcome, Result
from edl.model.cluster import ClusterSnapshot
from tests.worlds.histories.remembered_plans import RememberedPlans
from tests.worlds.small_scope.desk import Desk, called
from tests.worlds.small_scope.memories import PAUSE_S


class Kind(Enum):
    """What happens to a controller."""

    SEEN = auto()  # the cache shows something else
    PLAN_BEGINS = auto()
    PUBLISHED = auto()
    SEARCH = auto()  # trainers are found ahead of the plan
    EVICTED = auto()  # and evicted, if kube-scheduler has refused the serving pods
    ENDED = auto()  # a write
    PAUSED = auto()  # all that waits for a time has waited long enough
    LOST = auto()  # the lease
    LEADS = auto()  # it has the lease again


class Event(NamedTuple):
    """Something that happens to the controller.

    Attributes:
        snapshot: the number of what the cache shows now.
        is_held: the lease is held.
        write: the number of the write that has ended.
        result, reason: of its first action; the others follow from that and the lease.
    """

    kind: Kind
    snapshot: int
    is_held: bool = True
    write: int = -1
    result: Result = Result.DONE
    reason: str = ""


@dataclass
class Node:
    """A state of the automaton.

    Attributes:
        memory: what the controller remembers.
        snapshot: the number of what it has seen last; -1 for nothing.
        writes: those under way, in the order of their names.
        names: of these writes.
        most: for each, if it creates a pod, the maximum of trainers that the controller saw then.
        broken: the rules that the turn has broken that led here.
        is_planning, may_search, is_searching: what may happen next.
        is_idle: nothing is left to do.
    """

    memory: Hashable
    snapshot: int
    writes: tuple[Write, ...]
    names: tuple[str, ...]
    most: tuple[int, ...]
    broken: tuple[str, ...]
    is_planning: bool
    may_search: bool
    is_searching: bool
    is_idle: bool
    next: dict[Event, int] = field(default_factory=dict)


class Automaton:
    """The controller's automaton, found as far as it is needed.

    Args:
        plans: makes the plans.
        minimums_fit: the minimums of all jobs fit at all times, so no job may be taken down.
        waits_for_counts: a status waits for further changes.

    Attributes:
        turns: how many turns the real controller has taken.
    """

    def __init__(self, plans: RememberedPlans, *, minimums_fit: bool, waits_for_counts: bool) -> None:
        self.snapshots: list[ClusterSnapshot] = []
        self.nodes: list[Node] = []
        self.turns = 0
        self._numbers: dict[Hashable, int] = {}
        self.desk = Desk(plans, minimums_fit=minimums_fit, waits_for_counts=waits_for_counts)
        self.first = self._found(-1)

    def follow(self, number: int, event: Event) -> int:
        """The state after something has happened."""
        node = self.nodes[number]
        found = node.next.get(event)
        if found is None:
            self.turns += 1
            self._take_turn(node, event)
            found = node.next[event] = self._found(event.snapshot)
        return found

    def known_uids(self, number: int) -> frozenset[str]:
        """The UIDs of the pods that the controller may remember."""
        return self.desk.memories.uids(self.nodes[number].memory)

    def _take_turn(self, node: Node, event: Event) -> None:
        desk = self.desk
        desk.take_over(node.memory, older_s=PAUSE_S if event.kind is Kind.PAUSED else 0.0)
        if event.snapshot != node.snapshot:
            desk.seen(self.snapshots[event.snapshot])
        match event.kind:
            case Kind.PLAN_BEGINS:
                desk.plan_begins()
            case Kind.PUBLISHED:
                desk.publish()
            case Kind.SEARCH:
                desk.search()
            case Kind.EVICTED:
                desk.evict()
            case Kind.ENDED:
                desk.ended(node.names[event.write], _outcomes(node.writes[event.write], event))
            case Kind.LOST:
                desk.stand_down()
        if event.is_held:
            desk.send()

    def _found(self, snapshot: int) -> int:
        memory, broken = self.desk.memory(), self.desk.broken
        number = self._numbers.get(memory) if not broken else None
        if number is None:
            number = len(self.nodes)
            if not broken:
                self._numbers[memory] = number
            self.nodes.append(self._node(memory, snapshot, broken))
        return number

    def _node(self, memory: Hashable, snapshot: int, broken: tuple[str, ...]) -> Node:
        parts = self.desk.parts
        core, writes = parts.core, tuple(parts.core.under_way.writes)
        return Node(
            memory,
            snapshot,
            writes,
            tuple(called(write) for write in writes),
            tuple(parts.rules.most(write.actions[0]) for write in writes),
            broken,
            is_planning=parts.view is not None,
            may_search=parts.evictions.search is None and bool(core.snapshot.waiting_serving),
            is_searching=parts.evictions.search is not None,
            is_idle=not (
                core.under_way.writes or core._due._now or core._pending.has(Lane) or core.under_way.unanswered
            ),
        )


def _outcomes(write: Write, event: Event) -> list[Outcome]:
    """What the sender is answered: an action that fails ends a write; without the lease nothing more is sent."""
    first, *rest = write.actions
    outcomes = [Outcome(first, event.result, event.reason, "a fault" if event.reason else "")]
    for action in rest:
        last = outcomes[-1]
        if not last.is_ok and not isinstance(last.action, EmitEvent):
            break
        outcomes.append(Outcome(action, Result.DONE if event.is_held else Result.NOT_LEADER))
    return outcomes
