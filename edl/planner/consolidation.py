"""Which pservers move, once nothing happens, so that room in pieces becomes room for trainers.

Serving pods come and go, and a pserver stays where there was room when it started: node after node may keep a piece
that is too small for a trainer. A pserver holds the model, and its end takes its job back to the last checkpoint. So
pservers move only where the operator asks for it, only after a time in which nothing has changed, only those that may
be ended, and every job that is interrupted must pay for it with room for a trainer. Pservers may keep each other's
checkpoints: one of a job moves at a time, unless they are said to be safe to evict. Trainers make way for them where
that brings more than it costs; masters stay: their journals are on volumes that may belong to a node.

Source: an integer program over nodes, solved by HiGHS (scipy.optimize.milp). Karpenter's `consolidateAfter` is the
same wait, for nodes (https://karpenter.sh/docs/concepts/disruption/).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from edl.model.actions import Intent
from edl.model.cluster import ClusterSnapshot
from edl.model.job_policies import JobAction, JobEvent
from edl.model.jobs import Job
from edl.model.names import JobKey, Role
from edl.model.plan import ScaleDecision, ScalePlan
from edl.model.pods import Pod, PodPhase
from edl.planner.minimums import size_of
from edl.planner.packing import has_load_left
from edl.planner.trial_packing import TrialPacking

Terms = list[tuple[int, float]]
Row = tuple[Terms, float, float]
"""(column, factor) of a sum, and the least and the most that it may be."""

VARIABLES_LIMIT = 20_000
WITH_VICTIMS_LIMIT = 2_000  # above, trainers stay where they are
SEARCH_NODES = 100  # and no limit of time but the deadline, so that equal snapshots give equal plans
NEAR = 0.005  # of the best value: not worth searching on for
INTERRUPTION, DELETION, MOVE = 0.7, 0.1, 0.01
"""Prices in the smallest trainers: a job's step back, a trainer that starts anew elsewhere, a pserver that does."""


@dataclass(frozen=True, slots=True)
class Moving:
    """Who ends so that it starts elsewhere, by job; sorted names.

    Attributes:
        pservers: for the sake of room.
        trainers: that make way for them.
    """

    pservers: Mapping[JobKey, tuple[str, ...]]
    trainers: Mapping[JobKey, tuple[str, ...]]


def rest_of(snapshot: ClusterSnapshot) -> tuple[float, str]:
    """For how many seconds nothing has come, started or been resized, and what was the last; 0 while a pod leaves.

    Pods of jobs must run; those of others that nobody could give room, and those that take none, are no unrest.
    """
    ours = [pod for job in snapshot.jobs for pod in job.pods]
    pods = [*snapshot.pods, *ours]
    if leaving := next((pod for pod in pods if pod.terminating), None):
        return 0.0, f"pod {leaving.namespace}/{leaving.name} is leaving"
    if coming := next((p for p in ours if p.is_live and (not p.node or p.phase is not PodPhase.RUNNING)), None):
        return 0.0, f"pod {coming.namespace}/{coming.name} does not run yet"
    last: list[tuple[float, str]] = []
    if pods:
        pod = max(pods, key=_since)
        last.append((_since(pod), f"pod {pod.namespace}/{pod.name} started"))
    if snapshot.jobs:
        job = max(snapshot.jobs, key=lambda job: job.created_s)
        last.append((job.created_s, f"job {job.key} came"))
        job = max(snapshot.jobs, key=_resized)
        last.append((_resized(job), f"job {job.key} was resized"))
    last_s, what = max(last, default=(snapshot.observed_at_s, ""))
    return max(0.0, snapshot.observed_at_s - last_s), what


def _since(pod: Pod) -> float:
    return max(pod.created_s, pod.started_s or 0.0)


def _resized(job: Job) -> float:
    resize = job.status.last_resize if job.status is not None else None
    return resize.time_s if resize is not None else 0.0


