"""Reads a snapshot into the arrays of a `Problem`.

Everything is read in bulk and equal things are read once: a snapshot may have tens of thousands of pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from itertools import chain

import numpy as np

from edl.model.cluster import ClusterSnapshot, Node
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.names import Role
from edl.model.plan import NO_COLUMNS, KeptColumns
from edl.model.pods import Pod, PodPhase
from edl.model.resources import CPU, Placement, PodShape
from edl.planner.amounts import (
    MAX_REQUEST,
    Names,
    ShapeTable,
    allocatable_row,
    columns_that_differ,
    node_rows,
    planned_resources,
    request_matrix,
    requested_row,
)
from edl.planner.clock import Clock
from edl.planner.eligibility import Eligibility
from edl.planner.problem import (
    BoolArray,
    BoundPods,
    FixedNeed,
    IntArray,
    JobDemand,
    LiveTrainer,
    Problem,
    WaitingServing,
    sum_requests,
)
from edl.planner.quota import QuotaTable, all_quotas, quota_uses_of
from edl.planner.waits import serving_grace_left_s

LARGE_NODES = 256  # a cluster with more nodes is planned in bulk, not node by node
MANY_KINDS = 64  # so is a smaller cluster if its nodes differ in more ways than this in what is free on them


class _PodList:
    """The node and the shape of pods that use capacity, as two lists."""

    def __init__(self) -> None:
        self.node: list[int] = []
        self.shape: list[int] = []

    def add(self, node: int, shape: int) -> None:
        """Add one pod."""
        self.node.append(node)
        self.shape.append(shape)


def read_problem(
    snapshot: ClusterSnapshot,
    limits: Limits,
    columns: KeptColumns = NO_COLUMNS,
    clock: Clock | None = None,
    *,
    defers: bool = False,
) -> Problem:
    """Read a snapshot into arrays.

    Args:
        snapshot: the cluster.
        limits: what the operator allows.
        columns: patterns that the linear programs begin with.
        clock: the time that is left for the decision; without one there is no deadline.
        defers: jobs that request neither cpu nor memory have only their minimum here; their other trainers are
            `Problem.yielding`.
    """
    jobs = [job for job in snapshot.jobs if job.is_schedulable]
    waiting = [pod for pod in snapshot.waiting_serving if pod.needs_capacity]
    clock = clock or Clock()
    names = planned_resources(jobs, waiting, snapshot)
    table = ShapeTable(Names(names))
    index = {node.name: i for i, node in enumerate(snapshot.nodes)}
    now_s = snapshot.observed_at_s
    ending, staying = _split_excluded(snapshot)
    foreign, leaving = _list_pods(chain(snapshot.pods, staying), index, table, now_s)
    ours, _ = _list_pods(ending, index, table, now_s)
    quotas = QuotaTable(all_quotas(snapshot, limits.quotas))
    dead = frozenset(node.name for node in snapshot.nodes if not node.ready)
    reader = _DemandReader(table, index, (ours, foreign), quotas, now_s, dead=dead, defers=defers)
    demands = tuple(reader.read(i, job, clock) for i, job in enumerate(jobs))
    served = _read_waiting(waiting, serving_grace_left_s(snapshot, limits), table)
    headroom = _headroom_shapes(snapshot, limits, table)
    wishes = snapshot.headroom if jobs else ()  # without jobs nothing takes the capacity
    learned = tuple((table.add(wish.shape), wish) for wish in wishes)
    columns_kept = columns_that_differ(names, table.rows)
    names, request = tuple(names[c] for c in columns_kept), request_matrix(table.rows, columns_kept)
    allocatable = node_rows([node.allocatable for node in snapshot.nodes], names, allocatable_row)
    reserved = node_rows([node.reserved for node in snapshot.nodes], names, requested_row)
    empty = allocatable - reserved - sum_requests(len(index), request, foreign.node, foreign.shape)
    lent = _lent(reader.live_trainers, names)
    shapes = tuple(table.number)
    opened = _open_nodes(snapshot.nodes, shapes, _users_of_placements(jobs), clock)
    return Problem(
        snapshot=snapshot,
        limits=limits,
        names=names,
        shapes=shapes,
        request=request,
        opened=opened,
        empty=empty,
        now=empty - sum_requests(len(index), request, ours.node, ours.shape),
        leaving=sum_requests(len(index), request, leaving.node, leaving.shape),
        allocatable=allocatable,
        largest=allocatable.max(axis=0, initial=1).clip(min=1),
        held=reader.held(),
        demands=demands,
        live_trainers=tuple(reader.live_trainers),
        trainer_demand=np.array([trainer.demand for trainer in reader.live_trainers], dtype=np.int64),
        trainer_shape=np.array([trainer.shape for trainer in reader.live_trainers], dtype=np.int64),
        trainer_node=np.array([trainer.node for trainer in reader.live_trainers], dtype=np.int64),
        trainer_is_bound=np.array([bool(trainer.pod.node) for trainer in reader.live_trainers], dtype=np.bool_),
        trainer_lent=lent,
        lends=bool(lent.any()),
        waiting=served,
        headroom=headroom,
        learned=learned,
        yielding=tuple(reader.yielding),
        reference=tuple(sorted({c.shape for c in demands if c.max_trainers > c.min_trainers})),
        node_index=index,
        columns=columns,
        clock=clock,
        plans_in_bulk=len(index) > LARGE_NODES or len({row.tobytes() for row in empty}) > MANY_KINDS,
    )


def reads_alike(problem: Problem, snapshot: ClusterSnapshot) -> bool:
    """True if a snapshot has the nodes, pods and jobs that a problem was read from; bounds of jobs may differ.

    False for a problem in which some trainers are deferred.
    """
    known = problem.snapshot
    return (
        not problem.yielding
        and known.nodes is snapshot.nodes
        and known.pods is snapshot.pods
        and len(known.jobs) == len(snapshot.jobs)
        and all(
            one.pods is other.pods
            and one.trainer is other.trainer
            and one.fixed is other.fixed
            and one.key == other.key
            and one.is_schedulable == other.is_schedulable
            for one, other in zip(known.jobs, snapshot.jobs, strict=True)
        )
    )


def _split_excluded(snapshot: ClusterSnapshot) -> tuple[list[Pod], list[Pod]]:
    """The pods of jobs that get no trainers: those that terminate in time, and those that may run for ever."""
    ending: list[Pod] = []
    staying: list[Pod] = []
    for job in snapshot.jobs:
        if job.is_schedulable:
            continue
        for pod in job.pods:
            lingers = pod.terminating and pod.lingers(snapshot.observed_at_s)
            stays = lingers or job.holds(pod) or (job.leaves_pods and not pod.terminating)
            (staying if stays else ending).append(pod)
    return ending, staying


def _list_pods(
    pods: Iterable[Pod], index: dict[str, int], table: ShapeTable, now_s: float
) -> tuple[_PodList, _PodList]:
    """The pods that use capacity of a node, and those of them that will soon have ended.

    Pods use capacity if they are not finished and are bound or nominated. There are tens of thousands of them, so
    this loop calls nothing for most.
    """
    found, leaving = _PodList(), _PodList()
    node_of, known, add = index.get, table.known, table.add
    succeeded, failed = PodPhase.SUCCEEDED, PodPhase.FAILED
    nodes, shapes = found.node, found.shape
    for pod in pods:
        if (phase := pod.phase) is succeeded or phase is failed:
            continue
        node = node_of(pod.node or pod.nominated)
        if node is None:
            continue
        shape = known.get(id(pod.shape))
        if shape is None:
            shape = add(pod.shape)
        nodes.append(node)
        shapes.append(shape)
        if pod.terminating and not pod.lingers(now_s):
            leaving.add(node, shape)
    return found, leaving


class _DemandReader:
    """Reads jobs one after the other and numbers their live trainers consecutively."""

    def __init__(
        self,
        table: ShapeTable,
        index: dict[str, int],
        held: tuple[_PodList, _PodList],
        quotas: QuotaTable,
        now_s: float,
        *,
        dead: frozenset[str],
        defers: bool,
    ) -> None:
        self.table, self.index, self.quotas, self.now_s = table, index, quotas, now_s
        self.ours, self.foreign = held
        self.live_trainers: list[LiveTrainer] = []
        self.yielding: list[LiveTrainer] = []
        self._defers, self._dead = defers, dead
        self._bound = _PodList()
        self._owner: list[int] = []
        self._is_trainer: list[bool] = []

    def held(self) -> BoundPods:
        """The bound pods of the jobs read so far."""
        return BoundPods(
            demand=np.array(self._owner, dtype=np.int64),
            node=np.array(self._bound.node, dtype=np.int64),
            shape=np.array(self._bound.shape, dtype=np.int64),
            is_trainer=np.array(self._is_trainer, dtype=np.bool_),
        )

    def read(self, number: int, job: Job, clock: Clock) -> JobDemand:
        """Read one job and its pods, at its own cost; `number` is its index among the demands."""
        with clock.charge((number,)):
            return self._read(number, job)

    def _read(self, number: int, job: Job) -> JobDemand:
        shape = self.table.add(job.trainer)
        first, first_deferred = len(self.live_trainers), len(self.yielding)
        is_deferred = self._defers and job.is_best_effort
        deferred = _surplus_names(job) if is_deferred else frozenset()
        unbound: list[tuple[int, Pod]] = []
        live: Counter[Role | None] = Counter()
        node_of, minimum, usual = self.index.get, job.minimum_trainers, job.trainer
        for pod in job.pods:
            if pod.phase is PodPhase.SUCCEEDED or pod.phase is PodPhase.FAILED:
                continue
            kind = shape if pod.shape is usual else self.table.add(pod.shape)
            node = node_of(pod.node, -1)
            if (held := node if pod.node else node_of(pod.nominated, -1)) >= 0:
                lingers = pod.terminating and pod.lingers(self.now_s)
                (self.foreign if lingers else self.ours).add(held, kind)
            if pod.terminating:
                continue
            is_trainer = pod.role is Role.TRAINER
            if is_trainer and pod.name in deferred:
                self.yielding.append(LiveTrainer(number, pod, kind, node, pod.name in minimum))
                continue
            if node >= 0:
                self._bound.add(node, kind)
                self._owner.append(number)
                self._is_trainer.append(is_trainer)
            if is_trainer:
                self.live_trainers.append(LiveTrainer(number, pod, kind, node, pod.name in minimum))
            else:
                live[pod.role] += 1
                if not pod.node:
                    unbound.append((kind, pod))
        needs = tuple(FixedNeed(f.role, self.table.add(f.shape), f.count - live[f.role]) for f in job.fixed)
        return JobDemand(
            index=number,
            job=job,
            min_trainers=job.bounds.min_trainers,
            max_trainers=job.bounds.min_trainers if is_deferred else job.bounds.max_trainers,
            shape=shape,
            live_trainers=range(first, len(self.live_trainers)),
            needs=tuple(need for need in needs if need.missing > 0),
            unbound_fixed=tuple(unbound),
            quota_uses=quota_uses_of(job, self.quotas),
            deferred=len(self.yielding) - first_deferred,
            ends_late=any(pod.ends_late(self.now_s) and pod.node not in self._dead for pod in job.pods),
        )


def _surplus_names(job: Job) -> frozenset[str]:
    """The live trainers that the job would lose first, so that it keeps its minimum."""
    minimum = job.minimum_trainers
    live = [LiveTrainer(0, pod, 0, 0, pod.name in minimum) for pod in job.live_trainers]
    surplus = sorted(live, key=lambda trainer: trainer.order)[: max(0, len(live) - job.bounds.min_trainers)]
    return frozenset(trainer.pod.name for trainer in surplus)


def _lent(live_trainers: list[LiveTrainer], names: tuple[str, ...]) -> IntArray:
    """(live trainers, resources) how much less each bound trainer requests than its shape says."""
    lent = np.zeros((len(live_trainers), len(names)), dtype=np.int64)
    if CPU in names:
        lent[:, names.index(CPU)] = [
            min(trainer.pod.lent_cpu_milli, MAX_REQUEST) if trainer.node >= 0 else 0 for trainer in live_trainers
        ]
    return lent


def _read_waiting(
    pods: list[Pod], in_grace_pods: Container[tuple[str, str]], table: ShapeTable
) -> tuple[WaitingServing, ...]:
    """Group the waiting serving pods by shape; those named in `in_grace_pods` are still in their grace time."""
    due: Counter[int] = Counter()
    in_grace: Counter[int] = Counter()
    for pod in pods:
        (in_grace if (pod.namespace, pod.name) in in_grace_pods else due)[table.add(pod.shape)] += 1
    return tuple(WaitingServing(shape, due[shape], in_grace[shape]) for shape in sorted(set(due) | set(in_grace)))


def _headroom_shapes(snapshot: ClusterSnapshot, limits: Limits, table: ShapeTable) -> tuple[int, ...]:
    """Shapes of live serving pods, for which headroom is kept; none without `--serving-headroom` or without jobs."""
    if not limits.serving.headroom or not any(job.is_schedulable for job in snapshot.jobs):
        return ()
    serving = (p for p in snapshot.pods if p.is_live and p.priority >= 0 and not p.daemon)
    return tuple(sorted({table.add(p.shape) for p in serving}))


def _users_of_placements(jobs: Iterable[Job]) -> dict[Placement, list[int]]:
    """The jobs, by index, whose new pods have a placement."""
    users: dict[Placement, list[int]] = {}
    for index, job in enumerate(jobs):
        for placement in {job.trainer.placement, *(fixed.shape.placement for fixed in job.fixed)}:
            users.setdefault(placement, []).append(index)
    return users


def _open_nodes(
    nodes: tuple[Node, ...], shapes: tuple[PodShape, ...], users: Mapping[Placement, list[int]], clock: Clock
) -> BoolArray:
    """(shapes, nodes) True if a new pod of the shape may be bound to the node; its users bear the cost."""
    rows: dict[Placement, BoolArray] = {}
    judge = Eligibility(nodes)
    for placement in dict.fromkeys(shape.placement for shape in shapes):
        with clock.charge(users.get(placement, ())):
            rows[placement] = judge.takes(placement)
    opened = np.array([rows[shape.placement] for shape in shapes], dtype=np.bool_)
    return opened.reshape(len(shapes), len(nodes))
