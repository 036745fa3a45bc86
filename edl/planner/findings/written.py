"""The plan that a decision comes to, written down: for each job its count, its places, its victims and the reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.plan import Certificate, ScaleDecision, ScalePlan, ServingReport
from edl.planner.findings.context import DecisionContext
from edl.planner.findings.prices import prices_of
from edl.planner.findings.reasons import find_reason
from edl.planner.lending.clearing import count_slowed
from edl.planner.programs.fair_share import Proof
from edl.planner.programs.kept_columns import keep_columns


def written(snapshot: ClusterSnapshot, context: DecisionContext, proof: Proof, policy: str) -> ScalePlan:
    """Return the plan; its decisions have reasons and no sentences yet.

    Args:
        snapshot: the cluster, with the jobs as the policy adapted them.
        context: what the decision came to.
        proof: the solution behind the certificate.
        policy: its name.
    """
    waiting = snapshot.waiting_serving
    slowed = count_slowed(context.problem)
    unplaceable = sum(not pod.needs_capacity for pod in waiting)
    placed = sum(context.served.due.values()) + context.shared.in_grace_placed
    return ScalePlan(
        decisions=tuple(
            replace(_decision(job, context), lent_cpu_milli=_lent_milli(job), slowed=slowed.get(job.key, 0))
            for job in snapshot.jobs
        ),
        certificate=Certificate(context.shared.objective.name, proof.achieved, proof.bound),
        prices=prices_of(proof, context.problem),
        serving=ServingReport(len(waiting), placed, context.served.short + unplaceable),
        policy=policy,
        headroom=context.shared.headroom,
        given=context.problem.columns,
        columns=keep_columns(context.problem),
    )


def _lent_milli(job: Job) -> int:
    return sum(pod.lent_cpu_milli for pod in job.live_trainers)


def _decision(job: Job, context: DecisionContext) -> ScaleDecision:
    found, index = find_reason(job, context), context.member(job)
    live = [pod.name for pod in job.live_trainers]
    base = ScaleDecision(
        job=job.key,
        generation=job.generation,
        current=len(live),
        target=len(live) if job.is_left_alone else 0,
        min_trainers=job.min_trainers,
        max_trainers=job.max_trainers,
        admitted=False,
        reason=found.reason,
        message="",
        victims=() if job.is_left_alone else tuple(sorted(live)),
        shrink_reason=found.shrink_reason if live and not job.is_left_alone else "",
    )
    if index is None:
        return base
    live_trainers, nodes = context.problem.live_trainers, context.problem.snapshot.nodes
    gone = [live_trainers[i] for i in context.deleted(index)] + [one.trainer for one in context.yielded(index)]
    victims = tuple(sorted(trainer.pod.name for trainer in gone))
    new = context.placed(index)
    places = Counter(nodes[place.node].name for place in new if place.role is Role.TRAINER)
    fixed = [(place.role, nodes[place.node].name) for place in new if place.role and place.role is not Role.TRAINER]
    return replace(
        base,
        target=context.shared.packing.count[index],
        admitted=True,
        victims=victims,
        nodes=tuple(sorted(places.items())),
        fixed_nodes=tuple(sorted(fixed)),
        shrink_reason=found.shrink_reason if victims else "",
    )
