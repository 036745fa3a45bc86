"""Fills a large cluster: rounds the linear program's patterns to whole nodes and assigns jobs to their slots.

An integer program would be too large here. The linear one says how many nodes of each class hold which pattern. Whole
numbers of nodes are used so. The pods that are still missing then go, one by one, to the few nodes left over, about
one for each class, by `packing.grow`: that loses less than one more pattern for each of them.

Source: rounding of cutting-stock solutions with a residual problem, Waescher and Gau, OR Spektrum 18, 1996.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import repeat
from math import inf

import numpy as np
from numpy.typing import NDArray

from edl.model.names import Role
from edl.planner.packing import grow
from edl.planner.problem import IntArray
from edl.planner.programs.columns import Columns, FloatArray, make_columns
from edl.planner.programs.fair_share import add_used
from edl.planner.programs.generation import Program, Solution, solve
from edl.planner.trial_packing import Placed, TrialPacking

PROMISE_FACTOR = 30.0  # a trainer of the fair share is worth so many times the most useful other one
GAP = 1e-7  # of the value, which consists mostly of promises
NEARLY_WHOLE = 1e-6


@dataclass(frozen=True, slots=True)
class _Steps:
    """Every further trainer that a job could get, one entry for each.

    Attributes:
        owner: (steps,) index of the member.
        shape: (steps,) row of its shape among the columns.
        gain: (steps,) what the trainer adds; infinite if it is part of a minimum.
        level: (steps,) fulfilment of the member before it.
    """

    owner: IntArray
    shape: IntArray
    gain: FloatArray
    level: FloatArray


def fill(
    packing: TrialPacking, ceiling: Mapping[int, int], fair_share: Mapping[int, int], deadline_s: float
) -> TrialPacking:
    """Place all pods that do not exist yet anew, and new trainers up to each ceiling.

    Args:
        packing: a packing, whose new pods are placed again. Not changed.
        ceiling: the most trainers of each member.
        fair_share: the fair share of each member, in whole trainers.
        deadline_s: time for the program.

    Returns:
        The new packing; the old one if the new one could not place all that the old one did, minimums included.
    """
    base = packing.copy()
    base.drop_all()
    demands = packing.problem.demands
    anew = _without_odd_shapes(base, packing.placed, ceiling, fair_share)
    wanting = [j for j in sorted(ceiling) if base.count[j] < ceiling[j] and not _is_odd(base, j)]
    shapes = {p.shape for p in anew} | {demands[j].shape for j in wanting}
    columns = make_columns(packing.problem, base.free, shapes)
    if not columns.classes:
        return packing
    node, shape = [p.node for p in anew], [p.shape for p in anew]
    add_used(columns, np.array(node, dtype=np.int64), np.array(shape, dtype=np.int64))
    fixed = [place for place in anew if place.role is not Role.TRAINER]
    steps = _within_limits(_steps(base, wanting, columns, (ceiling, fair_share)), base, fixed)
    row = {s: k for k, s in enumerate(columns.shapes)}
    need = np.bincount([row[p.shape] for p in fixed], minlength=len(row)).astype(np.float64)
    program = _program(steps, need)
    solution = solve(program, columns, deadline_s, gap=GAP)
    waits = np.any(base.now < base.free, axis=1)
    slots = _slots(columns, solution, program.need + program.use @ program.high, waits)
    queues = [deque(nodes) for nodes in slots]
    places = _fixed_places(fixed, queues, columns, packing)
    if places is None:
        return packing
    _assign(base, places, steps, queues, minimums_first=bool(waits.any()))
    least = {j: demands[j].min_trainers for j in base.members}
    grow(base, least, least)
    lost = any(base.count[j] < min(packing.count[j], demands[j].min_trainers) for j in base.members)
    return packing if lost else base


def _is_odd(packing: TrialPacking, j: int) -> bool:
    """True if the shape of the job's trainers is left out of the patterns, so that these stay few."""
    return packing.problem.demands[j].shape in packing.problem.odd_shapes


