"""Which pservers move, once nothing happens, so that room in pieces becomes room for trainers.

Serving pods come and go, and a pserver stays where there was room when it started: node after node may keep a piece
that is too small for a trainer. A pserver holds the model, and its end takes its job back to the last checkpoint. So
pservers move only where the operator asks for it, only after a time in which nothing has changed, only those that may
be ended, and every job that is interrupted must pay for it with room for a trainer. Pservers may keep each other's
checkpoints: one of a job moves at a time, unless they are said to be safe to evict. Trainers stay; masters stay, too:
their journals are on volumes that may belong to a node.

Source: an integer program over nodes, solved by HiGHS (scipy.optimize.milp). Karpenter's `consolidateAfter` is the
same wait, for nodes (https://karpenter.sh/docs/concepts/disruption/).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from edl.core.answers import JobAction, JobEvent
from edl.core.happenings import answer_to, finished_trainers
from edl.core.model import ClusterSnapshot, Job, JobKey, Pod, PodPhase, Role
from edl.core.packing import has_load_left
from edl.core.plan import ScalePlan
from edl.core.room import Room
from edl.core.settling import size_of

FloatArray = NDArray[np.float64]
Terms = list[tuple[int, float]]

VARIABLES_LIMIT = 20_000
SEARCH_NODES = 200  # and no limit of time but the deadline, so that equal snapshots give equal plans
INTERRUPTION, MOVE = 0.9, 0.01  # prices in the smallest trainers: of a job's step back, of one pod


def rests_for_s(snapshot: ClusterSnapshot) -> float:
    """For how long nothing has come, started or been resized; 0 while something waits or leaves."""
    pods = [*snapshot.pods, *(pod for job in snapshot.jobs for pod in job.pods)]
    if any(pod.terminating or pod.needs_room for pod in pods):
        return 0.0
    if any(pod.is_live and not (pod.node and pod.phase is PodPhase.RUNNING) for pod in _ours(snapshot.jobs)):
        return 0.0
    times = [t for pod in pods for t in (pod.created_s, pod.started_s) if t is not None]
    times += [job.created_s for job in snapshot.jobs]
    times += [s.last_resize.time_s for job in snapshot.jobs if (s := job.status) is not None and s.last_resize]
    return max(0.0, snapshot.observed_at_s - max(times, default=snapshot.observed_at_s))


def is_settled(plan: ScalePlan) -> bool:
    """True where the plan leaves everything as it is."""
    return not any(d.victims or d.nodes or d.fixed_nodes for d in plan.decisions)


def moves(room: Room, deadline_s: float) -> dict[JobKey, tuple[str, ...]]:
    """The pservers to end, by job, so that they and more trainers find room; empty where nothing is to be gained.

    As few jobs as pay for it, and as few pods of them. Where the pods go is for the next plan to say: it packs them
    with the trainers that come.

    Args:
        room: the finished packing of a plan that changes nothing; not changed.
        deadline_s: time for the program.
    """
    program = _Program(room)
    if not program.groups or not program.wanted or program.size > VARIABLES_LIMIT:
        return {}
    ended = program.solve(deadline_s)
    found: dict[JobKey, list[str]] = {}
    for group, count in zip(program.groups, ended, strict=True):
        found.setdefault(group.job, []).extend(group.pods[:count])
    return {job: tuple(sorted(pods)) for job, pods in sorted(found.items()) if pods}


def without(snapshot: ClusterSnapshot, moving: Mapping[JobKey, tuple[str, ...]]) -> tuple[Job, ...]:
    """The jobs once the deletion of those pods was asked for."""
    return tuple(_leaving(job, frozenset(moving[job.key])) if job.key in moving else job for job in snapshot.jobs)


def pays(before: ScalePlan, after: ScalePlan, interrupted: int) -> bool:
    """True where the plan for the pods that moved takes from nobody, and adds a trainer for each interrupted job."""
    pairs = list(zip(before.decisions, after.decisions, strict=True))
    if any(new.victims or new.target < old.target or new.admitted < old.admitted for old, new in pairs):
        return False
    return sum(new.target - old.target for old, new in pairs) >= interrupted


def may_move(job: Job, pod: Pod) -> bool:
    """True for a pserver that nobody asks to leave alone, whose job goes on without it and is not about to end."""
    is_one = pod.role is Role.PSERVER and job.fault_tolerant and pod.safe_to_evict is not False
    if finished_trainers(job):
        return False
    if answer_to(job, Role.PSERVER, JobEvent.POD_EVICTED) is not JobAction.RESTART_POD:
        return False
    return is_one and pod.is_live and any(f.role is Role.PSERVER and f.shape == pod.shape for f in job.fixed)


@dataclass(frozen=True, slots=True)
class _Group:
    """Pservers of one job and shape on one node; `is_safe`: any number of them may end at once."""

    claim: int
    node: int
    shape: int
    is_safe: bool
    job: JobKey
    pods: tuple[str, ...]


class _Program:
    """How many pods of each group end, where pservers start instead, and the trainers that then fit beside them.

    Variables, in this order: pods of each group that end; per node and shape the pservers that start; per node where
    some may end, and shape, the trainers that are added; per job, 1 where it is interrupted.

    Attributes:
        groups: what may end.
        wanted: trainers of each shape that would be taken.
        size: the number of variables.
    """

    def __init__(self, room: Room) -> None:
        self._room, world = room, room.world
        self.groups = _groups(room)
        self.wanted = _wanted(room)
        shapes = sorted({g.shape for g in self.groups})
        left = sorted({g.node for g in self.groups})
        self._jobs = sorted({g.claim for g in self.groups})
        self._starts = [
            (n, s)
            for s in shapes
            for n in sorted({*left, *np.flatnonzero(room.slots(s)).tolist()})
            if world.opened[s, n]
        ]
        self._grows = [(n, s) for s in sorted(self.wanted) for n in left if world.opened[s, n]]
        sizes = [len(self.groups), len(self._starts), len(self._grows), len(self._jobs)]
        ends = list(accumulate(sizes, initial=0))
        self._end, self._start, self._grow, self._job = (slice(a, b) for a, b in pairwise(ends))
        self.size = ends[-1]

    def solve(self, deadline_s: float) -> list[int]:
        """How many pods of each group end; none of any where no answer was found."""
        cost, most = np.zeros(self.size), np.full(self.size, np.inf)
        cost[self._end], most[self._end] = MOVE, [len(g.pods) for g in self.groups]
        sizes = {s: size_of(self._room.world, s) for s in self.wanted}
        least = min(size for size in sizes.values())
        cost[self._grow] = [-sizes[s] / least if least else -1.0 for _, s in self._grows]
        cost[self._job], most[self._job] = INTERRUPTION, 1.0
        result = milp(
            cost,
            integrality=np.ones(self.size, dtype=np.int64),
            bounds=Bounds(np.zeros(self.size), most),
            constraints=self._constraint(),
            options={"time_limit": deadline_s, "node_limit": SEARCH_NODES},
        )
        if result.x is None:
            return [0] * len(self.groups)
        ended: list[int] = np.asarray(result.x)[self._end].round().astype(np.int64).tolist()
        return ended

    def _constraint(self) -> LinearConstraint:
        rows = [*self._room_rows(), *self._count_rows()]
        at = [(k, column, factor) for k, (terms, _, _) in enumerate(rows) for column, factor in terms]
        row, column, factor = zip(*at, strict=True)
        matrix = coo_array((factor, (row, column)), shape=(len(rows), self.size)).tocsr()
        return LinearConstraint(matrix, [low for _, low, _ in rows], [high for _, _, high in rows])

    def _room_rows(self) -> Iterator[tuple[Terms, float, float]]:
        """On each node no more of a resource is taken than is free or given back; in parts of the largest node."""
        world = self._room.world
        request, free = world.request / world.largest, self._room.free / world.largest
        here: dict[int, list[tuple[int, int, float]]] = {}
        for k, group in enumerate(self.groups, start=self._end.start):
            here.setdefault(group.node, []).append((k, group.shape, -1.0))
        for k, (node, shape) in enumerate(self._starts, start=self._start.start):
            here.setdefault(node, []).append((k, shape, 1.0))
        for k, (node, shape) in enumerate(self._grows, start=self._grow.start):
            here.setdefault(node, []).append((k, shape, 1.0))
        for node, users in here.items():
            for r in range(len(world.names)):
                terms = [(k, sign * request[shape, r]) for k, shape, sign in users if request[shape, r]]
                if terms:
                    yield terms, -np.inf, max(0.0, float(free[node, r]))

    def _count_rows(self) -> Iterator[tuple[Terms, float, float]]:
        """As many start as end, of each shape; no more trainers than are wanted; who moves is interrupted.

        Of a job's pservers only one ends at a time, but for those that are said to be safe.
        """
        for s in sorted({g.shape for g in self.groups}):
            ending = [(k, -1.0) for k, g in enumerate(self.groups, start=self._end.start) if g.shape == s]
            yield [*ending, *_where(self._starts, self._start.start, s)], 0.0, 0.0
        for s, count in self.wanted.items():
            if terms := _where(self._grows, self._grow.start, s):
                yield terms, -np.inf, float(count)
        careful: dict[int, Terms] = {j: [(self._job.start + i, -1.0)] for i, j in enumerate(self._jobs)}
        for k, group in enumerate(self.groups, start=self._end.start):
            if group.is_safe:
                job = self._job.start + self._jobs.index(group.claim)
                yield [(k, 1.0), (job, -float(len(group.pods)))], -np.inf, 0.0
            else:
                careful[group.claim].append((k, 1.0))
        for terms in careful.values():
            yield terms, -np.inf, 0.0


def _where(places: list[tuple[int, int]], first: int, shape: int) -> Terms:
    return [(k, 1.0) for k, (_, s) in enumerate(places, start=first) if s == shape]


def _groups(room: Room) -> list[_Group]:
    world = room.world
    number = {shape: i for i, shape in enumerate(world.shapes)}
    found: dict[tuple[int, int, int, bool], list[str]] = {}
    for j in room.members:
        job = world.claims[j].job
        for pod in job.pods:
            node = world.node_index.get(pod.node, -1)
            if node >= 0 and may_move(job, pod):
                found.setdefault((j, node, number[pod.shape], bool(pod.safe_to_evict)), []).append(pod.name)
    return [
        _Group(j, node, shape, is_safe, world.claims[j].job.key, tuple(sorted(pods)))
        for (j, node, shape, is_safe), pods in sorted(found.items())
    ]


def _wanted(room: Room) -> dict[int, int]:
    """Trainers of each shape that jobs would take if there were room."""
    meter, wanted = room.meter(), dict[int, int]()
    for j in room.members:
        claim = room.world.claims[j]
        more = claim.high - room.count[j]
        if more > 0 and meter.short_of(j) is None and has_load_left(room, claim.shape):
            wanted[claim.shape] = wanted.get(claim.shape, 0) + more
    return wanted


def _leaving(job: Job, names: frozenset[str]) -> Job:
    return replace(job, pods=tuple(replace(p, terminating=p.terminating or p.name in names) for p in job.pods))


def _ours(jobs: Iterable[Job]) -> Iterator[Pod]:
    return (pod for job in jobs for pod in job.pods)
