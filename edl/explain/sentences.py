"""The plan in words: for each job a reason, and one sentence that a researcher accepts.

A sentence names what holds the job: its own maximum, a resource that is full and who has it, serving, or time. It
rests on the finished packing alone: what one more trainer would cost another job is counted in whole pods on a node,
not read from the duals, which are not unique. Prices are given as prices; `pricing` confirms them on demand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import exp

from edl.explain.waiting import quota_of, refuse, serving_words, shut
from edl.model.jobs import Job
from edl.model.plan import Price
from edl.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, PodShape
from edl.model.status import Reason
from edl.model.units import GIB, amount, amounts, count, listed, rank_of, seconds
from edl.planner.context import DecisionContext, Scarce
from edl.planner.guard import DEAD_BAND, growth_hold_left_s
from edl.planner.pools import pool_of
from edl.planner.problem import JobDemand, Problem
from edl.planner.programs.fair_share import Proof, quotas_of
from edl.planner.scarcity import Exchange, open_nodes
from edl.planner.speedup import Worth

NAMED_HOLDERS = 2
SMALLEST_PRICE = 1e-6


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a job is told."""

    reason: Reason
    message: str
    shrink_reason: str


def explain(job: Job, context: DecisionContext) -> Explanation:
    """Say why a job has the count it has."""
    demand = context.demand(job)
    if demand is None:
        reason, message = excluded(job)
        return Explanation(reason, message, reason)
    if demand.index not in context.shared.packing.count:
        reason, message = refuse(demand, context)
        return Explanation(reason, message, reason)
    reason, message = _admitted(demand, context)
    deleted = context.deleted(demand.index)
    if not deleted:
        return Explanation(reason, message, reason)
    if any(i in context.shared.packing.for_serving for i in deleted):
        return Explanation(reason, message, Reason.SERVING_NEEDS_ROOM)
    return Explanation(reason, message, _shrink_reason(reason, demand, context))


def _shrink_reason(reason: Reason, demand: JobDemand, context: DecisionContext) -> Reason:
    """Why trainers of a job die, if any do, other than for serving: what keeps the job from more is no reason."""
    arriving = _makes_way_for(demand, context)
    if any(i in context.shared.for_quota for i in demand.live_trainers):
        is_theirs = any(context.problem.demands[j].job.queue == demand.job.queue for j in arriving)
        return Reason.ADMITTED if is_theirs else Reason.QUOTA_REACHED
    if arriving:
        return Reason.ADMITTED
    keeps = reason in {Reason.QUOTA_REACHED, Reason.COOLDOWN, Reason.RESIZE_NOT_WORTH_IT}
    return Reason.INSUFFICIENT_CAPACITY if keeps else reason


def _makes_way_for(demand: JobDemand, context: DecisionContext) -> list[int]:
    """The jobs, just admitted, that get their minimum or their share where trainers of this one die."""
    limit = demand.job.bounds.max_trainers
    if not context.deleted(demand.index) or len(demand.live_trainers) > limit:
        return []
    return [j for j in context.arriving() if j != demand.index]


def excluded(job: Job) -> tuple[Reason, str]:
    """Why a job is given nothing, whatever room there is."""
    if job.deleting:
        return Reason.FINISHED, "it is being deleted: its pods go"
    if job.finished:
        return Reason.FINISHED, "it has ended: it gets no pods"
    if job.problem:
        return Reason.INVALID_SPEC, job.problem
    return Reason.SUSPENDED, "it is suspended: it gets no pods until spec.suspend is false"


def _admitted(demand: JobDemand, context: DecisionContext) -> tuple[Reason, str]:
    packing, job = context.shared.packing, demand.job
    have = packing.count[demand.index]
    of = f"{have} of {job.max_trainers}"
    if job.pinned:
        return Reason.PINNED, f"{of}: pinned to {count(job.pinned, 'trainer')}"
    if have >= job.max_trainers:
        return Reason.AT_MAX, f"{of}: at its maximum"
    deleted = context.deleted(demand.index)
    lost = sum(i in packing.for_serving for i in deleted)
    if lost and have < len(demand.live_trainers):
        gives = f"gives up {count(lost, 'trainer')}{_on_nodes(demand, deleted, context)}"
        return Reason.SERVING_NEEDS_ROOM, f"{of}: {gives} to make room for {serving_words(context)}"
    reason, why = _short_of_max(demand, context)
    arriving = _makes_way_for(demand, context) if deleted else []
    if have < len(demand.live_trainers) and arriving:
        keys = [str(context.problem.demands[j].job.key) for j in arriving]
        named = keys if len(keys) <= NAMED_HOLDERS else [keys[0], count(len(keys) - 1, "other job")]
        verb = "starts" if len(keys) == 1 else "start"
        why = f"gives up {count(len(deleted), 'trainer')} because {listed(named)} {verb}; {why}"
    return reason, f"{of}: {why}"


