"""Places all that must fit: waiting serving pods, missing masters and pservers, and the minimums of the jobs.

Trainers are deleted for it, as few as can be found. No job falls below its minimum: a trainer of a minimum is only
deleted if the job gets another one elsewhere. `admission` decides for which jobs this is tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice, permutations

import numpy as np

from edl.model.names import Role
from edl.planner.clock import OutOfTimeError
from edl.planner.packing import PodBatch, make_room, place
from edl.planner.problem import Problem, count_slots
from edl.planner.programs.deletions import fewest_victims
from edl.planner.programs.integer import pack_most
from edl.planner.programs.most_pods import place_most
from edl.planner.swaps.tightest import place_minimums
from edl.planner.trial_packing import SERVING, Placed, TrialPacking

SHAPES_LEFT_ROOM, LEFT_ROOM = 4, 50  # a packing of serving leaves capacity for so many trainers of so many shapes
Allowance = Callable[[TrialPacking], Mapping[int, int]]  # how many trainers of each job may be deleted
REORDERED, ORDERS_TRIED = 3, 6  # every order of the last so many shapes is compared; at most so many of serving pods


@dataclass(frozen=True, slots=True)
class Served:
    """The pending serving pods that a plan places.

    Attributes:
        due: by shape, pods that must be placed, even if trainers are deleted for them.
        in_grace: by shape, pods for which only free capacity is reserved.
        short: how many pods do not fit even without training.
        order: the shapes in an order of placing in which so many fit; empty if no order was tried or none does.
        places: (node, shape, pods) on which so many fit where no order of placing does; else empty.
    """

    due: Mapping[int, int]
    in_grace: Mapping[int, int]
    short: int
    order: tuple[int, ...] = ()
    places: tuple[tuple[int, int, int], ...] = ()


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
    """Missing minimum trainers of running jobs, by shape, for which to leave capacity: those most in demand."""
    least: Counter[int] = Counter()
    for demand in problem.demands:
        if demand.job.was_admitted and demand.shape not in wanted:
            least[demand.shape] += demand.min_trainers
    return {shape: min(count, LEFT_ROOM) for shape, count in least.most_common(SHAPES_LEFT_ROOM)}


def place_required(
    problem: Problem, members: tuple[int, ...], served: Served, deadline_s: float
) -> TrialPacking | None:
    """Place all that must fit, with as few deletions as can be found.

    Only surplus trainers are deleted at first. If that is not enough, or if it deletes any and the cluster is small,
    an integer program over nodes looks for fewer deletions. After that, minimums may move to other nodes, and at last
    pods that have a node but are not bound yet.

    Args:
        problem: the arrays.
        members: indices of the jobs that run.
        served: what serving pods get.
        deadline_s: time for each integer program.

    Returns:
        The packing; None if not everything fits.
    """
    if served.places:  # no order of placing serves so many, so none is tried
        return _placed_as_packed(problem, members, served, deadline_s)
    start = TrialPacking(problem, members)
    if problem.plans_in_bulk and not start.with_node()[0].size and not _have_unbound(problem, members):
        return place_exactly(start, served, deadline_s)  # free capacity was tried, and there is nothing to delete
    best = _place_over_surplus(start, served)
    if best is not None and not best.victims:
        return best
    known = 0 if best is None else len(best.victims)
    attempts: tuple[Callable[[], TrialPacking | None], ...] = (
        lambda: place_exactly(TrialPacking(problem, members), served, deadline_s, known=known),
        lambda: best,
        lambda: _place_over_any_trainer(TrialPacking(problem, members), served),
    )
    if _have_unbound(problem, members):
        attempts += (
            lambda: place_exactly(TrialPacking(problem, members, place_unbound=False), served, deadline_s),
            lambda: _place_over_any_trainer(TrialPacking(problem, members, place_unbound=False), served),
        )
    packing = next((packing for attempt in attempts if (packing := attempt()) is not None), None)
    if packing is not None and best is not None and len(best.victims) <= len(packing.victims):
        packing = best
    if packing is not None:
        spare_victims(packing)
    return packing


def _have_unbound(problem: Problem, members: tuple[int, ...]) -> bool:
    """True if a live pod of the jobs is still on its way to a node."""
    demands = [problem.demands[j] for j in members]
    return any(
        demand.unbound_fixed or any(not problem.live_trainers[i].pod.node for i in demand.live_trainers)
        for demand in demands
    )


def _placed_as_packed(
    problem: Problem, members: tuple[int, ...], served: Served, deadline_s: float
) -> TrialPacking | None:
    """Place all that must fit if serving fits only as in `served.places`, over any trainers; None if not all fits."""
    packing = place_exactly(TrialPacking(problem, members), served, deadline_s)
    if packing is None:
        packing = TrialPacking(problem, members)
        if not (_serve_as_packed(packing, served) and _rest_placed(packing, served)):
            return None
    spare_victims(packing)
    return packing


def place_exactly(
    packing: TrialPacking, served: Served, deadline_s: float, *, tries: int = 0, known: int = 0
) -> TrialPacking | None:
    """Delete the fewest trainers, wherever they are, by an integer program; None if it is too large or fails.

    The program counts what trainers declare, so it is not asked while serving may use capacity that trainers lend.
    For `tries` and `known` see `programs.deletions`.
    """
    if packing.lent.any() and any(served.due.values()):
        return None
    fixed, _ = _fixed_and_minimums(packing, served)
    wanted: Counter[int] = Counter()
    queues: dict[int, list[tuple[int, Role | None]]] = {}
    for batch in fixed:
        wanted[batch.shape] += len(batch.owners)
        queues.setdefault(batch.shape, []).extend(batch.owners)
    found = fewest_victims(packing, wanted, deadline_s, tries=tries, known=known)
    if found is None:
        return None
    for index in found.deleted:
        packing.delete(index)
    if any(served.due.values()):
        packing.for_serving.update(found.deleted)
    for batch in _fixed_and_minimums(packing, replace(served, due={}))[1]:
        queues.setdefault(batch.shape, []).extend(batch.owners)
    for node, shape, pods in found.places:
        for owner in queues.get(shape, [])[:pods]:
            place(packing, shape, owner, node)
        queues[shape] = queues.get(shape, [])[pods:]
    return None if any(queues.values()) else packing


def place_in_free_room(packing: TrialPacking, served: Served) -> TrialPacking | None:
    """Place all that must fit into free capacity, without a deletion.

    Args:
        packing: the packing; it is changed.
        served: what serving pods get.

    Returns:
        The packing; None if free capacity is not enough.
    """
    fixed, minimums = _fixed_and_minimums(packing, served)
    if not _all_placed(packing, fixed):
        return None
    if packing.problem.is_many and place_minimums(packing, [(b.shape, [j for j, _ in b.owners]) for b in minimums]):
        return packing
    return packing if _all_placed(packing, minimums) else None


def _all_placed(packing: TrialPacking, batches: Iterable[PodBatch], allowance: Allowance = lambda _: {}) -> bool:
    """Place batches one after the other, over trainers that may be deleted; False at the first that does not fit."""
    return all(make_room(packing, batch, allowance(packing)) == len(batch.owners) for batch in batches)


def serve_over_surplus(packing: TrialPacking, served: Served) -> Served:
    """Free capacity for serving pods over surplus trainers, as many as there is capacity and time for.

    Args:
        packing: the packing; it is changed, and what was found before the time was over is kept.
        served: what serving pods are due.

    Returns:
        What they got.
    """
    with suppress(OutOfTimeError):
        for batch in batches_of(packing, served):
            if batch.owners[0][0] == SERVING:
                make_room(packing, batch, surplus(packing))
    got = Counter(place.shape for place in packing.placed if place.owner == SERVING)
    due = {shape: got[shape] for shape in served.due}
    return replace(served, due=due, in_grace=served.in_grace if due == served.due else {})


def _place_over_surplus(start: TrialPacking, served: Served) -> TrialPacking | None:
    """Try a few orders of the last shapes, deleting surplus trainers only; the fewest deletions win."""
    batches = batches_of(start, served)
    if not batches:
        return start
    first, last = batches[:-REORDERED], batches[-REORDERED:]  # what all orders begin with is placed once
    begun, best = start.copy(), None
    if not _all_placed(begun, first, surplus):
        return None
    for order in permutations(last):
        packing = begun.copy()
        if _all_placed(packing, order, surplus) and (best is None or len(packing.victims) < len(best.victims)):
            best = packing
        if best is not None and not best.victims:
            break
    return best


def _place_over_any_trainer(packing: TrialPacking, served: Served) -> TrialPacking | None:
    """Delete any trainers for serving pods, masters and pservers, then give each job its minimum elsewhere."""
    fixed, minimums = _fixed_and_minimums(packing, served)
    is_placed = _all_placed(packing, fixed, lambda now: now.count) and _all_placed(packing, minimums, surplus)
    return packing if is_placed and _rest_placed(packing, served) else None


def _rest_placed(packing: TrialPacking, served: Served) -> bool:
    """Place over surplus what is missing besides serving pods; False at the first batch that does not fit."""
    return _all_placed(packing, batches_of(packing, replace(served, due={})), surplus)


def _serve_as_packed(packing: TrialPacking, served: Served) -> bool:
    """Place the serving pods of `served.places`, over trainers in their way; False if some of them do not fit."""
    problem, left = packing.problem, Counter(dict(served.due))
    for node, shape, pods in served.places:
        due, here = min(pods, left[shape]), None
        while due:
            room = (packing.free[node] + packing.lent[node])[None]
            fitting = min(due, int(count_slots(room, problem.request[shape])[0]))
            for _ in range(fitting):
                place(packing, shape, (SERVING, None), node)
            due, left[shape] = due - fitting, left[shape] - fitting
            here = here or iter(sorted(packing.at[node], key=lambda i: problem.live_trainers[i].order))
            if not due or (index := next(here, None)) is None:
                break
            packing.delete(index)
            packing.for_serving.add(index)
    return not +left


def _blockers(packing: TrialPacking, served: Served, rank: Mapping[int, int]) -> set[int]:
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


def place_all_possible(packing: TrialPacking, served: Served, rank: Mapping[int, int]) -> frozenset[int] | None:
    """Place all that must fit, over any trainer, and leave out the jobs for which that fails.

    Args:
        packing: the packing of all jobs in `rank`; it is changed.
        served: what serving pods get.
        rank: the rank of each member; the lowest is served first.

    Returns:
        The jobs that lack pods now; None if serving pods do.
    """
    without: set[int] = set()
    if served.places:
        without = _blockers(packing, served, rank)
        packing = TrialPacking(packing.problem, rank.keys() - without)
        if not _serve_as_packed(packing, served):
            return None
    due = batches_of(packing, replace(served, due={}) if served.places else served)
    if not _all_placed(packing, (b for b in due if b.owners[0][0] == SERVING), lambda now: now.count):
        return None
    for batch in batches_of(packing, replace(served, due={})):
        owners = tuple(sorted(batch.owners, key=lambda owner: rank[owner[0]]))
        placed = make_room(packing, PodBatch(batch.shape, owners), surplus(packing))
        without.update(j for j, _ in owners[placed:])
    return frozenset(without)


def spare_victims(packing: TrialPacking) -> None:
    """Take victims back whose capacity turns out to be free, or whose job gets a new trainer on the same node.

    The last in the order of deletion come first. The packing is changed.
    """
    meter, new = packing.meter(), Counter(place for place in packing.placed if place.role is Role.TRAINER)
    for index in sorted(packing.victims, key=lambda i: packing.problem.live_trainers[i].order, reverse=True):
        trainer = packing.problem.live_trainers[index]
        demand = packing.problem.demands[trainer.demand]
        if trainer.node < 0 or packing.count[trainer.demand] > demand.max_trainers:
            continue
        twin = Placed(demand.index, Role.TRAINER, trainer.shape, trainer.node)
        if new[twin]:
            new[twin] -= 1
            packing.drop(twin)
            packing.undelete(index)
        elif (
            packing.count[trainer.demand] < demand.max_trainers
            and packing.has_room(trainer.shape, trainer.node)
            and meter.quota_shortage(trainer.demand) is None
        ):
            packing.undelete(index)
            meter.add(trainer.demand)


def batches_of(packing: TrialPacking, served: Served) -> list[PodBatch]:
    """The pods that must fit and have no node yet.

    Serving pods come first, in the order in which they fit without training, then masters and pservers, then
    minimums; within these groups, larger pods first. Trainers
    come last because a trainer costs one slot of a trainer wherever it goes. The other pods can go where they cost
    less.
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
    shapes = served.order or by_size(problem, served.due)
    serving = [for_serving(s, served.due[s]) for s in shapes if served.due.get(s)]
    return [*serving, *(PodBatch(s, tuple(g[s])) for g in (fixed, trainers) for s in by_size(problem, g) if g[s])]


def _fixed_and_minimums(packing: TrialPacking, served: Served) -> tuple[list[PodBatch], list[PodBatch]]:
    """`batches_of` in two parts: serving pods, masters and pservers, then trainers."""
    batches = batches_of(packing, served)
    first = sum(batch.owners[0][1] is not Role.TRAINER for batch in batches)
    return batches[:first], batches[first:]


def surplus(packing: TrialPacking) -> dict[int, int]:
    """How many trainers each member has above its minimum."""
    return {j: max(0, packing.count[j] - packing.problem.demands[j].min_trainers) for j in packing.members}


def for_serving(shape: int, count: int) -> PodBatch:
    """A batch of `count` serving pods of one shape."""
    return PodBatch(shape, ((SERVING, None),) * count)


def by_size(problem: Problem, shapes: Iterable[int]) -> list[int]:
    """The shapes, from the largest to the smallest."""
    return sorted(shapes, key=lambda s: (-size_of(problem, s), s))


def size_of(problem: Problem, shape: int) -> float:
    """The size of a shape: the largest part that it requests of any resource of the largest node."""
    return float((problem.request[shape] / problem.largest).max(initial=0.0))
