"""A snapshot as arrays: who holds which room, who asks for how much, and which nodes each shape may use.

The planner works on integers in a matrix of nodes by resources; names, labels and phases are read here once. Only
resources that a pod we plan for asks for are columns. Nothing is decided here.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/kube-scheduler/ (requests, not usage, hold room)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from edl.core.eligibility import takes
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
from edl.core.plan import Limits
from edl.core.quota import QuotaAsk, asks_of

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

# No node has 256 TiB of anything, and 10,000 trainers that ask for twice as much still add up within 64 bits.
MOST_HELD = 2**48
MOST_ASKED = 2**49


@dataclass(frozen=True, slots=True)
class Seat:
    """One live trainer.

    Attributes:
        claim: index of its job among the claims.
        shape: index of the shape that it really has (a job's shape may have changed since).
        node: index of the node it is bound to; -1 while unbound, or where that node is gone.
        order: smaller dies first within a job: not running, surplus, highest index, last started.
    """

    claim: int
    pod: Pod
    shape: int
    node: int
    order: tuple[bool, bool, int, float, str]


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
        held: (nodes, resources) what its bound pods hold, trainers included.
        asks: what it takes of each limit of its queue; empty where the queue has none.
    """

    index: int
    job: Job
    low: int
    high: int
    shape: int
    seats: tuple[int, ...]
    needs: tuple[FixedNeed, ...]
    unbound_fixed: tuple[tuple[int, Pod], ...]
    held: IntArray
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
class World:
    """Everything a plan is computed from.

    Attributes:
        names: resource names, the columns.
        shapes: distinct pod shapes; request: (shapes, resources); opened: (shapes, nodes) where new ones may go.
        empty: (nodes, resources) room with no training pod at all; may be negative where others overcommit.
        now: (nodes, resources) room that is really free: every bound pod of ours still holds its own.
        allocatable: (nodes, resources).
        reference: shapes of the trainers that may grow: what lost room is measured in.
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
    claims: tuple[Claim, ...]
    seats: tuple[Seat, ...]
    waiting: tuple[Waiting, ...]
    headroom: tuple[int, ...]
    reference: tuple[int, ...]
    node_index: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Table:
    """Shapes numbered in order of appearance, and their requests as rows."""

    names: tuple[str, ...]
    number: dict[PodShape, int] = field(default_factory=dict)
    rows: list[list[int]] = field(default_factory=list)

    def add(self, shape: PodShape) -> int:
        index = self.number.get(shape)
        if index is None:
            index = self.number[shape] = len(self.rows)
            self.rows.append(as_row(shape.request, self.names))
        return index


def read_world(snapshot: ClusterSnapshot, limits: Limits) -> World:
    """Turn a snapshot into arrays."""
    jobs = [job for job in snapshot.jobs if job.is_schedulable]
    waiting = [pod for pod in snapshot.pods if pod.needs_room]
    names = _planned_resources(jobs, waiting, snapshot)
    table = _Table(names)
    index = {node.name: i for i, node in enumerate(snapshot.nodes)}
    allocatable = _matrix([_allocatable_row(node, names) for node in snapshot.nodes], len(names))
    empty = allocatable - _matrix([as_row(node.reserved, names) for node in snapshot.nodes], len(names))
    _subtract(empty, [(_home(p, index), p) for p in snapshot.pods if not p.is_finished], table)
    now = empty.copy()
    _subtract(now, [(_home(p, index), p) for job in snapshot.jobs for p in job.pods if not p.is_finished], table)
    seats = [seat for i, job in enumerate(jobs) for seat in _read_seats(i, job, index, table)]
    claims = tuple(_read_claim(i, job, index, table, seats, limits=limits) for i, job in enumerate(jobs))
    served = _read_waiting(waiting, snapshot.observed_at_s, limits, table)
    headroom = _headroom_shapes(snapshot, limits, table)
    shapes = tuple(table.number)
    return World(
        snapshot=snapshot,
        limits=limits,
        names=names,
        shapes=shapes,
        request=_matrix(table.rows, len(names)),
        opened=_open_nodes(snapshot.nodes, shapes),
        empty=empty,
        now=now,
        allocatable=allocatable,
        claims=claims,
        seats=tuple(seats),
        waiting=served,
        headroom=headroom,
        reference=tuple(sorted({c.shape for c in claims if c.high > c.low})),
        node_index=index,
    )


def as_row(request: Resources, names: tuple[str, ...]) -> list[int]:
    """The amounts of a pod in the order of the names, cut off where sums of 64 bits could overflow."""
    have = request.as_dict()
    return [min(_asked(have, name), MOST_ASKED) for name in names]


def _asked(have: Mapping[str, int], name: str) -> int:
    """What is asked of a resource; a host port that is asked for at every address is asked for at each."""
    amount = have.get(name, 0)
    return have.get(port_at_every_address(name), 0) if not amount and name.startswith(HOST_PORT_PREFIX) else amount


def count_slots(free: IntArray, request: IntArray) -> IntArray:
    """How many pods of one request fit into each row of free room: (nodes,), never negative."""
    asked = request > 0
    if not asked.any():
        return np.full(len(free), np.iinfo(np.int32).max, dtype=np.int64)
    slots: IntArray = np.maximum(np.min(free[:, asked] // request[asked], axis=1), 0)
    return slots


def _planned_resources(jobs: Iterable[Job], waiting: Iterable[Pod], snapshot: ClusterSnapshot) -> tuple[str, ...]:
    """Every resource that a planned pod asks for; with a host port, all addresses at which somebody holds it."""
    shapes = {shape for job in jobs for shape in (job.trainer, *(f.shape for f in job.fixed))}
    shapes |= {pod.shape for pod in waiting}
    names = {name for shape in shapes for name in shape.request}
    if ports := {name for name in names if name.startswith(HOST_PORT_PREFIX)}:
        held = {pod.shape for pods in (snapshot.pods, *(job.pods for job in snapshot.jobs)) for pod in pods}
        names |= {name for shape in held for name in shape.request if port_at_every_address(name) in ports}
    return tuple(sorted(names))


def _matrix(rows: list[list[int]], columns: int) -> IntArray:
    return np.array(rows, dtype=np.int64).reshape(len(rows), columns)


def _allocatable_row(node: Node, names: tuple[str, ...]) -> list[int]:
    have = node.allocatable.as_dict()
    return [1 if name.startswith(HOST_PORT_PREFIX) else min(have.get(name, 0), MOST_HELD) for name in names]


def _home(pod: Pod, index: dict[str, int]) -> int:
    """The node that a pod holds room on: bound, or promised by kube-scheduler; -1 where there is none."""
    return index.get(pod.node or pod.nominated, -1)


def _subtract(room: IntArray, holders: list[tuple[int, Pod]], table: _Table) -> None:
    for node, pod in holders:
        if node >= 0:
            room[node] -= np.array(table.rows[table.add(pod.shape)], dtype=np.int64)


def _read_seats(claim: int, job: Job, index: dict[str, int], table: _Table) -> list[Seat]:
    seats = []
    for pod in job.live_trainers:
        node = index.get(pod.node, -1)
        seats.append(Seat(claim, pod, table.add(pod.shape), node, _dying_order(pod, job)))
    return seats


def _read_claim(
    number: int, job: Job, index: dict[str, int], table: _Table, seats: list[Seat], *, limits: Limits
) -> Claim:
    held = np.zeros((len(index), len(table.names)), dtype=np.int64)
    live = [pod for pod in job.pods if pod.is_live]
    _subtract(held, [(index.get(pod.node, -1), pod) for pod in live], table)
    alive = Counter(pod.role for pod in live)
    needs = tuple(FixedNeed(f.role, table.add(f.shape), f.count - alive[f.role]) for f in job.fixed)
    return Claim(
        index=number,
        job=job,
        low=job.pinned or job.min_trainers,
        high=job.pinned or job.max_trainers,
        shape=table.add(job.trainer),
        seats=tuple(i for i, seat in enumerate(seats) if seat.claim == number),
        needs=tuple(need for need in needs if need.missing > 0),
        unbound_fixed=tuple(
            (table.add(pod.shape), pod) for pod in live if pod.role is not Role.TRAINER and not pod.node
        ),
        held=-held,
        asks=asks_of(job, limits.quotas),
    )


def _dying_order(pod: Pod, job: Job) -> tuple[bool, bool, int, float, str]:
    place = pod.index if pod.index is not None else 0
    return (
        pod.phase is PodPhase.RUNNING,
        place < job.min_trainers,
        -place,
        -(pod.started_s or 0.0),
        pod.name,
    )


def _read_waiting(pods: list[Pod], now_s: float, limits: Limits, table: _Table) -> tuple[Waiting, ...]:
    due: Counter[int] = Counter()
    young: Counter[int] = Counter()
    for pod in pods:
        is_due = pod.tried or now_s - pod.created_s >= limits.serving_grace_s
        (due if is_due else young)[table.add(pod.shape)] += 1
    return tuple(Waiting(shape, due[shape], young[shape]) for shape in sorted(set(due) | set(young)))


def _headroom_shapes(snapshot: ClusterSnapshot, limits: Limits, table: _Table) -> tuple[int, ...]:
    if not limits.serving_headroom:
        return ()
    serving = (p for p in snapshot.pods if p.is_live and p.priority >= 0 and not p.daemon)
    return tuple(sorted({table.add(p.shape) for p in serving}))


def _open_nodes(nodes: tuple[Node, ...], shapes: tuple[PodShape, ...]) -> BoolArray:
    rows = {shape.placement: [takes(node, shape.placement) for node in nodes] for shape in shapes}
    return np.array([rows[shape.placement] for shape in shapes], dtype=np.bool_).reshape(len(shapes), len(nodes))
