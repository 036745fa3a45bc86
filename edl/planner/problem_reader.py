"""Reads a snapshot into the arrays of a `Problem`.

Everything is read in bulk and equal things are read once: a snapshot may have tens of thousands of pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping

import numpy as np

from edl.model.cluster import ClusterSnapshot, Node
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.plan import NO_COLUMNS, KeptColumns
from edl.model.pods import Pod
from edl.model.resources import CPU, Placement, PodShape
from edl.planner.amounts import (
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
    FixedNeed,
    JobDemand,
    LiveTrainer,
    Problem,
    WaitingServing,
)
from edl.planner.quota import QuotaTable, all_quotas, quota_uses_of
from edl.planner.reading.joined import JoinedRows, UsedCapacity, joined
from edl.planner.reading.kept import KeptReading
from edl.planner.reading.pods_of_jobs import JobRows, PodsOfJobs
from edl.planner.reading.pods_of_others import PodsOfOthers
from edl.planner.waits import serving_grace_left_s

LARGE_NODES = 256  # a cluster with more nodes is planned in bulk, not node by node
MANY_KINDS = 64  # so is a smaller cluster if its nodes differ in more ways than this in what is free on them


def read_problem(
    snapshot: ClusterSnapshot,
    limits: Limits,
    columns: KeptColumns = NO_COLUMNS,
    clock: Clock | None = None,
    *,
    defers: bool = False,
    kept: KeptReading | None = None,
) -> Problem:
    """Read a snapshot into arrays.

    Args:
        snapshot: the cluster.
        limits: what the operator allows.
        columns: patterns that the linear programs begin with.
        clock: the time that is left for the decision; without one there is no deadline.
        defers: jobs that request neither cpu nor memory have only their minimum here; their other trainers are
            `Problem.yielding`.
        kept: what was read last, with which this is read sooner.
    """
    kept = kept or KeptReading()
    jobs = [job for job in snapshot.jobs if job.is_schedulable]
    waiting = [pod for pod in snapshot.waiting_serving if pod.needs_capacity]
    clock = clock or Clock()
    names = planned_resources(jobs, waiting, snapshot)
    table = ShapeTable(Names(names))
    index = {node.name: i for i, node in enumerate(snapshot.nodes)}
    now_s = snapshot.observed_at_s
    kept.begin(index)
    foreign, ours, leaving = _pods_in_use(kept, snapshot, index, table)
    quotas = QuotaTable(all_quotas(snapshot, limits.quotas))
    dead = frozenset(node.name for node in snapshot.nodes if not node.ready)
    reader = _DemandReader(table, index, kept.jobs, quotas, now_s, dead=dead, defers=defers)
    demands = tuple(reader.read(i, job, clock) for i, job in enumerate(jobs))
    rows = reader.joined()
    ours.add(*rows.held.T)
    foreign.add(*rows.lingering.T)
    served = _read_waiting(waiting, serving_grace_left_s(snapshot, limits), table)
    headroom = _headroom_shapes(snapshot, limits, table)
    wishes = snapshot.headroom if jobs else ()  # without jobs nothing takes the capacity
    learned = tuple((table.add(wish.shape), wish) for wish in wishes)
    columns_kept = columns_that_differ(names, table.rows)
    names, request = tuple(names[c] for c in columns_kept), request_matrix(table.rows, columns_kept)
    allocatable = node_rows([node.allocatable for node in snapshot.nodes], names, allocatable_row)
    reserved = node_rows([node.reserved for node in snapshot.nodes], names, requested_row)
    empty = allocatable - reserved - foreign.requests(len(index), request)
    lent = np.zeros((len(rows.lent), len(names)), dtype=np.int64)
    if CPU in names:
        lent[:, names.index(CPU)] = rows.lent
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
        now=empty - ours.requests(len(index), request),
        leaving=leaving.requests(len(index), request),
        allocatable=allocatable,
        largest=allocatable.max(axis=0, initial=1).clip(min=1),
        held=rows.bound,
        demands=demands,
        live_trainers=tuple(reader.live_trainers),
        trainer_demand=rows.demand,
        trainer_shape=rows.shape,
        trainer_node=rows.node,
        trainer_is_bound=rows.is_bound == 1,
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
    """True if a snapshot has the nodes, pods and jobs from which a problem was read; only job bounds may differ.

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


