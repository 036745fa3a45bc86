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
from edl.planner.context import Outcome, Scarce
from edl.planner.decide import Study
from edl.planner.pools import pool_of
from edl.planner.problem import Claim
from edl.planner.programs.fair_share import Proof, could_reach, prove, read_cluster
from edl.planner.programs.utility import prove_utility
from edl.planner.scarcity import Holder, Shortage, nearest, open_nodes

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
class Account:
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


def account_for(study: Study, key: JobKey, deadline_s: float) -> Account:
    """Account for one job of a plan.

    Args:
        study: the plan with all that it was made of.
        key: a job of it.
        deadline_s: time for each program that confirms a price.

    Raises:
        PlanError: a program was late.
    """
    outcome, decision = study.outcome, next(d for d in study.plan.decisions if d.job == key)
    claim = next((c for c in outcome.world.claims if c.job.key == key), None)
    policy, objective = study.plan.policy, study.plan.certificate.objective
    if claim is None or claim.index not in outcome.shared.room.count:
        return Account(decision, policy, objective, remedies=tuple(_to_start(claim, decision, outcome)))
    room = outcome.shared.room
    limited = decision.reason in {Reason.AT_MAX, Reason.PINNED} or room.count[claim.index] >= claim.high
    is_short = decision.reason not in {Reason.AT_MAX, Reason.PINNED, Reason.QUOTA_REACHED}
    scarce = outcome.scarce(claim.shape) if is_short else Scarce()
    return Account(
        decision,
        policy,
        objective,
        fair_share=outcome.shared.level[claim.index],
        fulfilment=room.fulfilment(claim.index),
        standing=tuple(_standing(claim, decision, outcome)),
        full=tuple(_full(claim, outcome, one) for one in scarce.shortages),
        held=tuple(_held(outcome, h) for h in scarce.holders if h.claim != claim.index),
        one_more=None if limited else confirm(study, claim, deadline_s),
        remedies=tuple(_to_grow(claim, decision, outcome)),
    )


def confirm(study: Study, claim: Claim, deadline_s: float) -> Confirmed:
    """Solve once more with one more trainer for a job, and say what that costs all jobs together.

    Raises:
        PlanError: a program was late.
    """
    outcome, room = study.outcome, study.outcome.shared.room
    more = {claim.index: room.count[claim.index] + 1}
    price = _price(study.proof, claim)
    promised = {j: min(int(outcome.shared.level[j] + EPSILON), room.count[j]) for j in room.members}
    if could_reach(read_cluster(room), {**promised, **more}, deadline_s):
        cost = study.proof.bound - _prove(outcome, more, deadline_s).bound
        noise = EPSILON * max(1.0, abs(study.proof.bound))
        return Confirmed(price, OneMore.COSTS, cost) if cost > noise else Confirmed(price, OneMore.FREE)
    least = {j: outcome.world.claims[j].low for j in room.members}
    reachable = could_reach(read_cluster(room), {**least, **more}, deadline_s)
    return Confirmed(price, OneMore.BELOW_SHARES if reachable else OneMore.IMPOSSIBLE)


def _prove(outcome: Outcome, least: dict[int, int], deadline_s: float) -> Proof:
    shared = outcome.shared
    if shared.worths is None:
        return prove(shared.room, shared.level, deadline_s, least=least)
    floor = {j: int(n) for j, n in shared.level.items()}
    return prove_utility(shared.room, shared.worths, floor, deadline_s, least=least)


def _price(proof: Proof, claim: Claim) -> float:
    shapes = proof.cluster.columns.shapes
    if proof.solution is None or claim.shape not in shapes:
        return 0.0
    return float(proof.solution.slot_price[shapes.index(claim.shape)])


def _standing(claim: Claim, decision: ScaleDecision, outcome: Outcome) -> list[Standing]:
    nodes = {node.name: node for node in outcome.world.snapshot.nodes}
    live = claim.job.live_trainers
    going = Counter(p.node for p in live if p.name in decision.victims)
    staying = Counter(p.node for p in live if p.name not in decision.victims)
    coming = Counter(dict(decision.nodes))
    return [
        Standing(name, pool_of(nodes[name]) if name in nodes else "", staying[name], coming[name], going[name])
        for name in sorted({*going, *staying, *coming})
    ]


def _full(claim: Claim, outcome: Outcome, shortage: Shortage) -> Full:
    world, name = outcome.world, shortage.resource
    asked = int(world.request[claim.shape, world.names.index(name)])
    place = outcome.pools().where(shortage.nodes, open_nodes(outcome.shared.room, claim.shape))
    return Full(name, place, len(shortage.nodes), amount(name, shortage.most_free), amount(name, asked))


def _held(outcome: Outcome, holder: Holder) -> Held:
    return Held(outcome.world.claims[holder.claim].job.key, holder.surplus, holder.part)


def _to_grow(claim: Claim, decision: ScaleDecision, outcome: Outcome) -> list[str]:
    """What would let a job that runs have one more trainer."""
    room, world = outcome.shared.room, outcome.world
    known = {
        Reason.PINNED: "set spec.trainer.instances to another number, or to 0 to leave it to the planner",
        Reason.AT_MAX: "raise spec.trainer.max-instance",
        Reason.COOLDOWN: "nothing: it is a matter of time",
        Reason.QUOTA_REACHED: _within_quota(claim),
    }
    if decision.reason in known:
        return [known[decision.reason]]
    scarce = outcome.scarce(claim.shape)
    node, lacks = nearest(room, claim.shape)
    if node < 0:
        return ["make a node that takes its trainers ready"]
    if room.count[claim.index] >= claim.high:
        return ["add a node that takes its trainers: no more would fit even if no other job ran"]
    found = []
    if scarce.kept and outcome.world.limits.serving_headroom:
        found.append("lower --serving-headroom")
    if lacks:
        more = listed([amount(name, number) for name, number in lacks])
        found.append(
            f"free {more} more on node {world.snapshot.nodes[node].name}, or add a node that takes its trainers"
        )
    offers = [e for e in scarce.exchanges if e.donor != claim.index]
    for offer in sorted(offers, key=lambda e: (e.deaths, e.donor))[:1]:
        key = world.claims[offer.donor].job.key
        found.append(f"let {key} go without {count(offer.deaths, 'trainer')}: lower its max-instance, or end it")
    return found


def _within_quota(claim: Claim) -> str:
    queue = claim.job.queue
    return f"raise the quota of queue {queue}, or let a job of that queue end or go without trainers"


def _to_start(claim: Claim | None, decision: ScaleDecision, outcome: Outcome) -> list[str]:
    """What would let a job that does not run start."""
    if claim is None:
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
        return [_within_quota(claim), "lower its own spec.trainer.min-instance"]
    head = outcome.admission.head.get(claim.index, claim.index)
    if head != claim.index:
        return [f"{outcome.world.claims[head].job.key} starts, ends or is suspended: it is first in the queue"]
    return [
        "another job ends or lowers its min-instance, serving takes less, or a node is added",
        "lower its own spec.trainer.min-instance",
    ]
