"""Why a job does not run: what it needs, what of it is missing where, whom it waits behind, and until when.

A sentence names times in whole minutes and none that has passed its end, so that it seldom changes by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from edl.model.cluster import Node
from edl.model.names import Role
from edl.model.resources import PodShape, Resources
from edl.model.status import Reason
from edl.model.units import amount, amounts, count, listed, minutes, rank_of
from edl.planner.admission import waiting_since_s
from edl.planner.context import Outcome
from edl.planner.eligibility import UNSCHEDULABLE, first_untolerated
from edl.planner.problem import BoolArray, Claim, World, count_slots
from edl.planner.quota import QuotaRow, Short, most_alone
from edl.planner.scarcity import open_to_any


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
    nodes = world.snapshot.nodes
    if not nodes:
        return "the cluster has no nodes"
    return f"of {count(len(nodes), 'node')}: {listed(_why_shut(nodes, shape))}"


def _why_shut(nodes: Sequence[Node], shape: PodShape) -> Iterator[str]:
    """How many of some nodes, all of them shut to a pod, are so by what."""
    found: Counter[str] = Counter()
    for node in nodes:
        taint = first_untolerated(node, shape.placement.tolerations)
        if not node.ready:
            found["not ready"] += 1
        elif taint is not None:
            found["cordoned" if taint.key == UNSCHEDULABLE.key else f"tainted {taint.key}:{taint.effect}"] += 1
        else:
            found["not selected by it"] += 1
    yield from (f"{number} {why}" for why, number in found.items())


def _shut_out(shape: PodShape, world: World) -> str:
    """Nodes that are large enough for a pod and do not take it, with what keeps it out; empty without any."""
    number = world.shapes.index(shape)
    large = ~world.opened[number] & (world.empty >= world.request[number]).all(axis=1)
    nodes = [world.snapshot.nodes[i] for i in large.nonzero()[0].tolist()]
    if not nodes:
        return ""
    return f"; of {count(len(nodes), 'node')} that would hold it: {listed(_why_shut(nodes, shape))}"


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
    is_open = open_to_any(world, [number[s] for s in shapes])
    free = room.free[is_open].clip(min=0).sum(axis=0)
    for j in room.members:
        free = free + max(0, room.count[j] - world.claims[j].low) * world.request[world.claims[j].shape]
    left = dict(zip(world.names, free.tolist(), strict=True))
    needed = _needed(claim)
    who = "serving and the minimums of the jobs that run leave it"
    for name in sorted(needed, key=rank_of):
        if left[name] < needed[name]:
            return f"{who} at most {amount(name, left[name])}{_largest_minimum(name, is_open, outcome)}"
    return f"{who} enough in all, but not on nodes that could hold its pods"


def _largest_minimum(resource: str, is_open: BoolArray, outcome: Outcome) -> str:
    """The job that runs whose minimum holds most of a resource on those nodes, in brackets; else nothing."""
    room, world = outcome.admission.room, outcome.world
    column = world.names.index(resource)
    asked = world.request[:, column].tolist()
    held: Counter[int] = Counter()
    fixed = ~world.held.is_trainer & is_open[world.held.node]
    for j, shape in zip(world.held.claim[fixed].tolist(), world.held.shape[fixed].tolist(), strict=True):
        held[j] += asked[shape] * (j in room.count)
    for place in room.placed:
        if is_open[place.node] and place.role not in {None, Role.TRAINER}:
            held[place.owner] += asked[place.shape]
    here = Counter(world.seats[i].claim for i, node in room.node_of.items() if is_open[node])
    here.update(p.owner for p in room.placed if p.role is Role.TRAINER and is_open[p.node])
    for j, trainers in here.items():
        held[j] += min(trainers, world.claims[j].low) * asked[world.claims[j].shape]
    most, key = max(((n, world.claims[j].job.key) for j, n in held.items()), default=(0, None))
    return f" (the largest minimum there is that of {key}, {amount(resource, most)})" if most else ""


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
                    f" and no node that takes it has more than {amount(name, max(0, most))}{_shut_out(shape, world)}"
                )
    request, opened = world.request[number[claim.job.trainer]], world.opened[number[claim.job.trainer]]
    slots = int((count_slots(world.empty, request) * opened).sum())
    apart = "each pod has a node that could hold it, but not all of them together"
    held = (
        f": without other jobs they hold {count(slots, 'trainer')}, its minimum is {claim.low}"
        if slots < claim.low
        else ""
    )
    return f"{apart}{held}"
