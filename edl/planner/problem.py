"""The problem: a snapshot as arrays of requests and free capacity, which every stage of the planner reads.

The planner computes with integers in matrices of nodes by resources. Names, labels and phases are read once, by
`problem_reader`. Only resources that a pod to be planned requests are columns. Nothing is decided here.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/kube-scheduler/ (requests count, usage does not)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from edl.model.cluster import ClusterSnapshot
from edl.model.headroom import Headroom
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.names import Role
from edl.model.plan import NO_COLUMNS, KeptColumns
from edl.model.pods import Pod, PodPhase
from edl.model.resources import PodShape
from edl.planner.clock import Clock
from edl.planner.quota import QuotaUse
from edl.planner.solvers.choice import DEFAULT_SOLVER
from edl.planner.solvers.integer_program import SolvedPrograms
from edl.planner.solvers.linear_program import Solver

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

UsedColumn = tuple[tuple[int, ...], tuple[tuple[int, int], ...]]
"""The capacity of a node class, by resource, and a pattern: (shape, number of pods) for each shape in it."""


UNPROTECTED = 1 << 40
"""A number larger than the index of any trainer."""


DeletionOrder = tuple[bool, bool, int, float, str]


class LiveTrainer(NamedTuple):
    """One trainer pod that is neither terminating nor finished.

    Attributes:
        demand: index of its job among the demands.
        pod: the pod.
        shape: index of the shape that the pod has; the job may request another one for new trainers by now.
        node: index of the node it is bound to; -1 if it is unbound, or if the snapshot does not contain its node.
        is_base: it belongs to the minimum of its job; the other trainers are surplus.
    """

    demand: int
    pod: Pod
    shape: int
    node: int
    is_base: bool

    @property
    def order(self) -> DeletionOrder:
        """Sort key of a job's trainers in the order in which a plan deletes them.

        Pods that do not run come before running ones, then surplus before base, those that are not protected before
        the others, higher numbers before lower ones, and pods that started later before earlier ones.
        """
        pod = self.pod
        rank = -(pod.index or 0) if pod.is_protected else -UNPROTECTED - (pod.index or 0)
        return (pod.phase is PodPhase.RUNNING, self.is_base, rank, -(pod.started_s or 0.0), pod.name)


@dataclass(frozen=True, slots=True)
class FixedNeed:
    """Masters or pservers of one job that do not exist yet.

    Attributes:
        role: their role.
        shape: index of their shape.
        missing: how many pods have to be created, > 0.
    """

    role: Role
    shape: int
    missing: int


def fulfilment(low: int, high: int, count: float) -> float:
    """How much of an elastic range some trainers are: 0 at the minimum, 1 at the maximum, 1 if both are equal."""
    return 1.0 if high <= low else (count - low) / (high - low)


@dataclass(frozen=True, slots=True)
class JobDemand:
    """The pods of one schedulable job, and the counts that a plan may give it.

    Attributes:
        index: its position among the demands; other arrays name the job by it.
        job: the job.
        min_trainers, max_trainers: `Job.bounds`; `admission.cap` may lower the maximum to what fits if no other job
            runs. Of a job that requests neither cpu nor memory, both are its minimum if its surplus is deferred.
        shape: index of the shape of its new trainers.
        live_trainers: indices of its live trainers.
        needs: masters and pservers that do not exist yet.
        unbound_fixed: (shape, pod) of each live master and pserver that has no node yet.
        quota_uses: what the job uses of each limit of its queue; empty if the queue has no limit.
        deferred: live trainers above its minimum that are no `live_trainers`, because the job requests neither cpu
            nor memory; see `Problem.yielding`.
        ends_late: one of its pods does not end, or its trainers have very long to end: others free capacity first.
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
    deferred: int = 0
    ends_late: bool = False

    @property
    def live_count(self) -> int:
        """How many live trainers the job has, deferred ones included."""
        return len(self.live_trainers) + self.deferred

    def fulfilment(self, count: float) -> float:
        """How much of its elastic range the job has with `count` trainers; see `fulfilment`."""
        return fulfilment(self.min_trainers, self.max_trainers, count)


@dataclass(frozen=True, slots=True)
class WaitingServing:
    """Waiting serving pods of one shape.

    Attributes:
        shape: index of the shape.
        due: pods for which trainers may be deleted.
        in_grace: pods that kube-scheduler has not tried yet; free capacity is reserved for them, but nothing is
            deleted.
    """

    shape: int
    due: int
    in_grace: int


@dataclass(frozen=True, slots=True)
class BoundPods:
    """The live pods of all demands that are bound to a node of the snapshot, one entry for each pod of any role.

    Attributes:
        demand: (pods,) index of the job.
        node: (pods,) index of the node.
        shape: (pods,) index of the pod's shape.
        is_trainer: (pods,) True for trainers, False for masters and pservers.
    """

    demand: IntArray
    node: IntArray
    shape: IntArray
    is_trainer: BoolArray


