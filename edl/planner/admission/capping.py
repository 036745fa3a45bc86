"""Lowers each maximum to what fits without any other job, and finds the jobs that are infeasible alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edl.model.jobs import FixedPods
from edl.model.sizes import at_most
from edl.planner.admission.trial import AdmissionTrial
from edl.planner.minimums.batches import Served, for_serving, size_of
from edl.planner.packing import place_batch
from edl.planner.problem import JobDemand, Problem, count_without_slot
from edl.planner.quota import most_alone
from edl.planner.trial_packing import TrialPacking


def cap(problem: Problem, served: Served, deadline_s: float) -> tuple[Problem, frozenset[int]]:
    """Lower each maximum to what fits if no other job runs, and find the jobs that do not fit even then.

    Trainers that a job has are never above its cap: deleting them would help nobody. Only those above the quota of
    their queue are. What the API server limits is no cap: it says how many pods exist, not what share is fair.
    The cap of a job that stays in one domain is that of the largest domain, whichever it has.
    The cap is what one order of placing finds. A job counts as infeasible only if no packing was found that holds it.

    Args:
        problem: the arrays.
        served: what serving pods get.
        deadline_s: time for each program.

    Returns:
        The problem with the lower maximums, and the indices of the infeasible jobs.
    """
    trial, empty = AdmissionTrial(problem, served, deadline_s), TrialPacking(problem, ())
    idle = trial.packing_of(()) or empty.copy()
    for shape, count in sorted(served.in_grace.items()):
        place_batch(idle, for_serving(shape, count), {})
    known: dict[tuple[object, ...], int] = {}
    beside: dict[tuple[FixedPods, ...], TrialPacking | None] = {}  # many jobs have equal masters and pservers
    slots: dict[int, int] = {}
    demands, infeasible, without_slot = [], set(), count_without_slot(problem)
    apart = _jobs_with_fixed_elsewhere(problem)
    for demand in problem.demands:
        kind = (demand.shape, demand.job.fixed)
        if kind not in known:
            problem.clock.check("the largest counts")
            if demand.job.fixed not in beside:
                beside[demand.job.fixed] = _beside_fixed(idle, demand.job.fixed)
            rest = beside[demand.job.fixed]
            known[kind] = -1 if rest is None else int(rest.slots(demand.shape).sum())
        slots_of = known[kind]
        if demand.index in apart and (rest := _beside_bound(idle, demand)) is not None:
            slots_of = max(slots_of, int(rest.slots(demand.shape).sum()))
        most = max(slots_of + without_slot[demand.index], len(demand.live_trainers))
        quota = most_alone(demand.quota_uses)
        elsewhere = demand.job.topology.most if demand.job.topology is not None else 0
        of_queue = most_alone(use for use in demand.quota_uses if not use.row.namespace)
        if most < demand.min_trainers and demand.shape not in slots:
            slots[demand.shape] = int(empty.slots(demand.shape).sum())
        if quota < demand.min_trainers or (
            most < demand.min_trainers
            and not (demand.job.was_admitted and demand.live_trainers)
            and (
                slots[demand.shape] + without_slot[demand.index] < demand.min_trainers
                or trial.beside((), demand.index) is None
            )
        ):
            infeasible.add(demand.index)
        largest = int(min(demand.max_trainers, max(most, elsewhere), max(of_queue, 0)))
        largest = at_most(demand.job.sizes, largest)
        demands.append(replace(demand, max_trainers=max(demand.min_trainers, largest)))
    return replace(problem, demands=tuple(demands)), frozenset(infeasible)


def _jobs_with_fixed_elsewhere(problem: Problem) -> frozenset[int]:
    """Jobs with a master or pserver on a node that is closed to new pods, or too small by now: the pod stays."""
    held = problem.held
    request = problem.request[held.shape]
    is_full = ((problem.empty[held.node] < request) & (request > 0)).any(axis=1)
    elsewhere = ~held.is_trainer & (is_full | ~problem.opened[held.shape, held.node])
    return frozenset(held.demand[elsewhere].tolist())


def _beside_bound(idle: TrialPacking, demand: JobDemand) -> TrialPacking | None:
    """Place the masters and pservers of one job: bound pods on their nodes, the others anywhere."""
    packing, held = idle.copy(), idle.problem.held
    mine = np.flatnonzero((held.demand == demand.index) & ~held.is_trainer)
    for node, shape in zip(held.node[mine].tolist(), held.shape[mine].tolist(), strict=True):
        packing.free[node] -= idle.problem.request[shape]
    for need in demand.needs:
        if place_batch(packing, for_serving(need.shape, need.missing), {}) < need.missing:
            return None
    return packing


def _beside_fixed(idle: TrialPacking, fixed: tuple[FixedPods, ...]) -> TrialPacking | None:
    """The packing with all masters and pservers of one job; None if they do not fit."""
    if not fixed:
        return idle
    packing, number = idle.copy(), idle.problem.shapes.index
    for pods in sorted(fixed, key=lambda f: -size_of(packing.problem, number(f.shape))):
        if pods.count and place_batch(packing, for_serving(number(pods.shape), pods.count), {}) < pods.count:
            return None
    return packing
