"""How many of the waiting serving pods fit if no training runs: so many must be placed, whoever gives way.

Orders of placing are tried first. If a linear program shows that none of them places the most, an integer program
packs the pods; it leaves room for trainers that run where that costs no serving pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import islice, permutations

from edl.planner.minimums import ORDERS_TRIED, Served, by_size, for_serving
from edl.planner.packing import make_room
from edl.planner.problem import Problem
from edl.planner.programs.fair_share import place_most
from edl.planner.programs.integer import pack_most
from edl.planner.trial_packing import TrialPacking

SHAPES_LEFT_ROOM, LEFT_ROOM = 4, 50  # a packing of serving leaves room for so many trainers of so many shapes


def serve(problem: Problem, deadline_s: float) -> Served:
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
        for order in islice(permutations(by_size(problem, wanted)), ORDERS_TRIED):
            packing = TrialPacking(problem, ())
            placed = Counter({s: make_room(packing, for_serving(s, wanted[s]), {}) for s in order})
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
    """Trainers of the minimums of running jobs, by shape: some of those that are wanted most, to leave room for."""
    least: Counter[int] = Counter()
    for demand in problem.demands:
        if demand.job.was_admitted and demand.shape not in wanted:
            least[demand.shape] += demand.min_trainers
    return {shape: min(count, LEFT_ROOM) for shape, count in least.most_common(SHAPES_LEFT_ROOM)}