def unrest(snapshot: ClusterSnapshot, plan: ScalePlan, after_s: float) -> str:
    """What has to be over before pservers may move; empty where nothing has."""
    if any(d.victims or d.nodes or d.fixed_nodes for d in plan.decisions):
        return "the plan changes the number of trainers, or starts pods"
    if plan.serving.waiting > plan.serving.short:
        return "serving pods wait for room"
    rest_s, what = rest_of(snapshot)
    if rest_s >= after_s:
        return ""
    return f"{what} {rest_s:g} s ago, and nothing may change for {after_s:g} s" if rest_s else what


def moves(packing: TrialPacking, deadline_s: float) -> Moving:
    """The pservers to end, and trainers, so that they and more trainers find room; none where nothing is gained.

    As few jobs as pay for it, and as few pods of them. Where the pods go is for the next plan to say: it packs them
    with the trainers that come.

    Args:
        packing: the finished packing of a plan that changes nothing; not changed.
        deadline_s: time for the program.
    """
    program = _Program(packing, with_victims=True)
    if program.size > WITH_VICTIMS_LIMIT:
        program = _Program(packing, with_victims=False)
    if not program.groups or not any(program.wanted.values()) or program.size > VARIABLES_LIMIT:
        return Moving({}, {})
    ended, deleted = program.solve(deadline_s)
    pairs = (zip(program.groups, ended, strict=True), zip(program.trainers, deleted, strict=True))
    return Moving(*map(_by_job, pairs))


def without(snapshot: ClusterSnapshot, moving: Moving) -> ClusterSnapshot:
    """The snapshot once the deletion of those pods was asked for."""
    both = (moving.pservers, moving.trainers)
    jobs = (_leaving(job, {name for pods in both for name in pods.get(job.key, ())}) for job in snapshot.jobs)
    return replace(snapshot, jobs=tuple(jobs))


def pays(before: ScalePlan, after: ScalePlan, interrupted: int) -> bool:
    """True where the plan for the pods that moved takes from nobody, and adds a trainer for each interrupted job."""
    pairs = list(zip(before.decisions, after.decisions, strict=True))
    if any(new.victims or new.target < old.target or new.admitted < old.admitted for old, new in pairs):
        return False
    return sum(new.target - old.target for old, new in pairs) >= interrupted


def with_moves(before: ScalePlan, after: ScalePlan, moving: Moving) -> ScalePlan:
    """The plan for the pods that moved, as one for those that are to."""

    def both(old: ScaleDecision, new: ScaleDecision) -> ScaleDecision:
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
    """True for a pserver that nobody asks to leave alone, whose job goes on without it and is not about to end."""
    goes_on = job.fault_tolerant and job.action_for(Role.PSERVER, JobEvent.POD_EVICTED) is JobAction.RESTART_POD
    if pod.role is not Role.PSERVER or not pod.is_live or pod.safe_to_evict is False:
        return False
    comes_back_alike = any(f.role is Role.PSERVER and f.shape == pod.shape for f in job.fixed)
    return goes_on and comes_back_alike and not job.completed(Role.TRAINER)


@dataclass(frozen=True, slots=True)
class _Group:
    """Pods of one job and shape on one node, of which any number may end, in the order in which they should."""

    demand: int
    node: int
    shape: int
    is_safe: bool
    job: JobKey
    pods: tuple[str, ...]


