"""Integer programs over patterns: pack whole pods on whole nodes exactly, if the cluster is small enough.

The number of search nodes limits them, not time, so that equal snapshots give equal plans.

Source: HiGHS by scipy.optimize.milp; Gilmore and Gomory, Operations Research 9(6), 1961, for the patterns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from edl.planner.problem import IntArray, Problem
from edl.planner.programs.columns import Columns, make_columns
from edl.planner.programs.patterns import Pattern
from edl.planner.solvers.integer_program import IntegerProgram, Rows

FloatArray = NDArray[np.float64]

SEARCH_NODES = 200
COLUMNS_LIMIT = 1500
ROUNDING = 1e-9
BESIDE = 0.5  # what all pods that only need capacity are worth together, beside the 1 that every other pod is worth


def pack_most(
    problem: Problem, free: IntArray, wanted: Mapping[int, int], beside: Mapping[int, int], deadline_s: float
) -> list[tuple[int, int, int]] | None:
    """Pack as many whole pods of some shapes as possible; exact if the program is small.

    Args:
        problem: the shapes.
        free: (nodes, resources) what the pods may use.
        wanted: how many pods of each shape there are.
        beside: pods for which the packing leaves capacity if that costs none of the others.
        deadline_s: time for the program.

    Returns:
        (node, shape, pods) sorted by node; None if the program is too large or no solution was found.
    """
    if problem.is_many:
        return None
    columns = make_columns(problem, free, {*wanted, *beside}, COLUMNS_LIMIT)
    size = len(columns.shapes)
    most = np.array([wanted.get(s, beside.get(s, 0)) for s in columns.shapes], dtype=np.float64)
    little = BESIDE / max(1, sum(beside.values()))
    program = pattern_program(
        columns,
        cost=np.array([-1.0 if s in wanted else -little for s in columns.shapes]),
        whole=np.ones(size, dtype=np.int64),
        low=np.zeros(size),
        high=most,
        use=np.eye(size),
        need=np.zeros(size),
        further=[],
    )
    solution = None if program is None else program.solve(columns.clock.left_s(deadline_s))
    if solution is None:
        return None
    left = dict(zip(columns.shapes, solution[:size], strict=True))
    packed = []
    for node, pattern in spread(columns, solution[size:]):
        for shape, pods in zip(columns.shapes, pattern, strict=True):
            packed.append((node, shape, min(pods, left[shape])))
            left[shape] -= packed[-1][2]
    return sorted(place for place in packed if place[2] and place[1] in wanted)


def pattern_program(
    columns: Columns,
    *,
    cost: FloatArray,
    whole: IntArray,
    low: FloatArray,
    high: FloatArray,
    use: FloatArray,
    need: FloatArray,
    further: list[tuple[FloatArray, FloatArray]],
) -> IntegerProgram | None:
    """The program that minimises `cost @ v` over the variables v, then the whole uses y of each column.

    Args:
        columns: the patterns.
        cost: (variables,) objective.
        whole: (variables,) 1 if a variable must be an integer.
        low: (variables,) lower bounds.
        high: (variables,) upper bounds.
        use: (shapes, variables) slots of each shape that one unit of a variable takes.
        need: (shapes,) slots that are taken in any case.
        further: (rows, least) with rows @ v >= least.

    Returns:
        The program; None if there are no columns, or too many of them.
    """
    owner, patterns = columns.flat()
    size, uses = len(cost), len(owner)
    if not uses or uses > COLUMNS_LIMIT:
        return None
    nodes = np.zeros((len(columns.classes), size + uses))
    nodes[owner, size + np.arange(uses)] = 1.0
    return IntegerProgram(
        np.concatenate([cost, np.zeros(uses)]),
        np.concatenate([whole, np.ones(uses, dtype=np.int64)]),
        np.concatenate([low, np.zeros(uses)]),
        np.concatenate([high, np.full(uses, np.inf)]),
        [
            Rows(np.hstack([-use, np.array(patterns, dtype=np.float64).T]), low=need),
            Rows(nodes, high=[len(group.nodes) for group in columns.classes]),
            *(Rows(np.hstack([r, np.zeros((len(r), uses))]), low=least) for r, least in further),
        ],
        SEARCH_NODES,
    )


def spread(columns: Columns, uses: list[int]) -> Iterator[tuple[int, Pattern]]:
    """The nodes of each class, in order, and the pattern that each of them holds."""
    free_nodes = [iter(group.nodes) for group in columns.classes]
    for g, pattern, count in zip(*columns.flat(), uses, strict=True):
        for _ in range(count):
            yield next(free_nodes[g]), pattern
