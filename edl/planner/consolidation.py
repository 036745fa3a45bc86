"""Moves pservers once the cluster is quiet, so that scattered free capacity fits more trainers.

Serving pods come and go, and a pserver stays where it was started: node after node may have some free capacity that
is too small for a trainer. A pserver holds the model, and deleting it takes its job back to the last checkpoint. So
pservers move only if the operator allows it, only after a time without any change, and only those that may be
evicted. Every job that is interrupted must pay for it with more trainers: see `interruption`.

Pservers may keep each other's checkpoints, so one of a job moves at a time, unless they are marked safe to evict.
Trainers are deleted for them if that brings more than it costs. Masters stay: their journals are on volumes that may
belong to a node.

Source: an integer program over nodes, solved by HiGHS (scipy.optimize.milp). Karpenter's `consolidateAfter` is the
same wait, for nodes (https://karpenter.sh/docs/concepts/disruption/).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import numpy as np
from scipy.sparse import coo_array

from edl.model.actions import Intent
from edl.model.cluster import ClusterSnapshot
from edl.model.job_policies import JobAction, JobEvent
from edl.model.jobs import Job
from edl.model.names import JobKey, Role
from edl.model.plan import ScaleDecision, ScalePlan
from edl.model.pods import Pod, PodPhase
from edl.planner.minimums.batches import size_of
from edl.planner.packing import may_have_more
from edl.planner.solvers.integer_program import IntegerProgram, Rows
from edl.planner.trial_packing import TrialPacking
from edl.planner.waits import price_in_trainers

Coefficients = list[tuple[int, float]]
Row = tuple[Coefficients, float, float]
"""The (column, factor) terms of a sum, and the least and the most that the sum may be."""

VARIABLES_LIMIT = 20_000
WITH_VICTIMS_LIMIT = 2_000  # a program with more variables is solved again without deleting trainers
SEARCH_NODES = 100  # limits the search by nodes, not by time, so that equal snapshots give equal plans
NEAR = 0.005  # the search stops so near to the best value
INTERRUPTION, DELETION, MOVE = 0.7, 0.1, 0.01
"""Prices, in smallest trainers: of interrupting a job, of restarting a trainer, of restarting a pserver."""


@dataclass(frozen=True, slots=True)
class Moving:
    """The pods to delete so that they start elsewhere, by job; names are sorted.

    Attributes:
        pservers: pservers that free capacity.
        trainers: trainers that are deleted so that the pservers fit.
    """

    pservers: Mapping[JobKey, tuple[str, ...]]
    trainers: Mapping[JobKey, tuple[str, ...]]


def time_unchanged(snapshot: ClusterSnapshot) -> tuple[float, str]:
    """Seconds since the last change of the cluster, and what the change was.

    A change is a pod that is created or starts, a job that is created, or a resize. The time is 0 while any pod
    terminates and does not linger, and while a pod of a job is not running yet. A pending pod of another workload
    does not keep it at 0.
    """
    ours = [pod for job in snapshot.jobs if not job.is_left_alone for pod in job.pods]
    pods = [*snapshot.pods, *snapshot.pods_left_alone, *ours]
    now_s = snapshot.observed_at_s
    if leaving := next((pod for pod in pods if pod.terminating and not pod.lingers(now_s)), None):
        return 0.0, f"pod {leaving.namespace}/{leaving.name} is terminating"
    if coming := next((p for p in ours if p.is_live and (not p.node or p.phase is not PodPhase.RUNNING)), None):
        return 0.0, f"pod {coming.namespace}/{coming.name} is not running yet"
    last: list[tuple[float, str]] = []
    if pods:
        pod = max(pods, key=_came_s)
        last.append((_came_s(pod), f"pod {pod.namespace}/{pod.name} started"))
    if snapshot.jobs:
        job = max(snapshot.jobs, key=lambda job: job.created_s)
        last.append((job.created_s, f"job {job.key} was created"))
        job = max(snapshot.jobs, key=_resized_s)
        last.append((_resized_s(job), f"job {job.key} was resized"))
    last_s, what = max(last, default=(snapshot.observed_at_s, ""))
    return max(0.0, snapshot.observed_at_s - last_s), what


def _came_s(pod: Pod) -> float:
    """When the pod was created or started, whichever was later."""
    return max(pod.created_s, pod.started_s or 0.0)


def _resized_s(job: Job) -> float:
    """When the job was last resized; 0 if never."""
    resize = job.status.last_resize if job.status is not None else None
    return resize.time_s if resize is not None else 0.0


def reason_to_wait(snapshot: ClusterSnapshot, plan: ScalePlan, after_s: float) -> str:
    """Why pservers may not move now; empty if they may.

    Args:
        snapshot: the cluster.
        plan: the plan for it.
        after_s: seconds without a change that must pass first.
    """
    if any(d.victims or d.nodes or d.fixed_nodes for d in plan.decisions):
        return "this plan deletes or creates pods"
    if plan.serving.waiting > plan.serving.short:
        return "serving pods are waiting for capacity"
    age_s, what = time_unchanged(snapshot)
    if age_s >= after_s:
        return ""
    return what + (f" {age_s:g} s ago; pservers move only after {after_s:g} s without a change" if age_s else "")


def moves(packing: TrialPacking, deadline_s: float) -> Moving:
    """Choose pservers and trainers to delete so that the pservers and more trainers fit; none if nothing is gained.

    As few jobs are interrupted as pay for it, and as few of their pods as possible. The next plan packs them again.

    Args:
        packing: the finished packing of a plan that changes nothing; not changed.
        deadline_s: time for the program.
    """
    program = _Program(packing, with_victims=True)
    if program.size > WITH_VICTIMS_LIMIT:
        program = _Program(packing, with_victims=False)
    if not program.groups or not any(program.wanted.values()) or program.size > VARIABLES_LIMIT:
        return Moving({}, {})
    moved, deleted = program.solve(deadline_s)
    pairs = (zip(program.groups, moved, strict=True), zip(program.trainers, deleted, strict=True))
    return Moving(*map(_by_job, pairs))


def without(snapshot: ClusterSnapshot, moving: Moving) -> ClusterSnapshot:
    """The snapshot with these pods terminating."""
    both = (moving.pservers, moving.trainers)
    jobs = (_with_deleted(job, {name for pods in both for name in pods.get(job.key, ())}) for job in snapshot.jobs)
    return snapshot.with_changed(jobs)


def pays(before: ScalePlan, after: ScalePlan, price: int) -> bool:
    """True if the plan after the move takes nothing from any job and adds enough trainers.

    Args:
        before: the plan without the move.
        after: the plan for the snapshot in which the pods terminate.
        price: how many trainers the interrupted jobs are worth.
    """
    pairs = list(zip(before.decisions, after.decisions, strict=True))
    if any(new.victims or new.target < old.target or new.admitted < old.admitted for old, new in pairs):
        return False
    return sum(new.target - old.target for old, new in pairs) >= price


def with_moves(before: ScalePlan, after: ScalePlan, moving: Moving) -> ScalePlan:
    """Merge the plan in which the moving pods terminate into the plan before, as one plan that deletes these pods.

    Args:
        before: the plan without the move.
        after: the plan for the snapshot in which the pods terminate.
        moving: the pods.
    """

    def both(old: ScaleDecision, new: ScaleDecision) -> ScaleDecision:
        """Merge what both plans decide about one job."""
        deleted = moving.trainers.get(new.job, ())
        return replace(
            new,
            current=old.current,
            victims=deleted,
            moves=moving.pservers.get(new.job, ()),
            shrink_reason=Intent.MOVED.value if deleted else "",
        )

    decisions = tuple(both(old, new) for old, new in zip(before.decisions, after.decisions, strict=True))
    return replace(after, decisions=decisions, given=before.given, serving=before.serving)


def may_move(job: Job, pod: Pod) -> bool:
    """True for a live pserver that may be evicted, whose job goes on without it and is not about to end."""
    survives = job.fault_tolerant and job.action_for(Role.PSERVER, JobEvent.POD_EVICTED) is JobAction.RESTART_POD
    if pod.role is not Role.PSERVER or not pod.is_live or pod.safe_to_evict is False:
        return False
    is_recreated_alike = any(f.role is Role.PSERVER and f.shape == pod.shape for f in job.fixed)
    return survives and is_recreated_alike and not job.completed(Role.TRAINER)


@dataclass(frozen=True, slots=True)
class _Group:
    """Pods of one job and shape on one node, any number of which may be deleted.

    Attributes:
        demand: index of the job.
        node: index of the node.
        shape: index of the shape.
        is_safe: any number of the job's pods may be deleted at once.
        job: key of the job.
        pods: names of the pods, in the order of deletion.
    """

    demand: int
    node: int
    shape: int
    is_safe: bool
    job: JobKey
    pods: tuple[str, ...]


class _Program:
    """The integer program: which pods to delete, where the pservers start again, and which trainers then fit.

    Variables, in this order: pservers of each group that move; trainers of each group that are deleted; pservers,
    then trainers, that start on a node, for each node and shape; and for each job, 1 if a pserver of it moves.

    Attributes:
        groups: pservers that may move.
        trainers: trainers that may be deleted.
        wanted: trainers of each shape that jobs would take beyond those that they have.
        size: the number of variables.
    """

    def __init__(self, packing: TrialPacking, *, with_victims: bool) -> None:
        self._packing = packing
        self.groups = _pservers(packing)
        self.trainers = _surplus(packing) if with_victims and self.groups else []
        self.wanted = _wanted(packing)
        self._pserver_shapes = sorted({g.shape for g in self.groups})
        shapes = {s for s, n in self.wanted.items() if n} | {g.shape for g in self.trainers}
        self._trainer_shapes = sorted(shapes)
        freed = {g.node for g in (*self.groups, *self.trainers)}
        self._jobs = sorted({g.demand for g in self.groups})
        self._start_at = _places(packing, self._pserver_shapes, freed)
        self._grow_at = _places(packing, self._trainer_shapes, freed)
        parts = (self.groups, self.trainers, self._start_at, self._grow_at, self._jobs)
        ends = list(accumulate((len(part) for part in parts), initial=0))
        self._move, self._delete, self._start, self._grow, self._job = (slice(a, b) for a, b in pairwise(ends))
        self.size = ends[-1]

    def solve(self, deadline_s: float) -> tuple[list[int], list[int]]:
        """How many pods of each group to delete, pservers and trainers; zeros if no solution was found."""
        sizes = {s: size_of(self._packing.problem, s) for s in self._trainer_shapes}
        smallest = min((size for size in sizes.values() if size), default=1.0)
        worth = {s: max(1.0, size / smallest) for s, size in sizes.items()}
        cost, most = np.zeros(self.size), np.full(self.size, np.inf)
        cost[self._move], most[self._move] = MOVE, [len(g.pods) for g in self.groups]
        cost[self._delete], most[self._delete] = (
            [worth[g.shape] + DELETION for g in self.trainers],
            [len(g.pods) for g in self.trainers],
        )
        cost[self._grow] = [-worth[s] for _, s in self._grow_at]
        cost[self._job], most[self._job] = INTERRUPTION, 1.0
        whole, least = np.ones(self.size, dtype=np.int64), np.zeros(self.size)
        counts = IntegerProgram(cost, whole, least, most, [self._rows()], SEARCH_NODES, NEAR).solve(deadline_s)
        if counts is None:
            return [0] * len(self.groups), [0] * len(self.trainers)
        return counts[self._move], counts[self._delete]

    def _rows(self) -> Rows:
        """Join all constraints to one sparse matrix."""
        rows = [*self._capacity_rows(), *self._count_rows(), *self._job_rows()]
        at = [(k, column, factor) for k, (terms, _, _) in enumerate(rows) for column, factor in terms]
        row, column, factor = zip(*at, strict=True)
        matrix = coo_array((factor, (row, column)), shape=(len(rows), self.size)).tocsr()
        return Rows(matrix, [low for _, low, _ in rows], [high for _, _, high in rows])

    def _capacity_rows(self) -> Iterator[Row]:
        """Constraints: pods use no more of a resource on a node than is free or freed, in parts of the largest."""
        problem = self._packing.problem
        request, free = problem.request / problem.largest, self._packing.free / problem.largest
        here: dict[int, list[tuple[int, int, float]]] = {}
        for groups, first in ((self.groups, self._move.start), (self.trainers, self._delete.start)):
            for k, group in enumerate(groups, start=first):
                here.setdefault(group.node, []).append((k, group.shape, -1.0))
        for places, first in ((self._start_at, self._start.start), (self._grow_at, self._grow.start)):
            for k, (node, shape) in enumerate(places, start=first):
                here.setdefault(node, []).append((k, shape, 1.0))
        for node, users in here.items():
            for r in range(len(problem.names)):
                terms = [(k, sign * request[shape, r]) for k, shape, sign in users if request[shape, r]]
                if terms:
                    yield terms, -np.inf, max(0.0, float(free[node, r]))

    def _count_rows(self) -> Iterator[Row]:
        """Constraints: of each shape as many pservers start as are deleted, and at least as many trainers.

        Exactly as many pservers start as are deleted. At least as many trainers start as are deleted, and the others
        are no more than jobs want.
        """
        for s in self._pserver_shapes:
            yield [*_of(self.groups, self._move.start, s), *_at(self._start_at, self._start.start, s)], 0.0, 0.0
        for s in self._trainer_shapes:
            terms = [*_of(self.trainers, self._delete.start, s), *_at(self._grow_at, self._grow.start, s)]
            if terms:
                yield terms, 0.0, float(self.wanted.get(s, 0))

    def _job_rows(self) -> Iterator[Row]:
        """Constraints: a job with a moving pserver is interrupted, and at most one of its pservers moves at a time.

        Only one pserver of a job moves at a time, except for those that are marked safe to evict.
        """
        number = {j: self._job.start + i for i, j in enumerate(self._jobs)}
        one_by_one: dict[int, Coefficients] = {j: [(k, -1.0)] for j, k in number.items()}
        for k, group in enumerate(self.groups, start=self._move.start):
            if group.is_safe:
                yield [(k, 1.0), (number[group.demand], -float(len(group.pods)))], -np.inf, 0.0
            else:
                one_by_one[group.demand].append((k, 1.0))
        for terms in one_by_one.values():
            yield terms, -np.inf, 0.0
        more = [(k, 1.0) for k in range(self._grow.start, self._grow.stop)]
        fewer = [(k, -1.0) for k in range(self._delete.start, self._delete.stop)]
        prices = [(k, -float(price_in_trainers(self._packing.problem.demands[j].job))) for j, k in number.items()]
        yield [*more, *fewer, *prices], 0.0, np.inf


def _places(packing: TrialPacking, shapes: list[int], freed: set[int]) -> list[tuple[int, int]]:
    """List as (node, shape) where pods could start: eligible nodes with a free slot, or with a deletion."""
    opened = packing.problem.opened
    return [
        (n, s) for s in shapes for n in sorted({*freed, *np.flatnonzero(packing.slots(s)).tolist()}) if opened[s, n]
    ]


def _at(places: list[tuple[int, int]], first: int, shape: int) -> Coefficients:
    """Coefficients +1 for the variables that start pods of one shape."""
    return [(k, 1.0) for k, (_, s) in enumerate(places, start=first) if s == shape]


def _of(groups: list[_Group], first: int, shape: int) -> Coefficients:
    """Coefficients -1 for the variables that delete pods of one shape."""
    return [(k, -1.0) for k, group in enumerate(groups, start=first) if group.shape == shape]


def _pservers(packing: TrialPacking) -> list[_Group]:
    """The pservers that may move, grouped by job, node, shape, and whether they are marked safe to evict."""
    problem = packing.problem
    number = {shape: i for i, shape in enumerate(problem.shapes)}
    found: dict[tuple[int, int, int, bool], list[str]] = {}
    for j in packing.members:
        job = problem.demands[j].job
        for pod in job.pods:
            node = problem.node_index.get(pod.node, -1)
            if node >= 0 and may_move(job, pod):
                found.setdefault((j, node, number[pod.shape], bool(pod.safe_to_evict)), []).append(pod.name)
    return [
        _Group(j, node, shape, is_safe, problem.demands[j].job.key, tuple(sorted(pods)))
        for (j, node, shape, is_safe), pods in sorted(found.items())
    ]


def _surplus(packing: TrialPacking) -> list[_Group]:
    """Trainers above the minimum, of jobs that go on without them, if they have the shape of new ones."""
    problem = packing.problem
    found: dict[tuple[int, int, int], list[int]] = {}
    for index, node in zip(*(column.tolist() for column in packing.with_node()), strict=True):
        trainer = problem.live_trainers[index]
        demand = problem.demands[trainer.demand]
        is_alone = demand.job.topology is None or demand.job.topology.slices is None
        may_delete = demand.job.fault_tolerant and not trainer.is_base and trainer.pod.safe_to_evict is not False
        may_delete = may_delete and is_alone
        if may_delete and trainer.shape == demand.shape:
            found.setdefault((trainer.demand, node, trainer.shape), []).append(index)
    return [
        _Group(j, node, shape, True, problem.demands[j].job.key, _in_deletion_order(packing, live_trainers))
        for (j, node, shape), live_trainers in sorted(found.items())
    ]


def _in_deletion_order(packing: TrialPacking, live_trainers: list[int]) -> tuple[str, ...]:
    """The names of trainers in the order of deletion."""
    return tuple(
        packing.problem.live_trainers[i].pod.name
        for i in sorted(live_trainers, key=lambda i: packing.problem.live_trainers[i].order)
    )


def _wanted(packing: TrialPacking) -> dict[int, int]:
    """How many more trainers of each shape the jobs would take if there were slots."""
    wanted, most = Counter[int](), {j: packing.problem.demands[j].max_trainers for j in packing.members}
    for j in may_have_more(packing, most):
        wanted[packing.problem.demands[j].shape] += most[j] - packing.count[j]
    return wanted


def _by_job(moved: Iterable[tuple[_Group, int]]) -> dict[JobKey, tuple[str, ...]]:
    """The names of the pods to delete, by job."""
    found: dict[JobKey, list[str]] = {}
    for group, count in moved:
        found.setdefault(group.job, []).extend(group.pods[:count])
    return {job: tuple(sorted(pods)) for job, pods in sorted(found.items()) if pods}


def _with_deleted(job: Job, names: set[str]) -> Job:
    """The job with these pods terminating."""
    if not names:
        return job
    return replace(job, pods=tuple(replace(p, terminating=p.terminating or p.name in names) for p in job.pods))
