"""The report on one job of a plan: its trainers, what is full, which jobs hold it, a price, and what would help.

Dual values are not unique, so a price is only quoted. What one more trainer really costs is confirmed by solving once
more. That takes as long as the certificate did, so it is done for the one job that somebody asks for, and never by
the controller.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from enum import StrEnum

from edl.explain.capacity_holders import OlderTrainers, held_by_others, older_trainers
from edl.explain.next_size import lacking_trainers
from edl.explain.not_lending import why_nothing_is_lent
from edl.explain.places import MORE_LATER, Places
from edl.explain.queue_capacity import QueueCapacities
from edl.explain.rejected.rejections import against_nodes, against_rules
from edl.explain.rejected.remedies import ALLOWED, against_names, on_nodes_of_volumes
from edl.explain.speeds.curve import SpeedReport, speeds_of
from edl.explain.together import domains_of, in_larger_domain
from edl.model.cluster import AvoidedNode
from edl.model.jobs import Job
from edl.model.names import JobKey, how_to_resume, maximum_of, minimum_of, queue_of
from edl.model.plan import ScaleDecision
from edl.model.resources import RULE_PREFIX
from edl.model.status import Reason
from edl.model.units import amount, count, listed
from edl.planner.decide import Study
from edl.planner.findings.context import DecisionContext, Scarce
from edl.planner.findings.pools import pool_of
from edl.planner.findings.rule_steps import has_next_step, is_by_steps
from edl.planner.findings.scarcity import Shortage, SurplusHolder, nearest, open_nodes
from edl.planner.problem import JobDemand
from edl.planner.programs.fair_share import Proof, could_reach, read_share_problem
from edl.planner.quota import QuotaRow

EPSILON = 1e-6


class OneMore(StrEnum):
    """The result of solving again with one more trainer for the job."""

    COSTS = "costs"  # it is possible, and all jobs together have less by it
    FREE = "free"  # in fractions of trainers it costs nothing, but whole trainers do not fit
    BELOW_SHARES = "below_shares"  # only with another job below its fair share
    IMPOSSIBLE = "impossible"  # not even with every other job at its minimum


@dataclass(frozen=True, slots=True)
class Confirmed:
    """What one more trainer would cost, computed by solving again.

    Attributes:
        price: a price of one more place for its trainer by the first solution, in the unit of the certificate.
        verdict: what the second solution has shown.
        cost: by how much the best total falls; 0 unless the verdict is COSTS.
    """

    price: float
    verdict: OneMore
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class NodeTrainers:
    """Trainers of the job on one node: how many stay, start and are deleted; `pool` is empty if the node has none."""

    node: str
    pool: str
    stay: int = 0
    come: int = 0
    go: int = 0


@dataclass(frozen=True, slots=True)
class FullResource:
    """A full resource: where it is full, on how many nodes, the most that is free, and what a trainer requests.

    Attributes:
        is_proved: False if another arrangement of the pods that the plan starts may have a slot.
        others: how many pods that are not of training use it there.
        by_others: how much they request in all.
    """

    resource: str
    place: str
    nodes: int
    most_free: str
    requested: str
    is_proved: bool = True
    others: int = 0
    by_others: str = ""


@dataclass(frozen=True, slots=True)
class JobSurplus:
    """Another job's trainers above its minimum where this job could grow, and their part of the scarcest resource."""

    job: JobKey
    trainers: int
    part: float


@dataclass(frozen=True, slots=True)
class JobReport:
    """The report on one job.

    Attributes:
        fair_share: trainers that the policy promises it, in fractions: under `utility` its minimum and half of what
            max-min would give it above that; None if it does not run.
        fulfilment: (n - min) / (max - min), by the largest count that would fit alone; None if it does not run.
        by_node: its trainers by node.
        full, held: what is full, and which jobs hold it; empty if nothing is scarce for it.
        older: trainers that still request more of a full resource than new ones of their job would.
        one_more: None if the job runs at its limit, or does not run.
        remedies: what would let it grow or start; empty if nothing can.
        not_lending: why it lends no CPU although lending is on; empty if it lends, or lending is off.
        avoided: nodes that its new trainers keep away from, because trainers of several jobs failed or hung there.
        speeds: its curve and what a change costs it; None under a policy that does not look at speeds.
        domains: the domains of each level that its trainers will be in, in words; empty without `spec.topology`.
    """

    decision: ScaleDecision
    policy: str
    objective: str
    fair_share: float | None = None
    fulfilment: float | None = None
    by_node: tuple[NodeTrainers, ...] = ()
    full: tuple[FullResource, ...] = ()
    held: tuple[JobSurplus, ...] = ()
    older: tuple[OlderTrainers, ...] = ()
    one_more: Confirmed | None = None
    remedies: tuple[str, ...] = ()
    not_lending: str = ""
    avoided: tuple[AvoidedNode, ...] = ()
    speeds: SpeedReport | None = None
    domains: tuple[str, ...] = ()


