"""What a plan may not do: restraint before it is made, and every rule recomputed after.

`restrain` answers when one job may be shrunk for another, so that a cluster at rest stays at rest. `check` recomputes
every invariant of a finished plan from the snapshot alone, in plain Python and without the solver, so that a fault in
the mathematics never reaches a pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

from edl.errors import PlanError, PlanFailure
from edl.model.cluster import ClusterSnapshot, Node
from edl.model.jobs import Job
from edl.model.names import JobKey, Role
from edl.model.plan import Limits, Quota, ScaleDecision, ScalePlan
from edl.model.pods import Pod
from edl.model.resources import HOST_PORT_PREFIX, PodShape, Resources, port_at_every_address
from edl.model.status import Reason
from edl.planner.eligibility import takes
from edl.planner.quota import QuotaRow, quota_uses_of

DEAD_BAND = 0.1  # of fulfilment: what the worst-off job must gain before another is shrunk for it
TOLERANCE = 1e-6


class RefusedPlanError(PlanError):
    """A plan broke a rule: a bug of ours, and the plan must not be carried out.

    Attributes:
        plan: what was refused.
        problems: one sentence for each broken rule.
    """

    def __init__(self, plan: ScalePlan, problems: tuple[str, ...]) -> None:
        super().__init__("the plan breaks a rule and was dropped: " + "; ".join(problems), PlanFailure.REFUSED)
        self.plan = plan
        self.problems = problems


def restrain(jobs: Iterable[Job], now_s: float) -> frozenset[JobKey]:
    """The jobs that may not be shrunk for another: they were so less than their cooldown ago."""
    return frozenset(job.key for job in jobs if cooldown_left_s(job, now_s) > 0)


def cooldown_left_s(job: Job, now_s: float) -> float:
    """How long a job is still kept from being shrunk for another; 0 where it is not.

    It counts from the last time that it was shrunk for another's share: what it gave to serving or to an admission,
    and what it grew, start no cooldown.
    """
    resize = job.status.last_resize if job.status is not None else None
    if resize is None or resize.voluntary_s is None:
        return 0.0
    return max(0.0, resize.voluntary_s + job.cooldown_s - now_s)


def growth_hold_left_s(job: Job, limits: Limits, now_s: float) -> float:
    """How long a job that was shrunk for serving is still kept from growing; 0 where it is not."""
    resize = job.status.last_resize if job.status is not None else None
    if resize is None or resize.reason != Reason.SERVING_NEEDS_ROOM or resize.to_count >= resize.from_count:
        return 0.0
    return max(0.0, resize.time_s + limits.growth_hold_s - now_s)


def serving_grace_left_s(snapshot: ClusterSnapshot, limits: Limits) -> dict[tuple[str, str], float]:
    """How long kube-scheduler is still left alone with each waiting serving pod that it has not tried, by name.

    It takes pods one after the other, by priority and then by age: the grace of one begins when it is created, and
    anew with each answer about a pod that goes before it, however long the queue is. Pods without any are left out.
    """
    if all(pod.tried or not pod.is_waiting_serving for pod in snapshot.pods):
        return {}
    left: dict[tuple[str, str], float] = {}
    answered_s = 0.0
    queue = sorted(snapshot.pods, key=_turn)
    for _, group in groupby(queue, key=_turn):
        abreast = list(group)
        answered_s = max([answered_s, *(pod.answered_s for pod in abreast if pod.answered_s is not None)])
        for pod in abreast:
            since_s = max(pod.created_s, answered_s)
            still_s = since_s + limits.serving_grace_s - snapshot.observed_at_s
            if pod.is_waiting_serving and not pod.tried and still_s > 0:
                left[pod.namespace, pod.name] = still_s
    return left


def _turn(pod: Pod) -> tuple[int, float]:
    return -pod.priority, pod.created_s


def is_arriving(job: Job, now_s: float) -> bool:
    """True while a job may claim its whole share: until it is admitted, and then while its first pods start.

    A job that was resized since its admission has arrived, even where trainers of a later growth still start.
    """
    if not job.was_admitted:
        return True
    admitted = job.status.condition("Admitted") if job.status is not None else None
    if job.status is None or admitted is None or now_s - admitted.since_s >= job.cooldown_s:
        return False
    if job.status.last_resize is not None and job.status.last_resize.time_s > admitted.since_s:
        return False
    return any(pod.started_s is None for pod in job.live_trainers)


def check(snapshot: ClusterSnapshot, plan: ScalePlan, quotas: Iterable[Quota] = ()) -> tuple[str, ...]:
    """Recompute every invariant of a plan.

    Args:
        snapshot: what the plan was made for.
        plan: the plan.
        quotas: the limits of the queues.

    Returns:
        One sentence for each broken rule, in a fixed order; empty where the plan may be carried out.
    """
    problems = list(_check_order(snapshot, plan))
    if problems:
        return tuple(problems)
    pairs = list(zip(snapshot.jobs, plan.decisions, strict=True))
    for job, decision in pairs:
        live = job.live_trainers
        problems += _check_counts(job, decision, live)
        problems += _check_victims(job, decision, live)
        problems += _check_moves(job, decision)
    problems += _check_placing(snapshot, pairs)
    problems += _check_room(snapshot, pairs)
    limits = tuple(quotas)
    problems += _check_quotas(pairs, limits)
    problems += _check_dropped(snapshot, pairs, limits)
    problems += _check_serving(snapshot, plan)
    if not plan.certificate.bound >= plan.certificate.achieved - TOLERANCE:
        problems.append(f"the bound {plan.certificate.bound} is below what is achieved, {plan.certificate.achieved}")
    return tuple(problems)


def _check_order(snapshot: ClusterSnapshot, plan: ScalePlan) -> Iterable[str]:
    if [d.job for d in plan.decisions] != [job.key for job in snapshot.jobs]:
        yield "the decisions are not one for each job, sorted by key"


def _check_counts(job: Job, decision: ScaleDecision, trainers: Sequence[Pod]) -> Iterable[str]:
    name, planned = f"job {job.key}", sum(count for _, count in decision.nodes)
    if decision.generation != job.generation:
        yield f"{name}: answers generation {decision.generation}, not {job.generation}"
    if decision.current != len(trainers):
        yield f"{name}: current {decision.current}, but {len(trainers)} trainers are live"
    if decision.target != decision.current - len(decision.victims) + planned:
        yield (
            f"{name}: target {decision.target} is not {decision.current} - {len(decision.victims)} victims"
            f" + {planned} new"
        )
    if any(count <= 0 for _, count in decision.nodes):
        yield f"{name}: a node is given no trainer"
    if not decision.admitted:
        if decision.target or decision.nodes or decision.fixed_nodes:
            yield f"{name}: is not admitted, yet given pods"
        return
    low, high = job.bounds
    if not job.is_schedulable:
        yield f"{name}: is admitted, yet invalid, suspended, finished or being deleted"
    if not low <= decision.target <= high:
        yield f"{name}: target {decision.target} is not within {low}..{high}"
    for fixed in job.fixed:
        alive = sum(p.role is fixed.role and p.is_live and p.name not in decision.moves for p in job.pods)
        given = sum(role is fixed.role for role, _ in decision.fixed_nodes)
        if given != max(0, fixed.count - alive):
            yield f"{name}: is admitted, yet given {given} of {max(0, fixed.count - alive)} missing {fixed.role} pods"


def _check_victims(job: Job, decision: ScaleDecision, trainers: Sequence[Pod]) -> Iterable[str]:
    live = {p.name for p in trainers}
    for victim, count in sorted(Counter(decision.victims).items()):
        if victim not in live:
            yield f"job {job.key}: victim {victim} is no live trainer of it"
        if count > 1:
            yield f"job {job.key}: victim {victim} is named {count} times"
    if not decision.admitted and live - set(decision.victims):
        yield f"job {job.key}: is not admitted, yet {len(live - set(decision.victims))} trainers stay"
    if bool(decision.victims) != bool(decision.shrink_reason):
        yield f"job {job.key}: victims and the reason why they die do not go together"


def _check_moves(job: Job, decision: ScaleDecision) -> Iterable[str]:
    live = {p.name for p in job.pods if p.is_live and p.role is Role.PSERVER and p.safe_to_evict is not False}
    for name in sorted(decision.moves):
        if name not in live:
            yield f"job {job.key}: {name} is to move, yet it is no live pserver of it that may be disturbed"
    if decision.moves and not (decision.admitted and job.fault_tolerant):
        yield f"job {job.key}: pservers move, yet the job does not run on without them"


def _check_placing(snapshot: ClusterSnapshot, pairs: list[tuple[Job, ScaleDecision]]) -> Iterable[str]:
    nodes = {node.name: node for node in snapshot.nodes}
    known: dict[tuple[str, int], bool] = {}  # by node and the identity of a placement, which the jobs keep alive
    for job, decision in pairs:
        told: set[tuple[str, int]] = set()
        for name, shape, _ in sorted(_planned(job, decision), key=lambda place: place[0]):
            place = (name, id(shape.placement))
            if place not in known:
                known[place] = name in nodes and takes(nodes[name], shape.placement)
            if known[place] or place in told:
                continue
            told.add(place)
            yield f"job {job.key}: node {name} {'does not take its pods' if name in nodes else 'does not exist'}"


def _planned(job: Job, decision: ScaleDecision) -> Iterable[tuple[str, PodShape, int]]:
    """The new pods of a decision: node, shape and how many."""
    shapes = {fixed.role: fixed.shape for fixed in job.fixed}
    yield from ((name, job.trainer, count) for name, count in decision.nodes)
    yield from ((name, shapes[role], 1) for role, name in decision.fixed_nodes if role in shapes)


def _check_room(snapshot: ClusterSnapshot, pairs: list[tuple[Job, ScaleDecision]]) -> Iterable[str]:
    """No node that is given a pod is overcommitted once the victims are gone; unbound pods of ours need room too."""
    nodes = {node.name: node for node in snapshot.nodes}
    given = {name for job, decision in pairs for name, _, _ in _planned(job, decision) if name in nodes}
    held: dict[str, Counter[str]] = {name: Counter() for name in given}
    for pod in snapshot.pods:
        if not pod.is_finished:
            _hold(held, pod.node or pod.nominated, pod.shape.request)
    for job, decision in pairs:
        for pod in _staying(job, decision):
            _hold(held, pod.node or pod.nominated, pod.shape.request)
    for job, decision in pairs:
        for name, shape, count in _planned(job, decision):
            _hold(held, name, shape.request, count)
    for name in sorted(given):
        for resource in sorted(held[name]):
            amount = _amount_held(held[name], resource)
            if amount > _capacity(nodes[name], resource) and _is_asked(pairs, name, resource):
                yield (
                    f"node {name}: overcommitted, {amount} of {resource} planned,"
                    f" {_capacity(nodes[name], resource)} there"
                )


def _staying(job: Job, decision: ScaleDecision) -> list[Pod]:
    """Live pods that the plan keeps; a job that is not admitted loses its master and pservers too."""
    deleted = {*decision.victims, *decision.moves}
    return [p for p in job.pods if p.is_live and p.name not in deleted] if decision.admitted else []


def _hold(held: dict[str, Counter[str]], node: str, request: Resources, count: int = 1) -> None:
    if node in held:
        for name, amount in request.amounts:
            held[node][name] += amount * count


def _amount_held(held: Counter[str], resource: str) -> int:
    """What is held of a resource; a host port at every address and the same port at one are in each other's way."""
    if not resource.startswith(HOST_PORT_PREFIX):
        return held[resource]
    everywhere = port_at_every_address(resource)
    if resource != everywhere:
        return held[resource] + held[everywhere]
    return held[resource] + max((n for name, n in held.items() if name.startswith(f"{resource}/")), default=0)


