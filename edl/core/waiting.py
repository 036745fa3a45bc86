"""Why a job does not run: what it needs, what of it is missing where, whom it waits behind, and until when.

A sentence names times in whole minutes and none that has passed its end, so that it seldom changes by itself.
"""

from __future__ import annotations

from edl.core.admission import waiting_since_s
from edl.core.asks import PodShape, Resources
from edl.core.capacity import Claim, World, count_slots
from edl.core.eligibility import is_selected, is_tolerated
from edl.core.model import Reason
from edl.core.outcome import Outcome
from edl.core.quota import QuotaRow, Short, most_alone
from edl.core.words import amount, amounts, count, listed, minutes, rank_of


def refuse(claim: Claim, outcome: Outcome) -> tuple[Reason, str]:
    """Why a job that could be given something is given nothing."""
    needs = needs_of(claim)
    if most_alone(claim.asks) < claim.low:
        row = next(ask.row for ask in claim.asks if ask.total(claim.low) > ask.row.limit)
        return Reason.QUOTA_REACHED, f"needs {needs}, more than queue {row.queue} may ever have: {quota_of(row)}"
    if (short := outcome.admission.short.get(claim.index)) is not None:
        return (
            Reason.QUOTA_REACHED,
            f"waits for quota{_behind_in_queue(claim, outcome)}: needs {needs}, {_held(short)}",
        )
    if claim.index in outcome.admission.hopeless:
        return Reason.UNSCHEDULABLE, f"needs {needs}, which would not fit even alone: {_misfit(claim, outcome.world)}"
    if claim.job.was_admitted and any(outcome.served.due.values()):
        took = serving_words(outcome)
        return Reason.SERVING_NEEDS_ROOM, f"needs {needs}; {took} took the room it needs to run"
    head = outcome.admission.head.get(claim.index)
    if head is None or head == claim.index:
        return Reason.MIN_UNSATISFIED, f"waits for room: needs {needs}; {_lacks(claim, outcome)}"
    return Reason.MIN_UNSATISFIED, f"{_behind(outcome.world.claims[head], outcome)}: needs {needs}"


def quota_of(row: QuotaRow) -> str:
    """How much a queue may use of a resource."""
    return f"its quota of {amount(row.resource, row.limit)}"


def _held(short: Short) -> str:
    used = amount(short.row.resource, short.used)
    return f"and the jobs of queue {short.row.queue} that run need {used} at least, of {quota_of(short.row)}"


def _behind_in_queue(claim: Claim, outcome: Outcome) -> str:
    head = outcome.admission.head.get(claim.index, claim.index)
    return "" if head == claim.index else f" behind {outcome.world.claims[head].job.key}"


def needs_of(claim: Claim) -> str:
    """Everything that a job needs to start, in pods and in totals."""
    pods = [count(f.count, f.role.value) for f in sorted(claim.job.fixed, key=lambda f: f.role) if f.count]
    pods = [count(claim.low, "trainer"), *pods]
    return f"{listed(pods)} ({amounts(_needed(claim))} in all)"


def serving_words(outcome: Outcome) -> str:
    """The serving pods that trainers die for: by name where it is one, and what they ask for."""
    due = sum(outcome.served.due.values())
    snapshot, grace_s = outcome.world.snapshot, outcome.world.limits.serving_grace_s
    pods = [p for p in snapshot.pods if p.needs_room and (p.tried or snapshot.observed_at_s - p.created_s >= grace_s)]
    total = Resources()
    for shape, number in outcome.served.due.items():
        total = total + outcome.world.shapes[shape].request * number
    if due == len(pods) == 1:
        return f"serving pod {pods[0].namespace}/{pods[0].name} ({amounts(total)})"
    return f"{count(due, 'serving pod')} ({amounts(total)} in all)"


