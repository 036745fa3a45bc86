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
from edl.planner.context import Outcome, Scarce
from edl.planner.guard import DEAD_BAND, growth_hold_left_s
from edl.planner.pools import pool_of
from edl.planner.problem import Claim, World
from edl.planner.programs.fair_share import Proof, quotas_of
from edl.planner.scarcity import Exchange, open_nodes
from edl.planner.speedup import Worth

NAMED_HOLDERS = 2
SMALLEST_PRICE = 1e-6


@dataclass(frozen=True, slots=True)
class Told:
    """What a job is told."""

    reason: Reason
    message: str
    shrink_reason: str


def explain(job: Job, outcome: Outcome) -> Told:
    """Say why a job has the count it has."""
    claim = outcome.claim(job)
    if claim is None:
        reason, message = excluded(job)
        return Told(reason, message, reason)
    if claim.index not in outcome.shared.room.count:
        reason, message = refuse(claim, outcome)
        return Told(reason, message, reason)
    reason, message = _admitted(claim, outcome)
    dying = outcome.dying(claim.index)
    if not dying:
        return Told(reason, message, reason)
    if any(i in outcome.shared.room.for_serving for i in dying):
        return Told(reason, message, Reason.SERVING_NEEDS_ROOM)
    return Told(reason, message, _shrink_reason(reason, claim, outcome))


def _shrink_reason(reason: Reason, claim: Claim, outcome: Outcome) -> Reason:
    """Why trainers of a job die, if any do, other than for serving: what keeps the job from more is no reason."""
    arriving = _makes_way_for(claim, outcome)
    if any(i in outcome.shared.for_quota for i in claim.seats):
        is_theirs = any(outcome.world.claims[j].job.queue == claim.job.queue for j in arriving)
        return Reason.ADMITTED if is_theirs else Reason.QUOTA_REACHED
    if arriving:
        return Reason.ADMITTED
    keeps = reason in {Reason.QUOTA_REACHED, Reason.COOLDOWN, Reason.RESIZE_NOT_WORTH_IT}
    return Reason.INSUFFICIENT_CAPACITY if keeps else reason


def _makes_way_for(claim: Claim, outcome: Outcome) -> list[int]:
    """The jobs, just admitted, that get their minimum or their share where trainers of this one die."""
    limit = claim.job.pinned or claim.job.max_trainers
    if not outcome.dying(claim.index) or len(claim.seats) > limit:
        return []
    return [j for j in outcome.arriving() if j != claim.index]


def excluded(job: Job) -> tuple[Reason, str]:
    """Why a job is given nothing, whatever room there is."""
    if job.deleting:
        return Reason.FINISHED, "it is being deleted: its pods go"
    if job.finished:
        return Reason.FINISHED, "it has ended: it gets no pods"
    if job.problem:
        return Reason.INVALID_SPEC, job.problem
    return Reason.SUSPENDED, "it is suspended: it gets no pods until spec.suspend is false"


def _admitted(claim: Claim, outcome: Outcome) -> tuple[Reason, str]:
    room, job = outcome.shared.room, claim.job
    have = room.count[claim.index]
    of = f"{have} of {job.max_trainers}"
    if job.pinned:
        return Reason.PINNED, f"{of}: pinned to {count(job.pinned, 'trainer')}"
    if have >= job.max_trainers:
        return Reason.AT_MAX, f"{of}: at its maximum"
    dying = outcome.dying(claim.index)
    lost = sum(i in room.for_serving for i in dying)
    if lost and have < len(claim.seats):
        gives = f"gives up {count(lost, 'trainer')}{_on_nodes(claim, dying, outcome)}"
        return Reason.SERVING_NEEDS_ROOM, f"{of}: {gives} to make room for {serving_words(outcome)}"
    reason, why = _short_of_max(claim, outcome)
    arriving = _makes_way_for(claim, outcome) if dying else []
    if have < len(claim.seats) and arriving:
        keys = [str(outcome.world.claims[j].job.key) for j in arriving]
        named = keys if len(keys) <= NAMED_HOLDERS else [keys[0], count(len(keys) - 1, "other job")]
        verb = "starts" if len(keys) == 1 else "start"
        why = f"gives up {count(len(dying), 'trainer')} because {listed(named)} {verb}; {why}"
    return reason, f"{of}: {why}"


def _on_nodes(claim: Claim, seats: Sequence[int], outcome: Outcome) -> str:
    """Where trainers die, as far as they stand on nodes."""
    world = outcome.world
    nodes = sorted({world.seats[i].node for i in seats} - {-1})
    usable = sorted({*nodes, *open_nodes(outcome.shared.room, claim.shape)})
    return f" on {outcome.pools().where(nodes, usable)}" if nodes else ""