def report_on_job(study: Study, key: JobKey, deadline_s: float) -> JobReport:
    """Report on one job of a plan.

    Args:
        study: the plan with everything that it was made from.
        key: a job of the plan.
        deadline_s: time for each program that confirms a price.

    Raises:
        PlanError: a program found no answer in time.
    """
    context, decision = study.context, next(d for d in study.plan.decisions if d.job == key)
    demand = next((c for c in context.problem.demands if c.job.key == key), None)
    snapshot, plan = context.problem.snapshot, study.plan
    avoided = tuple(node for node in snapshot.avoided if node.is_closed_to(key))
    speeds = speeds_of(demand.job, plan.policy, decision, snapshot.observed_at_s) if demand is not None else None
    report = JobReport(decision, plan.policy, plan.certificate.objective, avoided=avoided, speeds=speeds)
    if demand is None or demand.index not in context.shared.packing.count:
        return replace(report, remedies=tuple(_to_start(demand, decision, context)))
    packing = context.shared.packing
    limited = decision.reason in {Reason.AT_MAX, Reason.PINNED} or packing.count[demand.index] >= demand.max_trainers
    limited = limited or bool(demand.job.sizes)  # one more trainer alone is of no use to it
    limited = limited or is_by_steps(demand, context)  # the program knows the rule as it is now
    is_known = demand.shape not in context.problem.odd_shapes  # of odd shapes, no program knows the capacity
    is_short = decision.reason not in {Reason.AT_MAX, Reason.PINNED, Reason.QUOTA_REACHED}
    scarce = context.scarce(demand.shape) if is_short else Scarce()
    older = _older(scarce, context)
    return replace(
        report,
        fair_share=None if demand.job.is_best_effort else context.shared.level[demand.index],
        fulfilment=None if demand.job.is_best_effort else packing.fulfilment(demand.index),
        by_node=tuple(_trainers_by_node(demand, decision, context)),
        full=tuple(_full(demand, context, one, scarce) for one in scarce.shortages),
        held=tuple(_held(context, h) for h in scarce.holders if h.demand != demand.index),
        older=older,
        one_more=confirm(study, demand, deadline_s) if is_known and not limited else None,
        remedies=(*_to_grow(demand, decision, context), *(one.remedy for one in older)),
        not_lending=why_nothing_is_lent(demand.job, snapshot, context.problem.limits),
        domains=tuple(domains_of(demand.job, decision, snapshot)),
    )


def confirm(study: Study, demand: JobDemand, deadline_s: float) -> Confirmed:
    """Solve again with one more trainer for a job, and find what that costs all jobs together.

    Raises:
        PlanError: a program found no answer in time.
    """
    context, packing = study.context, study.context.shared.packing
    more = {demand.index: packing.count[demand.index] + 1}
    price = _price(study.proof, demand)
    promised = {j: min(int(context.shared.level[j] + EPSILON), packing.count[j]) for j in packing.members}
    if could_reach(read_share_problem(packing), {**promised, **more}, deadline_s):
        other = context.shared.objective.prove(packing, context.shared.level, deadline_s, least=more)
        cost = study.proof.bound - other.bound
        noise = EPSILON * max(1.0, abs(study.proof.bound))
        return Confirmed(price, OneMore.COSTS, cost) if cost > noise else Confirmed(price, OneMore.FREE)
    least = {j: context.problem.demands[j].min_trainers for j in packing.members}
    reachable = could_reach(read_share_problem(packing), {**least, **more}, deadline_s)
    return Confirmed(price, OneMore.BELOW_SHARES if reachable else OneMore.IMPOSSIBLE)


def _price(proof: Proof, demand: JobDemand) -> float:
    shapes = proof.cluster.columns.shapes
    if proof.solution is None or demand.shape not in shapes:
        return 0.0
    return float(proof.solution.slot_price[shapes.index(demand.shape)])


def _trainers_by_node(demand: JobDemand, decision: ScaleDecision, context: DecisionContext) -> list[NodeTrainers]:
    nodes = {node.name: node for node in context.problem.snapshot.nodes}
    live = demand.job.live_trainers
    going = Counter(p.node for p in live if p.name in decision.victims)
    staying = Counter(p.node for p in live if p.name not in decision.victims)
    coming = Counter(dict(decision.nodes))
    return [
        NodeTrainers(name, pool_of(nodes[name]) if name in nodes else "", staying[name], coming[name], going[name])
        for name in sorted({*going, *staying, *coming})
    ]