def shut(shape: PodShape, world: World) -> str:
    """Why none of the nodes takes a pod, whatever room it has."""
    nodes, placement = world.snapshot.nodes, shape.placement
    if not nodes:
        return "the cluster has no nodes"
    tests = (
        ("not ready", sum(not n.ready for n in nodes)),
        ("cordoned or tainted", sum(n.ready and not is_tolerated(n, placement.tolerations) for n in nodes)),
        (
            "not selected by it",
            sum(n.ready and is_tolerated(n, placement.tolerations) and not is_selected(n, placement) for n in nodes),
        ),
    )
    return f"of {count(len(nodes), 'node')}: {listed(f'{n} {why}' for why, n in tests if n)}"


def _needed(claim: Claim) -> Resources:
    total = claim.job.trainer.request * claim.low
    for fixed in claim.job.fixed:
        total = total + fixed.shape.request * fixed.count
    return total


def _behind(first: Claim, outcome: Outcome) -> str:
    """Whom the job waits behind, and whether anything may still pass that one."""
    waited_s = outcome.world.snapshot.observed_at_s - waiting_since_s(first)
    limit_s = outcome.world.limits.head_wait_s
    key = first.job.key
    if waited_s >= limit_s:
        return f"waits behind {key}, which has waited over {minutes(limit_s)}: nothing younger passes it any more"
    return (
        f"waits for room behind {key}, which has waited {minutes(waited_s)}"
        f" and closes the queue to younger jobs at {minutes(limit_s)}"
    )


def _lacks(claim: Claim, outcome: Outcome) -> str:
    """What those that run leave to the first in the queue once they are at their minimums."""
    room, world = outcome.admission.room, outcome.world
    number = {shape: i for i, shape in enumerate(world.shapes)}
    shapes = [claim.job.trainer, *(f.shape for f in claim.job.fixed if f.count)]
    is_open = world.opened[[number[s] for s in shapes]].any(axis=0)
    free = room.free[is_open].clip(min=0).sum(axis=0)
    for j in room.members:
        free = free + max(0, room.count[j] - world.claims[j].low) * world.request[world.claims[j].shape]
    left = dict(zip(world.names, free.tolist(), strict=True))
    needed = _needed(claim)
    who = "serving and the minimums of the jobs that run leave it"
    for name in sorted(needed, key=rank_of):
        if left[name] < needed[name]:
            return f"{who} at most {amount(name, left[name])}{_largest_minimum(name, outcome)}"
    return f"{who} enough in all, but not on nodes that could hold its pods"


def _largest_minimum(resource: str, outcome: Outcome) -> str:
    """The job that runs whose minimum holds most of a resource, in brackets; nothing where none holds any."""
    claims = [outcome.world.claims[j] for j in outcome.admission.room.members]
    held = max(((_needed(claim)[resource], claim.job.key) for claim in claims), default=None)
    if held is None or not held[0]:
        return ""
    return f" (the largest minimum is that of {held[1]}, {amount(resource, held[0])})"


def _misfit(claim: Claim, world: World) -> str:
    """Which pod no node can hold, and for want of what; else that they do not fit together."""
    shapes = [("trainer", claim.job.trainer), *((f.role.value, f.shape) for f in claim.job.fixed if f.count)]
    number = {shape: i for i, shape in enumerate(world.shapes)}
    for role, shape in shapes:
        nodes = [n for n, is_open in enumerate(world.opened[number[shape]].tolist()) if is_open]
        if not nodes:
            return f"no node takes its {role}s ({shut(shape, world)})"
        for column, name in enumerate(world.names):
            asked, most = shape.request[name], max(int(world.empty[n, column]) for n in nodes)
            if asked > most:
                return (
                    f"one {role} asks for {amount(name, asked)},"
                    f" and no node that takes it has more than {amount(name, max(0, most))}"
                )
    request, opened = world.request[number[claim.job.trainer]], world.opened[number[claim.job.trainer]]
    slots = int((count_slots(world.empty, request) * opened).sum())
    apart = "each pod has a node that could hold it, but not all of them together"
    held = f": empty nodes hold {count(slots, 'trainer')}, its minimum is {claim.low}" if slots < claim.low else ""
    return f"{apart}{held}"
