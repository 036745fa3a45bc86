"""The linear programs of every policy: the max-min fair share, and the bound of a plan.

Each chooses how many nodes of a class use which pattern of pods. A program bounds what whole pods can reach;
`packing` and `integer` place them. Dual values are prices: what one more slot, or one more node of a class, would be
worth.

Source: the Lagrangian bound of column generation, Desrosiers and Luebbecke,
A Primer in Column Generation (2005), section 1.4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from edl.model.names import Role
from edl.planner.clock import OutOfTimeError
from edl.planner.problem import BoolArray, IntArray, Problem, sum_requests
from edl.planner.programs.columns import EPSILON, Columns, FloatArray, all_in_one, make_columns
from edl.planner.programs.generation import Program, Solution, bound_without_program, solve
from edl.planner.programs.limit_rows import limit_rows
from edl.planner.programs.patterns import distinct
from edl.planner.trial_packing import SERVING, TrialPacking


@dataclass(frozen=True, slots=True)
class ShareProblem:
    """A packing as the linear programs see it: trainers may be placed differently, all other placed pods stay.

    Attributes:
        columns: node classes and the patterns of pods that they can hold.
        jobs: indices of the admitted jobs' demands, ascending.
        immovable: by job, trainers that count but run on a node where no new one of their job could.
        need: (shapes,) slots for serving, masters and pservers.
        serving: by shape, how many of those slots are for serving pods.
        rows, limits: --max-load-desired, then quotas, as rows @ counts <= limits.
        is_rough: all nodes are one, and no program is solved over them.
    """

    problem: Problem
    columns: Columns
    jobs: tuple[int, ...]
    immovable: dict[int, int]
    need: FloatArray
    serving: dict[int, int]
    rows: FloatArray
    limits: FloatArray
    is_rough: bool = False


def read_share_problem(packing: TrialPacking, *, is_rough: bool = False, stays: bool = False) -> ShareProblem:
    """Read a packing; what its nodes hold now becomes the first patterns, so that the program can repeat it.

    Args:
        packing: the packing.
        is_rough: take all nodes as one, which is quick.
        stays: trainers that run keep their nodes; only pods that do not exist yet may be repacked.

    Raises:
        OutOfTimeError: no time is left to sort the nodes.
    """
    problem = packing.problem
    node, shape, owner = _movable(packing, stays=stays)
    free = packing.free.clip(min=0) + sum_requests(len(packing.free), problem.request, node, shape)
    shapes = {problem.demands[j].shape for j in packing.members} | {place.shape for place in packing.placed}
    columns = (all_in_one if is_rough else make_columns)(problem, free, shapes)
    row = {s: k for k, s in enumerate(columns.shapes)}
    add_used(columns, node, shape)
    need = np.zeros(len(row))
    serving: Counter[int] = Counter()
    for place in packing.placed:  # only trainers have odd shapes
        if place.role is not Role.TRAINER:
            need[row[place.shape]] += 1
            serving[place.shape] += place.owner == SERVING
    movable = np.bincount(owner, minlength=len(problem.demands)).tolist()
    immovable = {j: packing.count[j] - movable[j] for j in packing.members}
    rows, limits = limit_rows(packing)
    return ShareProblem(problem, columns, packing.members, immovable, need, dict(serving), rows, limits, is_rough)


def _movable(packing: TrialPacking, *, stays: bool) -> tuple[IntArray, IntArray, IntArray]:
    """(pods,) node, shape and owner of every pod that may be repacked; trainers first, others have no owner."""
    problem = packing.problem
    live_trainers, node = packing.with_node()
    shape, owner = problem.trainer_shape[live_trainers], problem.trainer_demand[live_trainers]
    claimed = np.array([demand.shape for demand in problem.demands], dtype=np.int64)
    moves = (shape == claimed[owner]) & problem.opened[shape, node] & (not stays)
    new = sorted(packing.placed, key=lambda place: place.role is not Role.TRAINER)
    owners = [place.owner for place in new if place.role is Role.TRAINER]
    return (
        np.concatenate([node[moves], np.array([place.node for place in new], dtype=np.int64)]),
        np.concatenate([shape[moves], np.array([place.shape for place in new], dtype=np.int64)]),
        np.concatenate([owner[moves], np.array(owners, dtype=np.int64)]),
    )


def add_used(columns: Columns, node: IntArray, shape: IntArray) -> None:
    """Add what each node holds as a pattern, given the node and the shape of each pod."""
    if not columns.classes or columns.buckets is not None:
        return
    row = np.full(max([*columns.shapes, *shape.tolist()]) + 1, -1)
    row[list(columns.shapes)] = np.arange(len(columns.shapes))
    node, shape = node[row[shape] >= 0], shape[row[shape] >= 0]  # odd shapes are in no pattern
    class_of = {n: g for g, group in enumerate(columns.classes) for n in group.nodes}
    owner = np.full(1 + max(class_of), -1)
    owner[list(class_of)] = list(class_of.values())
    known = node < len(owner)
    counts = np.zeros((len(owner), len(columns.shapes)), dtype=np.int64)
    np.add.at(counts, (node[known], row[shape[known]]), 1)
    table = np.column_stack([owner, counts])[owner >= 0]
    used = [(g, tuple(pattern)) for g, *pattern in table[distinct(table)[0]].tolist()]
    if columns.is_lazy:
        columns.spare += used
        return
    for g, held in used:
        columns.add(g, held)


def fair_shares(cluster: ShareProblem, deadline_s: float) -> dict[int, float]:
    """Max-min fair shares: find the largest t with n_j >= m_j + t (M_j - m_j), freeze the tight jobs, repeat.

    A job of an odd shape has the fair share of the first tight jobs.

    Returns:
        By job, trainers in fractions, never below its minimum.

    Source: progressive filling, Bertsekas and Gallager, Data Networks (1992), section 6.5.2.
    """
    demands = [cluster.problem.demands[j] for j in cluster.jobs]
    low, span = _elastic_ranges(cluster)
    frozen = span == 0
    is_odd = np.array([c.shape in cluster.problem.odd_shapes for c in demands], dtype=np.bool_)
    floor = low.copy()
    while not frozen.all():
        active = np.flatnonzero(~frozen)
        odd = np.flatnonzero(~frozen & (immovable_trainers(cluster) > low))
        program = _share_program(cluster, _Progress(floor, low, span, frozen, odd))
        solution = solve(program, cluster.columns, deadline_s)
        level = float(solution.v[0])
        floor[active] = np.maximum(floor[active], low[active] + level * span[active])
        shared = len(cluster.rows)
        worth = solution.slot_price @ slots_used(cluster) + solution.row_price[:shared] @ cluster.rows
        worth[odd] = solution.row_price[shared:]
        is_tight = (worth > EPSILON) | _held_down(cluster, floor)
        tight = active[is_tight[active] | is_odd[active]] if is_tight[active].any() else active
        if level >= 1 - EPSILON:
            tight = active
        frozen[tight] = True
    return {j: float(n) for j, n in zip(cluster.jobs, floor, strict=True)}


def _held_down(cluster: ShareProblem, floor: FloatArray) -> BoolArray:
    """(jobs,) True for jobs that a used-up quota or the allowed load limits, whatever their price is.

    Of many limits that are reached at once, such as one for each job, the program may price a single one. A job with
    more immovable trainers than it was promised is not bound: these count already.

    Args:
        cluster: the jobs and their limits.
        floor: (jobs,) what each has been promised.
    """
    immovable = immovable_trainers(cluster)
    left = cluster.limits - cluster.rows @ np.maximum(floor, immovable)
    is_short = (cluster.rows[left <= EPSILON] > 0).any(axis=0)
    return np.asarray(is_short & (floor >= immovable - EPSILON))


@dataclass(frozen=True, slots=True)
class _Progress:
    """The state between two rounds of progressive filling.

    Attributes:
        floor: (jobs,) the fair share of each job so far.
        low, span: (jobs,) its minimum, and its maximum less that.
        frozen: (jobs,) True if the promise is final.
        odd: indices of jobs with more immovable trainers than their minimum.
    """

    floor: FloatArray
    low: FloatArray
    span: FloatArray
    frozen: BoolArray
    odd: IntArray


def _share_program(cluster: ShareProblem, progress: _Progress) -> Program:
    """The program of one round; its variables are t and the counts of the odd jobs.

    All other jobs have exactly what t promises them, so that thousands of jobs are one column.
    """
    floor, low, span, frozen, odd = (getattr(progress, name) for name in progress.__slots__)
    held = np.where(floor > low, floor - 10 * EPSILON, low)  # a level is rounded; a minimum is not
    immovable = immovable_trainers(cluster)
    rises, fixed = np.where(frozen, 0.0, span), np.where(frozen, np.maximum(held, immovable), low)
    rises[odd], fixed[odd] = 0.0, 0.0
    use = slots_used(cluster)
    promise = np.zeros((len(odd), 1 + len(odd)))
    promise[:, 0], promise[:, 1:] = span[odd], -np.eye(len(odd))
    total = max(1.0, float(span[~frozen].sum()))  # prices are then about one for each slot
    return Program(
        gain=np.concatenate([[total], np.zeros(len(odd))]),
        low=np.concatenate([[0.0], immovable[odd]]),
        high=np.concatenate([[1.0], np.maximum(low + span, immovable)[odd]]),
        use=np.column_stack([use @ rises, use[:, odd]]),
        need=cluster.need + use @ (fixed - immovable),
        rows=np.vstack([np.column_stack([cluster.rows @ rises, cluster.rows[:, odd]]), promise]),
        limits=np.concatenate([cluster.limits - cluster.rows @ fixed, -low[odd]]),
    )


def could_reach(cluster: ShareProblem, wanted: Mapping[int, int], deadline_s: float) -> bool:
    """False if a linear program proves that the jobs cannot all have their wanted counts at once."""
    return obstacle(cluster, wanted, deadline_s) is None


def obstacle(cluster: ShareProblem, wanted: Mapping[int, int], deadline_s: float) -> Solution | None:
    """A solution whose prices prove that the jobs cannot all have their wanted counts; None without a proof."""
    goal = np.array([wanted[j] for j in cluster.jobs], dtype=np.float64)
    immovable = immovable_trainers(cluster)
    high = np.maximum(goal, immovable)
    solution = solve(_grouped(cluster, np.ones(len(goal)), immovable, high), cluster.columns, deadline_s)
    return solution if solution.bound < float(high.sum()) - EPSILON else None


def highest_level(
    cluster: ShareProblem, floor: FloatArray, frozen: BoolArray, deadline_s: float
) -> tuple[float, Solution]:
    """The highest fulfilment that all jobs which are not frozen can have at once, in fractions of trainers.

    Args:
        cluster: the jobs and their capacity.
        floor: (jobs,) trainers that each frozen job has at least.
        frozen: (jobs,) True for jobs that have their floor and no more.
        deadline_s: time for the program.

    Returns:
        A bound that no plan exceeds, in [0, 1], and the solution.
    """
    low, span = _elastic_ranges(cluster)
    odd = np.flatnonzero(~frozen & (immovable_trainers(cluster) > low))
    program = _share_program(cluster, _Progress(floor, low, span, frozen, odd))
    solution = solve(program, cluster.columns, deadline_s)
    return min(1.0, max(0.0, solution.bound / float(program.gain[0]))), solution


def _elastic_ranges(cluster: ShareProblem) -> tuple[FloatArray, FloatArray]:
    """(jobs,) the minimum of each job, and (jobs,) its maximum minus the minimum."""
    demands = [cluster.problem.demands[j] for j in cluster.jobs]
    low = np.array([c.min_trainers for c in demands], dtype=np.float64)
    return low, np.array([max(0, c.max_trainers - c.min_trainers) for c in demands], dtype=np.float64)


def fluid_targets(
    cluster: ShareProblem,
    gain: Mapping[int, float],
    least: Mapping[int, int],
    most: Mapping[int, int],
    deadline_s: float,
) -> tuple[dict[int, float], dict[int, float]]:
    """Find the fractional counts of the largest total gain, and the price of one trainer's capacity.

    Args:
        cluster: the jobs and their capacity.
        gain: by job, what one trainer adds.
        least: by job, its fewest trainers.
        most: by job, its most trainers.
        deadline_s: time for the program.

    Returns:
        By job, its trainers; by job, the price of a slot for one of them.
    """
    immovable = immovable_trainers(cluster)
    low = np.maximum([least[j] for j in cluster.jobs], immovable)
    use = slots_used(cluster)
    program = Program(
        gain=np.array([gain[j] for j in cluster.jobs]),
        low=low,
        high=np.maximum([most[j] for j in cluster.jobs], low),
        use=use,
        need=cluster.need - use @ immovable,
        rows=cluster.rows,
        limits=cluster.limits,
    )
    solution = solve(program, cluster.columns, deadline_s)
    price = solution.slot_price @ use
    return (
        {j: float(n) for j, n in zip(cluster.jobs, solution.v, strict=True)},
        {j: float(n) for j, n in zip(cluster.jobs, price, strict=True)},
    )


def _grouped(cluster: ShareProblem, gain: FloatArray, low: FloatArray, high: FloatArray) -> Program:
    """Build a program over trainer counts; jobs of equal shape, gain and constraints share one variable."""
    use = slots_used(cluster)
    shape = [cluster.problem.demands[j].shape for j in cluster.jobs]
    kinds = np.column_stack([shape, gain, cluster.rows.T]).round(12)
    first, kind = np.unique(kinds, axis=0, return_index=True, return_inverse=True)[1:]
    return Program(
        gain=gain[first],
        low=np.bincount(kind, low, minlength=len(first)).astype(np.float64),
        high=np.bincount(kind, high, minlength=len(first)).astype(np.float64),
        use=use[:, first],
        need=cluster.need - use @ immovable_trainers(cluster),
        rows=cluster.rows[:, first],
        limits=cluster.limits,
    )


def slots_used(cluster: ShareProblem) -> FloatArray:
    """(shapes, jobs) slots that one trainer of each job takes; none if its shape is odd."""
    shape = np.array([cluster.problem.demands[j].shape for j in cluster.jobs], dtype=np.int64)
    used: FloatArray = (np.array(cluster.columns.shapes, dtype=np.int64)[:, None] == shape).astype(np.float64)
    return used


def immovable_trainers(cluster: ShareProblem) -> FloatArray:
    """(jobs,) trainers that need no slot, because they run where their job could not start a new one."""
    return np.array([cluster.immovable[j] for j in cluster.jobs], dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Proof:
    """How far a plan can be from the best one, and the prices of what is scarce.

    Attributes:
        achieved, bound: the objective of the plan, and what no plan can exceed.
        cluster: node classes and shapes that the prices are for.
        solution: with the prices; None if no job runs.
    """

    achieved: float
    bound: float
    cluster: ShareProblem
    solution: Solution | None


def read_to_prove(packing: TrialPacking, *, stays: bool = False) -> ShareProblem:
    """Read a packing for a bound; without exact node classes if too little time is left."""
    try:
        return read_share_problem(packing, stays=stays)
    except OutOfTimeError:
        return read_share_problem(packing, is_rough=True, stays=stays)


def solve_to_prove(cluster: ShareProblem, program: Program, deadline_s: float) -> Solution | None:
    """Solve the linear program behind a bound; None if there is no time for it (the plan then says so)."""
    if not cluster.is_rough:
        with suppress(OutOfTimeError):
            return solve(program, cluster.columns, deadline_s)
    cluster.problem.clock.cut_short("proof")
    return None


def prove(
    packing: TrialPacking,
    level: Mapping[int, float],
    deadline_s: float,
    *,
    least: Mapping[int, int] | None = None,
    stays: bool = False,
) -> Proof:
    """Bound the weighted fulfilment from above if each job has at least its fair share or its planned trainers.

    Args:
        packing: the finished plan.
        level: by job, trainers that the fair share promises.
        deadline_s: time for the program; without an answer in it, the bound is that of one resource alone.
        least: trainers that some jobs are to have in any case; the bound is then that of another plan.
        stays: bound only plans in which the trainers that this plan keeps stay on their nodes.
    """
    cluster = read_to_prove(packing, stays=stays)
    achieved = sum(packing.problem.demands[j].job.weight * packing.fulfilment(j) for j in packing.members)
    if not packing.members:
        return Proof(achieved, achieved, cluster, None)
    demands = [packing.problem.demands[j] for j in packing.members]
    low = np.array([c.min_trainers for c in demands], dtype=np.float64)
    span = np.array([c.max_trainers - c.min_trainers for c in demands], dtype=np.float64)
    weight = np.array([c.job.weight for c in demands], dtype=np.float64)
    gain = np.where(span > 0, weight / np.maximum(span, 1), 0.0)
    floor = np.array([min(int(level[j] + EPSILON), packing.count[j]) for j in packing.members], dtype=np.float64)
    floor = np.maximum(floor, [(least or {}).get(j, 0) for j in packing.members])
    floor = np.maximum(floor, immovable_trainers(cluster))
    program = _grouped(cluster, gain, floor, np.maximum(low + span, floor))
    constant = float(weight[span <= 0].sum() - (gain * low).sum())
    solution = solve_to_prove(cluster, program, deadline_s)
    if solution is None:
        bound = bound_without_program(program, cluster.columns) + constant + EPSILON
        return Proof(achieved, max(achieved, bound), cluster, None)
    return Proof(achieved, solution.bound + constant + EPSILON, cluster, solution)
