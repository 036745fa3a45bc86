"""How many trainers must leave one node so that a pod fits there: what every search for victims has in common."""

from __future__ import annotations

import numpy as np

from edl.planner.problem import IntArray

IMPOSSIBLE = 1 << 30


def shortfall(free: IntArray, request: IntArray) -> IntArray:
    """The shortage for one more pod in each row of free capacity; 0 where enough is free or nothing is requested.

    Args:
        free: (..., resources) what is free.
        request: (resources,) what the pod requests.

    Returns:
        (..., resources) what is missing, >= 0.
    """
    lack: IntArray = (request - free).clip(min=0) * (request > 0)
    return lack


def evictions_needed(lack: IntArray, freed: IntArray) -> IntArray:
    """How many equal trainers must leave each node so that a pod fits.

    Args:
        lack: (nodes, resources) what the pod lacks there.
        freed: (nodes, resources) or (resources,) what each trainer that leaves frees.

    Returns:
        (nodes,) their number, at least 1; IMPOSSIBLE if no number of them is enough.
    """
    each = np.where(freed > 0, -(-lack // np.maximum(freed, 1)), (lack > 0) * IMPOSSIBLE)
    needed: IntArray = each.max(axis=1, initial=1)
    return needed


def first_enough(lack: IntArray, freed: IntArray) -> int:
    """How many trainers must leave one node so that a pod fits, if they leave in a given order.

    Args:
        lack: (resources,) what the pod lacks.
        freed: (trainers, resources) what each of them frees, in their order.

    Returns:
        The least number of them, >= 1; 0 if all of them are not enough.
    """
    enough = np.flatnonzero((np.cumsum(freed, axis=0) >= lack).all(axis=1))
    return int(enough[0]) + 1 if len(enough) else 0
