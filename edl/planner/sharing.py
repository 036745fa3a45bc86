"""How many trainers each admitted job gets beyond its minimum.

Trainers above a maximum or a quota are deleted first. Then capacity is kept for serving: for pods that
kube-scheduler has not tried yet, and for the headroom. What is left, the policy's objective divides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from edl.model.headroom import KeptHeadroom
from edl.planner.clock import OutOfTimeError
from edl.planner.lending.clearing import clear_lent_capacity, reserve_lent_capacity
from edl.planner.minimums.batches import Served, for_serving, surplus
from edl.planner.minimums.required import spare_victims
from edl.planner.objective import Division, Objective
from edl.planner.packing import grow, place_batch
from edl.planner.problem import JobDemand, LiveTrainer, Problem
from edl.planner.programs.fair_share import fair_shares, read_share_problem
from edl.planner.reallocation import deletion_order, undo_restarts
from edl.planner.sizes.search import divide_in_sizes
from edl.planner.swaps.search import fill_by_totals
from edl.planner.topping_up import topped_up
from edl.planner.trial_packing import Placed, TrialPacking
from edl.planner.waits import growth_hold_left_s

ROOM_DEAD_BAND = 0.1
"""The part of a trainer's capacity that must be missing at least before a trainer is deleted for it."""


class Yielded(NamedTuple):
    """A trainer without requests that is evicted for another pod; see `best_effort.remainder`.

    Attributes:
        trainer: the trainer.
        for_serving: a serving pod gets capacity on its node.
        for_quota: a quota is used up.
    """

    trainer: LiveTrainer
    for_serving: bool = False
    for_quota: bool = False


@dataclass(frozen=True, slots=True)
class Share:
    """The finished packing.

    Attributes:
        packing: every pod of the plan on its node.
        level: by job, its fair share of trainers, in fractions.
        in_grace_placed: serving pods for which no trainer is deleted and that have capacity all the same.
        objective: what the trainers were divided by.
        for_quota: live trainers deleted because their queue is above its quota, by index.
        not_worth_it: jobs that would get more if the gain paid for the restarts.
        resting: jobs that would get more if they had not been resized a moment ago.
        cleared: live trainers deleted because serving has used their CPU for long, by index.
        headroom: the learned capacity that is kept, by shape.
        spare: capacity that is kept for serving pods for which no trainer is deleted.
        yielded: trainers of jobs without requests that are deleted because their capacity is used.
        unsure: shapes of which no free slot was found although another arrangement of new pods may have one.
    """

    packing: TrialPacking
    level: Mapping[int, float]
    in_grace_placed: int
    objective: Objective
    for_quota: frozenset[int] = frozenset()
    not_worth_it: frozenset[int] = frozenset()
    cleared: frozenset[int] = frozenset()
    headroom: tuple[KeptHeadroom, ...] = ()
    spare: tuple[Placed, ...] = ()
    yielded: tuple[Yielded, ...] = ()
    unsure: frozenset[int] = frozenset()
    resting: frozenset[int] = frozenset()


def share(packing: TrialPacking, served: Served, objective: Objective, deadline_s: float) -> Share:
    """Give each admitted job its share of what the minimums left.

    Args:
        packing: every admitted job at its minimum at least; not changed.
        served: the serving pods; those in their grace keep free capacity from growth, but no trainer is deleted for
            them.
        objective: what the trainers are divided by.
        deadline_s: time for each program.

    Raises:
        PlanError: a program found no answer in time.
    """
    packing = packing.copy()
    for_quota = _trim(packing)
    cleared = clear_lent_capacity(packing)
    members = [packing.problem.demands[j] for j in packing.members]
    ceiling = {demand.index: ceiling_now(packing.problem, demand, demand.max_trainers) for demand in members}
    if packing.problem.clock.is_over:
        return _undivided(packing, objective, for_quota)
    replaced = {j: min(ceiling[j], packing.count[j] + len(packing.without_node[j])) for j in packing.members}
    grow(packing, replaced, replaced)
    reserved = _reserve_for_serving(packing, served)
    division = _divided(packing, objective, ceiling, deadline_s)
    best = undo_restarts(division.packing)
    spare_victims(best)  # a trainer that runs comes before one that starts
    best, unsure = topped_up(
        best,
        division.ceiling,
        lambda trial, most: objective.grow(trial, replace(division, ceiling=most)),
        deadline_s,
    )
    spare_victims(best)
    gone = frozenset(best.victims)
    return Share(
        best,
        division.level,
        reserved.in_grace,
        objective,
        for_quota & gone,
        division.not_worth_it,
        cleared & gone,
        tuple(replace(headroom, deleted=len(deleted & gone)) for headroom, deleted in reserved.headroom),
        reserved.free,
        unsure=unsure,
        resting=division.resting,
    )


