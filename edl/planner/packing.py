"""Integers: placing whole pods on whole nodes, growing the worst off first, and what may be created right now.

The linear programs say what is possible; here it is done, one pod at a time, in exact room per node. Whatever cannot
be done is reported by the count, never by a broken node. What ought to be done is decided elsewhere.

Source: best fit by lost room, after Tetris (Grandl et al., SIGCOMM 2014, section 3.2).
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from edl.model.cluster import ClusterSnapshot
from edl.model.names import JobKey, Role
from edl.model.plan import Limits, ScaleDecision, ScalePlan
from edl.planner.problem import IntArray, World, count_slots
from edl.planner.problem_reader import read_world
from edl.planner.speedup import Worth
from edl.planner.trial import SERVING, Placed, Room
from edl.planner.victims import choose

SMALLEST = 1e-12  # part of the cluster: a trainer that asks for nothing

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Start:
    """A pod of a plan that has room on its node now."""

    job: JobKey
    role: Role
    node: str


@dataclass(frozen=True, slots=True)
class Demand:
    """Pods of one shape that must get room; `owners` says for whom, one entry for each pod."""

    shape: int
    owners: tuple[tuple[int, Role | None], ...]


def make_room(room: Room, demand: Demand, allowance: Mapping[int, int]) -> int:
    """Place pods of a demand, letting trainers die as the allowance says; the room is changed.

    Returns:
        How many were placed: the first so many owners got theirs.
    """
    left = deque(demand.owners)
    allowed = dict(allowance)
    while left:
        before = len(left)
        for choice in choose(room, demand.shape, len(left), allowed):
            dying = Counter(room.world.seats[i].claim for i in choice.seats)
            if any(n > allowed[j] for j, n in dying.items()):
                continue
            for index in choice.seats:
                room.kill(index)
            if left[0][0] == SERVING:
                room.for_serving.update(choice.seats)
            for j, n in dying.items():
                allowed[j] -= n
            for _ in range(choice.slots):
                place(room, demand.shape, left.popleft(), choice.node)
        if len(left) == before:
            break
    return len(demand.owners) - len(left)


def place(room: Room, shape: int, owner: tuple[int, Role | None], node: int) -> None:
    """Place one pod for its owner."""
    j, role = owner
    if j == SERVING or role is None:
        room.hold(Placed(SERVING, None, shape, node))
    elif role is Role.TRAINER:
        room.place_trainer(j, node)
    else:
        room.place_fixed(j, role, shape, node)


class Grower:
    """Where the next trainer of each shape would go, kept up to date as room is used.

    Attributes:
        nodes: (nodes,) those that hold one more trainer of any shape.
        rank: (shapes, nodes) the cost of one more trainer of each shape on each of them; infinite where it does not
            fit.
    """

    def __init__(self, room: Room) -> None:
        self.room = room
        self.shapes = sorted({claim.shape for claim in room.world.claims})
        self._request = room.world.request[self.shapes]
        self._opened = room.world.opened[self.shapes]
        self._known: dict[bytes, FloatArray] = {}  # nodes of one kind come to the same states
        fits = [(room.slots(shape) > 0) for shape in self.shapes]
        self.nodes = np.flatnonzero(np.logical_or.reduce(fits)) if fits else np.zeros(0, dtype=np.int64)
        self.rank = self._ranks(self.nodes)

    def find(self, shape: int) -> int:
        """The node where one more trainer of the shape costs the least room; -1 where none is left."""
        rank = self.rank[self.shapes.index(shape)]
        if not len(rank) or not has_load_left(self.room, shape):
            return -1
        at = int(rank.argmin())
        return int(self.nodes[at]) if rank[at] < np.inf else -1

    def refresh(self, node: int) -> None:
        """Look again at a node whose room has changed."""
        at, books = int(np.searchsorted(self.nodes, node)), (self.room.free[node], self.room.now[node])
        state = b"".join(row.tobytes() for row in (*books, self._opened[:, node]))
        if state not in self._known:
            self._known[state] = self._ranks(self.nodes[at : at + 1])[:, 0]
        self.rank[:, at] = self._known[state]

    def _ranks(self, rows: IntArray) -> FloatArray:
        room, world = self.room, self.room.world
        free, request, opened = room.free[rows], self._request, self._opened[:, rows]
        states = np.concatenate([free[None], free - request[:, None]])  # as it is, then with one of each shape placed
        slots, after = np.split(_slots(states, request), [1], axis=1)  # (shapes, states, rows)
        slots = slots[:, 0]
        lost = ((slots[:, None] - after) * opened[:, None]).sum(axis=0) - 1
        late = (room.now[rows][None] < request[:, None]).any(axis=2)
        scale = world.largest
        spare = ((free[None] - request[:, None]) / scale).clip(0, 1).sum(axis=2) / max(1, len(scale))
        return np.where((slots > 0) & opened, lost * 4 + late * 2 + spare, np.inf)


def _slots(free: IntArray, request: IntArray) -> IntArray:
    """(shapes, ...) pods of each shape that fit into each row of room."""
    rows = free.reshape(-1, free.shape[-1])
    slots = [count_slots(rows, row) for row in request]
    return np.array(slots, dtype=np.int64).reshape(len(request), *free.shape[:-1])


def has_load_left(room: Room, shape: int) -> bool:
    """True where one more trainer of the shape stays within --max-load-desired, counted on totals."""
    share = room.world.limits.max_load_desired
    if share >= 1.0:
        return True
    total = room.world.allocatable.sum(axis=0)
    request = room.world.request[shape]
    return bool((total - room.free.sum(axis=0) + request <= share * total)[request > 0].all())


def grow(
    room: Room,
    ceiling: Mapping[int, int],
    promised: Mapping[int, int],
    take: Callable[[Room, int], bool] | None = None,
    worths: Mapping[int, Worth] | None = None,
) -> None:
    """Give one trainer after the other until nobody below its ceiling can have one more.

    Whoever is below what its fair share promises comes first, the worst off before the others. What rounding leaves
    goes where it adds most, for the room it takes, to what the certificate bounds: the sum of weighted fulfilment, or
    of worths. A job whose queue has no quota left gets none.

    Args:
        room: the trial; it is changed.
        ceiling: the most trainers that each member may have here.
        promised: its fair share in whole trainers.
        take: how a member below its promise may take from others what is not free; changes the room and says
            whether it did.
        worths: what trainers are worth to each member; by default its weighted fulfilment.
    """
    size = _sizes(room.world)
    heap = [(_urgency(room, j, promised, worths, size), j) for j in ceiling if room.count[j] < ceiling[j]]
    if not heap:
        return
    grower, meter = Grower(room), room.meter()
    heapq.heapify(heap)
    while heap:
        _, j = heapq.heappop(heap)
        if room.count[j] >= ceiling[j]:
            continue
        node = grower.find(room.world.claims[j].shape) if meter.short_of(j) is None else -1
        if node >= 0:
            room.place_trainer(j, node)
            meter.add(j)
            grower.refresh(node)
            heapq.heappush(heap, (_urgency(room, j, promised, worths, size), j))
        elif take is not None and room.count[j] < promised[j] and take(room, j):
            grower, meter = Grower(room), room.meter()
            heap = [(_urgency(room, i, promised, worths, size), i) for i in ceiling]
            heapq.heapify(heap)


def _sizes(world: World) -> dict[int, float]:
    """The largest part of all there is that one trainer of each shape asks for."""
    total = world.allocatable.sum(axis=0).clip(min=1)
    shapes = sorted({claim.shape for claim in world.claims})
    return {s: max(float((world.request[s] / total).max(initial=0.0)), SMALLEST) for s in shapes}


def _urgency(
    room: Room, j: int, promised: Mapping[int, int], worths: Mapping[int, Worth] | None, size: Mapping[int, float]
) -> tuple[float, float, JobKey]:
    claim = room.world.claims[j]
    if room.count[j] < promised[j]:
        return (-inf, room.fulfilment(j), claim.job.key)
    each = worths[j].next(room.count[j]) if worths is not None else claim.job.weight / max(1, claim.high - claim.low)
    return (-each / size[claim.shape], room.fulfilment(j), claim.job.key)


def startable(snapshot: ClusterSnapshot, plan: ScalePlan) -> tuple[Start, ...]:
    """Which pods of a plan can be created now, because their node really has the room.

    Terminating pods and victims still hold theirs; so do pods of ours on their way to a node, and serving pods that
    wait. Masters and pservers come first, then trainers up to each minimum, then the others in turn.
    """
    world = read_world(snapshot, Limits())
    claims = {claim.job.key: claim.index for claim in world.claims}
    decisions = [d for d in plan.decisions if d.admitted and d.job in claims]
    dying = {(d.job, name) for d in decisions for name in d.victims}
    members = [claims[d.job] for d in decisions]
    room = Room(world, members)
    for index, seat in enumerate(world.seats):
        if (
            seat.claim in room.count
            and not seat.pod.node
            and (world.claims[seat.claim].job.key, seat.pod.name) in dying
        ):
            room.kill(index)
    wanted = _creations(decisions)
    _keep_for_serving(room, {world.node_index[node] for _, _, node in wanted if node in world.node_index})
    started = []
    for key, role, name in wanted:
        node = world.node_index.get(name, -1)
        shape = _shape_of(world, claims[key], role)
        if node >= 0 and count_slots(room.now[node : node + 1], world.request[shape])[0] > 0:
            room.now[node] -= world.request[shape]
            started.append(Start(key, role, name))
    return tuple(started)


def _creations(decisions: list[ScaleDecision]) -> list[tuple[JobKey, Role, str]]:
    """Every pod that the plan creates, in the order in which they should come; those that move are still there."""
    fixed = [(d.job, role, node) for d in decisions if not d.moves for role, node in d.fixed_nodes]
    base: list[tuple[JobKey, Role, str]] = []
    rest: list[tuple[int, JobKey, str]] = []
    for decision in decisions:
        nodes = [node for node, count in decision.nodes for _ in range(count)]
        kept = decision.target - len(nodes)
        for turn, node in enumerate(nodes):
            if kept + turn < decision.minimum:
                base.append((decision.job, Role.TRAINER, node))
            else:
                rest.append((turn, decision.job, node))
    return [*fixed, *base, *((job, Role.TRAINER, node) for _, job, node in sorted(rest))]


def _keep_for_serving(room: Room, planned: set[int]) -> None:
    """Take the room that waiting serving pods could use now, on nodes that the plan does not need where possible."""
    for group in room.world.waiting:
        request = room.world.request[group.shape]
        slots = count_slots(room.now, request) * room.world.opened[group.shape]
        left = group.due + group.young
        for node in sorted(np.flatnonzero(slots).tolist(), key=lambda n: (n in planned, n)):
            used = min(left, int(slots[node]))
            room.now[node] -= used * request
            left -= used


def _shape_of(world: World, claim: int, role: Role) -> int:
    if role is Role.TRAINER:
        return world.claims[claim].shape
    return next(need.shape for need in world.claims[claim].needs if need.role is role)