def _on_nodes(demand: JobDemand, live_trainers: Sequence[int], context: DecisionContext) -> str:
    """Where trainers die, as far as they stand on nodes."""
    problem = context.problem
    nodes = sorted({problem.live_trainers[i].node for i in live_trainers} - {-1})
    usable = sorted({*nodes, *open_nodes(context.shared.packing, demand.shape)})
    return f" on {context.pools().where(nodes, usable)}" if nodes else ""


def _short_of_max(demand: JobDemand, context: DecisionContext) -> tuple[Reason, str]:
    problem = context.problem
    hold_s = growth_hold_left_s(demand.job, problem.limits, problem.snapshot.observed_at_s)
    if hold_s > 0 and context.has_room(demand.shape):
        return Reason.COOLDOWN, f"gave way to serving; waits another {seconds(hold_s)} before it grows"
    if (short := context.quota_shortage(demand.index)) is not None:
        used = amount(short.row.resource, short.used)
        return Reason.QUOTA_REACHED, f"queue {short.row.queue} uses {used} of {quota_of(short.row)}"
    if (held := _held_neighbour(demand, context)) is not None:
        return Reason.COOLDOWN, f"leaves room to {held}"
    if (cooling := _cooling_donor(demand, context)) is not None:
        return Reason.COOLDOWN, f"its fair share is {int(context.shared.level[demand.index])}; {cooling}"
    if demand.index in context.shared.not_worth_it:
        return Reason.RESIZE_NOT_WORTH_IT, (
            "trainers of others would add more speed here, but too little for running ones to end: less than the"
            f" restarts of both jobs cost, or less than {DEAD_BAND:g} of the utility of all"
        )
    return Reason.INSUFFICIENT_CAPACITY, _full(demand, context)


def _full(demand: JobDemand, context: DecisionContext) -> str:
    """What there is no more room in, and who holds it."""
    packing, problem = context.shared.packing, context.problem
    scarce = context.scarce(demand.shape)
    if not scarce.shortages:
        if not open_nodes(packing, demand.shape):
            return f"no node takes new trainers of it ({shut(demand.job.trainer, problem)})"
        return f"--max-load-desired {problem.limits.max_load_desired:g} is reached"
    if packing.count[demand.index] >= demand.max_trainers:
        return f"{scarce.words}; no more would fit even if no other job ran"
    if scarce.is_left_soon:
        return f"{scarce.words}; pods that terminate leave it room, which is waited for"
    kept = [_kept(scarce.kept, context)] if scarce.kept else []
    return "; ".join((scarce.words, *kept, *_who_holds_it(demand, context, scarce)))


def _kept(places: int, context: DecisionContext) -> str:
    """For whom free room is kept."""
    waiting = sum(context.served.due.values()) + context.shared.in_grace_placed
    extra = f" (--serving-headroom {context.problem.limits.serving_headroom})" if places > waiting else ""
    return f"room for {count(places, 'serving pod')} is kept free{extra}"


def _who_holds_it(demand: JobDemand, context: DecisionContext, scarce: Scarce) -> list[str]:
    """Who has trainers above its minimum there, and what one more trainer would cost the best off of them."""
    own = scarce.part_of.get(demand.index)
    others = len(scarce.holders) - (own is not None)
    if not others:
        return ["no other job holds more than its minimum there"]
    demands = context.problem.demands
    first, *more = islice((h for h in scarce.holders if h.demand != demand.index), NAMED_HOLDERS)
    held = f"{demands[first.demand].job.key} holds {_percent(first.part)} of it above its minimum"
    named = [f"{held} ({count(first.surplus, 'trainer')})"]
    named += [f"{demands[h.demand].job.key} {_percent(h.part)}" for h in more]
    if others > NAMED_HOLDERS:
        rest = scarce.part - (own or 0.0) - sum(h.part for h in (first, *more))
        named.append(f"{count(others - NAMED_HOLDERS, 'other job')} {_percent(rest)}")
    return [listed(named), _cost(demand, context, scarce)]


def _percent(part: float) -> str:
    return f"{100 * part:.2g} %"


def _cost(demand: JobDemand, context: DecisionContext, scarce: Scarce) -> str:
    """What one more trainer would cost whoever is best off after having given it."""
    packing = context.shared.packing
    offers = [e for e in scarce.exchanges if e.donor != demand.index]
    if not offers:
        return "giving up any one job's trainers above its minimum would make room for no more on any node"

    if context.shared.worths is not None:
        return _cost_in_speed(demand, context, context.shared.worths, offers)

    def left_with(offer: Exchange) -> float:
        return packing.fulfilment(offer.donor, -offer.deletions)

    best = max(offers, key=lambda e: (left_with(e), -e.deletions, -e.donor))
    donor, after, mine = context.problem.demands[best.donor], left_with(best), packing.fulfilment(demand.index, 1)
    loss = packing.fulfilment(best.donor) - after
    cost = f"one more trainer would cost {donor.job.key} {loss:.2g} of fulfilment"
    if after < mine - SMALLEST_PRICE:
        return f"{cost} and leave it with less ({after:.2g} against {mine:.2g})"
    if mine - packing.fulfilment(demand.index) <= DEAD_BAND:
        return f"{cost}; gains up to {DEAD_BAND:g} shrink nobody"
    return cost


