"""Decides again with fewer slices until every slice of every job is whole.

A plan counts single trainers. With places for whole slices alone it gives a job either all of them or, if others need
the capacity, some: parts of slices are then of no use. So fewer slices are laid out, where the last plan left
capacity, and the plan is made again. Each time a job has fewer of them, at last those of its minimum: these it has
all, or it does not run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.plan import ScaleDecision, ScalePlan
from edl.model.status import Reason
from edl.model.topology import path_of
from edl.planner.domains.guard import slice_problem
from edl.planner.problem import IntArray, JobDemand
from edl.planner.topology.choices import Assignment, Choices
from edl.planner.topology.domain_capacity import DomainCapacities
from edl.planner.topology.slices import Layout, SlicePlanner
from edl.planner.trial_packing import TrialPacking

ROUNDS = 4
"""How often a plan with fewer slices is tried; in the last round, each job in question gets its minimum alone."""


def with_fewer_slices(
    choices: Choices, assignment: Assignment, plan: ScalePlan, packing: TrialPacking, turn: int
) -> Assignment | None:
    """Assign fewer slices to the jobs of which a plan has incomplete slices; None if there is no such job.

    Args:
        choices: what the assignment is one of.
        assignment: what the plan was made with.
        plan: the plan.
        packing: the packing that it was written from.
        turn: the number of this attempt, from 0. In the first one, a job that waits is laid out anew, too, in the
            capacity that the plan leaves.
    """
    slices = {demand.job.key: n for demand, n in _in_question(choices, assignment, plan, packing, turn)}
    if not slices:
        return None
    problem, found = packing.problem, dict(assignment)
    capacities = DomainCapacities(problem, packing)
    demands = [demand for demand in problem.demands if demand.job.key in slices]
    for demand in demands:
        capacities.take(demand, -_new_trainers(packing, demand))
    planner = SlicePlanner(problem, capacities)
    for demand in sorted(demands, key=lambda demand: demand.job.turn):
        key, choice = demand.job.key, assignment[demand.job.key]
        decision = plan.decision(key)
        evicted = frozenset(decision.victims if decision is not None and decision.admitted else ())
        layout = planner.layout(demand, choice.domain, slices[key], evicted)
        planner.reserve(demand, layout)
        before = choice.layout.going if choice.layout is not None else ()
        found[key] = replace(choice, layout=layout._replace(going=tuple(sorted({*layout.going, *before}))))
    return found if found != assignment else None


def _in_question(
    choices: Choices, assignment: Assignment, plan: ScalePlan, packing: TrialPacking, turn: int
) -> Iterator[tuple[JobDemand, int]]:
    """The jobs with parts of slices, each with the slices that it may have instead."""
    labels = {node.name: node.labels for node in choices.snapshot.nodes}
    for demand in packing.problem.demands:
        job, topology = demand.job, demand.job.topology
        layout = assignment[job.key].layout if job.key in assignment else None
        decision = plan.decision(job.key)
        if layout is None or topology is None or topology.slices is None or decision is None:
            continue
        size, least = topology.slices.size, -(-demand.min_trainers // topology.slices.size)
        if not decision.admitted:
            if turn == 0 and not job.live_trainers and layout.slices >= least:
                yield demand, least
        elif slice_problem(job, decision, labels):
            fewer = min(decision.target // size, layout.slices - 1)
            yield demand, least if turn == ROUNDS - 1 else max(least, fewer)


def _new_trainers(packing: TrialPacking, demand: JobDemand) -> IntArray:
    """(nodes,) the trainers of a job that the packing creates."""
    found: IntArray = np.zeros(len(packing.free), dtype=np.int64)
    for place in packing.placed:
        if place.owner == demand.index and place.role is Role.TRAINER:
            found[place.node] += 1
    return found


def with_ended_slices(choices: Choices, assignment: Assignment, first: ScalePlan, last: ScalePlan) -> ScalePlan:
    """The last plan as one for the cluster as observed, in which the slices that do not stay are victims.

    Args:
        choices: with the cluster as observed.
        assignment: what the last plan was made with.
        first: the first plan, which says why trainers go.
        last: the last plan, made as if these trainers were terminating.
    """
    layouts = {key: choice.layout for key, choice in assignment.items() if choice.layout and choice.layout.going}
    if not layouts:
        return last
    triples = zip(choices.snapshot.jobs, first.decisions, last.decisions, strict=True)
    decisions = tuple(
        _with_victims(job, layouts[job.key], old, new) if job.key in layouts else new for job, old, new in triples
    )
    return replace(last, decisions=decisions, given=first.given)


def _with_victims(job: Job, layout: Layout, old: ScaleDecision, new: ScaleDecision) -> ScaleDecision:
    live = {pod.name for pod in job.live_trainers}
    victims = live & {*layout.going, *new.victims} if new.admitted else live
    reason = old.shrink_reason or new.shrink_reason or Reason.INSUFFICIENT_CAPACITY.value
    return replace(new, current=len(live), victims=tuple(sorted(victims)), shrink_reason=reason if victims else "")


def count_spread(snapshot: ClusterSnapshot, plan: ScalePlan) -> int:
    """How many domains the jobs use on levels that are left to preference, all jobs and levels together."""
    labels = {node.name: node.labels for node in snapshot.nodes}
    return sum(
        len({path_of(labels.get(name, ()), job.topology.keys[:depth]) for name in nodes})
        for job, nodes in _preferring(snapshot, plan)
        if job.topology is not None
        for depth in range(job.topology.depth + 1, len(job.topology.levels) + 1)
    )


def _preferring(snapshot: ClusterSnapshot, plan: ScalePlan) -> Iterator[tuple[Job, set[str]]]:
    """The admitted jobs with Preferred levels, each with the nodes of its trainers."""
    for job, decision in zip(snapshot.jobs, plan.decisions, strict=True):
        if job.topology is not None and job.topology.is_preferred and decision.admitted:
            kept = {pod.node for pod in job.live_trainers if pod.node and pod.name not in decision.victims}
            yield job, kept | {name for name, _ in decision.nodes}