def _capacity(node: Node, resource: str) -> int:
    if resource.startswith(HOST_PORT_PREFIX):
        return 1
    return node.allocatable[resource] - node.reserved[resource]


def _is_asked(pairs: list[tuple[Job, ScaleDecision]], node: str, resource: str) -> bool:
    """True where a planned pod on the node asks for the resource; others may have overcommitted what it does not."""
    return any(
        name == node and shape.request[resource] > 0
        for job, decision in pairs
        for name, shape, _ in _planned(job, decision)
    )


def _check_quotas(pairs: list[tuple[Job, ScaleDecision]], quotas: tuple[Quota, ...]) -> Iterable[str]:
    """What a queue's jobs have by the plan is within its quota: pods that stay and pods that come."""
    for quota in quotas:
        used: Counter[str] = Counter()
        for job, decision in pairs:
            if job.queue == quota.queue:
                for pod in _staying(job, decision):
                    used.update(pod.shape.request.as_dict())
                for _, shape, count in _planned(job, decision):
                    used.update((shape.request * count).as_dict())
        for resource, limit in quota.amounts:
            if used[resource] > limit:
                yield f"queue {quota.queue}: {used[resource]} of {resource} planned, its quota is {limit}"


def _check_dropped(
    snapshot: ClusterSnapshot, pairs: list[tuple[Job, ScaleDecision]], quotas: tuple[Quota, ...]
) -> Iterable[str]:
    """A whole running job goes only for serving that waits, a job of a higher tier that needs room, or its quota."""
    if any(pod.needs_room for pod in snapshot.pods):
        return
    needy = [job.tier for job, d in pairs if d.admitted and (not is_whole(job) or not job.was_admitted)]
    for job, decision in pairs:
        if decision.admitted or not (job.is_schedulable and job.was_admitted and is_whole(job)):
            continue
        if not any(tier > job.tier for tier in needy) and not _is_over_quota(job, pairs, quotas):
            yield f"job {job.key}: runs and is dropped, though no serving pod and no job of a higher tier needs room"