def _full(demand: JobDemand, context: DecisionContext, shortage: Shortage, scarce: Scarce) -> FullResource:
    problem, name = context.problem, shortage.resource
    requested = int(problem.request[demand.shape, problem.names.index(name)])
    place = Places(context.problem.snapshot.nodes).where(
        shortage.nodes, open_nodes(context.shared.packing, demand.shape)
    )
    nodes = frozenset(problem.snapshot.nodes[node].name for node in shortage.nodes)
    others, by_others = held_by_others(problem.snapshot, name, nodes)
    free, wanted = amount(name, shortage.most_free), amount(name, requested)
    return FullResource(name, place, len(nodes), free, wanted, scarce.is_proved, others, by_others)


def _older(scarce: Scarce, context: DecisionContext) -> tuple[OlderTrainers, ...]:
    """List each job's trainers with older, larger requests once, although several resources may be full."""
    found = {
        one.job: one for short in scarce.shortages for one in older_trainers(context.problem.snapshot, short.resource)
    }
    return tuple(found.values())


def _held(context: DecisionContext, holder: SurplusHolder) -> JobSurplus:
    return JobSurplus(context.problem.demands[holder.demand].job.key, holder.surplus, holder.part)


def _to_grow(demand: JobDemand, decision: ScaleDecision, context: DecisionContext) -> list[str]:
    """List the changes that would let a running job have one more trainer."""
    packing, problem = context.shared.packing, context.problem
    known = {
        Reason.PINNED: "set spec.trainer.instances to another number, or to 0 so that edl chooses",
        Reason.AT_MAX: _ALREADY_FASTEST if demand.job.slowed_beyond else f"raise {maximum_of(demand.job.key.kind)}",
        Reason.COOLDOWN: "wait: the cooldown ends by itself",
        Reason.QUOTA_REACHED: _within_quota(demand, context),
        Reason.PODS_REFUSED: _ACCEPTED,
        Reason.PODS_NOT_STARTED: _STARTED,
        Reason.PODS_DO_NOT_END: _ENDED,
        Reason.UNSCHEDULABLE: ALLOWED,
    }
    if decision.reason in known:
        return [known[decision.reason]]
    scarce = context.scarce(demand.shape)
    node, lacks = nearest(packing, demand.shape)
    if rules := _under_rules(demand, context):
        return rules
    if node < 0:
        return against_nodes(problem, demand.job.trainer) or ["add a node that accepts its trainers"]
    if packing.count[demand.index] >= demand.max_trainers and not demand.job.is_best_effort:
        on_nodes = on_nodes_of_volumes(demand.job.trainer.placement.rules)
        return on_nodes or ["add a node that accepts its trainers: more would not fit even without other jobs"]
    if demand.job.sizes:
        lacking = count(lacking_trainers(demand, packing), "more trainer")
        return [
            f"free capacity for {lacking}, or add a node that accepts its trainers: its next size needs all of them"
        ]
    found = in_larger_domain(demand, context)
    if scarce.kept and context.problem.limits.serving.headroom:
        found.append("lower --serving-headroom")
    if scarce.kept and context.shared.headroom:
        found.append("lower --serving-slo")
    if lacks:
        more = listed([amount(name, number) for name, number in lacks])
        found.append(
            f"free {more} more on node {problem.snapshot.nodes[node].name}, or add a node that accepts its trainers"
        )
    offers = [e for e in scarce.exchanges if e.donor != demand.index]
    for offer in sorted(offers, key=lambda e: (e.deletions, e.donor))[:1]:
        key = problem.demands[offer.donor].job.key
        found.append(f"take {count(offer.deletions, 'trainer')} from {key}: lower its max-instance, or end that job")
    return found


def _under_rules(demand: JobDemand, context: DecisionContext) -> list[str]:
    """Say what helps a running job that rules between pods, and nothing else, keep from one more trainer."""
    if nearest(context.shared.packing, demand.shape)[0] < 0:
        return against_rules(context.problem, demand.job.trainer)
    if is_by_steps(demand, context):
        wait = [f"wait: {MORE_LATER}"] if has_next_step(demand, context) else []
        return [*wait, "add a node on which the rule allows a trainer, or change the rule"]
    shortages = context.scarce(demand.shape).shortages
    if shortages and all(one.resource.startswith(RULE_PREFIX) for one in shortages):
        return against_names(one.resource for one in shortages)
    return []


