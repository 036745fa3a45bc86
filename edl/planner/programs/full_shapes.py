"""Proves that no arrangement has one more slot of some shapes: a linear program, for many shapes at once.

The program has every trainer of a plan and asks how many pods of the shapes fit beside them, one of each at most and
pods divided. If all of them together are less than one pod, no shape has a whole slot. Else each half is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edl.planner.programs.columns import EPSILON
from edl.planner.programs.fair_share import ShareProblem
from edl.planner.programs.generation import Program, solve

SLACK = 10 * EPSILON  # by which counts may be missed, because levels and patterns are rounded


def full_shapes(
    cluster: ShareProblem, count: Mapping[int, int], shapes: Sequence[int], deadline_s: float
) -> frozenset[int]:
    """Find the shapes for which a linear program proves that no arrangement of pods has one more slot.

    Quotas and --max-load-desired do not count: a job that they stop does not lack a slot.

    Args:
        cluster: what may be repacked.
        count: by job, the trainers that it has in any case.
        shapes: indices of the shapes.
        deadline_s: time for each program.

    Raises:
        PlanError: a program found no answer in time.
    """
    asked = [s for s in shapes if s in cluster.columns.shapes]
    if not asked:
        return frozenset()
    if _most_more(cluster, count, asked, deadline_s) < 1 - EPSILON:
        return frozenset(asked)
    if len(asked) == 1:
        return frozenset()
    middle = len(asked) // 2
    halves = (asked[:middle], asked[middle:])
    return frozenset[int]().union(*(full_shapes(cluster, count, half, deadline_s) for half in halves))


def _most_more(cluster: ShareProblem, count: Mapping[int, int], asked: Sequence[int], deadline_s: float) -> float:
    """Bound from above how many of the shapes have one more slot beside all trainers."""
    row = {s: k for k, s in enumerate(cluster.columns.shapes)}
    have = np.zeros(len(row))
    for j in cluster.jobs:
        if (k := row.get(cluster.problem.demands[j].shape)) is not None:
            have[k] += count[j] - cluster.immovable[j]
    gain = np.zeros(len(row))
    gain[[row[s] for s in asked]] = 1.0
    low = (have - SLACK).clip(min=0)
    program = Program(
        gain=gain,
        low=low,
        high=have + gain,
        use=np.eye(len(row)),
        need=cluster.need,
        rows=np.zeros((0, len(row))),
        limits=np.zeros(0),
    )
    return solve(program, cluster.columns, deadline_s).bound - float(gain @ have)
