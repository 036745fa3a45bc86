"""Places new pods differently to fill slots that come about by that, and names the shapes for which none does.

Growth places one pod after the other where it fits best, so capacity for one more trainer may be in pieces on several
nodes in the end. Here all pods that do not exist yet are repacked beside one more trainer, as long as that works.
A linear program without whole pods comes first: for most shapes it shows that no arrangement has one more slot.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping

import numpy as np

from edl.errors import PlanError
from edl.planner.packing import may_have_more
from edl.planner.programs.fair_share import read_share_problem
from edl.planner.programs.full_shapes import full_shapes
from edl.planner.programs.placing import place_whole
from edl.planner.trial_packing import SERVING, Placed, TrialPacking

WORK = 4_000  # shapes times nodes of all programs with whole pods of one decision, so that it stays quick
MOST_NODES = 256
EXCHANGES = 16  # between two nodes, if a program leaves a pod out

Give = Callable[[TrialPacking, Mapping[int, int]], None]
"""Gives free slots of a packing to its jobs, each up to a ceiling; the packing is changed."""


def topped_up(
    packing: TrialPacking, ceiling: Mapping[int, int], give: Give, deadline_s: float
) -> tuple[TrialPacking, frozenset[int]]:
    """Place the pods that do not exist yet differently, so that slots for further trainers come about, and fill them.

    A job that loses trainers in this plan gets none of the slots: its trainers would restart only to change nodes.

    Args:
        packing: the packing; not changed.
        ceiling: the most trainers that each job of the packing may have now, by the index of its demand.
        give: gives out free slots.
        deadline_s: time limit of each integer program, in seconds.

    Returns:
        The packing with the further trainers; and the shapes for which the search found no slot, but did not prove
        that there is none.
    """
    empty = packing.copy()
    empty.drop_all()
    unsure = {shape for shape in _short_shapes(packing, ceiling) if empty.slots(shape).any()}
    if not unsure or packing.problem.plans_in_bulk or packing.problem.clock.is_over:
        return packing, frozenset(unsure)
    try:
        return _topped_up(packing, ceiling, give, unsure, deadline_s)
    except PlanError:
        return packing, frozenset(unsure)


def _topped_up(
    packing: TrialPacking,
    ceiling: Mapping[int, int],
    give: Give,
    unsure: set[int],
    deadline_s: float,
) -> tuple[TrialPacking, frozenset[int]]:
    """Search slots for the shapes in `unsure`, one shape after the other, and fill them; see `topped_up`."""
    demands, work = packing.problem.demands, WORK
    losers = {packing.problem.live_trainers[i].demand for i in packing.victims}
    growing = {j: packing.count[j] if j in losers else n for j, n in ceiling.items()}
    cluster, full, found = read_share_problem(packing, stays=True), set[int](), set[int]()
    is_new = True
    while left := [s for s in _short_shapes(packing, ceiling) if s in unsure - full]:
        if is_new:
            full |= full_shapes(cluster, packing.count, left, deadline_s)
        shape = next((s for s in left if s not in full | found), None)
        if shape is None:
            break
        more, is_new = None, False
        if any(demands[j].shape == shape and packing.count[j] < n for j, n in growing.items()):
            work -= len({place.shape for place in packing.placed} | {shape}) * len(packing.free)
            more = _with_more(packing, shape, growing, give, deadline_s) if work >= 0 else None
        if more is None:
            found.add(shape)
        else:
            packing, is_new = more, True
    return packing, frozenset(found - full)


def _short_shapes(packing: TrialPacking, ceiling: Mapping[int, int]) -> list[int]:
    """The shapes of jobs that may have one more trainer, by the fulfilment of the worst-off job of the shape."""
    worst: dict[int, float] = {}
    for j in may_have_more(packing, ceiling):
        shape = packing.problem.demands[j].shape
        worst[shape] = min(worst.get(shape, np.inf), packing.fulfilment(j))
    return sorted(worst, key=lambda shape: (worst[shape], shape))


def without_proved(
    unsure: frozenset[int], packing: TrialPacking, missed: float, gain: Callable[[int], float]
) -> frozenset[int]:
    """Keep of some shapes those for which the bound of the plan does not exclude one more trainer, either.

    The bound keeps to quotas and to --max-load-desired, so it says nothing of members that one of these stops.

    Args:
        unsure: the shapes.
        packing: the finished plan.
        missed: how much more than the plan another one can be worth at most.
        gain: what one more trainer of a member is worth.
    """
    demands = packing.problem.demands
    gains: dict[int, float] = {}
    for j in may_have_more(packing, {j: demands[j].max_trainers for j in packing.members}) if unsure else ():
        gains[demands[j].shape] = max(gains.get(demands[j].shape, 0.0), gain(j))
    return frozenset(shape for shape in unsure if gains.get(shape, 0.0) <= missed)


def _with_more(
    packing: TrialPacking, shape: int, ceiling: Mapping[int, int], give: Give, deadline_s: float
) -> TrialPacking | None:
    """Copy the packing with its new pods placed differently and more trainers; None if no slot was found or used."""
    more = _with_slot(packing, shape, deadline_s)
    if more is None:
        return None
    give(more, ceiling)
    return more if sum(more.count.values()) > sum(packing.count.values()) else None


def _with_slot(packing: TrialPacking, shape: int, deadline_s: float) -> TrialPacking | None:
    """Copy the packing and place its new pods differently, so that a slot of the shape is free; None if that fails.

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
    """Assign pods of one shape to given nodes, as many as possible to the nodes for which they were planned."""
    left, moved, found = nodes.copy(), list[Placed](), list[Placed]()
    for place in places:
        if left[place.node]:
            left[place.node] -= 1
            found.append(place)
        else:
            moved.append(place)
    free = iter(sorted(left.elements()))
    return [*found, *(place._replace(node=next(free)) for place in moved)]
