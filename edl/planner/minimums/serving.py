"""Finds how many pending serving pods fit if no training runs, and how capacity becomes free for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import islice, permutations

import numpy as np

from edl.planner.clock import OutOfTimeError
from edl.planner.minimums.batches import Served, batches_of, by_size, for_serving, surplus
from edl.planner.packing import place, place_batch
from edl.planner.problem import Problem, count_slots
from edl.planner.programs.integer import pack_most
from edl.planner.programs.most_pods import place_most
from edl.planner.trial_packing import SERVING, TrialPacking

SHAPES_LEFT_ROOM, LEFT_ROOM = 4, 50  # a packing of serving leaves capacity for so many trainers of so many shapes
ORDERS_TRIED = 6  # orders of placing serving pods that are compared, at most


def count_serving(problem: Problem, deadline_s: float) -> Served:
    """Find how many waiting serving pods fit if no training runs: so many must be placed.

    Args:
        problem: the arrays.
        deadline_s: time for each program.
    """
    wanted = {group.shape: group.due + group.in_grace for group in problem.waiting}
    best: Counter[int] = Counter()
    found: tuple[int, ...] = ()
    places: tuple[tuple[int, int, int], ...] = ()
    if wanted:
        goal = min(sum(wanted.values()), int(place_most(problem, problem.empty, wanted, deadline_s) + 1e-6))
        first = by_size(problem, wanted)
        rarest = sorted(first, key=lambda s: int(problem.opened[s].sum()))  # pods with few nodes cannot go elsewhere
        for order in dict.fromkeys((*islice(permutations(first), ORDERS_TRIED), tuple(rarest))):
            packing = TrialPacking(problem, ())
            placed = Counter({s: place_batch(packing, for_serving(s, wanted[s]), {}) for s in order})
            if placed.total() > best.total():
                best, found = placed, order
            if best.total() >= goal:
                break
        if (
            best.total() < goal
            and (packed := pack_most(problem, problem.empty, wanted, _running_minimums(problem, wanted), deadline_s))
            is not None
        ):
            exact: Counter[int] = Counter()
            for _, shape, pods in packed:
                exact[shape] += pods
            if exact.total() > best.total():
                best, found, places = exact, (), tuple(packed)
    due = {group.shape: min(group.due, best[group.shape]) for group in problem.waiting}
    in_grace = {group.shape: best[group.shape] - due[group.shape] for group in problem.waiting}
    return Served(due, in_grace, sum(wanted.values()) - best.total(), found, places)


def _running_minimums(problem: Problem, wanted: Mapping[int, int]) -> dict[int, int]:
    """How many trainers running jobs lack of their minimums, by shape, so that capacity is left for them."""
    least: Counter[int] = Counter()
    for demand in problem.demands:
        if demand.job.was_admitted and demand.shape not in wanted:
            least[demand.shape] += demand.min_trainers
    return {shape: min(count, LEFT_ROOM) for shape, count in least.most_common(SHAPES_LEFT_ROOM)}


def serve_over_surplus(packing: TrialPacking, served: Served) -> Served:
    """Place serving pods by deleting surplus trainers, as many as there is capacity and time for.

    Args:
        packing: the packing; it is changed, and what was found before the time was over is kept.
        served: what serving pods are due.

    Returns:
        What they got.
    """
    with suppress(OutOfTimeError):
        for batch in batches_of(packing, served):
            if batch.owners[0][0] == SERVING:
                place_batch(packing, batch, surplus(packing))
    got = Counter(place.shape for place in packing.placed if place.owner == SERVING)
    due = {shape: got[shape] for shape in served.due}
    return replace(served, due=due, in_grace=served.in_grace if due == served.due else {})


def serve_as_packed(packing: TrialPacking, served: Served) -> bool:
    """Place the serving pods of `served.places`, over trainers in their way; False if some of them do not fit."""
    problem, left = packing.problem, Counter(dict(served.due))
    for node, shape, pods in served.places:
        due, here = min(pods, left[shape]), None
        while due:
            capacity = (packing.free[node] + packing.lent[node])[None]
            fitting = min(due, int(count_slots(capacity, problem.request[shape])[0]))
            for _ in range(fitting):
                place(packing, shape, (SERVING, None), node)
            due, left[shape] = due - fitting, left[shape] - fitting
            here = here or iter(sorted(packing.at[node], key=lambda i: problem.live_trainers[i].order))
            if not due or (index := next(here, None)) is None:
                break
            packing.delete(index)
            packing.for_serving.add(index)
    return not +left


def blockers(packing: TrialPacking, served: Served, rank: Mapping[int, int]) -> set[int]:
    """The jobs whose masters or pservers run where `served.places` needs capacity; only those of the highest rank."""
    problem, blocking = packing.problem, set[int]()
    needed = np.zeros_like(packing.free)
    for node, shape, pods in served.places:
        needed[node] += pods * problem.request[shape]
    free = packing.free.copy()
    trainers, nodes = packing.with_node()
    np.add.at(free, nodes, problem.request[problem.trainer_shape[trainers]])
    held = problem.held
    fixed = [
        (rank[j], j, int(held.node[i]), int(held.shape[i]))
        for i in np.flatnonzero(~held.is_trainer).tolist()
        if (j := int(held.demand[i])) in rank
    ]
    for _, j, node, shape in sorted(fixed, reverse=True):
        if (needed[node] > free[node])[problem.request[shape] > 0].any():
            blocking.add(j)
            free[node] += problem.request[shape]
    return blocking
