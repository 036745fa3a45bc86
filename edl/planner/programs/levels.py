"""How far the jobs that are worst off could be at best: bounds of the lowest levels of fulfilment of a plan.

Max-min fairness raises the job that is worst off first, then the next one. So a plan is judged level by level: how
high could all jobs be at once; and, if the worst off keep what they have, how high could all others be.

Source: max-min fairness by progressive filling, Bertsekas and Gallager, Data Networks (1992), section 6.5.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, floor

import numpy as np

from edl.planner.programs.fair_share import ShareProblem, highest_level, obstacle, read_share_problem
from edl.planner.programs.generation import Solution
from edl.planner.trial_packing import TrialPacking

MOST_LEVELS = 3
SAME = 1e-9  # fulfilments that differ by less are one level
ROUNDING = 1e-7  # by which the limit of a program may be too low


@dataclass(frozen=True, slots=True)
class LevelBound:
    """Jobs of equal fulfilment, and what they could have at best.

    Attributes:
        jobs: indices of the jobs at this level, ascending.
        fulfilment: what they have, in [0, 1).
        bound: no plan in which the jobs of lower levels keep their trainers gives more to all other jobs; >=
            `fulfilment`.
        price: by shape, prices of a slot with which the bound can be checked; empty if none were needed.
    """

    jobs: tuple[int, ...]
    fulfilment: float
    bound: float
    price: Mapping[int, float]


def level_bounds(packing: TrialPacking, deadline_s: float) -> tuple[LevelBound, ...]:
    """Bound the lowest levels of a plan, three at most, from the lowest upwards; jobs that have all are no level.

    Args:
        packing: the finished plan.
        deadline_s: time for each program.

    Raises:
        PlanError: a program found no answer in time.
    """
    found: list[LevelBound] = []
    if not packing.members:
        return ()
    cluster = read_share_problem(packing)
    demands = packing.problem.demands
    rest = [j for j in packing.members if demands[j].max_trainers > demands[j].min_trainers]
    while rest and len(found) < MOST_LEVELS:
        level = min(packing.fulfilment(j) for j in rest)
        if level >= 1 - SAME:
            break
        bound, price = _bounded(packing, cluster, rest, level, deadline_s)
        found.append(LevelBound(tuple(j for j in rest if packing.fulfilment(j) <= level + SAME), level, bound, price))
        rest = [j for j in rest if packing.fulfilment(j) > level + SAME]
    return tuple(found)


def trainers_at_levels(packing: TrialPacking, levels: tuple[LevelBound, ...]) -> dict[int, int]:
    """The trainers that each job has in every plan as fair as this one: its own, or as many as the last level means.

    Args:
        packing: the finished plan.
        levels: its lowest levels.
    """
    last = levels[-1].fulfilment if levels else 0.0
    return {j: min(packing.count[j], _least(packing, j, last)) for j in packing.members}


def _least(packing: TrialPacking, j: int, level: float) -> int:
    """Return the fewest trainers with which a job has a level of fulfilment; its minimum if it cannot grow."""
    demand = packing.problem.demands[j]
    return demand.min_trainers + max(0, ceil(level * (demand.max_trainers - demand.min_trainers) - SAME))


def _bounded(
    packing: TrialPacking, cluster: ShareProblem, rest: list[int], level: float, deadline_s: float
) -> tuple[float, dict[int, float]]:
    """Return the highest level that all jobs in `rest` can have while the others keep theirs, and proving prices."""
    rising = set(rest)
    frozen = np.array([j not in rising for j in cluster.jobs], dtype=np.bool_)
    have = np.array([packing.count[j] for j in cluster.jobs], dtype=np.float64)
    limit, solution = highest_level(cluster, have, frozen, deadline_s)
    price = _by_shape(cluster, solution)
    steps = _whole_levels(packing, rest, level, limit)
    if not steps:
        return level, price
    if packing.problem.plans_in_bulk:
        return steps[-1], price
    possible, impossible = -1, len(steps)
    while impossible - possible > 1:
        middle = (possible + impossible) // 2
        wanted = {j: packing.count[j] for j in cluster.jobs} | {j: _least(packing, j, steps[middle]) for j in rest}
        if (shown := obstacle(cluster, wanted, deadline_s)) is None:
            possible = middle
        else:
            impossible, price = middle, _by_shape(cluster, shown)
    return (steps[possible] if possible >= 0 else level), price


def _whole_levels(packing: TrialPacking, rest: list[int], level: float, limit: float) -> list[float]:
    """The levels above one and up to a limit that the worst off of some jobs can have with whole trainers, ascending.

    The job that is worst off has a whole number of trainers, so nothing between two of them is possible.
    """
    found = set[float]()
    for span in {packing.problem.demands[j].max_trainers - packing.problem.demands[j].min_trainers for j in rest}:
        first, last = floor(level * span + SAME) + 1, floor((limit + ROUNDING) * span)
        found |= {n / span for n in range(first, last + 1)}
    return sorted(found)


def _by_shape(cluster: ShareProblem, solution: Solution) -> dict[int, float]:
    return dict(zip(cluster.columns.shapes, solution.slot_price.tolist(), strict=True))
