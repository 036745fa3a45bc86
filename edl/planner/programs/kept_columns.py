"""The patterns of the last decision: read before the programs of the next one, and written down after them.

They make the next decision sooner. They are a hint only: what no longer fits is passed over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edl.model.plan import KeptColumns
from edl.planner.problem import Problem

if TYPE_CHECKING:
    from edl.planner.programs.columns import Columns


def recall(problem: Problem, columns: Columns) -> bool:
    """Begin with patterns that were used before, in this decision or the last; False if there are none."""
    kept = problem.columns
    number = {shape: index for index, shape in enumerate(problem.shapes)}
    shapes = [number.get(shape, -1) for shape in kept.shapes]
    capacities = [tuple(dict(amounts).get(name, 0) for name in problem.names) for amounts in kept.rooms]
    known: dict[tuple[int, ...], list[tuple[tuple[int, int], ...]]] = {}
    for number_of_class, held in kept.patterns:
        known.setdefault(capacities[number_of_class], []).append(tuple((shapes[s], pods) for s, pods in held))
    for capacity, pattern in problem.used_columns:
        known.setdefault(capacity, []).append(pattern)
    row = {s: k for k, s in enumerate(columns.shapes)}
    patterns, owner = [], []
    for g, group in enumerate(columns.classes):
        for held in known.get(group.capacity, ()):
            counts = [0] * len(row)
            for s, pods in held:
                if s in row:
                    counts[row[s]] = pods
            patterns.append(counts)
            owner.append(g)
    if not patterns:
        return False
    counted, of = np.array(patterns, dtype=np.int64), np.array(owner, dtype=np.int64)
    usable = np.array([group.capacity for group in columns.classes], dtype=np.int64)[of]
    most = np.array([group.most for group in columns.classes], dtype=np.int64)[of]
    fits = (counted @ columns.request <= usable).all(axis=1) & (counted <= most).all(axis=1)
    for column in np.flatnonzero(fits).tolist():
        columns.add(owner[column], tuple(patterns[column]))
    return True


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