def _short_of_max(claim: Claim, outcome: Outcome) -> tuple[Reason, str]:
    world = outcome.world
    hold_s = growth_hold_left_s(claim.job, world.limits, world.snapshot.observed_at_s)
    if hold_s > 0 and outcome.has_room(claim.shape):
        return Reason.COOLDOWN, f"gave way to serving; waits another {seconds(hold_s)} before it grows"
    if (short := outcome.short_of(claim.index)) is not None:
        used = amount(short.row.resource, short.used)
        return Reason.QUOTA_REACHED, f"queue {short.row.queue} uses {used} of {quota_of(short.row)}"
    if (held := _held_neighbour(claim, outcome)) is not None:
        return Reason.COOLDOWN, f"leaves room to {held}"
    if (cooling := _cooling_donor(claim, outcome)) is not None:
        return Reason.COOLDOWN, f"its fair share is {int(outcome.shared.level[claim.index])}; {cooling}"
    if claim.index in outcome.shared.not_worth_it:
        return Reason.RESIZE_NOT_WORTH_IT, (
            "trainers of others would add more speed here, but too little for running ones to end: less than the"
            f" restarts of both jobs cost, or less than {DEAD_BAND:g} of the utility of all"
        )
    return Reason.INSUFFICIENT_CAPACITY, _full(claim, outcome)


def _full(claim: Claim, outcome: Outcome) -> str:
    """What there is no more room in, and who holds it."""
    room, world = outcome.shared.room, outcome.world
    scarce = outcome.scarce(claim.shape)
    if not scarce.shortages:
        if not open_nodes(room, claim.shape):
            return f"no node takes new trainers of it ({shut(claim.job.trainer, world)})"
        return f"--max-load-desired {world.limits.max_load_desired:g} is reached"
    if room.count[claim.index] >= claim.high:
        return f"{scarce.words}; no more would fit even if no other job ran"
    if scarce.is_left_soon:
        return f"{scarce.words}; pods that terminate leave it room, which is waited for"
    kept = [_kept(scarce.kept, outcome)] if scarce.kept else []
    return "; ".join((scarce.words, *kept, *_who_holds_it(claim, outcome, scarce)))


def _kept(places: int, outcome: Outcome) -> str:
    """For whom free room is kept."""
    waiting = sum(outcome.served.due.values()) + outcome.shared.young_placed
    extra = f" (--serving-headroom {outcome.world.limits.serving_headroom})" if places > waiting else ""
    return f"room for {count(places, 'serving pod')} is kept free{extra}"


def _who_holds_it(claim: Claim, outcome: Outcome, scarce: Scarce) -> list[str]:
    """Who has trainers above its minimum there, and what one more trainer would cost the best off of them."""
    own = scarce.part_of.get(claim.index)
    others = len(scarce.holders) - (own is not None)
    if not others:
        return ["no other job holds more than its minimum there"]
    claims = outcome.world.claims
    first, *more = islice((h for h in scarce.holders if h.claim != claim.index), NAMED_HOLDERS)
    held = f"{claims[first.claim].job.key} holds {_percent(first.part)} of it above its minimum"
    named = [f"{held} ({count(first.surplus, 'trainer')})"]
    named += [f"{claims[h.claim].job.key} {_percent(h.part)}" for h in more]
    if others > NAMED_HOLDERS:
        rest = scarce.part - (own or 0.0) - sum(h.part for h in (first, *more))
        named.append(f"{count(others - NAMED_HOLDERS, 'other job')} {_percent(rest)}")
    return [listed(named), _cost(claim, outcome, scarce)]


def _percent(part: float) -> str:
    return f"{100 * part:.2g} %"


def _cost(claim: Claim, outcome: Outcome, scarce: Scarce) -> str:
    """What one more trainer would cost whoever is best off after having given it."""
    room = outcome.shared.room
    offers = [e for e in scarce.exchanges if e.donor != claim.index]
    if not offers:
        return "giving up any one job's trainers above its minimum would make room for no more on any node"

    if outcome.shared.worths is not None:
        return _cost_in_speed(claim, outcome, outcome.shared.worths, offers)

    def left_with(offer: Exchange) -> float:
        return room.fulfilment(offer.donor, -offer.deaths)

    best = max(offers, key=lambda e: (left_with(e), -e.deaths, -e.donor))
    donor, after, mine = outcome.world.claims[best.donor], left_with(best), room.fulfilment(claim.index, 1)
    loss = room.fulfilment(best.donor) - after
    cost = f"one more trainer would cost {donor.job.key} {loss:.2g} of fulfilment"
    if after < mine - SMALLEST_PRICE:
        return f"{cost} and leave it with less ({after:.2g} against {mine:.2g})"
    if mine - room.fulfilment(claim.index) <= DEAD_BAND:
        return f"{cost}; gains up to {DEAD_BAND:g} shrink nobody"
    return cost