def _to_fit(demand: JobDemand, context: DecisionContext) -> list[str]:
    """List the changes that would let a job start that does not fit even without other jobs."""
    pods = [(demand.job.trainer, demand.min_trainers), *((f.shape, f.count) for f in demand.job.fixed if f.count)]
    problem = context.problem
    found = [
        *(against_rules(problem, shape, least) for shape, least in pods),
        *(against_nodes(problem, shape) for shape, _ in pods),
    ]
    smaller = f"lower the requests of its pods or {minimum_of(demand.job.key.kind)}"
    return next((one for one in found if one), [f"{smaller}, relax node selectors, or add a larger node"])


_ALREADY_FASTEST = (
    "nothing: more trainers would slow it; correct spec.elasticity.throughput if it is declared and wrong"
)
_STARTED = "correct what the condition Degraded names; once one of its trainers has run, the job grows again"
_ENDED = "end the pods that were deleted: remove their finalizers, or shorten terminationGracePeriodSeconds"
_ACCEPTED = "change the policy that rejects its pods, or the spec of the job; edl asks again after a pause"


def _accepted(job: Job) -> str:
    """Name the remedy for a rejected job: the answer of the API server, or else a valid Queue object."""
    if job.kueue is not None:
        return "let Kueue admit what waits, raise its quotas, or give the job a higher priority class"
    is_held = job.refusal is not None and not job.refusal.details
    return f"correct Queue {job.queue}, which is not valid" if is_held else _ACCEPTED


def _within_quota(demand: JobDemand, context: DecisionContext) -> str:
    if demand.job.refusal is not None:
        return _accepted(demand.job)
    is_member = demand.index in context.shared.packing.count
    shortage = context.quota_shortage(demand.index) if is_member else context.admission.short.get(demand.index)
    rows = [use.row for use in demand.quota_uses if use.total(demand.min_trainers) > use.row.limit]
    row = shortage.row if shortage is not None else next(iter(rows), None)
    owner = row.owner if row is not None else f"queue {demand.job.queue}"
    capacity = None if row is None else QueueCapacities(context.problem.snapshot).of_row(row)
    raised = f"raise the quota of {owner}" if capacity is None else capacity.remedy()
    if row is None or not _has_others_above_minimum(demand, row, context):
        return raised
    that = "in that namespace" if row.namespace else "of that queue"
    return f"{raised}, or lower max-instance of another job {that}"


def _has_others_above_minimum(demand: JobDemand, row: QuotaRow, context: DecisionContext) -> bool:
    """Return True if another job uses some of the quota for trainers above its minimum."""
    return any(
        other.index != demand.index
        and context.shared.packing.count.get(other.index, 0) > other.min_trainers
        and any(use.row == row and use.each for use in other.quota_uses)
        for other in context.problem.demands
    )


def _to_start(demand: JobDemand | None, decision: ScaleDecision, context: DecisionContext) -> list[str]:
    """List the changes that would let a waiting job start."""
    if demand is None:
        known = {
            Reason.SUSPENDED: how_to_resume(decision.job.kind),
            Reason.PODS_REFUSED: _ACCEPTED,
            Reason.QUOTA_REACHED: _accepted(next(j for j in context.problem.snapshot.jobs if j.key == decision.job)),
            Reason.QUEUE_NOT_ALLOWED: f"set {queue_of(decision.job.kind)} to a queue that its namespace may use",
            Reason.BEST_EFFORT_NOT_ALLOWED: "the line above says what to change",
            Reason.NOT_RESIZED: "the line above says why, and what to change",
            Reason.INVALID_SPEC: "correct the spec: the lines above name each wrong value, its rule and the remedy",
        }
        return [known[decision.reason]] if decision.reason in known else []
    if decision.reason is Reason.UNSCHEDULABLE:
        return _to_fit(demand, context)
    if decision.reason is Reason.QUOTA_REACHED:
        fewer = [f"lower {minimum_of(demand.job.key.kind)} of this job"] if demand.min_trainers > 1 else []
        return [_within_quota(demand, context), *fewer]
    head = context.admission.head.get(demand.index, demand.index)
    if head != demand.index:
        return [f"wait until {context.problem.demands[head].job.key}, the first in the queue, starts, or suspend it"]
    return [
        "end another job or lower its min-instance, scale serving down, or add a node",
        *([f"lower {minimum_of(demand.job.key.kind)} of this job"] if demand.min_trainers > 1 else []),
    ]
