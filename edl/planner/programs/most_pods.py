"""How many pods of some shapes fit at most: a linear program over patterns of pods, and its prices."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from edl.planner.problem import IntArray, Problem
from edl.planner.programs.columns import make_columns
from edl.planner.programs.generation import Program, solve


def place_most(problem: Problem, capacity: IntArray, wanted: Mapping[int, int], deadline_s: float) -> float:
    """Return an upper bound of the number of pods of some shapes that fit; see `place_most_priced`."""
    return place_most_priced(problem, capacity, wanted, deadline_s)[0]


def place_most_priced(
    problem: Problem, capacity: IntArray, wanted: Mapping[int, int], deadline_s: float
) -> tuple[float, dict[int, float]]:
    """Bound from above how many pods of some shapes fit, with prices.

    Args:
        problem: the shapes, and the nodes that accept them.
        capacity: (nodes, resources) what is free for them.
        wanted: by shape, how many at most.
        deadline_s: time for the program.

    Returns:
        The bound; by shape, what one more slot would add to it.
    """
    columns = make_columns(problem, capacity, wanted)
    size = len(columns.shapes)
    program = Program(
        gain=np.ones(size),
        low=np.zeros(size),
        high=np.array([wanted[s] for s in columns.shapes], dtype=np.float64),
        use=np.eye(size),
        need=np.zeros(size),
        rows=np.zeros((0, size)),
        limits=np.zeros(0),
    )
    solution = solve(program, columns, deadline_s)
    without = sum(wanted[s] for s in problem.odd_shapes if s in wanted)
    return solution.bound + without, dict(zip(columns.shapes, solution.slot_price.tolist(), strict=True))