def _without_odd_shapes(
    base: TrialPacking, placed: list[Placed], ceiling: Mapping[int, int], fair_share: Mapping[int, int]
) -> list[Placed]:
    """Place the trainers of odd shapes up to their fair shares; the other pods, which are to be repacked.

    Where serving pods alone make sizes many, those that have a place keep it.

    Args:
        base: the packing without new pods; it is changed.
        placed: the new pods.
        ceiling: the most trainers of each job.
        fair_share: the fair share of each job, in whole trainers.
    """
    odd, few = base.problem.odd_shapes, base.problem.few_shapes
    if few:
        odd |= {p.shape for p in placed} - few
    if not odd:
        return placed
    base.hold_all([p for p in placed if p.shape in odd])
    due = {j: min(ceiling[j], fair_share[j]) for j in ceiling if _is_odd(base, j)}
    grow(base, due, due)
    return [p for p in placed if p.shape not in odd]


def _steps(
    base: TrialPacking, wanting: list[int], columns: Columns, terms: tuple[Mapping[int, int], Mapping[int, int]]
) -> _Steps:
    """List the further trainers that jobs could get, with what each adds; `terms` are (ceiling, fair_share)."""
    ceiling, fair_share = terms
    demands = base.problem.demands
    row = {s: k for k, s in enumerate(columns.shapes)}
    more = np.array([ceiling[j] - base.count[j] for j in wanting], dtype=np.int64)
    which = np.repeat(np.arange(len(wanting)), more)
    count = np.array([base.count[j] for j in wanting], dtype=np.int64)[which]
    count += np.arange(len(which)) - np.repeat(np.cumsum(more) - more, more)
    low = np.array([demands[j].min_trainers for j in wanting], dtype=np.float64)
    span = np.array([max(1, demands[j].max_trainers - demands[j].min_trainers) for j in wanting], dtype=np.float64)
    weight = np.array([demands[j].job.weight for j in wanting], dtype=np.float64)
    due = np.array([fair_share[j] for j in wanting], dtype=np.int64)
    gain = weight / span
    return _Steps(
        owner=np.array(wanting, dtype=np.int64)[which],
        shape=np.array([row[demands[j].shape] for j in wanting], dtype=np.int64)[which],
        gain=np.where(
            count < low[which],
            inf,
            np.where(count < due[which], PROMISE_FACTOR * gain.max(initial=1e-6), gain[which]),
        ),
        level=(count - low[which]) / span[which],
    )


def _within_limits(steps: _Steps, base: TrialPacking, fixed: list[Placed]) -> _Steps:
    """The steps that quotas and --max-load-desired allow, taken by urgency; minimums were admitted already."""
    problem, share = base.problem, base.problem.limits.sharing.max_load_desired
    if share >= 1.0 and not any(problem.demands[j].quota_uses for j in base.members):
        return steps
    meter, total = base.meter(), problem.allocatable.sum(axis=0)
    used = total - base.free.sum(axis=0) + sum((problem.request[p.shape] for p in fixed), np.zeros_like(total))
    kept = []
    for step in _by_urgency(steps).tolist():
        j = int(steps.owner[step])
        request = problem.request[problem.demands[j].shape]
        has_load = share >= 1.0 or bool((used + request <= share * total)[request > 0].all())
        if steps.gain[step] >= PROMISE_FACTOR**2 or (has_load and meter.quota_shortage(j) is None):
            meter.add(j)
            used = used + request
            kept.append(step)
    rows = np.array(sorted(kept), dtype=np.int64)
    return _Steps(steps.owner[rows], steps.shape[rows], steps.gain[rows], steps.level[rows])


def _by_urgency(steps: _Steps) -> IntArray:
    """(steps,) the steps in order: trainers of minimums first, then up to the fair shares, then the rest."""
    return np.lexsort((steps.owner, steps.level, -steps.gain))


