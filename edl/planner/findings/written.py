"""The plan that a decision comes to, written down: for each job its count, its places, its victims and the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.plan import Certificate, ScaleDecision, ScalePlan, ServingReport
from edl.model.pods import Pod
from edl.planner.findings.context import DecisionContext
from edl.planner.findings.prices import prices_of
from edl.planner.findings.reasons import find_reason
from edl.planner.lending.clearing import count_slowed
from edl.planner.programs.fair_share import Proof
from edl.planner.programs.kept_columns import keep_columns
from edl.planner.trial_packing import Placed


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
        decisions=tuple(_decision(job, job.live_trainers, context, slowed.get(job.key, 0)) for job in snapshot.jobs),
        certificate=Certificate(context.shared.objective.name, proof.achieved, proof.bound),
        prices=prices_of(proof, context.problem),
        serving=ServingReport(len(waiting), placed, context.served.short + unplaceable),
        policy=policy,
        headroom=context.shared.headroom,
        given=context.problem.columns,
        columns=keep_columns(context.problem),
    )


def _decision(job: Job, live: Sequence[Pod], context: DecisionContext, slowed: int) -> ScaleDecision:
    """The decision about one job; `slowed` of its trainers are slow."""
    found, index = find_reason(job, context), context.member(job)
    new: Sequence[Placed] = ()
    if index is not None:
        target, victims, new = context.shared.packing.count[index], _victims(index, context), context.placed(index)
    elif job.is_left_alone:
        target, victims = len(live), tuple[str, ...]()
    else:
        target, victims = 0, tuple(sorted(pod.name for pod in live))
    nodes = context.problem.snapshot.nodes
    places = Counter(nodes[place.node].name for place in new if place.role is Role.TRAINER)
    fixed = [(place.role, nodes[place.node].name) for place in new if place.role and place.role is not Role.TRAINER]
    return ScaleDecision(
        job=job.key,
        generation=job.generation,
        current=len(live),
        target=target,
        min_trainers=job.min_trainers,
        max_trainers=job.max_trainers,
        admitted=index is not None,
        reason=found.reason,
        message="",
        victims=victims,
        nodes=tuple(sorted(places.items())),
        fixed_nodes=tuple(sorted(fixed)),
        shrink_reason=found.shrink_reason if victims else "",
        lent_cpu_milli=sum([pod.lent_cpu_milli for pod in live]),
        slowed=slowed,
    )


def _victims(index: int, context: DecisionContext) -> tuple[str, ...]:
    """Return the names of the trainers of an admitted job that the plan deletes."""
    trainers = context.problem.live_trainers
    gone = [trainers[i] for i in context.deleted(index)] + [one.trainer for one in context.yielded(index)]
    return tuple(sorted(trainer.pod.name for trainer in gone))
