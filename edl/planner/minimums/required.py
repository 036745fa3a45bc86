"""Places all that must fit: waiting serving pods, missing masters and pservers, and the minimums of the jobs.

Trainers are deleted for it, as few as can be found. No job falls below its minimum: a trainer of a minimum is only
deleted if the job gets another one elsewhere. `admission` decides for which jobs this is tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import permutations

from edl.model.names import Role
from edl.planner.minimums.batches import Served, batches_of, fixed_and_minimums, surplus
from edl.planner.minimums.serving import blockers, serve_as_packed
from edl.planner.packing import PodBatch, place, place_batch
from edl.planner.problem import Problem
from edl.planner.programs.deletions import fewest_victims
from edl.planner.swaps.tightest import place_minimums
from edl.planner.trial_packing import SERVING, Placed, TrialPacking

Allowance = Callable[[TrialPacking], Mapping[int, int]]  # how many trainers of each job may be deleted
REORDERED = 3  # every order of the last so many shapes is compared


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
    known = 0 if best is None else _count_lost(start, best)
    if best is not None and not known:
        return best
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
    if packing is not None and best is not None and known <= _count_lost(start, packing):
        packing = best
    if packing is not None:
        spare_victims(packing)
    return packing


def _count_lost(start: TrialPacking, packing: TrialPacking) -> int:
    """How many trainers of a packing are deleted that their jobs may keep: those above a maximum go anyway."""
    demands = packing.problem.demands
    deleted = Counter(packing.problem.live_trainers[index].demand for index in packing.victims)
    return sum(max(0, n - max(0, start.count[j] - demands[j].max_trainers)) for j, n in deleted.items())


def _have_unbound(problem: Problem, members: tuple[int, ...]) -> bool:
    """True if a live pod of the jobs has no node yet."""
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
        if not (serve_as_packed(packing, served) and _rest_placed(packing, served)):
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
    fixed, _ = fixed_and_minimums(packing, served)
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
    for batch in fixed_and_minimums(packing, replace(served, due={}))[1]:
        queues.setdefault(batch.shape, []).extend(batch.owners)
    for node, shape, pods in found.places:
        for owner in queues.get(shape, [])[:pods]:
            place(packing, shape, owner, node)
        queues[shape] = queues.get(shape, [])[pods:]
    return None if any(queues.values()) else packing


def place_in_free_capacity(packing: TrialPacking, served: Served) -> TrialPacking | None:
    """Place all that must fit into free capacity, without a deletion.

    Args:
        packing: the packing; it is changed.
        served: what serving pods get.

    Returns:
        The packing; None if free capacity is not enough.
    """
    fixed, minimums = fixed_and_minimums(packing, served)
    if not _all_placed(packing, fixed):
        return None
    if packing.problem.is_many and place_minimums(packing, [(b.shape, [j for j, _ in b.owners]) for b in minimums]):
        return packing
    return packing if _all_placed(packing, minimums) else None


def _all_placed(packing: TrialPacking, batches: Iterable[PodBatch], allowance: Allowance = lambda _: {}) -> bool:
    """Place batches one after the other, over trainers that may be deleted; False at the first that does not fit."""
    return all(place_batch(packing, batch, allowance(packing)) == len(batch.owners) for batch in batches)


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
    fixed, minimums = fixed_and_minimums(packing, served)
    is_placed = _all_placed(packing, fixed, lambda now: now.count) and _all_placed(packing, minimums, surplus)
    return packing if is_placed and _rest_placed(packing, served) else None


def _rest_placed(packing: TrialPacking, served: Served) -> bool:
    """Place over surplus what is missing besides serving pods; False at the first batch that does not fit."""
    return _all_placed(packing, batches_of(packing, replace(served, due={})), surplus)


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
        without = blockers(packing, served, rank)
        packing = TrialPacking(packing.problem, rank.keys() - without)
        if not serve_as_packed(packing, served):
            return None
    due = batches_of(packing, replace(served, due={}) if served.places else served)
    if not _all_placed(packing, (b for b in due if b.owners[0][0] == SERVING), lambda now: now.count):
        return None
    for batch in batches_of(packing, replace(served, due={})):
        owners = tuple(sorted(batch.owners, key=lambda owner: rank[owner[0]]))
        placed = place_batch(packing, PodBatch(batch.shape, owners), surplus(packing))
        without.update(j for j, _ in owners[placed:])
    return frozenset(without)


def spare_victims(packing: TrialPacking) -> None:
    """Keep victims running whose capacity is free after all, or whose job gets a new trainer on the same node.

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
            and packing.has_capacity(trainer.shape, trainer.node)
            and meter.quota_shortage(trainer.demand) is None
        ):
            packing.undelete(index)
            meter.add(trainer.demand)
