"""Why a job does not run: what it needs, which of it is missing on which nodes, and which job it waits behind.

Times are given in whole minutes, and none that has passed, so that a sentence seldom changes by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from edl.model.cluster import Node
from edl.model.names import Role
from edl.model.resources import PodShape, Resources
from edl.model.units import amount, amounts, count, listed, minutes, rank_of
from edl.planner.admission import waiting_since_s
from edl.planner.eligibility import UNSCHEDULABLE, first_untolerated
from edl.planner.findings.context import DecisionContext
from edl.planner.findings.reasons import Cause, Finding
from edl.planner.findings.scarcity import open_to_any
from edl.planner.problem import BoolArray, JobDemand, Problem, count_slots
from edl.planner.quota import QuotaRow, QuotaShortage


def waiting_sentence(found: Finding, demand: JobDemand, context: DecisionContext) -> tuple[str, str]:
    """The short line and the account of a job that could be given something and is given nothing."""
    needs, queue = needs_of(demand), demand.job.queue
    match found.cause:
        case Cause.QUOTA_TOO_SMALL:
            row = next(use.row for use in demand.quota_uses if use.total(demand.min_trainers) > use.row.limit)
            return (
                f"its minimum exceeds the quota of queue {queue}",
                f"needs {needs}; queue {row.queue} may never use more than {quota_of(row)}",
            )
        case Cause.WAITS_FOR_QUOTA if found.shortage is not None:
            behind = f" behind {found.other}" if found.other is not None else ""
            waits = f"waits for quota of queue {queue}{behind}"
            return waits, f"{waits}: needs {needs}; {_used(found.shortage)}"
        case Cause.NEVER_FITS:
            short, full = _misfit(demand, context.problem)
            return short, f"needs {needs}, which does not fit even without other jobs: {full}"
        case Cause.LOST_TO_SERVING:
            return "serving took its room", f"needs {needs}; {requests_of_serving(context)} took the room"
        case Cause.BEHIND_HEAD:
            head = context.problem.demands[context.admission.head[demand.index]]
            return f"waits behind {found.other}", f"{_behind(head, context)}; it needs {needs}"
        case _:
            return (
                f"waits for room for {_pods_of(demand)}",
                f"waits for room: needs {needs}; {_lacks(demand, context)}",
            )


def quota_of(row: QuotaRow) -> str:
    """How much a queue may use of a resource."""
    return f"its quota of {amount(row.resource, row.limit)}"


def needs_of(demand: JobDemand) -> str:
    """Everything that a job needs to start, in pods and in total."""
    return f"{_pods_of(demand)} ({amounts(_needed(demand))} in total)"


def _pods_of(demand: JobDemand) -> str:
    pods = [count(f.count, f.role.value) for f in sorted(demand.job.fixed, key=lambda f: f.role) if f.count]
    return listed([count(demand.min_trainers, "trainer"), *pods])


def requests_of_serving(context: DecisionContext) -> str:
    """The serving pods for which trainers are deleted: the pod's name if it is one, and what they request."""
    due = sum(context.served.due.values())
    snapshot, grace_s = context.problem.snapshot, context.problem.limits.serving_grace_s
    pods = [p for p in snapshot.pods if p.needs_room and (p.tried or snapshot.observed_at_s - p.created_s >= grace_s)]
    total = Resources()
    for shape, number in context.served.due.items():
        total = total + context.problem.shapes[shape].request * number
    if due == len(pods) == 1:
        return f"serving pod {pods[0].namespace}/{pods[0].name} ({amounts(total)})"
    return f"{count(due, 'serving pod')} ({amounts(total)} in total)"


def reasons_shut(shape: PodShape, problem: Problem) -> str:
    """Why no node accepts a pod, however much room it has."""
    nodes = problem.snapshot.nodes
    if not nodes:
        return "the cluster has no nodes"
    return f"of {count(len(nodes), 'node')}: {listed(_why_shut(nodes, shape))}"


def _why_shut(nodes: Sequence[Node], shape: PodShape) -> Iterator[str]:
    """How many of some nodes reject a pod for which reason."""
    found: Counter[str] = Counter()
    for node in nodes:
        taint = first_untolerated(node, shape.placement.tolerations)
        if not node.ready:
            found["not ready"] += 1
        elif taint is not None:
            found["cordoned" if taint.key == UNSCHEDULABLE.key else f"tainted {taint.key}:{taint.effect}"] += 1
        else:
            found["excluded by its node selector or affinity"] += 1
    yield from (f"{number} {why}" for why, number in found.items())


def _large_but_shut(shape: PodShape, problem: Problem) -> str:
    """Nodes that are large enough for a pod and reject it, with the reason; empty if there are none."""
    number = problem.shapes.index(shape)
    large = ~problem.opened[number] & (problem.empty >= problem.request[number]).all(axis=1)
    nodes = [problem.snapshot.nodes[i] for i in large.nonzero()[0].tolist()]
    if not nodes:
        return ""
    return f"; {count(len(nodes), 'larger node')}: {listed(_why_shut(nodes, shape))}"


