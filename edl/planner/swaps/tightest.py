"""Places the minimums of many jobs in free capacity, each where it leaves least: one pass over arrays.

Where sizes are many, a search over swaps places all new trainers once more. Until then it only counts that they fit
together, so what a place costs other sizes is not weighed.

Source: best fit by what is left over all resources, Panigrahy et al., Heuristics for Vector Bin Packing (2011).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from edl.model.names import Role
from edl.planner.problem import IntArray, count_slots
from edl.planner.trial_packing import Placed, TrialPacking

FloatArray = NDArray[np.float64]


def tightest_first(slots: IntArray, spare: FloatArray, part: float, number: int) -> tuple[IntArray, IntArray]:
    """Choose the nodes where pods leave least.

    Args:
        slots: (nodes,) pods that each node holds.
        spare: (nodes,) what is free on each node, in parts of the cluster, added up over the resources.
        part: what one pod requests, in the same unit.
        number: how many pods to place, >= 1.

    Returns:
        (used,) the nodes, those that are left with least first; (used,) the pods of each. They may be fewer in all.
    """
    nodes = np.flatnonzero(slots)
    here = slots[nodes].clip(max=number)
    left = spare[nodes] - here * part
    if number < len(nodes):  # each holds one at least, so no more of them are used
        few = np.flatnonzero(left <= np.partition(left, number - 1)[number - 1])
        nodes, here, left = nodes[few], here[few], left[few]
    order = np.argsort(left, kind="stable")
    nodes, here = nodes[order], here[order]
    before = np.cumsum(here) - here
    used = before < number
    return nodes[used], np.minimum(here[used], number - before[used])


def place_minimums(packing: TrialPacking, batches: Iterable[tuple[int, Sequence[int]]]) -> bool:
    """Place trainers in free capacity; change nothing if not all fit or one of them exists already.

    Args:
        packing: the packing; it is changed if all fit.
        batches: new trainers, the first to be placed first: their shape, and the job of each.
    """
    problem = packing.problem
    if any(packing.without_node.values()):
        return False
    total = problem.allocatable.sum(axis=0).clip(min=1).astype(np.float64)
    free, new = packing.free.copy(), list[Placed]()
    spare, parts = (free / total).sum(axis=1), (problem.request / total).sum(axis=1)
    for shape, owners in batches:
        problem.clock.check("placing minimums")
        request = problem.request[shape]
        slots = count_slots(free, request) * problem.opened[shape]
        nodes, numbers = tightest_first(slots, spare, float(parts[shape]), len(owners))
        if numbers.sum() < len(owners):
            return False
        free[nodes] -= numbers[:, None] * request
        spare[nodes] = (free[nodes] / total).sum(axis=1)
        places = np.repeat(nodes, numbers).tolist()
        new += (Placed(j, Role.TRAINER, shape, at) for j, at in zip(owners, places, strict=True))
    packing.hold_all(new)
    return True
