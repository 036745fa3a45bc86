"""All that can be said of one job in a plan: what it has, what is full, who holds it, a price, and what would help.

Duals are not unique, so a price is only quoted; what rests on it is confirmed by solving once more with one more
trainer for the job. That costs as much as the certificate did, so it is done for the one job that somebody asks for,
and never in a round of the controller.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from edl.model.names import JobKey
from edl.model.plan import ScaleDecision
from edl.model.status import Reason
from edl.model.units import amount, count, listed
from edl.planner.context import DecisionContext, Scarce
from edl.planner.decide import Study
from edl.planner.pools import pool_of
from edl.planner.problem import JobDemand
from edl.planner.programs.fair_share import Proof, could_reach, prove, read_share_problem
from edl.planner.programs.utility import prove_utility
from edl.planner.scarcity import Shortage, SurplusHolder, nearest, open_nodes

EPSILON = 1e-6


class OneMore(StrEnum):
    """What solving once more, with one more trainer for the job, has shown."""

    COSTS = "costs"  # it can be had, and all jobs together have less by it
    FREE = "free"  # in fractions of trainers it costs nothing: whole ones do not fit
    BELOW_SHARES = "below_shares"  # only with another job below its fair share
    IMPOSSIBLE = "impossible"  # not even with every other job at its minimum


@dataclass(frozen=True, slots=True)
class Confirmed:
    """What one more trainer would cost, by another solution and not by a price.

    Attributes:
        price: one of the prices that the first solution gives a place for its trainer, in the certificate's unit.
        verdict: what the second solution has shown; cost: by how much the best total falls, 0 where it is not COSTS.
    """

    price: float
    verdict: OneMore
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class Standing:
    """Trainers of the job on one node: those that stay, that are to come, and that go; `pool` where it has one."""

    node: str
    pool: str
    stay: int = 0
    come: int = 0
    go: int = 0


@dataclass(frozen=True, slots=True)
class Full:
    """A resource that is full somewhere: where in words, on how many nodes, what is free at most, what is asked."""

    resource: str
    place: str
    nodes: int
    most_free: str
    asked: str


@dataclass(frozen=True, slots=True)
class Held:
    """Another job's trainers above its minimum where this job could grow, and their part of the scarcest resource."""

    job: JobKey
    trainers: int
    part: float


@dataclass(frozen=True, slots=True)
class JobReport:
    """What can be said of one job.

    Attributes:
        fair_share: trainers that the policy promises it, in fractions: under `utility` its minimum and half of what
            max-min would give it above that; None where it does not run.
        fulfilment: of the plan, by the largest count that would fit alone; None where it does not run.
        standing: by node; full, held: empty where nothing is scarce for it.
        one_more: None where it runs at its limit, or does not run.
        remedies: what would have to happen for it to grow or to start; empty where nothing can.
    """

    decision: ScaleDecision
    policy: str
    objective: str
    fair_share: float | None = None
    fulfilment: float | None = None
    standing: tuple[Standing, ...] = ()
    full: tuple[Full, ...] = ()
    held: tuple[Held, ...] = ()
    one_more: Confirmed | None = None
    remedies: tuple[str, ...] = ()


def report_on_job(study: Study, key: JobKey, deadline_s: float) -> JobReport:
    """Account for one job of a plan.

    Args:
        study: the plan with all that it was made of.
        key: a job of it.
        deadline_s: time for each program that confirms a price.

    Raises:
        PlanError: a program was late.
    """
    context, decision = study.context, next(d for d in study.plan.decisions if d.job == key)
    demand = next((c for c in context.problem.demands if c.job.key == key), None)
    policy, objective = study.plan.policy, study.plan.certificate.objective
    if demand is None or demand.index not in context.shared.packing.count:
        return JobReport(decision, policy, objective, remedies=tuple(_to_start(demand, decision, context)))
    packing = context.shared.packing
    limited = decision.reason in {Reason.AT_MAX, Reason.PINNED} or packing.count[demand.index] >= demand.max_trainers
    is_short = decision.reason not in {Reason.AT_MAX, Reason.PINNED, Reason.QUOTA_REACHED}
    scarce = context.scarce(demand.shape) if is_short else Scarce()
    return JobReport(
        decision,
        policy,
        objective,
        fair_share=context.shared.level[demand.index],
        fulfilment=packing.fulfilment(demand.index),
        standing=tuple(_standing(demand, decision, context)),
        full=tuple(_full(demand, context, one) for one in scarce.shortages),
        held=tuple(_held(context, h) for h in scarce.holders if h.demand != demand.index),
        one_more=None if limited else confirm(study, demand, deadline_s),
        remedies=tuple(_to_grow(demand, decision, context)),
    )


