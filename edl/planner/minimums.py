"""Placing all that must have room: waiting serving, missing masters and pservers, and minimums.

Whoever stands in the way dies, but as few as can be found, and nobody falls below its minimum for it: a trainer that
is part of a minimum only moves. Whether that is to be tried for a set of jobs at all is decided in `admission`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice, permutations

from edl.model.names import Role
from edl.planner.packing import PodBatch, make_room, place
from edl.planner.problem import Problem
from edl.planner.programs.integer import fewest_victims
from edl.planner.trial_packing import SERVING, TrialPacking

ORDERS_TRIED = 6  # orders of placing different shapes that are compared where trainers die


@dataclass(frozen=True, slots=True)
class Served:
    """Serving pods by shape: those that must get room, those that keep it where it is free; how many are short."""

    due: Mapping[int, int]
    in_grace: Mapping[int, int]
    short: int


def place_required(
    problem: Problem, members: tuple[int, ...], served: Served, deadline_s: float
) -> TrialPacking | None:
    """Place all that must have room, with as few deaths as can be found; None where not everything fits.

    Only surplus dies at first. Where that is not enough, or somebody dies and the cluster is small, an integer
    program over nodes looks for fewer deaths; else minimums may move, and then pods that are on their way to a node.
    """
    best = _place_over_surplus(TrialPacking(problem, members), served)
    if best is not None and not best.victims:
        return best
    attempts: tuple[Callable[[], TrialPacking | None], ...] = (
        lambda: _place_exactly(TrialPacking(problem, members), served, deadline_s),
        lambda: best,
        lambda: _place_over_any_trainer(TrialPacking(problem, members), served),
        lambda: _place_exactly(TrialPacking(problem, members, place_unbound=False), served, deadline_s),
        lambda: _place_over_any_trainer(TrialPacking(problem, members, place_unbound=False), served),
    )
    packing = next((packing for attempt in attempts if (packing := attempt()) is not None), None)
    if packing is not None and best is not None and len(best.victims) <= len(packing.victims):
        packing = best
    if packing is not None:
        spare_victims(packing)
    return packing


def _place_exactly(packing: TrialPacking, served: Served, deadline_s: float) -> TrialPacking | None:
    """Let the fewest trainers die, wherever they are, by an integer program; None where there is too much to try."""
    fixed = [d for d in batches_of(packing, served) if d.owners[0][1] is not Role.TRAINER]
    wanted: Counter[int] = Counter()
    queues: dict[int, list[tuple[int, Role | None]]] = {}
    for batch in fixed:
        wanted[batch.shape] += len(batch.owners)
        queues.setdefault(batch.shape, []).extend(batch.owners)
    answer = fewest_victims(packing, wanted, deadline_s)
    if answer is None:
        return None
    for index in answer.deleted:
        packing.delete(index)
    if any(served.due.values()):
        packing.for_serving.update(answer.deleted)
    for batch in batches_of(packing, replace(served, due={})):
        if batch.owners[0][1] is Role.TRAINER:
            queues.setdefault(batch.shape, []).extend(batch.owners)
    for node, shape, pods in answer.places:
        for owner in queues.get(shape, [])[:pods]:
            place(packing, shape, owner, node)
        queues[shape] = queues.get(shape, [])[pods:]
    return None if any(queues.values()) else packing


def place_in_free_room(packing: TrialPacking, served: Served) -> TrialPacking | None:
    """Place all that must have room without a death; the room is changed. None where that does not do."""
    for batch in batches_of(packing, served):
        if make_room(packing, batch, {}) < len(batch.owners):
            return None
    return packing


def _place_over_surplus(start: TrialPacking, served: Served) -> TrialPacking | None:
    """Try a few orders of the shapes; the fewest deaths win."""
    batches = batches_of(start, served)
    if not batches:
        return start
    best: TrialPacking | None = None
    for order in islice(permutations(batches), ORDERS_TRIED):
        packing = start.copy()
        if all(make_room(packing, d, _surplus(packing)) == len(d.owners) for d in order) and (
            best is None or len(packing.victims) < len(best.victims)
        ):
            best = packing
        if best is not None and not best.victims:
            break
    return best


def _place_over_any_trainer(packing: TrialPacking, served: Served) -> TrialPacking | None:
    """Let any trainer die for serving, masters and pservers, then give each minimum back elsewhere."""
    for batch in batches_of(packing, served):
        is_base = batch.owners[0][1] is Role.TRAINER
        if make_room(packing, batch, _surplus(packing) if is_base else packing.count) < len(batch.owners):
            return None
    for batch in batches_of(packing, replace(served, due={})):
        if make_room(packing, batch, _surplus(packing)) < len(batch.owners):
            return None
    return packing


def spare_victims(packing: TrialPacking) -> None:
    """Revive victims whose place is free after all, dearest first, and those whose job gets a new one there."""
    meter = packing.meter()
    for index in sorted(packing.victims, key=lambda i: packing.problem.live_trainers[i].order, reverse=True):
        trainer = packing.problem.live_trainers[index]
        demand = packing.problem.demands[trainer.demand]
        if trainer.node < 0 or packing.count[trainer.demand] > demand.max_trainers:
            continue
        wanted = (demand.index, Role.TRAINER, trainer.shape, trainer.node)
        twin = next((p for p in packing.placed if (p.owner, p.role, p.shape, p.node) == wanted), None)
        if twin is not None:
            packing.drop(twin)
            packing.revive(index)
        elif (
            packing.count[trainer.demand] < demand.max_trainers
            and packing.has_room(trainer.shape, trainer.node)
            and meter.quota_shortage(trainer.demand) is None
        ):
            packing.revive(index)
            meter.add(trainer.demand)


def batches_of(packing: TrialPacking, served: Served) -> list[PodBatch]:
    """What must have room and has none: serving, then masters and pservers, then minimums; larger pods first.

    Trainers come last because wherever one goes it takes one trainer's room; the others can be put where they take
    less than they are.
    """
    problem = packing.problem
    fixed: dict[int, list[tuple[int, Role | None]]] = {}
    trainers: dict[int, list[tuple[int, Role | None]]] = {}
    for (j, role, shape), count in sorted(Counter(packing.fixed_without_node).items()):
        fixed.setdefault(shape, []).extend([(j, role)] * count)
    placed = Counter((p.owner, p.role, p.shape) for p in packing.placed)
    for j in packing.members:
        demand = problem.demands[j]
        for need in demand.needs:
            missing = need.missing - placed[j, need.role, need.shape]
            fixed.setdefault(need.shape, []).extend([(j, need.role)] * missing)
        trainers.setdefault(demand.shape, []).extend([(j, Role.TRAINER)] * (demand.min_trainers - packing.count[j]))
    serving = [for_serving(s, served.due[s]) for s in by_size(problem, served.due) if served.due[s]]
    return [*serving, *(PodBatch(s, tuple(g[s])) for g in (fixed, trainers) for s in by_size(problem, g) if g[s])]


def _surplus(packing: TrialPacking) -> dict[int, int]:
    return {j: max(0, packing.count[j] - packing.problem.demands[j].min_trainers) for j in packing.members}


def for_serving(shape: int, count: int) -> PodBatch:
    """Room for that many serving pods of a shape."""
    return PodBatch(shape, ((SERVING, None),) * count)


def by_size(problem: Problem, shapes: Iterable[int]) -> list[int]:
    """Shapes from the largest to the smallest."""
    return sorted(shapes, key=lambda s: (-size_of(problem, s), s))


def size_of(problem: Problem, shape: int) -> float:
    """The largest part of a node's room that the shape asks for."""
    most = problem.largest
    return float((problem.request[shape] / most).max(initial=0.0))
