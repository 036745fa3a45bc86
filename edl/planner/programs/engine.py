"""Chooses the engine of a decision: patterns of whole pods if sizes are few, the fluid program if they are many.

Patterns are exact, but they are priced by a table over all amounts that a node can have free. Many distinct sizes
have no such table, and a search for each node class in its place takes minutes. If many pods may each go to one node
only, every such node is a class of its own, and classes times shapes are too many patterns. `columns` solves every
program with the engine that is chosen here, so no other module asks which one it is, except those that place pods.

If a few small jobs alone make sizes many, their shapes are odd: programs run without them, as if their trainers
took no capacity, so bounds hold, and `filling` places these trainers before all others. If serving pods make sizes
many, as those with rules of their own do, programs of pods of jobs alone have patterns all the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import prod

import numpy as np

from edl.model.resources import RULE_PREFIX
from edl.planner.problem import BoolArray, IntArray, JobDemand, Problem, WaitingServing
from edl.planner.programs.knapsack import CELLS_LIMIT, STEPS_LIMIT, Pricer
from edl.planner.programs.patterns import classify

REFERENCES = 8  # if sizes are many, lost capacity is counted in slots of so many of them
RESOURCES_LIMIT = 32  # a table of so many resources is not even tried
TABLES_LIMIT = 10_000  # kinds of nodes, by the shapes that they take, times shapes
SEARCHES_LIMIT = 20  # classes times shapes that may be searched one by one
SEARCHES_IN_BULK, ALIKE = 400, 16  # the same where so many nodes or more are alike on average
SAMPLE = 64  # so many nodes are tried before all of them
MOST_ODD, PART_ODD = 8, 0.005  # odd shapes, and the part of the cluster that their trainers may request


def with_engine(problem: Problem) -> Problem:
    """The problem, marked if its sizes are too many for patterns."""
    planned, of_jobs = _planned_shapes(problem.demands, problem.waiting), _planned_shapes(problem.demands, ())
    if problem.plans_in_bulk and _have_rules(problem) and not _has_many(problem, of_jobs):
        return _with_many(problem, of_jobs)  # each rule is a resource of its own, so tables would be large
    if not _has_many(problem, planned):
        return problem
    odd = _few_apart(problem, planned) if problem.plans_in_bulk else frozenset[int]()
    if odd:
        return replace(problem, odd_shapes=odd, reference=tuple(s for s in problem.reference if s not in odd))
    if problem.plans_in_bulk and _can_be_searched(problem, planned):
        return problem
    are_few = problem.waiting and not _has_many(problem, of_jobs)
    return _with_many(problem, of_jobs if are_few else [])


def _with_many(problem: Problem, few: list[int]) -> Problem:
    reference = _few(problem.reference, problem.request)
    return replace(problem, is_many=True, plans_in_bulk=True, few_shapes=frozenset(few), reference=reference)


def _have_rules(problem: Problem) -> bool:
    """True if waiting serving pods have rules about the pods beside them."""
    rules = [column for column, name in enumerate(problem.names) if name.startswith(RULE_PREFIX)]
    waiting = [group.shape for group in problem.waiting]
    return bool(problem.request[np.ix_(waiting, rules)].any())


def _has_many(problem: Problem, shapes: list[int]) -> bool:
    return has_many_sizes(problem.empty.clip(min=0), problem.request[shapes], problem.opened[shapes])


def _few_apart(problem: Problem, planned: list[int]) -> frozenset[int]:
    """Find shapes of small jobs such that few pod sizes remain without them; empty if there are no such shapes.

    Only shapes of trainers count: a pod that must have a place is always part of the programs.
    """
    most = np.zeros(len(problem.request), dtype=np.int64)
    for demand in problem.demands:
        most[demand.shape] += max(demand.max_trainers, len(demand.live_trainers))
    total = problem.allocatable.sum(axis=0).clip(min=1)
    part = (problem.request / total).max(axis=1, initial=0.0) * most
    fixed = {need.shape for demand in problem.demands for need in demand.needs}
    fixed |= {group.shape for group in problem.waiting} | {*problem.headroom}
    fixed |= {shape for shape, _ in problem.learned}
    fixed |= {shape for demand in problem.demands for shape, _ in demand.unbound_fixed}
    found: list[int] = []
    for shape in sorted((s for s in planned if s not in fixed), key=lambda s: (part[s], s))[:MOST_ODD]:
        if part[[*found, shape]].sum() <= PART_ODD:
            found.append(shape)
    if len(found) == len(planned) or _has_many(problem, [s for s in planned if s not in found]):
        return frozenset()
    for shape in reversed(found.copy()):  # those without which sizes are few all the same
        fewer = [s for s in found if s != shape]
        if not _has_many(problem, [s for s in planned if s not in fewer]):
            found = fewer
    return frozenset(found)


def _planned_shapes(demands: Iterable[JobDemand], waiting: Iterable[WaitingServing]) -> list[int]:
    """Indices of the shapes that a plan may place, ascending."""
    new = {demand.shape for demand in demands} | {need.shape for demand in demands for need in demand.needs}
    return sorted(new | {group.shape for group in waiting})


def _few(shapes: tuple[int, ...], request: IntArray) -> tuple[int, ...]:
    """Choose at most `REFERENCES` of some shapes, from small to large ones."""
    if len(shapes) <= REFERENCES:
        return shapes
    rows = np.array(shapes, dtype=np.int64)
    size = (request[rows] / request.max(axis=0, initial=1).clip(min=1)).max(axis=1, initial=0.0)
    chosen = np.linspace(0, len(rows) - 1, REFERENCES).astype(np.int64)
    return tuple(sorted(rows[np.argsort(size, kind="stable")[chosen]].tolist()))


def has_many_sizes(capacity: IntArray, request: IntArray, opened: BoolArray) -> bool:
    """True if sizes are so many, or so odd, that patterns cannot be priced by tables.

    Args:
        capacity: (nodes, resources) what the planned pods of a node may use in all, >= 0.
        request: (shapes, resources) what one pod of each shape requests.
        opened: (shapes, nodes) True if a pod of the shape may go there.
    """
    if len(capacity) * len(request) <= SEARCHES_LIMIT:
        return False
    kinds = len({kind.tobytes() for kind in np.ascontiguousarray(np.packbits(opened, axis=0).T)})
    if kinds * len(request) > TABLES_LIMIT:  # patterns are as many, even if one table prices all of them
        return True
    if _fits_in_a_table(capacity, request):
        return False
    if np.count_nonzero((request > 0).any(axis=0)) > RESOURCES_LIMIT:
        return True
    some = np.arange(0, len(capacity), max(1, len(capacity) // SAMPLE))  # with more nodes, no table becomes smaller
    return any(
        Pricer(classify(capacity[nodes], request, opened[:, nodes]), request).searches > SEARCHES_LIMIT
        for nodes in (some, np.arange(len(capacity)))
    )


def _can_be_searched(problem: Problem, shapes: list[int]) -> bool:
    """True if nodes are alike in so few ways that pricing may search each kind of them."""
    classes = classify(problem.empty.clip(min=0), problem.request[shapes], problem.opened[shapes])
    return len(classes) * ALIKE <= len(problem.empty) and len(classes) * len(shapes) <= SEARCHES_IN_BULK


def _fits_in_a_table(capacity: IntArray, request: IntArray) -> bool:
    """True if one knapsack table can hold all pods; every resource that some pod requests counts."""
    used = np.flatnonzero((request > 0).any(axis=0))
    if not len(used) or not (request[:, used] > 0).any():
        return True
    cells = capacity[:, used].max(axis=0, initial=0) // np.gcd.reduce(request[:, used], axis=0).clip(min=1) + 1
    full = (request[:, used] > 0).all(axis=0)
    return bool(
        full.any() and prod(cells.tolist()) <= CELLS_LIMIT and cells[full].min() * len(request) <= STEPS_LIMIT
    )