def _pods_in_use(
    kept: KeptReading, snapshot: ClusterSnapshot, index: Mapping[str, int], table: ShapeTable
) -> tuple[UsedCapacity, UsedCapacity, UsedCapacity]:
    """The pods that use capacity in any plan, because plans do not decide about them.

    Returns:
        Those of others, and those of jobs that may run for ever; those of jobs that get no trainers; those of the
        first that will soon have ended.
    """
    foreign, ours, leaving = UsedCapacity(), UsedCapacity(), UsedCapacity()
    ending, staying = _split_excluded(snapshot)
    for reader, pods in ((kept.others, snapshot.pods), (PodsOfOthers(), staying)):
        node, shape, terminating = reader.read(pods, index, table)
        foreign.add(node, shape)
        soon = [k for k in terminating if not pods[k].lingers(snapshot.observed_at_s)]
        leaving.add(node[soon], shape[soon])
    ours.add(*PodsOfOthers().read(ending, index, table)[:2])
    return foreign, ours, leaving


def _split_excluded(snapshot: ClusterSnapshot) -> tuple[tuple[Pod, ...], tuple[Pod, ...]]:
    """Divide the pods of jobs that get no trainers: those that end in time, and those that may run forever."""
    ending: list[Pod] = []
    staying: list[Pod] = []
    for job in snapshot.jobs:
        if job.is_schedulable:
            continue
        for pod in job.pods:
            lingers = pod.terminating and pod.lingers(snapshot.observed_at_s)
            stays = lingers or job.holds(pod) or (job.leaves_pods and not pod.terminating)
            (staying if stays else ending).append(pod)
    return tuple(ending), tuple(staying)


class _DemandReader:
    """Reads jobs one after the other and numbers their live trainers consecutively."""

    def __init__(
        self,
        table: ShapeTable,
        index: Mapping[str, int],
        kept: PodsOfJobs,
        quotas: QuotaTable,
        now_s: float,
        *,
        dead: frozenset[str],
        defers: bool,
    ) -> None:
        self._table, self._index, self._kept, self._quotas, self._now_s = table, index, kept, quotas, now_s
        self.live_trainers: list[LiveTrainer] = []
        self.yielding: list[LiveTrainer] = []
        self._defers, self._dead = defers, dead
        self._rows: list[JobRows] = []
        self._shapes: list[list[int]] = []

    def joined(self) -> JoinedRows:
        """Return the rows of all jobs read so far."""
        return joined(self._rows, self._shapes)

    def read(self, number: int, job: Job, clock: Clock) -> JobDemand:
        """Read one job and its pods, at its own cost; `number` is its index among the demands."""
        with clock.charge((number,)):
            return self._read(number, job)

    def _read(self, number: int, job: Job) -> JobDemand:
        is_deferred = self._defers and job.is_best_effort
        rows = self._kept.read(job, self._index, self._dead, self._now_s, defers=is_deferred)
        shapes = [self._table.add(shape) for shape in rows.shapes]
        self._rows.append(rows)
        self._shapes.append(shapes)
        first = len(self.live_trainers)
        self.live_trainers += rows.live_trainers(number, shapes)
        self.yielding += [
            LiveTrainer(number, pod, shapes[kind], node, is_base) for kind, node, pod, is_base in rows.yielding
        ]
        needs = (FixedNeed(f.role, self._table.add(f.shape), f.count - rows.of_roles[f.role]) for f in job.fixed)
        return JobDemand(
            index=number,
            job=job,
            min_trainers=job.bounds.min_trainers,
            max_trainers=job.bounds.min_trainers if is_deferred else job.bounds.max_trainers,
            shape=shapes[0],
            live_trainers=range(first, len(self.live_trainers)),
            needs=tuple(need for need in needs if need.missing > 0),
            unbound_fixed=tuple((shapes[kind], pod) for kind, pod in rows.unbound),
            quota_uses=quota_uses_of(job, self._quotas),
            deferred=len(rows.yielding),
            ends_late=rows.ends_late,
        )


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