@dataclass(frozen=True, slots=True)
class Problem:
    """Everything that a plan is computed from; amounts are in the units of `Resources`: millicores, bytes, devices.

    Attributes:
        snapshot, limits: what the problem was read from.
        names: (resources,) resource names, in the order of the columns.
        shapes: the distinct pod shapes.
        request: (shapes, resources) what one pod of each shape requests.
        opened: (shapes, nodes) True if a new pod of the shape may be bound to the node.
        empty: (nodes, resources) free if no training pod existed; negative if other pods overcommit a node.
        now: (nodes, resources) free at this moment: terminating pods and later victims still use their requests.
        leaving: (nodes, resources) requests of terminating pods of others: not free yet, but soon.
        allocatable: (nodes, resources) what pods may request on each node.
        largest: (resources,) the most of each resource that one node has, at least 1.
        held: the bound pods of all demands.
        demands: the schedulable jobs.
        live_trainers: the live trainers of all demands, job by job.
        trainer_demand, trainer_shape, trainer_node: (live trainers,) the job, the shape and the node of each, as
            arrays: there may be thousands.
        trainer_is_bound: (live trainers,) False if the pod names no node.
        trainer_lent: (live trainers, resources) how much less each bound trainer requests than its shape says.
        lends: any bound trainer requests less than its shape says.
        waiting: waiting serving pods by shape.
        headroom: shapes for which `--serving-headroom` keeps capacity free.
        yielding: surplus trainers of jobs that request neither cpu nor memory. Their capacity is free to everyone
            else, but not now; `best_effort.remainder` says which of them stay.
        learned: what learned headroom asks for, by index of its shape.
        reference: shapes of the trainers that may grow; lost capacity is counted in slots of these.
        node_index: index of each node by name.
        columns: patterns that the linear programs begin with.
        used_columns: patterns that the programs of this decision used; the programs add to it.
        known_buckets: buckets of the fluid programs, by capacity and shapes; the programs add to them.
        known_lists: node classes and listed patterns, by capacity, shapes and limit; the programs add to them.
        known_orders: `LiveTrainer.order` of live trainers, by index; see `order_of`.
        plans_in_bulk: place whole patterns of pods instead of one pod at a time.
        is_many: pods have so many sizes that patterns cannot be priced; bounds then come from `programs.fluid`.
        few_shapes: shapes of all pods of jobs, if sizes are many because of serving pods alone; else empty.
        odd_shapes: shapes of a few trainers that no program sees: they are placed pod by pod, before the others.
        clock: the time that is left for the decision.
        solver: what solves its linear programs.
        solved: its integer programs that were solved.
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
    trainer_node: IntArray
    trainer_is_bound: BoolArray
    trainer_lent: IntArray
    waiting: tuple[WaitingServing, ...]
    headroom: tuple[int, ...]
    reference: tuple[int, ...]
    node_index: dict[str, int] = field(default_factory=dict)
    columns: KeptColumns = NO_COLUMNS
    used_columns: dict[UsedColumn, None] = field(default_factory=dict)
    learned: tuple[tuple[int, Headroom], ...] = ()
    yielding: tuple[LiveTrainer, ...] = ()
    known_buckets: dict[tuple[bytes, tuple[int, ...]], Any] = field(default_factory=dict, compare=False)
    known_lists: dict[tuple[bytes, tuple[int, ...], int], Any] = field(default_factory=dict, compare=False)
    known_orders: dict[int, DeletionOrder] = field(default_factory=dict, compare=False)
    lends: bool = False
    plans_in_bulk: bool = False
    is_many: bool = False
    few_shapes: frozenset[int] = frozenset()
    odd_shapes: frozenset[int] = frozenset()
    clock: Clock = field(default_factory=Clock, compare=False)
    solver: Solver = field(default=DEFAULT_SOLVER, compare=False)
    solved: SolvedPrograms = field(default_factory=SolvedPrograms, compare=False)

    @property
    def with_pods(self) -> tuple[int, ...]:
        """The jobs that have live pods. Condition Admitted is not used: it may not be written yet."""
        return tuple(d.index for d in self.demands if any(pod.is_live for pod in d.job.pods))


def order_of(problem: Problem, index: int) -> DeletionOrder:
    """`LiveTrainer.order` of a live trainer, cached because a decision uses it many times."""
    known = problem.known_orders.get(index)
    if known is None:
        known = problem.known_orders[index] = problem.live_trainers[index].order
    return known


def count_misplaced(problem: Problem) -> list[int]:
    """(demands,) live trainers of each job that the job could not create again on their node.

    Their shape is not that of new trainers any more, or their node takes no new pod of it, or the node is gone. They
    count as trainers of the job, but a packing that starts from nothing has no slot for them.
    """
    held, new_shape = problem.held, np.array([demand.shape for demand in problem.demands], dtype=np.int64)
    trainers = np.flatnonzero(held.is_trainer)
    owner, shape = held.demand[trainers], held.shape[trainers]
    misplaced = (shape != new_shape[owner]) | ~problem.opened[shape, held.node[trainers]]
    count = np.bincount(owner[misplaced], minlength=len(problem.demands))
    nodeless = [trainer.demand for trainer in problem.live_trainers if trainer.node < 0 and trainer.pod.node]
    misplaced_of: list[int] = (
        count + np.bincount(np.array(nodeless, dtype=np.int64), minlength=len(problem.demands))
    ).tolist()
    return misplaced_of


def count_without_slot(problem: Problem) -> list[int]:
    """(demands,) live trainers of each job that have no slot on their node even if no other training runs.

    These are the misplaced ones, and those beyond what fits on a node because pods of others use its capacity, or
    because it has become smaller. The masters and pservers of the job that run there keep their part.
    """
    held, new_shape = problem.held, np.array([demand.shape for demand in problem.demands], dtype=np.int64)
    trainers = np.flatnonzero(held.is_trainer)
    owner, shape, node = held.demand[trainers], held.shape[trainers], held.node[trainers]
    in_place = (shape == new_shape[owner]) & problem.opened[shape, node]
    cells, here = np.unique(owner[in_place] * len(problem.empty) + node[in_place], return_counts=True)
    owner, node = np.divmod(cells, max(1, len(problem.empty)))
    slots = np.zeros(len(cells), dtype=np.int64)
    for new in np.unique(new_shape[owner]).tolist():
        same = new_shape[owner] == new
        slots[same] = count_slots(_empty_beside_fixed(problem, owner[same], node[same]), problem.request[new])
    excess = np.bincount(owner, (here - slots).clip(min=0), minlength=len(problem.demands)).astype(np.int64).tolist()
    return [misplaced + more for misplaced, more in zip(count_misplaced(problem), excess, strict=True)]


def _empty_beside_fixed(problem: Problem, owner: IntArray, node: IntArray) -> IntArray:
    """(cells, resources) what a job alone would leave free on a node beside its own masters and pservers there."""
    held, free, number = problem.held, problem.empty[node].copy(), len(problem.empty)
    order = np.argsort(wanted := owner * number + node)
    fixed = np.flatnonzero(~held.is_trainer)
    cell = held.demand[fixed] * number + held.node[fixed]
    at = np.searchsorted(wanted, cell, sorter=order).clip(max=max(0, len(order) - 1))
    found = wanted[order[at]] == cell if len(order) else np.zeros(len(cell), dtype=np.bool_)
    np.subtract.at(free, order[at[found]], problem.request[held.shape[fixed[found]]])
    return free


def count_slots(free: IntArray, request: IntArray) -> IntArray:
    """How many pods fit into each row of free capacity.

    Args:
        free: (nodes, resources) free capacity; may be negative.
        request: (resources,) what one pod requests.

    Returns:
        (nodes,) never negative; the largest 32-bit integer if the pod requests nothing.
    """
    requested = np.flatnonzero(request > 0).tolist()
    if not requested:
        return np.full(len(free), np.iinfo(np.int32).max, dtype=np.int64)
    slots = _parts_of(free, requested[0], request)
    for column in requested[1:]:
        np.minimum(slots, _parts_of(free, column, request), out=slots)
    return np.maximum(slots, 0, out=slots)


def _parts_of(free: IntArray, column: int, request: IntArray) -> IntArray:
    """(nodes,) how often a request fits into the free amount of one resource."""
    if request[column] == 1:  # a pod may have hundreds of host ports
        return free[:, column].copy()
    parts: IntArray = np.ascontiguousarray(free[:, column]) // request[column]
    return parts


def training_capacity(problem: Problem) -> IntArray:
    """(nodes, resources) the capacity of each node for training pods: at least the use of those that run there.

    Pods of others may overcommit a node: kube-scheduler reserves capacity for a serving pod for which it preempts.
    Training pods that run there need not go, so no proof may say that they do not fit.
    """
    held = problem.held
    return np.maximum(problem.empty, sum_requests(len(problem.empty), problem.request, held.node, held.shape))


def free_beside_fixed(problem: Problem, capacity: IntArray, members: Iterable[int]) -> IntArray:
    """(nodes, resources) free if no training runs except the bound masters and pservers of these jobs.

    Args:
        problem: the arrays.
        capacity: (nodes, resources) what training pods may use, see `training_capacity`.
        members: these jobs.
    """
    held = problem.held
    kept = np.isin(held.demand, np.fromiter(members, dtype=np.int64)) & ~held.is_trainer
    return capacity - sum_requests(len(problem.empty), problem.request, held.node[kept], held.shape[kept])


def sum_requests(
    nodes: int, request: IntArray, node: Sequence[int] | IntArray, shape: Sequence[int] | IntArray
) -> IntArray:
    """Add up the requests of pods on each node.

    Args:
        nodes: how many nodes there are.
        request: (shapes, resources) what one pod of each shape requests.
        node: (pods,) the node of each pod.
        shape: (pods,) the shape of each pod.

    Returns:
        (nodes, resources) the sums.
    """
    if not len(node):
        return np.zeros((nodes, request.shape[1]), dtype=np.int64)
    pods = csr_array((np.ones(len(node), dtype=np.int64), (node, shape)), shape=(nodes, len(request)))
    sums: IntArray = (pods @ csr_array(request)).toarray()
    return sums