def _is_over_quota(job: Job, pairs: list[tuple[Job, ScaleDecision]], quotas: tuple[Quota, ...]) -> bool:
    """True where the minimum of a job has no place in its quota beside the minimums of those that run."""
    needed: Counter[QuotaRow] = Counter()
    for other, decision in pairs:
        if decision.admitted and other.queue == job.queue:
            for quota_use in quota_uses_of(other, quotas):
                needed[quota_use.row] += quota_use.total(other.bounds.min_trainers)
    low = job.bounds.min_trainers
    return any(
        needed[quota_use.row] + quota_use.total(low) > quota_use.row.limit for quota_use in quota_uses_of(job, quotas)
    )


def is_whole(job: Job) -> bool:
    """True where a job has a node for each of its masters and pservers and for its minimum of trainers."""
    bound = Counter(p.role for p in job.pods if p.is_live and (p.node or p.nominated))
    fixed = all(bound[f.role] >= f.count for f in job.fixed)
    return fixed and bound[Role.TRAINER] >= job.bounds.min_trainers


def _check_serving(snapshot: ClusterSnapshot, plan: ScalePlan) -> Iterable[str]:
    pods = [pod for pod in snapshot.pods if pod.is_waiting_serving]
    waiting, marked = len(pods), sum(not pod.needs_room for pod in pods)
    report = plan.serving
    if report.short < marked:
        yield f"serving: {report.short} pods are said to be short, {marked} leave room unused"
    if report.waiting != waiting:
        yield f"serving: {report.waiting} pods are said to wait, {waiting} do"
    if min(report.placed, report.short) < 0 or report.placed + report.short > waiting:
        yield f"serving: {report.placed} placed and {report.short} short do not fit {waiting} waiting"
