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
from edl.planner.context import DecisionContext
from edl.planner.eligibility import UNSCHEDULABLE, first_untolerated
from edl.planner.problem import BoolArray, JobDemand, Problem, count_slots
from edl.planner.quota import QuotaRow, QuotaShortage, most_alone
from edl.planner.scarcity import open_to_any


def refuse(demand: JobDemand, context: DecisionContext) -> tuple[Reason, str]:
    """Why a job that could be given something is given nothing."""
    needs = needs_of(demand)
    if most_alone(demand.quota_uses) < demand.min_trainers:
        row = next(
            quota_use.row
            for quota_use in demand.quota_uses
            if quota_use.total(demand.min_trainers) > quota_use.row.limit
        )
        return Reason.QUOTA_REACHED, f"needs {needs}, more than queue {row.queue} may ever have: {quota_of(row)}"
    if (short := context.admission.short.get(demand.index)) is not None:
        return (
            Reason.QUOTA_REACHED,
            f"waits for quota{_behind_in_queue(demand, context)}: needs {needs}, {_held(short)}",
        )
    if demand.index in context.admission.hopeless:
        return (
            Reason.UNSCHEDULABLE,
            f"needs {needs}, which would not fit even alone: {_misfit(demand, context.problem)}",
        )
    if demand.job.was_admitted and any(context.served.due.values()):
        took = serving_words(context)
        return Reason.SERVING_NEEDS_ROOM, f"needs {needs}; {took} took the room it needs to run"
    head = context.admission.head.get(demand.index)
    if head is None or head == demand.index:
        return Reason.MIN_UNSATISFIED, f"waits for room: needs {needs}; {_lacks(demand, context)}"
    return Reason.MIN_UNSATISFIED, f"{_behind(context.problem.demands[head], context)}: needs {needs}"


def quota_of(row: QuotaRow) -> str:
    """How much a queue may use of a resource."""
    return f"its quota of {amount(row.resource, row.limit)}"


def _held(short: QuotaShortage) -> str:
    used = amount(short.row.resource, short.used)
    return f"and the jobs of queue {short.row.queue} that run need {used} at least, of {quota_of(short.row)}"


def _behind_in_queue(demand: JobDemand, context: DecisionContext) -> str:
    head = context.admission.head.get(demand.index, demand.index)
    return "" if head == demand.index else f" behind {context.problem.demands[head].job.key}"


def needs_of(demand: JobDemand) -> str:
    """Everything that a job needs to start, in pods and in totals."""
    pods = [count(f.count, f.role.value) for f in sorted(demand.job.fixed, key=lambda f: f.role) if f.count]
    pods = [count(demand.min_trainers, "trainer"), *pods]
    return f"{listed(pods)} ({amounts(_needed(demand))} in all)"


def serving_words(context: DecisionContext) -> str:
    """The serving pods that trainers die for: by name where it is one, and what they ask for."""
    due = sum(context.served.due.values())
    snapshot, grace_s = context.problem.snapshot, context.problem.limits.serving_grace_s
    pods = [p for p in snapshot.pods if p.needs_room and (p.tried or snapshot.observed_at_s - p.created_s >= grace_s)]
    total = Resources()
    for shape, number in context.served.due.items():
        total = total + context.problem.shapes[shape].request * number
    if due == len(pods) == 1:
        return f"serving pod {pods[0].namespace}/{pods[0].name} ({amounts(total)})"
    return f"{count(due, 'serving pod')} ({amounts(total)} in all)"


def shut(shape: PodShape, problem: Problem) -> str:
    """Why none of the nodes takes a pod, whatever room it has."""
    nodes = problem.snapshot.nodes
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


def _shut_out(shape: PodShape, problem: Problem) -> str:
    """Nodes that are large enough for a pod and do not take it, with what keeps it out; empty without any."""
    number = problem.shapes.index(shape)
    large = ~problem.opened[number] & (problem.empty >= problem.request[number]).all(axis=1)
    nodes = [problem.snapshot.nodes[i] for i in large.nonzero()[0].tolist()]
    if not nodes:
        return ""
    return f"; of {count(len(nodes), 'node')} that would hold it: {listed(_why_shut(nodes, shape))}"


def _needed(demand: JobDemand) -> Resources:
    total = demand.job.trainer.request * demand.min_trainers
    for fixed in demand.job.fixed:
        total = total + fixed.shape.request * fixed.count
    return total