def _cost_in_speed(
    demand: JobDemand, context: DecisionContext, worths: Mapping[int, Worth], offers: Sequence[Exchange]
) -> str:
    """What one more trainer would cost whoever loses least by it, and what it would add here, in speed."""
    have, demands = context.shared.packing.count, context.problem.demands

    def loss(offer: Exchange) -> float:
        worth, now = worths[offer.donor], have[offer.donor]
        return worth.value(now) - worth.value(now - offer.deletions)

    best = min(offers, key=lambda e: (loss(e), e.deletions, e.donor))
    donor, gain = demands[best.donor].job, worths[demand.index].next(have[demand.index])
    costs = f"one more trainer would cost {donor.key} {_percent(1 - exp(-loss(best) / donor.weight))} of its speed"
    weighs = "" if donor.weight == demand.job.weight else f" (weights {donor.weight:g} and {demand.job.weight:g})"
    more = gain - loss(best)
    verdict = "; that is too little to end a running trainer for it" if more > SMALLEST_PRICE else ""
    verdict = ", a loss in the product of all speeds" if more < -SMALLEST_PRICE else verdict
    return f"{costs} and add {_percent(exp(gain / demand.job.weight) - 1)} here{weighs}{verdict}"


def _held_neighbour(demand: JobDemand, context: DecisionContext) -> str | None:
    """Who is below its fair share and may not grow yet, where room is left for it."""
    packing, level, problem = context.shared.packing, context.shared.level, context.problem
    if context.shared.worths is not None or not context.has_room(demand.shape):
        return None
    waits = [
        (hold_s, problem.demands[j].job.key)
        for j in packing.members
        if j != demand.index
        and packing.count[j] < int(level[j] + SMALLEST_PRICE)
        and (hold_s := growth_hold_left_s(problem.demands[j].job, problem.limits, problem.snapshot.observed_at_s)) > 0
    ]
    if not waits:
        return None
    wait_s, key = max(waits)
    return f"{key}, which gave way to serving and waits another {seconds(wait_s)} before it grows"


def _cooling_donor(demand: JobDemand, context: DecisionContext) -> str | None:
    """Who would have to give, but was resized too recently."""
    packing, level = context.shared.packing, context.shared.level
    promised = int(level[demand.index] + SMALLEST_PRICE)
    if demand.fulfilment(promised) - packing.fulfilment(demand.index) <= DEAD_BAND:
        return None
    if not (cooling := context.cooling()):
        return None
    wait_s, key = cooling[0]
    return f"{key} has more than its own, but gave to others lately and is not shrunk for another {seconds(wait_s)}"


def prices_of(proof: Proof, problem: Problem) -> tuple[Price, ...]:
    """A price for each scarce shape, class and serving shape: what one more would add to the objective."""
    if proof.solution is None:
        return ()
    columns = proof.cluster.columns
    total = problem.allocatable.sum(axis=0).tolist()
    prices = []
    for shape, worth in zip(columns.shapes, proof.solution.slot_price.tolist(), strict=True):
        if worth > SMALLEST_PRICE:
            name, resource = _shape_name(problem.shapes[shape]), _scarcest(problem, shape, total)
            prices.append(Price("shape", name, resource, worth))
            if proof.cluster.serving.get(shape):
                prices.append(Price("serving", name, resource, worth))
    for group, worth in zip(columns.classes, proof.solution.class_price.tolist(), strict=True):
        if worth > SMALLEST_PRICE:
            first = problem.snapshot.nodes[group.nodes[0]].name
            others, pool = len(group.nodes) - 1, pool_of(problem.snapshot.nodes[group.nodes[0]])
            name = f"{first} and {count(others, 'node')} like it" if others else first
            name = f"{name} ({pool})" if pool else name
            prices.append(Price("class", name, _scarcest(problem, columns.shapes[0], total), worth))
    quotas = quotas_of(problem, proof.cluster.jobs)
    worths = proof.solution.row_price.tolist()[len(proof.cluster.rows) - len(quotas) :]
    for row, worth in zip(quotas, worths, strict=True):
        if worth > SMALLEST_PRICE:
            unit = {CPU: 1000, MEMORY: GIB, EPHEMERAL_STORAGE: GIB}.get(row.resource, 1)
            prices.append(Price("quota", row.queue, row.resource, worth * unit / max(1, row.limit)))
    return tuple(prices)


def _scarcest(problem: Problem, shape: int, total: list[int]) -> str:
    """The resource of which the shape asks for the largest part of what there is."""
    asked = [(c, n) for c, n in enumerate(problem.request[shape].tolist()) if n > 0]
    return (
        problem.names[min(asked, key=lambda a: (-a[1] / max(1, total[a[0]]), rank_of(problem.names[a[0]])))[0]]
        if asked
        else ""
    )


def _shape_name(shape: PodShape) -> str:
    return amounts(shape.request)