def _undivided(packing: TrialPacking, objective: Objective, for_quota: frozenset[int]) -> Share:
    """Leave each job what it has, because no time is left to divide anything."""
    if not packing.problem.clock.cut:
        packing.problem.clock.cut_short("sharing")
    level = {j: float(packing.count[j]) for j in packing.members}
    shapes = frozenset(packing.problem.demands[j].shape for j in packing.members)
    return Share(packing, level, 0, objective, for_quota, unsure=shapes)


@dataclass(frozen=True, slots=True)
class _Reserved:
    """Capacity that is reserved for serving before jobs share the rest.

    Attributes:
        in_grace: how many pending pods in their grace have a place.
        headroom: the learned headroom, each with the trainers deleted for it, by index.
        free: the places that may cost no trainer.
    """

    in_grace: int
    headroom: list[tuple[KeptHeadroom, frozenset[int]]]
    free: tuple[Placed, ...]


def _reserve_for_serving(packing: TrialPacking, served: Served) -> _Reserved:
    """Reserve capacity for pods in their grace and for headroom; the packing is changed."""
    before = len(packing.placed)
    in_grace = sum(place_batch(packing, for_serving(s, n), {}) for s, n in sorted(served.in_grace.items()) if n)
    extra = packing.problem.limits.serving.headroom
    for shape in packing.problem.headroom:
        if missing := extra - reserve_lent_capacity(packing, shape, extra):
            place_batch(packing, for_serving(shape, missing), {})
    free = len(packing.placed)
    learned = reserve_learned_headroom(packing)
    if not any(wish.may_delete for _, wish in packing.problem.learned):
        free = len(packing.placed)
    return _Reserved(in_grace, learned, tuple(packing.placed[before:free]))


def reserve_learned_headroom(packing: TrialPacking) -> list[tuple[KeptHeadroom, frozenset[int]]]:
    """Keep the capacity that learned headroom asks for; the packing is changed.

    Free capacity comes first, and what trainers lend counts. Trainers above their minimum are deleted only where
    that is allowed now, and only if more than `ROOM_DEAD_BAND` of the capacity is missing.

    Returns:
        What is kept, in the order in which it was asked for, each with the trainers deleted for it, by index.
    """
    found = []
    for shape, wish in packing.problem.learned:
        held = reserve_lent_capacity(packing, shape, wish.pods)
        if held < wish.pods:
            held += place_batch(packing, for_serving(shape, wish.pods - held), {})
        before = frozenset(packing.victims)
        if wish.may_delete and wish.pods - held > ROOM_DEAD_BAND * wish.pods:
            held += place_batch(packing, for_serving(shape, wish.pods - held), surplus(packing))
        deleted = frozenset(packing.victims) - before
        found.append((KeptHeadroom(wish.shape.request, wish.pods, held, len(deleted), wish.reason), deleted))
    return found


def _divided(packing: TrialPacking, objective: Objective, ceiling: Mapping[int, int], deadline_s: float) -> Division:
    """Divide the trainers by the objective; if time runs out, by totals or not at all."""
    level = {j: float(packing.problem.demands[j].min_trainers) for j in packing.members}
    try:
        level = fair_shares(read_share_problem(packing), deadline_s)
        if any(packing.problem.demands[j].job.sizes for j in packing.members):
            return divide_in_sizes(packing, objective, ceiling, level, deadline_s)
        return objective.divide(packing, ceiling, level, deadline_s)
    except OutOfTimeError:
        packing.problem.clock.cut_short("sharing")
        # Among few sizes the program is quick, and nothing else knows where they fit.
        return Division(fill_by_totals(packing, ceiling) if packing.problem.is_many else packing, level, {})


def _trim(packing: TrialPacking) -> frozenset[int]:
    """Delete trainers above a maximum, in deletion order; then those above a quota, of the job that is best off.

    Returns:
        The live trainers that are deleted for a quota, by index.
    """
    deleted_ones = set()
    for j in packing.members:
        demand = packing.problem.demands[j]
        above = packing.count[j] - demand.max_trainers
        for index in deletion_order(packing, j)[:above] if above > 0 else ():
            if packing.count[j] <= demand.job.bounds.max_trainers:
                deleted_ones.add(index)
            packing.delete(index)
    while passed := packing.meter().passed():
        givers = [
            j
            for j in packing.members
            if packing.count[j] > packing.problem.demands[j].min_trainers
            and any(quota_use.row in passed and quota_use.each for quota_use in packing.problem.demands[j].quota_uses)
        ]
        giver = max(givers, key=lambda j: (packing.fulfilment(j), packing.problem.demands[j].job.created_s, j))
        deleted_ones.add(deletion_order(packing, giver)[0])
        packing.delete(deletion_order(packing, giver)[0])
    return frozenset(deleted_ones)


def ceiling_now(problem: Problem, demand: JobDemand, most: int) -> int:
    """The trainers that a job may have now, of `most`: after a shrink for serving it does not grow at once."""
    if growth_hold_left_s(demand.job, problem.limits, problem.snapshot.observed_at_s) <= 0:
        return most
    resize = demand.job.status.last_resize if demand.job.status is not None else None
    return min(most, max(demand.min_trainers, demand.live_count, resize.to_count if resize is not None else 0))
