"""A snapshot as arrays: who holds which room, who asks for how much, and which nodes each shape may use.

The planner works on integers in a matrix of nodes by resources; names, labels and phases are read here once. Only
resources that a pod we plan for asks for are columns. Nothing is decided here.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/kube-scheduler/ (requests, not usage, hold room)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.plan import NO_COLUMNS, KeptColumns, Limits
from edl.model.pods import Pod, PodPhase
from edl.model.resources import PodShape
from edl.planner.quota import QuotaUse

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

UsedColumn = tuple[tuple[int, ...], tuple[tuple[int, int], ...]]
"""The room of a class, by resource, and a pattern: the index of a shape and how many pods, for each that it has."""


class LiveTrainer(NamedTuple):
    """One live trainer.

    Attributes:
        claim: index of its job among the claims.
        shape: index of the shape that it really has (a job's shape may have changed since).
        node: index of the node it is bound to; -1 while unbound, or where that node is gone.
        is_base: it is one of its job's minimum, by its number.
    """

    demand: int
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
class JobDemand:
    """A job that may be given something, as the planner sees it.

    Attributes:
        min_trainers, max_trainers: `Job.bounds`; the maximum may be capped at what would fit alone.
        shape: index of its trainer's shape.
        seats: indices of its live trainers.
        needs: masters and pservers that do not exist yet.
        unbound_fixed: live masters and pservers that have no node yet, with their shapes.
        asks: what it takes of each limit of its queue; empty where the queue has none.
    """

    index: int
    job: Job
    min_trainers: int
    max_trainers: int
    shape: int
    live_trainers: range
    needs: tuple[FixedNeed, ...]
    unbound_fixed: tuple[tuple[int, Pod], ...]
    quota_uses: tuple[QuotaUse, ...] = ()

    def fulfilment(self, count: int) -> float:
        """(n - m) / (M - m); 1 where both bounds are one."""
        span = self.max_trainers - self.min_trainers
        return 1.0 if span <= 0 else (count - self.min_trainers) / span


@dataclass(frozen=True, slots=True)
class WaitingServing:
    """Waiting serving pods of one shape: those that trainers may die for, and those that only keep free room."""

    shape: int
    due: int
    in_grace: int


@dataclass(frozen=True, slots=True)
class BoundPods:
    """The live pods of claims that are bound to a node of the snapshot, trainers and others; one row for each.

    Attributes:
        claim, node, shape: (pods,) whose it is, where, and of which shape.
        is_trainer: (pods,).
    """

    demand: IntArray
    node: IntArray
    shape: IntArray
    is_trainer: BoolArray


@dataclass(frozen=True, slots=True)
class Problem:
    """Everything a plan is computed from.

    Attributes:
        names: resource names, the columns.
        shapes: distinct pod shapes; request: (shapes, resources); opened: (shapes, nodes) where new ones may go.
        empty: (nodes, resources) room with no training pod at all; may be negative where others overcommit.
        now: (nodes, resources) room that is really free: every bound pod of ours still holds its own.
        leaving: (nodes, resources) what terminating pods of others hold: it is not free yet, and will be.
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
    leaving: IntArray
    allocatable: IntArray
    largest: IntArray
    held: BoundPods
    demands: tuple[JobDemand, ...]
    live_trainers: tuple[LiveTrainer, ...]
    trainer_demand: IntArray
    trainer_shape: IntArray
    waiting: tuple[WaitingServing, ...]
    headroom: tuple[int, ...]
    reference: tuple[int, ...]
    node_index: dict[str, int] = field(default_factory=dict)
    columns: KeptColumns = NO_COLUMNS
    used_columns: dict[UsedColumn, None] = field(default_factory=dict)

    is_large: bool = False


def count_stuck(problem: Problem) -> list[int]:
    """(claims,) trainers of each that count, but stand where no new one of their job could."""
    held, asked = problem.held, np.array([demand.shape for demand in problem.demands], dtype=np.int64)
    trainers = np.flatnonzero(held.is_trainer)
    owner, shape = held.demand[trainers], held.shape[trainers]
    stuck = (shape != asked[owner]) | ~problem.opened[shape, held.node[trainers]]
    count = np.bincount(owner[stuck], minlength=len(problem.demands))
    lost = [trainer.demand for trainer in problem.live_trainers if trainer.node < 0 and trainer.pod.node]
    stuck_of: list[int] = (
        count + np.bincount(np.array(lost, dtype=np.int64), minlength=len(problem.demands))
    ).tolist()
    return stuck_of


def count_beyond(problem: Problem) -> list[int]:
    """(claims,) trainers of each that count, but stand where no new ones could, or where others took their room."""
    held, asked = problem.held, np.array([demand.shape for demand in problem.demands], dtype=np.int64)
    trainers = np.flatnonzero(held.is_trainer)
    owner, shape, node = held.demand[trainers], held.shape[trainers], held.node[trainers]
    moves = (shape == asked[owner]) & problem.opened[shape, node]
    places, here = np.unique(owner[moves] * len(problem.empty) + node[moves], return_counts=True)
    owner, node = np.divmod(places, max(1, len(problem.empty)))
    slots = np.zeros(len(places), dtype=np.int64)
    for kind in np.unique(asked[owner]).tolist():
        mine = asked[owner] == kind
        slots[mine] = count_slots(problem.empty[node[mine]], problem.request[kind])
    crowded = np.bincount(owner, (here - slots).clip(min=0), minlength=len(problem.demands)).astype(np.int64).tolist()
    return [stuck + more for stuck, more in zip(count_stuck(problem), crowded, strict=True)]


def count_slots(free: IntArray, request: IntArray) -> IntArray:
    """How many pods of one request fit into each row of free room: (nodes,), never negative."""
    asked = np.flatnonzero(request > 0).tolist()
    if not asked:
        return np.full(len(free), np.iinfo(np.int32).max, dtype=np.int64)
    slots: IntArray = free[:, asked[0]] // request[asked[0]]
    for column in asked[1:]:
        np.minimum(slots, free[:, column] // request[column], out=slots)
    return np.maximum(slots, 0, out=slots)


def room_beside(problem: Problem, members: Iterable[int]) -> IntArray:
    """(nodes, resources) room beside the bound masters and pservers of some claims, their trainers gone."""
    held = problem.held
    stays = np.isin(held.demand, np.fromiter(members, dtype=np.int64)) & ~held.is_trainer
    return problem.empty - sum_requests(len(problem.empty), problem.request, held.node[stays], held.shape[stays])


def sum_requests(
    nodes: int, request: IntArray, node: Sequence[int] | IntArray, shape: Sequence[int] | IntArray
) -> IntArray:
    """(nodes, resources) what pods ask for in all on each node; one entry of `node` and `shape` for each pod."""
    cells = np.asarray(node, dtype=np.int64) * len(request) + np.asarray(shape, dtype=np.int64)
    counts = np.bincount(cells, minlength=nodes * len(request)).astype(np.int64)
    return counts.reshape(nodes, len(request)) @ request