class _Program:
    """How many pods of each group end, where pservers start instead, and the trainers that then fit beside them.

    Variables, in this order: pservers of each group that end; trainers of each group that make way; per node and
    shape the pservers that start, and the trainers that do; per job, 1 where a pserver of it moves.

    Attributes:
        groups: pservers that may end; `is_safe`: any number of a job's at once.
        trainers: trainers that may make way.
        wanted: trainers of each shape that would be taken beyond those that there are.
        size: the number of variables.
    """

    def __init__(self, packing: TrialPacking, *, with_victims: bool) -> None:
        self._room, opened = packing, packing.problem.opened
        self.groups = _pservers(packing)
        self.trainers = _surplus(packing) if with_victims and self.groups else []
        self.wanted = _wanted(packing)
        self._pserver_shapes = sorted({g.shape for g in self.groups})
        shapes = {s for s, n in self.wanted.items() if n} | {g.shape for g in self.trainers}
        self._trainer_shapes = sorted(shapes)
        left = {g.node for g in (*self.groups, *self.trainers)}
        self._jobs = sorted({g.demand for g in self.groups})
        self._starts = [
            (n, s)
            for s in self._pserver_shapes
            for n in sorted({*left, *np.flatnonzero(packing.slots(s)).tolist()})
            if opened[s, n]
        ]
        self._grows = [
            (n, s)
            for s in self._trainer_shapes
            for n in sorted({*left, *np.flatnonzero(packing.slots(s)).tolist()})
            if opened[s, n]
        ]
        parts = (self.groups, self.trainers, self._starts, self._grows, self._jobs)
        ends = list(accumulate((len(part) for part in parts), initial=0))
        self._end, self._die, self._start, self._grow, self._job = (slice(a, b) for a, b in pairwise(ends))
        self.size = ends[-1]

    def solve(self, deadline_s: float) -> tuple[list[int], list[int]]:
        """How many pods of each group end, pservers and trainers; none of any where no answer was found."""
        sizes = {s: size_of(self._room.problem, s) for s in self._trainer_shapes}
        least = min((size for size in sizes.values() if size), default=1.0)
        worth = {s: max(1.0, size / least) for s, size in sizes.items()}
        cost, most = np.zeros(self.size), np.full(self.size, np.inf)
        cost[self._end], most[self._end] = MOVE, [len(g.pods) for g in self.groups]
        cost[self._die], most[self._die] = (
            [worth[g.shape] + DELETION for g in self.trainers],
            [len(g.pods) for g in self.trainers],
        )
        cost[self._grow] = [-worth[s] for _, s in self._grows]
        cost[self._job], most[self._job] = INTERRUPTION, 1.0
        result = milp(
            cost,
            integrality=np.ones(self.size, dtype=np.int64),
            bounds=Bounds(np.zeros(self.size), most),
            constraints=self._constraint(),
            options={"time_limit": deadline_s, "node_limit": SEARCH_NODES, "mip_rel_gap": NEAR},
        )
        if result.x is None:
            return [0] * len(self.groups), [0] * len(self.trainers)
        answer: list[int] = np.asarray(result.x).round().astype(np.int64).tolist()
        return answer[self._end], answer[self._die]

    def _constraint(self) -> LinearConstraint:
        rows = [*self._room_rows(), *self._count_rows(), *self._job_rows()]
        at = [(k, column, factor) for k, (terms, _, _) in enumerate(rows) for column, factor in terms]
        row, column, factor = zip(*at, strict=True)
        matrix = coo_array((factor, (row, column)), shape=(len(rows), self.size)).tocsr()
        return LinearConstraint(matrix, [low for _, low, _ in rows], [high for _, _, high in rows])

    def _room_rows(self) -> Iterator[Row]:
        """On each node no more of a resource is taken than is free or given back; in parts of the largest node."""
        problem = self._room.problem
        request, free = problem.request / problem.largest, self._room.free / problem.largest
        here: dict[int, list[tuple[int, int, float]]] = {}
        for groups, first in ((self.groups, self._end.start), (self.trainers, self._die.start)):
            for k, group in enumerate(groups, start=first):
                here.setdefault(group.node, []).append((k, group.shape, -1.0))
        for places, first in ((self._starts, self._start.start), (self._grows, self._grow.start)):
            for k, (node, shape) in enumerate(places, start=first):
                here.setdefault(node, []).append((k, shape, 1.0))
        for node, users in here.items():
            for r in range(len(problem.names)):
                terms = [(k, sign * request[shape, r]) for k, shape, sign in users if request[shape, r]]
                if terms:
                    yield terms, -np.inf, max(0.0, float(free[node, r]))

    def _count_rows(self) -> Iterator[Row]:
        """As many pservers start as end, and as many trainers at least, but no more than are wanted; by shape."""
        for s in self._pserver_shapes:
            yield [*_of(self.groups, self._end.start, s), *_at(self._starts, self._start.start, s)], 0.0, 0.0
        for s in self._trainer_shapes:
            terms = [*_of(self.trainers, self._die.start, s), *_at(self._grows, self._grow.start, s)]
            if terms:
                yield terms, 0.0, float(self.wanted.get(s, 0))

    def _job_rows(self) -> Iterator[Row]:
        """Who moves is interrupted, and each interrupted job brings a trainer.

        Of a job's pservers only one ends at a time, but for those that are said to be safe.
        """
        number = {j: self._job.start + i for i, j in enumerate(self._jobs)}
        careful: dict[int, Terms] = {j: [(k, -1.0)] for j, k in number.items()}
        for k, group in enumerate(self.groups, start=self._end.start):
            if group.is_safe:
                yield [(k, 1.0), (number[group.demand], -float(len(group.pods)))], -np.inf, 0.0
            else:
                careful[group.demand].append((k, 1.0))
        for terms in careful.values():
            yield terms, -np.inf, 0.0
        more = [(k, 1.0) for k in range(self._grow.start, self._grow.stop)]
        fewer = [(k, -1.0) for k in range(self._die.start, self._die.stop)]
        yield [*more, *fewer, *((k, -1.0) for k in number.values())], 0.0, np.inf