def _needed(demand: JobDemand) -> Resources:
    total = demand.job.trainer.request * demand.min_trainers
    for fixed in demand.job.fixed:
        total = total + fixed.shape.request * fixed.count
    return total


def _used(shortage: QuotaShortage) -> str:
    used = amount(shortage.row.resource, shortage.used)
    return f"running jobs of queue {shortage.row.queue} need at least {used} of {quota_of(shortage.row)}"


def _behind(first: JobDemand, context: DecisionContext) -> str:
    """Which job it waits behind, and whether younger jobs may still start before that one."""
    waited_s = context.problem.snapshot.observed_at_s - waiting_since_s(first)
    limit_s = context.problem.limits.head_wait_s
    key = first.job.key
    if waited_s >= limit_s:
        return f"waits behind {key}, which has waited over {minutes(limit_s)}: no younger job starts before it"
    return (
        f"waits behind {key}, which has waited {minutes(waited_s)};"
        f" after {minutes(limit_s)} no younger job starts before it"
    )


def _lacks(demand: JobDemand, context: DecisionContext) -> str:
    """What is left for the first job in the queue once running jobs are at their minimums."""
    packing, problem = context.admission.packing, context.problem
    number = {shape: i for i, shape in enumerate(problem.shapes)}
    shapes = [demand.job.trainer, *(f.shape for f in demand.job.fixed if f.count)]
    is_open = open_to_any(problem, [number[s] for s in shapes])
    free = packing.free[is_open].clip(min=0).sum(axis=0)
    for j in packing.members:
        surplus = max(0, packing.count[j] - problem.demands[j].min_trainers)
        free = free + surplus * problem.request[problem.demands[j].shape]
    left = dict(zip(problem.names, free.tolist(), strict=True))
    needed = _needed(demand)
    leave = "serving and the minimums of running jobs leave"
    for name in sorted(needed, key=rank_of):
        if left[name] < needed[name]:
            return f"{leave} at most {amount(name, left[name])}{_largest_minimum(name, is_open, context)}"
    return f"{leave} enough in total, but not on nodes that could hold its pods"


def _largest_minimum(resource: str, is_open: BoolArray, context: DecisionContext) -> str:
    """The running job whose minimum holds most of a resource on those nodes, in brackets; empty if none does."""
    packing, problem = context.admission.packing, context.problem
    column = problem.names.index(resource)
    requested = problem.request[:, column].tolist()
    held: Counter[int] = Counter()
    fixed = ~problem.held.is_trainer & is_open[problem.held.node]
    for j, shape in zip(problem.held.demand[fixed].tolist(), problem.held.shape[fixed].tolist(), strict=True):
        held[j] += requested[shape] * (j in packing.count)
    for place in packing.placed:
        if is_open[place.node] and place.role not in {None, Role.TRAINER}:
            held[place.owner] += requested[place.shape]
    here = Counter(problem.live_trainers[i].demand for i, node in packing.node_of.items() if is_open[node])
    here.update(p.owner for p in packing.placed if p.role is Role.TRAINER and is_open[p.node])
    for j, trainers in here.items():
        held[j] += min(trainers, problem.demands[j].min_trainers) * requested[problem.demands[j].shape]
    most, key = max(((n, problem.demands[j].job.key) for j, n in held.items()), default=(0, None))
    return f" (the largest minimum there is that of {key}: {amount(resource, most)})" if most else ""


def _misfit(demand: JobDemand, problem: Problem) -> tuple[str, str]:
    """Which pod fits on no node and what it lacks, in short and in full; else that the pods do not fit together."""
    shapes = [("trainer", demand.job.trainer), *((f.role.value, f.shape) for f in demand.job.fixed if f.count)]
    number = {shape: i for i, shape in enumerate(problem.shapes)}
    for role, shape in shapes:
        nodes = problem.opened[number[shape]].nonzero()[0].tolist()
        if not nodes:
            if not problem.snapshot.nodes:
                return "the cluster has no nodes", "the cluster has no nodes"
            short = f"no node accepts its {role}s"
            return short, f"{short} ({reasons_shut(shape, problem)})"
        for column, name in enumerate(problem.names):
            requested, most = shape.request[name], max(0, *(int(problem.empty[n, column]) for n in nodes))
            if requested > most:
                requests = f"a {role} requests {amount(name, requested)}"
                return (
                    f"{requests}, and the largest node has {amount(name, most)}",
                    f"{requests}, and no node that accepts it has more than {amount(name, most)}"
                    f"{_large_but_shut(shape, problem)}",
                )
    return _do_not_fit_together(demand, problem, number[demand.job.trainer])


def _do_not_fit_together(demand: JobDemand, problem: Problem, shape: int) -> tuple[str, str]:
    slots = int((count_slots(problem.empty, problem.request[shape]) * problem.opened[shape]).sum())
    full = "each pod fits on some node, but all of them together do not"
    if slots >= demand.min_trainers:
        return "its pods do not fit on the nodes together", full
    fit = f"the nodes can hold at most {count(slots, 'trainer')}, and its minimum is {demand.min_trainers}"
    return fit, f"{full}; {fit}"