def _cost_in_speed(claim: Claim, outcome: Outcome, worths: Mapping[int, Worth], offers: Sequence[Exchange]) -> str:
    """What one more trainer would cost whoever loses least by it, and what it would add here, in speed."""
    have, claims = outcome.shared.room.count, outcome.world.claims

    def loss(offer: Exchange) -> float:
        worth, now = worths[offer.donor], have[offer.donor]
        return worth.value(now) - worth.value(now - offer.deaths)

    best = min(offers, key=lambda e: (loss(e), e.deaths, e.donor))
    donor, gain = claims[best.donor].job, worths[claim.index].next(have[claim.index])
    costs = f"one more trainer would cost {donor.key} {_percent(1 - exp(-loss(best) / donor.weight))} of its speed"
    weighs = "" if donor.weight == claim.job.weight else f" (weights {donor.weight:g} and {claim.job.weight:g})"
    more = gain - loss(best)
    verdict = "; that is too little to end a running trainer for it" if more > SMALLEST_PRICE else ""
    verdict = ", a loss in the product of all speeds" if more < -SMALLEST_PRICE else verdict
    return f"{costs} and add {_percent(exp(gain / claim.job.weight) - 1)} here{weighs}{verdict}"


def _held_neighbour(claim: Claim, outcome: Outcome) -> str | None:
    """Who is below its fair share and may not grow yet, where room is left for it."""
    room, level, world = outcome.shared.room, outcome.shared.level, outcome.world
    if outcome.shared.worths is not None or not outcome.has_room(claim.shape):
        return None
    waits = [
        (hold_s, world.claims[j].job.key)
        for j in room.members
        if j != claim.index
        and room.count[j] < int(level[j] + SMALLEST_PRICE)
        and (hold_s := growth_hold_left_s(world.claims[j].job, world.limits, world.snapshot.observed_at_s)) > 0
    ]
    if not waits:
        return None
    wait_s, key = max(waits)
    return f"{key}, which gave way to serving and waits another {seconds(wait_s)} before it grows"


def _cooling_donor(claim: Claim, outcome: Outcome) -> str | None:
    """Who would have to give, but was resized too recently."""
    room, level = outcome.shared.room, outcome.shared.level
    promised = int(level[claim.index] + SMALLEST_PRICE)
    if claim.fulfilment(promised) - room.fulfilment(claim.index) <= DEAD_BAND:
        return None
    if not (cooling := outcome.cooling()):
        return None
    wait_s, key = cooling[0]
    return f"{key} has more than its own, but gave to others lately and is not shrunk for another {seconds(wait_s)}"


def prices_of(proof: Proof, world: World) -> tuple[Price, ...]:
    """A price for each scarce shape, class and serving shape: what one more would add to the objective."""
    if proof.solution is None:
        return ()
    columns = proof.cluster.columns
    total = world.allocatable.sum(axis=0).tolist()
    prices = []
    for shape, worth in zip(columns.shapes, proof.solution.slot_price.tolist(), strict=True):
        if worth > SMALLEST_PRICE:
            name, resource = _shape_name(world.shapes[shape]), _scarcest(world, shape, total)
            prices.append(Price("shape", name, resource, worth))
            if proof.cluster.serving.get(shape):
                prices.append(Price("serving", name, resource, worth))
    for group, worth in zip(columns.classes, proof.solution.class_price.tolist(), strict=True):
        if worth > SMALLEST_PRICE:
            first = world.snapshot.nodes[group.nodes[0]].name
            others, pool = len(group.nodes) - 1, pool_of(world.snapshot.nodes[group.nodes[0]])
            name = f"{first} and {count(others, 'node')} like it" if others else first
            name = f"{name} ({pool})" if pool else name
            prices.append(Price("class", name, _scarcest(world, columns.shapes[0], total), worth))
    quotas = quotas_of(world, proof.cluster.jobs)
    worths = proof.solution.row_price.tolist()[len(proof.cluster.rows) - len(quotas) :]
    for row, worth in zip(quotas, worths, strict=True):
        if worth > SMALLEST_PRICE:
            unit = {CPU: 1000, MEMORY: GIB, EPHEMERAL_STORAGE: GIB}.get(row.resource, 1)
            prices.append(Price("quota", row.queue, row.resource, worth * unit / max(1, row.limit)))
    return tuple(prices)


def _scarcest(world: World, shape: int, total: list[int]) -> str:
    """The resource of which the shape asks for the largest part of what there is."""
    asked = [(c, n) for c, n in enumerate(world.request[shape].tolist()) if n > 0]
    return (
        world.names[min(asked, key=lambda a: (-a[1] / max(1, total[a[0]]), rank_of(world.names[a[0]])))[0]]
        if asked
        else ""
    )


def _shape_name(shape: PodShape) -> str:
    return amounts(shape.request)