def _program(steps: _Steps, need: FloatArray) -> Program:
    """The linear program of these steps; trainers of one shape and gain share one variable."""
    is_minimum = steps.gain == inf
    need = need + np.bincount(steps.shape[is_minimum], minlength=len(need))
    gains, gain = np.unique(steps.gain[~is_minimum], return_inverse=True)
    kinds, count = np.unique(steps.shape[~is_minimum] * len(gains) + gain, return_counts=True)
    shape, gain = np.divmod(kinds, max(1, len(gains)))
    use = np.zeros((len(need), len(kinds)))
    use[shape, np.arange(len(kinds))] = 1.0
    nothing = np.zeros((0, len(kinds)))
    return Program(gains[gain], np.zeros(len(kinds)), count.astype(np.float64), use, need, nothing, np.zeros(0))


def _slots(columns: Columns, solution: Solution, most: FloatArray, waits: NDArray[np.bool_]) -> list[list[int]]:
    """By shape, the nodes with a slot for a pod of it: one entry per slot, at most `most` of them.

    Args:
        columns: the classes and patterns.
        solution: how many nodes use each pattern.
        most: (shapes,) how many slots can be used at all.
        waits: (nodes,) true where new pods wait for the end of others: these nodes come last.
    """
    owner, patterns = columns.flat()
    held = np.array(patterns, dtype=np.int64)
    nodes: list[int] = []
    used: list[int] = []
    free = [iter(sorted(group.nodes, key=waits.__getitem__)) for group in columns.classes]
    for column, count in enumerate(np.floor(solution.y + NEARLY_WHOLE).astype(np.int64).tolist()):
        for _, node in zip(range(count), free[owner[column]], strict=False):
            nodes.append(node)
            used.append(column)
    used_nodes = np.array(nodes, dtype=np.int64)
    last = np.argsort(waits[used_nodes], kind="stable")
    used_nodes, placed = used_nodes[last], held[used][last]  # (nodes, shapes)
    return [np.repeat(used_nodes, placed[:, s])[: int(most[s])].tolist() for s in range(held.shape[1])]


def _fixed_places(
    fixed: list[Placed], queues: list[deque[int]], columns: Columns, packing: TrialPacking
) -> list[Placed] | None:
    """Take slots for masters, pservers and serving pods; None if there are too few.

    A pod that rounding has left without a slot gets one of a larger pod.
    """
    problem, row = packing.problem, {s: k for k, s in enumerate(columns.shapes)}
    places, without_slot = [], []
    for place in sorted(fixed, key=lambda p: (p.owner, p.role or "", p.shape)):
        queue = queues[row[place.shape]]
        if queue:
            places.append(place._replace(node=queue.popleft()))
        else:
            without_slot.append(place)
    for place in without_slot:
        larger = (columns.request >= problem.request[place.shape]).all(axis=1)
        instead = [
            k for k in np.flatnonzero(larger).tolist() if queues[k] and problem.opened[place.shape, queues[k][-1]]
        ]
        if not instead:
            return None
        smallest = min(instead, key=lambda k: (columns.request[k] / problem.largest).sum())
        places.append(place._replace(node=queues[smallest].pop()))
    return places


def _assign(
    base: TrialPacking, places: list[Placed], steps: _Steps, queues: list[deque[int]], *, minimums_first: bool
) -> None:
    """Give the remaining slots to trainers, minimums first, then fair shares; place these and `places`.

    Args:
        base: the packing; it is changed.
        places: what has slots already.
        steps: the further trainers that members could get.
        queues: the nodes with a slot, by row of the shape. The first ones are given out first.
        minimums_first: the minimum of each job gets its nodes before any other trainer.
    """
    order = _by_urgency(steps)
    taken: list[tuple[bool, int, int]] = []
    for s, queue in enumerate(queues):
        mine = order[steps.shape[order] == s][: len(queue)]
        can_wait = (steps.gain[mine] < inf) & minimums_first
        taken += zip(can_wait.tolist(), steps.owner[mine].tolist(), repeat(s), strict=False)
    for _, j, s in sorted(taken):
        node = queues[s].popleft()
        if base.without_node[j]:
            base.place_trainer(j, node)
        else:
            places.append(Placed(j, Role.TRAINER, base.problem.demands[j].shape, node))
    base.hold_all(places)
