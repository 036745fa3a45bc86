"""The patterns of the last decision: read before the programs of the next one, and written down after them.

They make the next decision sooner. They are a hint only: what no longer fits is passed over.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edl.model.plan import KeptColumns
from edl.planner.problem import Problem
from edl.planner.programs.patterns import NodeClass, Pattern


def recall(problem: Problem, rows: Sequence[int], classes: Sequence[NodeClass]) -> list[tuple[int, Pattern]]:
    """Return the patterns used before, in this decision or the last one, that some class of nodes can hold now.

    Args:
        problem: the shapes, and the patterns.
        rows: indices of the shapes, the entries of a pattern.
        classes: the node classes.

    Returns:
        (class, pattern) for each.
    """
    kept = problem.columns
    number = {shape: index for index, shape in enumerate(problem.shapes)}
    shapes = [number.get(shape, -1) for shape in kept.shapes]
    capacities = [tuple(dict(amounts).get(name, 0) for name in problem.names) for amounts in kept.rooms]
    known: dict[tuple[int, ...], list[tuple[tuple[int, int], ...]]] = {}
    for number_of_class, held in kept.patterns:
        known.setdefault(capacities[number_of_class], []).append(tuple((shapes[s], pods) for s, pods in held))
    for capacity, pattern in problem.used_columns:
        known.setdefault(capacity, []).append(pattern)
    row = {s: k for k, s in enumerate(rows)}
    patterns, owner = [], []
    for g, group in enumerate(classes):
        for held in known.get(group.capacity, ()):
            counts = [0] * len(row)
            for s, pods in held:
                if s in row:
                    counts[row[s]] = pods
            patterns.append(counts)
            owner.append(g)
    if not patterns:
        return []
    counted, of = np.array(patterns, dtype=np.int64), np.array(owner, dtype=np.int64)
    usable = np.array([group.capacity for group in classes], dtype=np.int64)[of]
    most = np.array([group.most for group in classes], dtype=np.int64)[of]
    fits = (counted @ problem.request[list(rows)] <= usable).all(axis=1) & (counted <= most).all(axis=1)
    return [(owner[column], tuple(patterns[column])) for column in np.flatnonzero(fits).tolist()]


def keep_columns(problem: Problem) -> KeptColumns:
    """The patterns that the programs of a decision used, for the next decision."""
    capacities = {c: k for k, c in enumerate(sorted({capacity for capacity, _ in problem.used_columns}))}
    shapes = {s: k for k, s in enumerate(sorted({s for _, pattern in problem.used_columns for s, _ in pattern}))}
    patterns = [(capacities[c], tuple((shapes[s], n) for s, n in pattern)) for c, pattern in problem.used_columns]
    return KeptColumns(
        shapes=tuple(problem.shapes[s] for s in shapes),
        rooms=tuple(tuple((r, n) for r, n in zip(problem.names, c, strict=True) if n) for c in capacities),
        patterns=tuple(sorted(patterns)),
    )