def confirm(study: Study, demand: JobDemand, deadline_s: float) -> Confirmed:
    """Solve once more with one more trainer for a job, and say what that costs all jobs together.

    Raises:
        PlanError: a program was late.
    """
    context, packing = study.context, study.context.shared.packing
    more = {demand.index: packing.count[demand.index] + 1}
    price = _price(study.proof, demand)
    promised = {j: min(int(context.shared.level[j] + EPSILON), packing.count[j]) for j in packing.members}
    if could_reach(read_share_problem(packing), {**promised, **more}, deadline_s):
        cost = study.proof.bound - _prove(context, more, deadline_s).bound
        noise = EPSILON * max(1.0, abs(study.proof.bound))
        return Confirmed(price, OneMore.COSTS, cost) if cost > noise else Confirmed(price, OneMore.FREE)
    least = {j: context.problem.demands[j].min_trainers for j in packing.members}
    reachable = could_reach(read_share_problem(packing), {**least, **more}, deadline_s)
    return Confirmed(price, OneMore.BELOW_SHARES if reachable else OneMore.IMPOSSIBLE)


def _prove(context: DecisionContext, least: dict[int, int], deadline_s: float) -> Proof:
    shared = context.shared
    if shared.worths is None:
        return prove(shared.packing, shared.level, deadline_s, least=least)
    floor = {j: int(n) for j, n in shared.level.items()}
    return prove_utility(shared.packing, shared.worths, floor, deadline_s, least=least)


def _price(proof: Proof, demand: JobDemand) -> float:
    shapes = proof.cluster.columns.shapes
    if proof.solution is None or demand.shape not in shapes:
        return 0.0
    return float(proof.solution.slot_price[shapes.index(demand.shape)])


def _standing(demand: JobDemand, decision: ScaleDecision, context: DecisionContext) -> list[Standing]:
    nodes = {node.name: node for node in context.problem.snapshot.nodes}
    live = demand.job.live_trainers
    going = Counter(p.node for p in live if p.name in decision.victims)
    staying = Counter(p.node for p in live if p.name not in decision.victims)
    coming = Counter(dict(decision.nodes))
    return [
        Standing(name, pool_of(nodes[name]) if name in nodes else "", staying[name], coming[name], going[name])
        for name in sorted({*going, *staying, *coming})
    ]


def _full(demand: JobDemand, context: DecisionContext, shortage: Shortage) -> Full:
    problem, name = context.problem, shortage.resource
    asked = int(problem.request[demand.shape, problem.names.index(name)])
    place = context.pools().where(shortage.nodes, open_nodes(context.shared.packing, demand.shape))
    return Full(name, place, len(shortage.nodes), amount(name, shortage.most_free), amount(name, asked))


def _held(context: DecisionContext, holder: SurplusHolder) -> Held:
    return Held(context.problem.demands[holder.demand].job.key, holder.surplus, holder.part)


def _to_grow(demand: JobDemand, decision: ScaleDecision, context: DecisionContext) -> list[str]:
    """What would let a job that runs have one more trainer."""
    packing, problem = context.shared.packing, context.problem
    known = {
        Reason.PINNED: "set spec.trainer.instances to another number, or to 0 to leave it to the planner",
        Reason.AT_MAX: "raise spec.trainer.max-instance",
        Reason.COOLDOWN: "nothing: it is a matter of time",
        Reason.QUOTA_REACHED: _within_quota(demand),
    }
    if decision.reason in known:
        return [known[decision.reason]]
    scarce = context.scarce(demand.shape)
    node, lacks = nearest(packing, demand.shape)
    if node < 0:
        return ["make a node that takes its trainers ready"]
    if packing.count[demand.index] >= demand.max_trainers:
        return ["add a node that takes its trainers: no more would fit even if no other job ran"]
    found = []
    if scarce.kept and context.problem.limits.serving_headroom:
        found.append("lower --serving-headroom")
    if lacks:
        more = listed([amount(name, number) for name, number in lacks])
        found.append(
            f"free {more} more on node {problem.snapshot.nodes[node].name}, or add a node that takes its trainers"
        )
    offers = [e for e in scarce.exchanges if e.donor != demand.index]
    for offer in sorted(offers, key=lambda e: (e.deletions, e.donor))[:1]:
        key = problem.demands[offer.donor].job.key
        found.append(f"let {key} go without {count(offer.deletions, 'trainer')}: lower its max-instance, or end it")
    return found


def _within_quota(demand: JobDemand) -> str:
    queue = demand.job.queue
    return f"raise the quota of queue {queue}, or let a job of that queue end or go without trainers"


def _to_start(demand: JobDemand | None, decision: ScaleDecision, context: DecisionContext) -> list[str]:
    """What would let a job that does not run start."""
    if demand is None:
        known = {
            Reason.SUSPENDED: "set spec.suspend to false",
            Reason.INVALID_SPEC: "correct the job: each sentence above names what is wrong, the rule and the remedy",
        }
        return [known[decision.reason]] if decision.reason in known else []
    if decision.reason is Reason.UNSCHEDULABLE:
        return [
            "let its pods ask for less or go to more nodes, lower spec.trainer.min-instance, or add a node that fits"
        ]
    if decision.reason is Reason.QUOTA_REACHED:
        return [_within_quota(demand), "lower its own spec.trainer.min-instance"]
    head = context.admission.head.get(demand.index, demand.index)
    if head != demand.index:
        return [f"{context.problem.demands[head].job.key} starts, ends or is suspended: it is first in the queue"]
    return [
        "another job ends or lowers its min-instance, serving takes less, or a node is added",
        "lower its own spec.trainer.min-instance",
    ]
