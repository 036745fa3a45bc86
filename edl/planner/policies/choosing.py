"""Chooses a count for each job of policy `goodput`, so that all of them together gain most after the resizes.

It is a knapsack with one choice from each list. Again and again the step of a job comes next that gains most for the
capacity that it takes. Of two starts, the floors of all jobs and what they have, the better end counts; so counts
change only if all jobs together gain more than the changes cost.

Capacity is counted in sums over the nodes that a shape may run on. What whole pods then miss, `goodput` sees.

Source: Sinha and Zoltners, The Multiple-Choice Knapsack Problem, Operations Research 27(3), 1979, for the steps.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from edl.planner.policies.options import Options
from edl.planner.programs.limit_rows import limit_rows
from edl.planner.trial_packing import TrialPacking

FloatArray = NDArray[np.float64]

EPSILON = 1e-9


def chosen_counts(packing: TrialPacking, options: Mapping[int, Options]) -> dict[int, int]:
    """Choose the number of trainers of each job.

    Args:
        packing: before any growth; not changed.
        options: the options of each member.
    """
    use, limits = _capacity(packing)
    floors = {j: one.floor for j, one in options.items()}
    stay = {j: one.at(packing.count[j]) for j, one in options.items()}
    ends = [_climbed(packing.members, options, use, limits, start) for start in (stay, floors)]
    best = max((end for end in ends if end is not None), key=lambda end: _total(options, end), default=stay)
    return {j: options[j].counts[at] for j, at in best.items()}


def _total(options: Mapping[int, Options], at: Mapping[int, int]) -> float:
    return sum(options[j].values[k] for j, k in at.items())


def _climbed(
    members: tuple[int, ...],
    options: Mapping[int, Options],
    use: FloatArray,
    limits: FloatArray,
    start: Mapping[int, int],
) -> dict[int, int] | None:
    """Raise jobs to larger counts as long as that gains something and fits, the largest gain for its capacity first.

    None if the start itself does not fit.

    Args:
        members: the jobs, in the order of the columns of `use`.
        options: their options.
        use: (rows, members) what one trainer of each takes of a limit.
        limits: (rows,) the limits.
        start: where each member begins.
    """
    at = dict(start)
    column = {j: k for k, j in enumerate(members)}
    left = limits - use @ np.array([options[j].counts[at[j]] for j in members], dtype=np.float64)
    if (left < -EPSILON).any():
        return None
    size = (use / np.maximum(limits, EPSILON)[:, None]).max(axis=0, initial=EPSILON).clip(min=EPSILON)
    heap: list[tuple[float, int, int, int]] = []

    def offer(j: int) -> None:
        """Put the best next count of a job on the heap, if some larger count fits and gains something."""
        one, now, row = options[j], at[j], use[:, column[j]]
        taken = row > 0
        most = float((left[taken] / row[taken]).min(initial=np.inf)) + EPSILON
        best = (0.0, now)
        for k in range(now + 1, len(one.counts)):
            more = one.counts[k] - one.counts[now]
            if more > most:
                break
            gain = (one.values[k] - one.values[now]) / (more * size[column[j]])
            if gain > best[0] + EPSILON:
                best = (gain, k)
        if best[1] > now:
            heapq.heappush(heap, (-best[0], j, now, best[1]))

    for j in members:
        offer(j)
    while heap:
        _, j, now, then = heapq.heappop(heap)
        if at[j] != now:
            continue
        taken = use[:, column[j]] * (options[j].counts[then] - options[j].counts[now])
        if (taken <= left + EPSILON).all():
            left -= taken
            at[j] = then
        offer(j)
    return at


def _capacity(packing: TrialPacking) -> tuple[FloatArray, FloatArray]:
    """What a trainer of each job uses of what is limited: node capacity, quotas, and --max-load-desired.

    Returns:
        (rows, members) what one trainer takes, and (rows,) how much there is of it with the trainers of now.
    """
    problem, members = packing.problem, packing.members
    shapes = np.array([problem.demands[j].shape for j in members], dtype=np.int64)
    request = problem.request[shapes].T.astype(np.float64)
    count = np.array([packing.count[j] for j in members], dtype=np.float64)
    rows, limits = limit_rows(packing)
    uses, left = [rows], [limits]
    kinds, kind = np.unique(shapes, return_inverse=True)
    opened = problem.opened[kinds]
    for nodes in np.unique(opened, axis=0):
        inside = ~(opened & ~nodes).any(axis=1)[kind]
        use = request * inside
        free = packing.free[nodes].clip(min=0).sum(axis=0) + use @ count
        needed = use.any(axis=1)
        uses.append(use[needed])
        left.append(free[needed])
    return np.vstack(uses), np.concatenate(left)
