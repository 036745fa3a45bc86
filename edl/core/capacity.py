"""A snapshot as arrays: who holds which room, who asks for how much, and which nodes each shape may use.

The planner works on integers in a matrix of nodes by resources; names, labels and phases are read here once. Only
resources that a pod we plan for asks for are columns. Nothing is decided here.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/kube-scheduler/ (requests, not usage, hold room)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edl.core.eligibility import takes_each
from edl.core.guard import serving_grace_left_s
from edl.core.model import (
    HOST_PORT_PREFIX,
    ClusterSnapshot,
    Job,
    Node,
    Pod,
    PodPhase,
    PodShape,
    Resources,
    Role,
    port_at_every_address,
)
from edl.core.plan import NO_COLUMNS, KeptColumns, Limits
from edl.core.quota import QuotaAsk, asks_of

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

# No node has 256 TiB of anything, and 10,000 trainers that ask for twice as much still add up within 64 bits.
MOST_HELD = 2**48
MOST_ASKED = 2**49

UsedColumn = tuple[tuple[int, ...], tuple[tuple[int, int], ...]]
"""The room of a class, by resource, and a pattern: the index of a shape and how many pods, for each that it has."""

LARGE_NODES = 256  # above so many nodes, what is done node by node and tried again and again is done in bulk
MANY_ROOMS = 64  # so does a smaller cluster whose nodes have more kinds of room than this


class Seat(NamedTuple):
    """One live trainer.

    Attributes:
        claim: index of its job among the claims.
        shape: index of the shape that it really has (a job's shape may have changed since).
        node: index of the node it is bound to; -1 while unbound, or where that node is gone.
        is_base: it is one of its job's minimum, by its number.
    """

    claim: int
    pod: Pod
    shape: int
    node: int
    is_base: bool

    @property
    def order(self) -> tuple[bool, bool, int, float, str]:
        """Smaller dies first within a job: not running, surplus, highest index, last started."""
        pod = self.pod
        return (pod.phase is PodPhase.RUNNING, self.is_base, -(pod.index or 0), -(pod.started_s or 0.0), pod.name)


@dataclass(frozen=True, slots=True)
class FixedNeed:
    """Pods of one fixed role that lack room: `waiting` of them exist unbound, `missing` are yet to be created."""

    role: Role
    shape: int
    missing: int


@dataclass(frozen=True, slots=True)
class Claim:
    """A job that may be given something, as the planner sees it.

    Attributes:
        low, high: bounds of the trainer count; equal where it is pinned; `high` may be capped at what fits.
        shape: index of its trainer's shape.
        seats: indices of its live trainers.
        needs: masters and pservers that do not exist yet.
        unbound_fixed: live masters and pservers that have no node yet, with their shapes.
        asks: what it takes of each limit of its queue; empty where the queue has none.
    """

    index: int
    job: Job
    low: int
    high: int
    shape: int
    seats: range
    needs: tuple[FixedNeed, ...]
    unbound_fixed: tuple[tuple[int, Pod], ...]
    asks: tuple[QuotaAsk, ...] = ()

    def fulfilment(self, count: int) -> float:
        """(n - m) / (M - m); 1 where both bounds are one."""
        return 1.0 if self.high <= self.low else (count - self.low) / (self.high - self.low)


@dataclass(frozen=True, slots=True)
class Waiting:
    """Waiting serving pods of one shape: those that trainers may die for, and those that only keep free room."""

    shape: int
    due: int
    young: int


@dataclass(frozen=True, slots=True)
class Held:
    """The live pods of claims that are bound to a node of the snapshot, trainers and others; one row for each.

    Attributes:
        claim, node, shape: (pods,) whose it is, where, and of which shape.
        is_trainer: (pods,).
    """

    claim: IntArray
    node: IntArray
    shape: IntArray
    is_trainer: BoolArray


@dataclass(frozen=True, slots=True)
class World:
    """Everything a plan is computed from.

    Attributes:
        names: resource names, the columns.
        shapes: distinct pod shapes; request: (shapes, resources); opened: (shapes, nodes) where new ones may go.
        empty: (nodes, resources) room with no training pod at all; may be negative where others overcommit.
        now: (nodes, resources) room that is really free: every bound pod of ours still holds its own.
        allocatable: (nodes, resources); largest: (resources,) the most that one node has of each, at least 1.
        held: what the claims' pods hold.
        seat_claim, seat_shape: (seats,) those of each seat, for whoever counts thousands of them.
        reference: shapes of the trainers that may grow: what lost room is measured in.
        is_large: whole patterns are placed instead of pods one by one.
        columns: patterns to begin with; used_columns: those that the programs of this decision used, written by them.
    """

    snapshot: ClusterSnapshot
    limits: Limits
    names: tuple[str, ...]
    shapes: tuple[PodShape, ...]
    request: IntArray
    opened: BoolArray
    empty: IntArray
    now: IntArray
    allocatable: IntArray
    largest: IntArray
    held: Held
    claims: tuple[Claim, ...]
    seats: tuple[Seat, ...]
    seat_claim: IntArray
    seat_shape: IntArray
    waiting: tuple[Waiting, ...]
    headroom: tuple[int, ...]
    reference: tuple[int, ...]
    node_index: dict[str, int] = field(default_factory=dict)
    columns: KeptColumns = NO_COLUMNS
    used_columns: dict[UsedColumn, None] = field(default_factory=dict)

    is_large: bool = False


@dataclass(slots=True)
class _Table:
    """Shapes numbered in order of appearance, and their requests as rows."""

    names: tuple[str, ...]
    number: dict[PodShape, int] = field(default_factory=dict)
    rows: list[list[int]] = field(default_factory=list)
    known: dict[int, int] = field(default_factory=dict)  # by identity: thousands of pods share a few shapes

    def add(self, shape: PodShape) -> int:
        index = self.known.get(id(shape))
        if index is not None:
            return index
        index = self.number.get(shape)
        if index is None:
            index = self.number[shape] = len(self.rows)
            self.rows.append(as_row(shape.request, self.names))
        self.known[id(shape)] = index
        return index


class _Ledger:
    """Pods that hold room, as columns: nodes and shapes."""

    def __init__(self) -> None:
        self.node: list[int] = []
        self.shape: list[int] = []

    def add(self, node: int, shape: int) -> None:
        self.node.append(node)
        self.shape.append(shape)


def read_world(snapshot: ClusterSnapshot, limits: Limits, columns: KeptColumns = NO_COLUMNS) -> World:
    """Turn a snapshot into arrays; `columns` are the patterns that its programs begin with."""
    jobs = [job for job in snapshot.jobs if job.is_schedulable]
    waiting = [pod for pod in snapshot.pods if pod.needs_room]
    names = _planned_resources(jobs, waiting, snapshot)
    table = _Table(names)
    index = {node.name: i for i, node in enumerate(snapshot.nodes)}
    foreign, ours = _Ledger(), _Ledger()
    for pod in snapshot.pods:
        if not pod.is_finished and (node := _home(pod, index)) >= 0:
            foreign.add(node, table.add(pod.shape))
    for job in snapshot.jobs:
        if not job.is_schedulable:
            for pod in job.pods:
                if not pod.is_finished and (node := _home(pod, index)) >= 0:
                    ours.add(node, table.add(pod.shape))
    reader = _JobReader(table, index, ours, limits)
    claims = tuple(reader.read(i, job) for i, job in enumerate(jobs))
    served = _read_waiting(waiting, serving_grace_left_s(snapshot, limits), table)
    headroom = _headroom_shapes(snapshot, limits, table)
    request = _matrix(table.rows, len(names))
    allocatable = _node_rows([node.allocatable for node in snapshot.nodes], names, _held_row)
    reserved = _node_rows([node.reserved for node in snapshot.nodes], names, as_row)
    empty = allocatable - reserved - sum_requests(len(index), request, foreign.node, foreign.shape)
    shapes = tuple(table.number)
    return World(
        snapshot=snapshot,
        limits=limits,
        names=names,
        shapes=shapes,
        request=request,
        opened=_open_nodes(snapshot.nodes, shapes),
        empty=empty,
        now=empty - sum_requests(len(index), request, ours.node, ours.shape),
        allocatable=allocatable,
        largest=allocatable.max(axis=0, initial=1).clip(min=1),
        held=reader.held(),
        claims=claims,
        seats=tuple(reader.seats),
        seat_claim=np.array([seat.claim for seat in reader.seats], dtype=np.int64),
        seat_shape=np.array([seat.shape for seat in reader.seats], dtype=np.int64),
        waiting=served,
        headroom=headroom,
        reference=tuple(sorted({c.shape for c in claims if c.high > c.low})),
        node_index=index,
        columns=columns,
        is_large=len(index) > LARGE_NODES or len({row.tobytes() for row in empty}) > MANY_ROOMS,
    )


def as_row(request: Resources, names: tuple[str, ...]) -> list[int]:
    """The amounts of a pod in the order of the names, cut off where sums of 64 bits could overflow."""
    have = request.as_dict()
    return [min(_asked(have, name), MOST_ASKED) for name in names]


def _asked(have: Mapping[str, int], name: str) -> int:
    """What is asked of a resource; a host port that is asked for at every address is asked for at each."""
    amount = have.get(name, 0)
    return have.get(port_at_every_address(name), 0) if not amount and name.startswith(HOST_PORT_PREFIX) else amount


def count_stuck(world: World) -> list[int]:
    """(claims,) trainers of each that count, but stand where no new one of their job could."""
    held, asked = world.held, np.array([claim.shape for claim in world.claims], dtype=np.int64)
    trainers = np.flatnonzero(held.is_trainer)
    owner, shape = held.claim[trainers], held.shape[trainers]
    stuck = (shape != asked[owner]) | ~world.opened[shape, held.node[trainers]]
    count = np.bincount(owner[stuck], minlength=len(world.claims))
    lost = [seat.claim for seat in world.seats if seat.node < 0 and seat.pod.node]
    stuck_of: list[int] = (count + np.bincount(np.array(lost, dtype=np.int64), minlength=len(world.claims))).tolist()
    return stuck_of


def count_beyond(world: World) -> list[int]:
    """(claims,) trainers of each that count, but stand where no new ones could, or where others took their room."""
    held, asked = world.held, np.array([claim.shape for claim in world.claims], dtype=np.int64)
    trainers = np.flatnonzero(held.is_trainer)
    owner, shape, node = held.claim[trainers], held.shape[trainers], held.node[trainers]
    moves = (shape == asked[owner]) & world.opened[shape, node]
    places, here = np.unique(owner[moves] * len(world.empty) + node[moves], return_counts=True)
    owner, node = np.divmod(places, max(1, len(world.empty)))
    slots = np.zeros(len(places), dtype=np.int64)
    for kind in np.unique(asked[owner]).tolist():
        mine = asked[owner] == kind
        slots[mine] = count_slots(world.empty[node[mine]], world.request[kind])
    crowded = np.bincount(owner, (here - slots).clip(min=0), minlength=len(world.claims)).astype(np.int64).tolist()
    return [stuck + more for stuck, more in zip(count_stuck(world), crowded, strict=True)]


def count_slots(free: IntArray, request: IntArray) -> IntArray:
    """How many pods of one request fit into each row of free room: (nodes,), never negative."""
    asked = np.flatnonzero(request > 0).tolist()
    if not asked:
        return np.full(len(free), np.iinfo(np.int32).max, dtype=np.int64)
    slots: IntArray = free[:, asked[0]] // request[asked[0]]
    for column in asked[1:]:
        np.minimum(slots, free[:, column] // request[column], out=slots)
    return np.maximum(slots, 0, out=slots)


def room_beside(world: World, members: Iterable[int]) -> IntArray:
    """(nodes, resources) room beside the bound masters and pservers of some claims, their trainers gone."""
    held = world.held
    stays = np.isin(held.claim, np.fromiter(members, dtype=np.int64)) & ~held.is_trainer
    return world.empty - sum_requests(len(world.empty), world.request, held.node[stays], held.shape[stays])


def sum_requests(
    nodes: int, request: IntArray, node: Sequence[int] | IntArray, shape: Sequence[int] | IntArray
) -> IntArray:
    """(nodes, resources) what pods ask for in all on each node; one entry of `node` and `shape` for each pod."""
    cells = np.asarray(node, dtype=np.int64) * len(request) + np.asarray(shape, dtype=np.int64)
    counts = np.bincount(cells, minlength=nodes * len(request)).astype(np.int64)
    return counts.reshape(nodes, len(request)) @ request


def _planned_resources(jobs: Iterable[Job], waiting: Iterable[Pod], snapshot: ClusterSnapshot) -> tuple[str, ...]:
    """Every resource that a planned pod asks for; with a host port, all addresses at which somebody holds it."""
    shapes = {id(shape): shape for job in jobs for shape in (job.trainer, *(f.shape for f in job.fixed))}
    shapes |= {id(pod.shape): pod.shape for pod in waiting}
    names = {name for shape in shapes.values() for name in shape.request}
    if ports := {name for name in names if name.startswith(HOST_PORT_PREFIX)}:
        pods = chain(snapshot.pods, *(job.pods for job in snapshot.jobs))
        held = {id(pod.shape): pod.shape for pod in pods}.values()
        names |= {name for shape in held for name in shape.request if port_at_every_address(name) in ports}
    return tuple(sorted(names))


def _matrix(rows: list[list[int]], columns: int) -> IntArray:
    return np.array(rows, dtype=np.int64).reshape(len(rows), columns)


def _node_rows(
    amounts: list[Resources], names: tuple[str, ...], read: Callable[[Resources, tuple[str, ...]], list[int]]
) -> IntArray:
    """(nodes, resources); equal nodes are read once."""
    rows: dict[tuple[tuple[str, int], ...], int] = {}
    kinds: list[list[int]] = []
    order = []
    for have in amounts:
        kind = rows.get(have.amounts)
        if kind is None:
            kind = rows[have.amounts] = len(kinds)
            kinds.append(read(have, names))
        order.append(kind)
    return _matrix(kinds, len(names))[np.array(order, dtype=np.int64)]


def _held_row(allocatable: Resources, names: tuple[str, ...]) -> list[int]:
    have = allocatable.as_dict()
    return [1 if name.startswith(HOST_PORT_PREFIX) else min(have.get(name, 0), MOST_HELD) for name in names]


def _home(pod: Pod, index: dict[str, int]) -> int:
    """The node that a pod holds room on: bound, or promised by kube-scheduler; -1 where there is none."""
    return index.get(pod.node or pod.nominated, -1)


class _JobReader:
    """Reads jobs one after the other; seats are numbered through."""

    def __init__(self, table: _Table, index: dict[str, int], ours: _Ledger, limits: Limits) -> None:
        self.table, self.index, self.ours, self.limits = table, index, ours, limits
        self.seats: list[Seat] = []
        self._bound = _Ledger()
        self._owner: list[int] = []
        self._is_trainer: list[bool] = []

    def held(self) -> Held:
        """What the jobs read so far hold."""
        return Held(
            claim=np.array(self._owner, dtype=np.int64),
            node=np.array(self._bound.node, dtype=np.int64),
            shape=np.array(self._bound.shape, dtype=np.int64),
            is_trainer=np.array(self._is_trainer, dtype=np.bool_),
        )

    def read(self, number: int, job: Job) -> Claim:
        """Read one job and its pods."""
        shape = self.table.add(job.trainer)
        first = len(self.seats)
        unbound: list[tuple[int, Pod]] = []
        alive: Counter[Role | None] = Counter()
        for pod in job.pods:
            if pod.phase is PodPhase.SUCCEEDED or pod.phase is PodPhase.FAILED:
                continue
            kind = shape if pod.shape is job.trainer else self.table.add(pod.shape)
            if (home := _home(pod, self.index)) >= 0:
                self.ours.add(home, kind)
            if pod.terminating:
                continue
            node = self.index.get(pod.node, -1)
            if node >= 0:
                self._bound.add(node, kind)
                self._owner.append(number)
                self._is_trainer.append(pod.role is Role.TRAINER)
            if pod.role is Role.TRAINER:
                self.seats.append(Seat(number, pod, kind, node, (pod.index or 0) < job.min_trainers))
            else:
                alive[pod.role] += 1
                if not pod.node:
                    unbound.append((kind, pod))
        needs = tuple(FixedNeed(f.role, self.table.add(f.shape), f.count - alive[f.role]) for f in job.fixed)
        return Claim(
            index=number,
            job=job,
            low=job.pinned or job.min_trainers,
            high=job.pinned or job.max_trainers,
            shape=shape,
            seats=range(first, len(self.seats)),
            needs=tuple(need for need in needs if need.missing > 0),
            unbound_fixed=tuple(unbound),
            asks=asks_of(job, self.limits.quotas),
        )


def _read_waiting(pods: list[Pod], in_grace: Container[tuple[str, str]], table: _Table) -> tuple[Waiting, ...]:
    due: Counter[int] = Counter()
    young: Counter[int] = Counter()
    for pod in pods:
        (young if (pod.namespace, pod.name) in in_grace else due)[table.add(pod.shape)] += 1
    return tuple(Waiting(shape, due[shape], young[shape]) for shape in sorted(set(due) | set(young)))


def _headroom_shapes(snapshot: ClusterSnapshot, limits: Limits, table: _Table) -> tuple[int, ...]:
    if not limits.serving_headroom:
        return ()
    serving = (p for p in snapshot.pods if p.is_live and p.priority >= 0 and not p.daemon)
    return tuple(sorted({table.add(p.shape) for p in serving}))


def _open_nodes(nodes: tuple[Node, ...], shapes: tuple[PodShape, ...]) -> BoolArray:
    """(shapes, nodes)."""
    placements = tuple(dict.fromkeys(shape.placement for shape in shapes))
    rows = takes_each(nodes, placements)
    opened = np.array([rows[shape.placement] for shape in shapes], dtype=np.bool_)
    return opened.reshape(len(shapes), len(nodes))