def _at(places: list[tuple[int, int]], first: int, shape: int) -> Terms:
    return [(k, 1.0) for k, (_, s) in enumerate(places, start=first) if s == shape]


def _of(groups: list[_Group], first: int, shape: int) -> Terms:
    return [(k, -1.0) for k, group in enumerate(groups, start=first) if group.shape == shape]


def _pservers(packing: TrialPacking) -> list[_Group]:
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
    """Trainers beyond the minimum of jobs that go on without them, of the shape that new ones would have."""
    problem = packing.problem
    found: dict[tuple[int, int, int], list[int]] = {}
    for index, node in packing.node_of.items():
        trainer = problem.live_trainers[index]
        demand = problem.demands[trainer.demand]
        may_die = demand.job.fault_tolerant and not trainer.is_base and trainer.pod.safe_to_evict is not False
        if may_die and trainer.shape == demand.shape:
            found.setdefault((trainer.demand, node, trainer.shape), []).append(index)
    return [
        _Group(j, node, shape, True, problem.demands[j].job.key, _in_dying_order(packing, live_trainers))
        for (j, node, shape), live_trainers in sorted(found.items())
    ]


def _in_dying_order(packing: TrialPacking, live_trainers: list[int]) -> tuple[str, ...]:
    return tuple(
        packing.problem.live_trainers[i].pod.name
        for i in sorted(live_trainers, key=lambda i: packing.problem.live_trainers[i].order)
    )


def _wanted(packing: TrialPacking) -> dict[int, int]:
    """Trainers of each shape that jobs would take if there were room."""
    meter, wanted = packing.meter(), dict[int, int]()
    for j in packing.members:
        demand = packing.problem.demands[j]
        more = demand.max_trainers - packing.count[j]
        if more > 0 and meter.quota_shortage(j) is None and has_load_left(packing, demand.shape):
            wanted[demand.shape] = wanted.get(demand.shape, 0) + more
    return wanted


def _by_job(ended: Iterable[tuple[_Group, int]]) -> dict[JobKey, tuple[str, ...]]:
    found: dict[JobKey, list[str]] = {}
    for group, count in ended:
        found.setdefault(group.job, []).extend(group.pods[:count])
    return {job: tuple(sorted(pods)) for job, pods in sorted(found.items()) if pods}


def _leaving(job: Job, names: set[str]) -> Job:
    if not names:
        return job
    return replace(job, pods=tuple(replace(p, terminating=p.terminating or p.name in names) for p in job.pods))
