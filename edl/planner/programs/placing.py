"""Places whole pods on a few nodes without deletions: by an integer program, then by exchanges between nodes.

The program counts what has no place, so its search has a packing from the beginning and improves it. Where a pod or
two are left out, `collecting` looks for their places. The number of search nodes and of exchanges limits the search,
not time, so that equal snapshots give equal plans.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from edl.planner.problem import IntArray, count_slots
from edl.planner.programs.collecting import Pods, place_left_out
from edl.planner.programs.integer import SEARCH_NODES
from edl.planner.solvers.integer_program import IntegerProgram, Rows
from edl.planner.trial_packing import TrialPacking

FloatArray = NDArray[np.float64]

LEAST_REQUESTS = (0.0, 1e-5)  # smaller parts of the largest node are rounded up; one try after another
LEAST_SIZE = 1e-3  # a pod that is left out counts so much at least, because the solver neglects less than 1e-6


def place_whole(
    packing: TrialPacking, wanted: Mapping[int, int], tries: int, deadline_s: float
) -> list[tuple[int, int, int]] | None:
    """Find a node for every pod in the free capacity, in exact amounts.

    Args:
        packing: what is free; not changed.
        wanted: by shape, how many pods need a place.
        tries: how many exchanges between two nodes are tried if the program leaves pods out.
        deadline_s: time for each program.

    Returns:
        (node, shape, pods); None if no packing was found.
    """
    problem = packing.problem
    shapes = [s for s, count in sorted(wanted.items()) if count]
    if not shapes:
        return []
    request = problem.request[shapes]
    slots = np.array([count_slots(packing.free, row) for row in request]).reshape(len(shapes), -1)
    count = np.array([wanted[s] for s in shapes], dtype=np.int64)
    most = np.minimum(slots * problem.opened[shapes], count[:, None])
    size = (request / problem.largest).max(axis=1).clip(min=LEAST_SIZE)
    pods = Pods(request, count, packing.free.clip(min=0), most, size)
    placed = _packed(pods, SEARCH_NODES, packing, deadline_s)
    if placed is not None:
        placed = place_left_out(pods, placed, tries, problem.clock)
    if placed is None:
        return None
    return [(n, shapes[k], int(placed[k, n])) for k, n in zip(*placed.nonzero(), strict=True)]


def _packed(pods: Pods, search: int, packing: TrialPacking, deadline_s: float) -> IntArray | None:
    """(shapes, nodes) the packing that leaves out the fewest pods in the search; None if it finds none that fits."""
    for least in LEAST_REQUESTS:
        found = _solved(pods, search, least, packing, deadline_s)
        if found is None or (found.T @ pods.request <= pods.capacity).all():
            return found
    return None


def _solved(pods: Pods, search: int, least: float, packing: TrialPacking, deadline_s: float) -> IntArray | None:
    """Solve the integer program in floats; tiny requests are rounded up to a part of the largest node."""
    from scipy.sparse import csr_array, hstack, identity, kron, vstack  # noqa: PLC0415 - slow to load

    (shapes, nodes), largest = pods.most.shape, packing.problem.largest
    parts = pods.request / largest
    parts = np.where(parts > 0, parts.clip(min=least), 0.0)
    use = kron(csr_array(parts.T), identity(nodes))
    total = kron(identity(shapes), csr_array(np.ones((1, nodes))))
    rows = vstack([hstack([use, csr_array((use.shape[0], shapes))]), hstack([total, identity(shapes)])], format="csr")
    counts = pods.count.astype(np.float64)
    low = np.concatenate([np.full(use.shape[0], -np.inf), counts])
    program = IntegerProgram(
        np.concatenate([np.zeros(shapes * nodes), pods.size]),
        np.concatenate([np.ones(shapes * nodes, dtype=np.int64), np.zeros(shapes, dtype=np.int64)]),
        np.zeros(shapes * nodes + shapes),
        np.concatenate([pods.most.ravel().astype(np.float64), counts]),
        [Rows(rows, low, np.concatenate([(pods.capacity / largest).T.ravel(), counts]))],
        search,
        gap=0.0,
    )
    solution = program.solve(packing.problem.clock.left_s(deadline_s), packing.problem.solved)
    if solution is None:
        return None
    return np.array(solution[: shapes * nodes], dtype=np.int64).reshape(shapes, nodes)
