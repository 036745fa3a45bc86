"""The fewest trainers to delete so that pods fit: an integer program over the nodes of a small cluster.

Solvers work in floats with a tolerance, and drop coefficients that are tiny beside others. So what the program
proposes is checked in integers; if it asks for a byte too much, it is solved again with tiny requests rounded up.

Source: HiGHS by scipy.optimize.milp; its options primal_feasibility_tolerance (1e-7 and 1e-6 for integers) and
small_matrix_value (1e-9).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from edl.planner.programs.integer import SEARCH_NODES
from edl.planner.programs.placing import LEAST_REQUESTS, place_whole
from edl.planner.solvers.integer_program import IntegerProgram, Rows
from edl.planner.trial_packing import TrialPacking

FloatArray = NDArray[np.float64]

VARIABLES_LIMIT = 400
RUNNING_COST, UNFAIR_COST = 1e-3, 1e-5  # parts of a deletion: for a running pod; for a job that becomes badly off
FEW = 8  # with more deletions, the search ends where none can be saved, whatever else that could be better
LESS_THAN_ONE = 0.9  # of a deletion
LATE_COST = 1e-6  # for a pod on a node where it waits for the end of others: its job may lack its minimum until then


@dataclass(frozen=True, slots=True)
class Victims:
    """Trainers to delete, and the pods that fit after that.

    Attributes:
        deleted: indices of the live trainers.
        places: (node, shape, pods).
    """

    deleted: tuple[int, ...]
    places: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class _Variables:
    """The variables of a program of deletions, and the position of each kind.

    Attributes:
        groups: equal trainers, by (node, job, shape, running): how many of each group are deleted.
        spots: (node, shape): how many pods are placed there.
        steps: (member, i): 1 if the member loses its i-th trainer, so that each deletion has a price of its own.
        delete: positions of the groups; spot: of the spots; step: of the steps.
        lack: positions of the trainers that each member must get elsewhere.
        size: the number of variables.
    """

    groups: dict[tuple[int, int, int, bool], list[int]]
    spots: list[tuple[int, int]]
    steps: list[tuple[int, int]]
    delete: slice
    spot: slice
    lack: slice
    step: slice
    size: int


def fewest_victims(
    packing: TrialPacking, wanted: Mapping[int, int], deadline_s: float, *, tries: int = 0, known: int = 0
) -> Victims | None:
    """Find the fewest trainers to delete so that pods fit, and the minimums of the trainers' own jobs fit elsewhere.

    There is one variable for each group of trainers of a job on a node, so it is for small clusters only.

    Args:
        packing: the packing; not changed.
        wanted: serving pods, masters and pservers by shape.
        deadline_s: time for the program.
        tries: how many exchanges between two nodes are tried if there is nothing to delete and pods are left out.
        known: so many deletions are enough, and only fewer are looked for; 0 if that is not known. Trainers above the
            maximum of their job go in any case, and do not count.

    Returns:
        None if the program is too large or has no solution.
    """
    if _spots(packing, wanted) > VARIABLES_LIMIT:  # counted first: listing them takes longer
        return None
    v = _variables(packing, wanted)
    if not v.spots or v.size > VARIABLES_LIMIT:
        return None
    if not v.groups:
        places = place_whole(packing, _with_minimums(packing, wanted), tries, deadline_s)
        return None if places is None else Victims((), tuple(places))
    for least in LEAST_REQUESTS:
        found = _solve(packing, wanted, v, (least, known), deadline_s)
        if found is None or _fits(packing, found):
            return found
    return None


def _with_minimums(packing: TrialPacking, wanted: Mapping[int, int]) -> Counter[int]:
    """Add to the pods, by shape, what jobs lack of their minimums."""
    pods = Counter(wanted)
    for j in packing.members:
        demand = packing.problem.demands[j]
        pods[demand.shape] += max(0, demand.min_trainers - packing.count[j])
    return pods


def _fits(packing: TrialPacking, found: Victims) -> bool:
    """True if no node that gets a pod is overcommitted by it, checked in integers."""
    problem, free = packing.problem, packing.free.copy()
    for index in found.deleted:
        if (node := int(packing.node_of[index])) >= 0:
            free[node] += problem.request[problem.live_trainers[index].shape]
    for node, shape, pods in found.places:
        free[node] -= pods * problem.request[shape]
    return all(bool((free[n] >= 0)[problem.request[s] > 0].all()) for n, s, _ in found.places)


def _solve(
    packing: TrialPacking, wanted: Mapping[int, int], v: _Variables, limits: tuple[float, int], deadline_s: float
) -> Victims | None:
    """Solve `fewest_victims` in floats; `limits`: least request (a part of the largest node), and `known`."""
    least, known = limits
    demands = [packing.problem.demands[j] for j in packing.members]
    cost, high, whole = np.zeros(v.size), np.full(v.size, np.inf), np.zeros(v.size, dtype=np.int64)
    whole[: v.spot.stop] = 1
    cost[v.delete] = [RUNNING_COST * running for _, _, _, running in v.groups]
    cost[v.spot] = [LATE_COST * packing.is_late(shape, node) for node, shape in v.spots]
    high[v.delete] = [len(group) for group in v.groups.values()]
    lost = np.array([i >= packing.count[demands[k].index] - demands[k].max_trainers for k, i in v.steps], dtype=float)
    cost[v.step] = lost + [UNFAIR_COST * (1.0 - packing.fulfilment(demands[k].index, -i)) for k, i in v.steps]
    high[v.step] = 1.0
    rows = [Rows(left, low) for left, low in _victim_rows(packing, wanted, v, least)]
    if known:  # most programs that have no better solution are recognised by this row before any search
        fewer = np.zeros((1, v.size))
        fewer[0, v.step] = lost
        rows.append(Rows(fewer, high=known - 1.0))
    gap = LESS_THAN_ONE / known if known > FEW else 0.0
    program = IntegerProgram(cost, whole, np.zeros(v.size), high, rows, SEARCH_NODES, gap)
    counts = program.solve(packing.problem.clock.left_s(deadline_s), packing.problem.solved)
    if counts is None:
        return None
    deleted = [i for group, n in zip(v.groups.values(), counts[v.delete], strict=True) for i in group[:n]]
    places = [(n, s, pods) for (n, s), pods in zip(v.spots, counts[v.spot], strict=True) if pods]
    return Victims(tuple(deleted), tuple(places))


def _shapes(packing: TrialPacking, wanted: Mapping[int, int]) -> list[int]:
    """The shapes that the program places, ascending."""
    return sorted({*wanted, *(packing.problem.demands[j].shape for j in packing.members)})


def _spots(packing: TrialPacking, wanted: Mapping[int, int]) -> int:
    """Count the pairs of a node and a shape that the node accepts."""
    return int(packing.problem.opened[_shapes(packing, wanted)].sum())


def _variables(packing: TrialPacking, wanted: Mapping[int, int]) -> _Variables:
    """Number the variables of the program."""
    groups, shapes = _groups(packing), _shapes(packing, wanted)
    spots = [(n, s) for s in shapes for n in packing.problem.opened[s].nonzero()[0].tolist()]
    steps = [(k, i) for k, j in enumerate(packing.members) for i in range(packing.count[j])]
    ends = list(accumulate([len(groups), len(spots), len(packing.members), len(steps)], initial=0))
    delete, spot, lack, step = (slice(a, b) for a, b in pairwise(ends))
    return _Variables(groups, spots, steps, delete, spot, lack, step, ends[-1])


def _groups(packing: TrialPacking) -> dict[tuple[int, int, int, bool], list[int]]:
    """Group equal trainers: those of one job, node and shape; each group is in the order of deletion."""
    groups: dict[tuple[int, int, int, bool], list[int]] = {}
    for node, here in enumerate(packing.at):
        for index in sorted(here, key=lambda i: packing.problem.live_trainers[i].order):
            trainer = packing.problem.live_trainers[index]
            groups.setdefault((node, trainer.demand, trainer.shape, trainer.order[0]), []).append(index)
    return groups


def _victim_rows(
    packing: TrialPacking, wanted: Mapping[int, int], v: _Variables, least: float
) -> list[tuple[FloatArray, FloatArray]]:
    """The constraints: capacity of each node, pods of each shape, each minimum, and deletions by job."""
    problem, jobs = packing.problem, list(packing.members)
    parts = problem.request / problem.largest
    request = np.where(parts > 0, parts.clip(min=least), 0.0)
    free = packing.free / problem.largest
    nodes, resources = free.shape
    fits = np.zeros((nodes, resources, v.size))
    by_shape = np.zeros((len(problem.shapes), v.size))
    by_job, counted = np.zeros((len(jobs), v.size)), np.zeros((len(jobs), v.size))
    for k, (node, demand, shape, _) in enumerate(v.groups, start=v.delete.start):
        fits[node, :, k] = np.where(free[node] >= 0, request[shape], 0.0)
        by_job[jobs.index(demand), k] = counted[jobs.index(demand), k] = -1.0
    for k, (node, shape) in enumerate(v.spots, start=v.spot.start):
        fits[node, :, k] = -request[shape]
        by_shape[shape, k] = 1.0
    for k, j in enumerate(jobs):
        by_job[k, v.lack.start + k] = 1.0
        by_shape[problem.demands[j].shape, v.lack.start + k] = -1.0
    for k, (job, _) in enumerate(v.steps, start=v.step.start):
        counted[job, k] = 1.0
    return [
        (fits.reshape(nodes * resources, v.size), -free.clip(min=0).ravel()),
        (by_shape, np.array([wanted.get(s, 0) for s in range(len(problem.shapes))], dtype=np.float64)),
        (by_job, np.array([problem.demands[j].min_trainers - packing.count[j] for j in jobs], dtype=np.float64)),
        (counted, np.zeros(len(jobs))),
    ]
