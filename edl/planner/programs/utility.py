"""The linear programs of policy `utility`: the most useful counts, those with the fewest shrinks, and the bound.

A job's worth is a concave line of whole-numbered pieces (`speedup`); each piece is one variable, and because pieces
are worth less and less, a program fills them in their order by itself.

Source: separable concave programming, Bradley, Hax and Magnanti, Applied Mathematical Programming (1977), chapter 9.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edl.planner.programs.fair_share import Proof, ShareProblem, read_to_prove, slots_used, solve_to_prove
from edl.planner.programs.generation import Program, Solution, solve
from edl.planner.speedup import Worth
from edl.planner.trial_packing import TrialPacking

FloatArray = NDArray[np.float64]

EPSILON = 1e-7
SLACK = 0.01  # part of the best value that may be lost so that fewer jobs are resized
NEXT_TO_STAYING = 1e-3  # weight of utility beside a trainer that stays, if staying comes first


@dataclass(frozen=True, slots=True)
class Best:
    """The best that a program found: its value, and by job the trainers, in fractions."""

    value: float
    counts: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class _Pieces:
    """The variables of the program: one for each linear piece of a job's worth curve.

    Attributes:
        owner: (variables,) position of the job among the jobs of the problem.
        start: (variables,) trainers that the job has before this piece.
        length: (variables,) trainers in the piece; slope: (variables,) worth of each.
        base: (jobs,) minimums.
    """

    owner: NDArray[np.int64]
    start: FloatArray
    length: FloatArray
    slope: FloatArray
    base: FloatArray


def most_useful(
    cluster: ShareProblem, worths: Mapping[int, Worth], floor: Mapping[int, int], deadline_s: float
) -> Best:
    """Find the counts of the highest total worth, with each job at its floor at least."""
    pieces = _pieces(cluster, worths, {})
    if not len(pieces.slope):
        return Best(0.0, {j: float(worths[j].low) for j in cluster.jobs})
    solution = solve(_program(cluster, pieces, floor, pieces.slope), cluster.columns, deadline_s)
    return Best(float(pieces.slope @ solution.v), _counts(cluster, pieces, solution))


def fewest_shrinks(
    cluster: ShareProblem,
    worths: Mapping[int, Worth],
    floor: Mapping[int, int],
    now: Mapping[int, int],
    *,
    goal: float,
    deadline_s: float,
) -> Best:
    """Find, among the counts with a total worth of at least `goal`, those that delete the fewest trainers.

    Args:
        cluster: the jobs and their capacity.
        worths: the worth of each job's trainers.
        floor: by job, the fewest trainers.
        now: by job, the trainers that it has; growth costs nothing.
        goal: what `most_useful` found, less the slack.
        deadline_s: time for the program.
    """
    pieces = _pieces(cluster, worths, now)
    if not len(pieces.slope):
        return Best(0.0, {j: float(worths[j].low) for j in cluster.jobs})
    stays = (pieces.start + pieces.length) <= np.array([now[j] for j in cluster.jobs])[pieces.owner]
    gain = np.where(stays, 1.0, 0.0) + NEXT_TO_STAYING * pieces.slope
    program = _program(cluster, pieces, floor, gain, least=goal - EPSILON)
    solution = solve(program, cluster.columns, deadline_s)
    return Best(float(pieces.slope @ solution.v), _counts(cluster, pieces, solution))


def prove_utility(
    packing: TrialPacking,
    worths: Mapping[int, Worth],
    floor: Mapping[int, int],
    deadline_s: float,
    *,
    least: Mapping[int, int] | None = None,
    stays: bool = False,
) -> Proof:
    """Bound the total worth of a plan from above, each job having its floor or its planned trainers at least.

    With `least`, trainers that some jobs are to have in any case, the bound is that of another plan. With `stays`, it
    is that of plans in which the trainers that this plan keeps stay on their nodes.
    """
    cluster = read_to_prove(packing, stays=stays)
    achieved = sum(worths[j].value(packing.count[j]) for j in packing.members)
    pieces = _pieces(cluster, worths, {})
    if not len(pieces.slope):
        return Proof(achieved, achieved, cluster, None)
    held = {j: max(min(floor[j], packing.count[j]), (least or {}).get(j, 0)) for j in packing.members}
    solution = solve_to_prove(cluster, _program(cluster, pieces, held, pieces.slope), deadline_s)
    if solution is None:
        most = sum(worths[j].value(packing.problem.demands[j].max_trainers) for j in packing.members)
        return Proof(achieved, max(achieved, most), cluster, None)
    return Proof(achieved, solution.bound + EPSILON, cluster, solution)


def _pieces(cluster: ShareProblem, worths: Mapping[int, Worth], split: Mapping[int, int]) -> _Pieces:
    owner, start, length, slope = [], [], [], []
    for k, j in enumerate(cluster.jobs):
        at = worths[j].low
        for trainers, each in worths[j].split(split.get(j, at)):
            owner.append(k)
            start.append(at)
            length.append(trainers)
            slope.append(each)
            at += trainers
    base = [float(worths[j].low) for j in cluster.jobs]
    return _Pieces(
        np.array(owner, dtype=np.int64),
        np.array(start, dtype=np.float64),
        np.array(length, dtype=np.float64),
        np.array(slope, dtype=np.float64),
        np.array(base),
    )


def _program(
    cluster: ShareProblem, pieces: _Pieces, floor: Mapping[int, int], gain: FloatArray, least: float | None = None
) -> Program:
    """Maximise `gain` over how much of each piece is taken; `least` bounds the total worth from below."""
    use = slots_used(cluster)
    immovable = np.array([cluster.immovable[j] for j in cluster.jobs], dtype=np.float64)
    held = np.maximum(immovable, [floor[j] for j in cluster.jobs])
    rows = cluster.rows[:, pieces.owner]
    limits = cluster.limits - cluster.rows @ pieces.base
    if least is not None:
        rows, limits = np.vstack([rows, -pieces.slope]), np.append(limits, -least)
    return Program(
        gain=gain,
        low=(held[pieces.owner] - pieces.start).clip(0, pieces.length),
        high=pieces.length,
        use=use[:, pieces.owner],
        need=cluster.need + use @ (pieces.base - immovable),
        rows=rows,
        limits=limits,
    )


def _counts(cluster: ShareProblem, pieces: _Pieces, solution: Solution) -> dict[int, float]:
    counts = pieces.base.copy()
    np.add.at(counts, pieces.owner, solution.v)
    return {j: float(n) for j, n in zip(cluster.jobs, counts, strict=True)}