def _behind(first: JobDemand, context: DecisionContext) -> str:
    """Whom the job waits behind, and whether anything may still pass that one."""
    waited_s = context.problem.snapshot.observed_at_s - waiting_since_s(first)
    limit_s = context.problem.limits.head_wait_s
    key = first.job.key
    if waited_s >= limit_s:
        return f"waits behind {key}, which has waited over {minutes(limit_s)}: nothing younger passes it any more"
    return (
        f"waits for room behind {key}, which has waited {minutes(waited_s)}"
        f" and closes the queue to younger jobs at {minutes(limit_s)}"
    )


def _lacks(demand: JobDemand, context: DecisionContext) -> str:
    """What those that run leave to the first in the queue once they are at their minimums."""
    packing, problem = context.admission.packing, context.problem
    number = {shape: i for i, shape in enumerate(problem.shapes)}
    shapes = [demand.job.trainer, *(f.shape for f in demand.job.fixed if f.count)]
    is_open = open_to_any(problem, [number[s] for s in shapes])
    free = packing.free[is_open].clip(min=0).sum(axis=0)
    for j in packing.members:
        free = (
            free
            + max(0, packing.count[j] - problem.demands[j].min_trainers) * problem.request[problem.demands[j].shape]
        )
    left = dict(zip(problem.names, free.tolist(), strict=True))
    needed = _needed(demand)
    who = "serving and the minimums of the jobs that run leave it"
    for name in sorted(needed, key=rank_of):
        if left[name] < needed[name]:
            return f"{who} at most {amount(name, left[name])}{_largest_minimum(name, is_open, context)}"
    return f"{who} enough in all, but not on nodes that could hold its pods"


def _largest_minimum(resource: str, is_open: BoolArray, context: DecisionContext) -> str:
    """The job that runs whose minimum holds most of a resource on those nodes, in brackets; else nothing."""
    packing, problem = context.admission.packing, context.problem
    column = problem.names.index(resource)
    asked = problem.request[:, column].tolist()
    held: Counter[int] = Counter()
    fixed = ~problem.held.is_trainer & is_open[problem.held.node]
    for j, shape in zip(problem.held.demand[fixed].tolist(), problem.held.shape[fixed].tolist(), strict=True):
        held[j] += asked[shape] * (j in packing.count)
    for place in packing.placed:
        if is_open[place.node] and place.role not in {None, Role.TRAINER}:
            held[place.owner] += asked[place.shape]
    here = Counter(problem.live_trainers[i].demand for i, node in packing.node_of.items() if is_open[node])
    here.update(p.owner for p in packing.placed if p.role is Role.TRAINER and is_open[p.node])
    for j, trainers in here.items():
        held[j] += min(trainers, problem.demands[j].min_trainers) * asked[problem.demands[j].shape]
    most, key = max(((n, problem.demands[j].job.key) for j, n in held.items()), default=(0, None))
    return f" (the largest minimum there is that of {key}, {amount(resource, most)})" if most else ""


def _misfit(demand: JobDemand, problem: Problem) -> str:
    """Which pod no node can hold, and for want of what; else that they do not fit together."""
    shapes = [("trainer", demand.job.trainer), *((f.role.value, f.shape) for f in demand.job.fixed if f.count)]
    number = {shape: i for i, shape in enumerate(problem.shapes)}
    for role, shape in shapes:
        nodes = [n for n, is_open in enumerate(problem.opened[number[shape]].tolist()) if is_open]
        if not nodes:
            return f"no node takes its {role}s ({shut(shape, problem)})"
        for column, name in enumerate(problem.names):
            asked, most = shape.request[name], max(int(problem.empty[n, column]) for n in nodes)
            if asked > most:
                return (
                    f"one {role} asks for {amount(name, asked)},"
                    f" and no node that takes it has more than {amount(name, max(0, most))}"
                    f"{_shut_out(shape, problem)}"
                )
    request, opened = problem.request[number[demand.job.trainer]], problem.opened[number[demand.job.trainer]]
    slots = int((count_slots(problem.empty, request) * opened).sum())
    apart = "each pod has a node that could hold it, but not all of them together"
    held = (
        f": without other jobs they hold {count(slots, 'trainer')}, its minimum is {demand.min_trainers}"
        if slots < demand.min_trainers
        else ""
    )
    return f"{apart}{held}"
