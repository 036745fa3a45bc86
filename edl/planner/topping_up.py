"""Gives out slots that exist once pods which this plan starts are placed differently, and names shapes without any.

Growth places one pod after the other where it fits best, so capacity for one more trainer may be in pieces on several
nodes in the end. Here all pods that do not exist yet are placed anew beside one more trainer, as long as that works.
A linear program without whole pods comes first: for most shapes it shows that no arrangement has one more slot.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping

import numpy as np

from edl.errors import PlanError
from edl.planner.packing import has_load_left
from edl.planner.programs.fair_share import ShareProblem, obstacle, read_share_problem
from edl.planner.programs.placing import place_whole
from edl.planner.trial_packing import SERVING, Placed, TrialPacking

WORK = 4_000  # shapes times nodes of all programs with whole pods of one decision, so that it stays quick
MOST_NODES = 256
EXCHANGES = 16  # between two nodes, if a program leaves a pod out


def topped_up(
    packing: TrialPacking, ceiling: Mapping[int, int], give: Callable[[TrialPacking], None], deadline_s: float
) -> tuple[TrialPacking, frozenset[int]]:
    """Give out slots that exist once pods which do not exist yet are placed differently.

    A job that loses trainers in this plan gets none by that: a trainer that only moves would restart for nothing.

    Args:
        packing: the packing; not changed.
        ceiling: the most trainers that each member may have now.
        give: gives free slots to the members whose turn it is; it changes the packing.
        deadline_s: time for each program.

    Returns:
        The packing with more trainers. And the shapes, among those of members that may grow, of which no free slot
        was found although there may be one.
    """
    empty = packing.copy()
    empty.drop_all()
    unsure = {shape for shape in _short_shapes(packing, ceiling) if empty.slots(shape).any()}
    if not unsure or packing.problem.is_large or packing.problem.clock.is_over:
        return packing, frozenset(unsure)
    try:
        return _topped_up(packing, ceiling, give, unsure, deadline_s)
    except PlanError:
        return packing, frozenset(unsure)


def _topped_up(
    packing: TrialPacking,
    ceiling: Mapping[int, int],
    give: Callable[[TrialPacking], None],
    unsure: set[int],
    deadline_s: float,
) -> tuple[TrialPacking, frozenset[int]]:
    """The same for shapes of which there may be a slot."""
    demands, work = packing.problem.demands, WORK
    losers = {packing.problem.live_trainers[i].demand for i in packing.victims}
    growing = {j: packing.count[j] if j in losers else n for j, n in ceiling.items()}
    cluster, found = read_share_problem(packing, stays=True), set[int]()
    for shape in _short_shapes(packing, ceiling):
        while shape in unsure and shape in _short_shapes(packing, ceiling):
            if _is_full(cluster, packing, shape, deadline_s):
                break
            work -= len({place.shape for place in packing.placed} | {shape}) * len(packing.free)
            may_grow = any(demands[j].shape == shape and packing.count[j] < n for j, n in growing.items())
            more = _with_slot(packing, shape, deadline_s) if may_grow and work >= 0 else None
            before = sum(packing.count.values())
            if more is not None:
                give(more)
            if more is None or sum(more.count.values()) <= before:
                found.add(shape)
                break
            packing = more
    return packing, frozenset(found)


def _short_shapes(packing: TrialPacking, ceiling: Mapping[int, int]) -> list[int]:
    """The shapes of members that may have one more trainer, by the fulfilment of the worst off."""
    demands, meter = packing.problem.demands, packing.meter()
    worst: dict[int, float] = {}
    for j in packing.members:
        shape = demands[j].shape
        if packing.count[j] < ceiling.get(j, 0) and meter.quota_shortage(j) is None and has_load_left(packing, shape):
            worst[shape] = min(worst.get(shape, np.inf), packing.fulfilment(j))
    return sorted(worst, key=lambda shape: (worst[shape], shape))


def without_proved(
    unsure: frozenset[int], packing: TrialPacking, missed: float, gain: Callable[[int], float]
) -> frozenset[int]:
    """Those of some shapes for which the bound of the plan, too, leaves open whether one more trainer would fit.

    Args:
        unsure: the shapes.
        packing: the finished plan.
        missed: how much more than the plan another one can be worth at most.
        gain: what one more trainer of a member is worth.
    """
    demands = packing.problem.demands
    most: dict[int, float] = {}
    for j in packing.members:
        if packing.count[j] < demands[j].max_trainers:
            most[demands[j].shape] = max(most.get(demands[j].shape, 0.0), gain(j))
    return frozenset(shape for shape in unsure if most.get(shape, 0.0) <= missed)


def _is_full(cluster: ShareProblem, packing: TrialPacking, shape: int, deadline_s: float) -> bool:
    """True if it is proved that no arrangement of the pods that do not exist yet has one more slot."""
    j = next(j for j in packing.members if packing.problem.demands[j].shape == shape)
    return obstacle(cluster, {**packing.count, j: packing.count[j] + 1}, deadline_s) is not None


def _with_slot(packing: TrialPacking, shape: int, deadline_s: float) -> TrialPacking | None:
    """A copy with its new pods placed anew, so that a slot of a shape is free; None if none was found.

    Serving pods stay where they are: kube-scheduler decides where they go.
    """
    anew = packing.copy()
    anew.drop_all()
    anew.hold_all([place for place in packing.placed if place.owner == SERVING])
    owners = defaultdict[int, list[Placed]](list)
    for place in packing.placed:
        if place.owner != SERVING:
            owners[place.shape].append(place)
    wanted = Counter({s: len(places) for s, places in owners.items()})
    wanted[shape] += 1
    placed = place_whole(anew, wanted, EXCHANGES, deadline_s)
    if placed is None:
        return None
    nodes = defaultdict[int, Counter[int]](Counter)
    for node, s, number in placed:
        nodes[s][node] += number
    anew.hold_all([place for s, places in sorted(owners.items()) for place in _assigned(places, nodes[s])])
    return anew


def _assigned(places: list[Placed], nodes: Counter[int]) -> list[Placed]:
    """Pods of one shape on given nodes: as many as possible where they were planned."""
    left, moved, found = nodes.copy(), list[Placed](), list[Placed]()
    for place in places:
        if left[place.node]:
            left[place.node] -= 1
            found.append(place)
        else:
            moved.append(place)
    free = iter(sorted(left.elements()))
    return [*found, *(place._replace(node=next(free)) for place in moved)]
