"""The rules that no plan may break, each checked again on the finished plan.

`check` recomputes every rule from the snapshot alone, in plain Python and without the solver, so that an error in the
mathematics never reaches a pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from edl.errors import PlanError, PlanFailure
from edl.model.cluster import ClusterSnapshot, Node
from edl.model.jobs import Job
from edl.model.limits import Quota
from edl.model.names import Role
from edl.model.plan import ScaleDecision, ScalePlan
from edl.model.pods import Pod
from edl.model.resources import HOST_PORT_PREFIX, PodShape, Resources, port_at_every_address
from edl.model.sizes import allows, named
from edl.model.topology import slice_of
from edl.planner.domains.guard import check_topologies
from edl.planner.eligibility import takes
from edl.planner.quota import QuotaRow, QuotaTable, all_quotas, pod_use, quota_uses_of

DEAD_BAND = 0.1  # fulfilment by which a job must gain, or stay behind, before another one is shrunk for it
TOLERANCE = 1e-6


class RefusedPlanError(PlanError):
    """A plan breaks a rule: a bug in edl; the plan must not be carried out.

    Attributes:
        plan: the refused plan.
        problems: one sentence for each broken rule.
    """

    def __init__(self, plan: ScalePlan, problems: tuple[str, ...]) -> None:
        super().__init__(
            "edl made a plan that breaks its own rules and does not carry it out; this is a bug in edl: "
            + "; ".join(problems),
            PlanFailure.REFUSED,
        )
        self.plan = plan
        self.problems = problems


def check(snapshot: ClusterSnapshot, plan: ScalePlan, quotas: Iterable[Quota] = ()) -> tuple[str, ...]:
    """Check every rule for a plan.

    Args:
        snapshot: what the plan was made for.
        plan: the plan.
        quotas: the limits of the queues; those of the namespaces are in the snapshot.

    Returns:
        One sentence for each broken rule, in a fixed order; empty if the plan may be carried out.
    """
    problems = list(_check_order(snapshot, plan))
    if problems:
        return tuple(problems)
    pairs = list(zip(snapshot.jobs, plan.decisions, strict=True))
    for job, decision in pairs:
        live = job.live_trainers
        problems += _check_counts(job, decision, live)
        problems += _check_size(job, decision, is_new=plan.fallback is None)
        problems += _check_refusal(job, decision)
        problems += _check_victims(job, decision, live)
        problems += _check_moves(job, decision)
    problems += _check_placing(snapshot, pairs)
    problems += check_topologies(snapshot, pairs, is_new=plan.fallback is None)
    problems += _check_capacity(snapshot, pairs)
    limits = all_quotas(snapshot, quotas)
    problems += _check_quotas(pairs, limits)
    problems += _check_dropped(snapshot, pairs, QuotaTable(limits))
    problems += _check_serving(snapshot, plan)
    if not plan.certificate.bound >= plan.certificate.achieved - TOLERANCE:
        problems.append(f"certificate: bound {plan.certificate.bound} is below achieved {plan.certificate.achieved}")
    return tuple(problems)


def check_early_evictions(snapshot: ClusterSnapshot, decisions: Iterable[ScaleDecision]) -> tuple[str, ...]:
    """Name each rule that evictions ahead of a plan break.

    Args:
        snapshot: the cluster as the planner sees it.
        decisions: at most one for each job.
    """
    jobs, problems = {job.key: job for job in snapshot.jobs}, list[str]()
    for decision in decisions:
        job = jobs[decision.job]
        problems += _check_victims(job, decision, job.live_trainers)
        kept = len(job.live_trainers) - len(decision.victims)
        if not job.bounds.min_trainers <= kept == decision.target:
            low = job.bounds.min_trainers
            problems.append(f"job {job.key}: keeps {kept} trainers with target {decision.target} and minimum {low}")
        if decision.nodes or decision.fixed_nodes or decision.moves or not decision.admitted:
            problems.append(f"job {job.key}: only trainers may be evicted ahead of a plan")
    return tuple(problems)


def _check_order(snapshot: ClusterSnapshot, plan: ScalePlan) -> Iterable[str]:
    """Check that the plan has exactly one decision for each job, in the order of the jobs."""
    if [d.job for d in plan.decisions] != [job.key for job in snapshot.jobs]:
        yield "the plan does not have exactly one decision for each job, in the order of the jobs"


def _check_counts(job: Job, decision: ScaleDecision, trainers: Sequence[Pod]) -> Iterable[str]:
    """Check that the numbers of a decision add up, and that an admitted job gets its minimum."""
    name, planned = f"job {job.key}", sum(count for _, count in decision.nodes)
    if decision.generation != job.generation:
        yield f"{name}: the decision is for generation {decision.generation}, but the job has {job.generation}"
    if decision.current != len(trainers):
        yield f"{name}: current is {decision.current}, but the job has {len(trainers)} live trainers"
    if decision.target != decision.current - len(decision.victims) + planned:
        yield (
            f"{name}: target {decision.target} is not {decision.current} current - {len(decision.victims)} victims"
            f" + {planned} new"
        )
    for node, count in decision.nodes:
        if count <= 0:
            yield f"{name}: node {node} is listed with {count} new trainers; it must be at least 1"
    if not decision.admitted:
        kept = decision.current if job.is_left_alone else 0
        if decision.target != kept or decision.nodes or decision.fixed_nodes:
            yield f"{name}: not admitted, but it gets pods"
        return
    low, high = job.bounds
    low = min(low, job.min_trainers) if job.pinned else low  # a pinned count that does not fit is not required
    if not job.is_schedulable:
        yield f"{name}: admitted, but it is invalid, suspended, finished or being deleted"
    if not low <= decision.target <= high:
        yield f"{name}: target {decision.target} is not within {low}..{high}"
    for fixed in job.fixed:
        live = sum(p.role is fixed.role and p.is_live and p.name not in decision.moves for p in job.pods)
        given, missing = sum(role is fixed.role for role, _ in decision.fixed_nodes), max(0, fixed.count - live)
        if given != missing:
            yield f"{name}: admitted, but it gets {given} new {fixed.role} pods and lacks {missing}"


def _check_size(job: Job, decision: ScaleDecision, *, is_new: bool) -> Iterable[str]:
    """Check that an admitted job has one of its allowed sizes.

    In the last plan without its growth, which is not new, a job that has lost a trainer may stay as it is.
    """
    changes = is_new or bool(decision.victims or decision.nodes)
    if decision.admitted and changes and not allows(job.sizes, decision.target):
        yield f"job {job.key}: target {decision.target} is none of its sizes: {named(job.sizes)}"


def _check_refusal(job: Job, decision: ScaleDecision) -> Iterable[str]:
    """Check that the plan has no trainer that the API server rejects."""
    if job.refusal is not None and decision.target > max(decision.current, job.refusal.allowed):
        yield f"job {job.key}: target {decision.target}, but only {job.refusal.allowed} trainers are accepted now"


def _check_victims(job: Job, decision: ScaleDecision, trainers: Sequence[Pod]) -> Iterable[str]:
    """Check that victims are live trainers, listed once each, and that the decision says why they are deleted."""
    if decision.admitted and not decision.victims and not decision.shrink_reason:
        return
    live = {p.name for p in trainers}
    for victim, count in sorted(Counter(decision.victims).items()):
        if victim not in live:
            yield f"job {job.key}: victim {victim} is not a live trainer of the job"
        if count > 1:
            yield f"job {job.key}: victim {victim} is listed {count} times"
    if job.is_left_alone and decision.victims:
        yield f"job {job.key}: edl leaves it alone, but {len(decision.victims)} of its pods are victims"
    elif not (decision.admitted or job.is_left_alone) and live - set(decision.victims):
        yield f"job {job.key}: not admitted, but it keeps {len(live - set(decision.victims))} trainers"
    if decision.victims and not decision.shrink_reason:
        yield f"job {job.key}: has victims, but no reason to delete them"
    if decision.shrink_reason and not decision.victims:
        yield f"job {job.key}: has the reason {decision.shrink_reason} to delete trainers, but no victims"


def _check_moves(job: Job, decision: ScaleDecision) -> Iterable[str]:
    """Check that only live pservers move that are safe to evict, of jobs that continue without them."""
    if not decision.moves:
        return
    live = {p.name for p in job.pods if p.is_live and p.role is Role.PSERVER and p.safe_to_evict is not False}
    for name in sorted(decision.moves):
        if name not in live:
            yield f"job {job.key}: pod {name} is to move, but it is not a live pserver that is safe to evict"
    if decision.moves and not (decision.admitted and job.fault_tolerant):
        yield f"job {job.key}: pservers are to move, but the job is not admitted or not fault-tolerant"


def _check_placing(snapshot: ClusterSnapshot, pairs: list[tuple[Job, ScaleDecision]]) -> Iterable[str]:
    """Check that new pods go to existing nodes that accept them, and that each node is listed once per job."""
    nodes = {node.name: node for node in snapshot.nodes}
    known: dict[tuple[str, int], bool] = {}  # by node and the identity of a placement, which the jobs keep alive
    for job, decision in pairs:
        reported: set[tuple[str, int]] = set()
        for name, shape, _ in sorted(_planned(job, decision), key=lambda place: place[0]):
            place = (name, id(shape.placement))
            if place not in known:
                known[place] = name in nodes and takes(nodes[name], shape.placement)
            if known[place] or place in reported:
                continue
            reported.add(place)
            yield f"job {job.key}: node {name} {'is not eligible for the pod' if name in nodes else 'does not exist'}"


def _planned(job: Job, decision: ScaleDecision) -> Iterable[tuple[str, PodShape, int]]:
    """The new pods of a decision: node, shape and how many."""
    shapes = {fixed.role: fixed.shape for fixed in job.fixed}
    yield from ((name, job.trainer, count) for name, count in decision.nodes)
    yield from ((name, shapes[role], 1) for role, name in decision.fixed_nodes if role in shapes)


def _check_capacity(snapshot: ClusterSnapshot, pairs: list[tuple[Job, ScaleDecision]]) -> Iterable[str]:
    """Check that the plan overcommits no node; the capacity of victims counts as free, unbound pods of edl count."""
    nodes = {node.name: node for node in snapshot.nodes}
    planned = [place for job, decision in pairs for place in _planned(job, decision) if place[0] in nodes]
    held: dict[str, list[tuple[Resources, int]]] = {name: [] for name, _, _ in planned}
    if not held:
        return
    others = chain(snapshot.pods, snapshot.pods_left_alone)
    here = [pod for pod in others if (pod.node or pod.nominated) in held]  # of tens of thousands, few remain
    staying = [pod for job, decision in pairs for pod in _staying(job, decision, held)]
    for pod in chain((pod for pod in here if not pod.is_finished), staying):
        held[pod.node or pod.nominated].append((pod.shape.request, 1))
    new: dict[str, list[Resources]] = {name: [] for name in held}
    for name, shape, count in planned:
        held[name].append((shape.request, count))
        new[name].append(shape.request)
    requests = {id(request): request for here in held.values() for request, _ in here}
    known = {key: _split(request) for key, request in requests.items()}
    for name in sorted(held):
        yield from _check_node(nodes[name], held[name], new[name], known)


class _Split(NamedTuple):
    """A request, split into the number of its host ports, those at every address, and its other amounts."""

    named: int
    ports: frozenset[str]
    others: tuple[tuple[str, int], ...]


def _split(request: Resources) -> _Split:
    """Set the host ports of a request apart, which may be hundreds."""
    ports = {name: amount for name, amount in request.amounts if name.startswith(HOST_PORT_PREFIX)}
    others = tuple((name, amount) for name, amount in request.amounts if name not in ports)
    return _Split(sum(ports.values()), frozenset(map(port_at_every_address, ports)), others)


def _check_node(
    node: Node, held: list[tuple[Resources, int]], new: list[Resources], known: Mapping[int, _Split]
) -> Iterable[str]:
    """Yield what the pods of one node would request too much of; `held` counts present pods, `new` planned ones.

    What no planned pod requests may be overcommitted. `known` has the parts of each request, by identity.
    """
    used = [(known[id(request)], count) for request, count in held]
    distinct = len(frozenset[str]().union(*(parts.ports for parts, _ in used)))
    may_clash = distinct < sum(parts.named * count for parts, count in used)
    requested = {name for request in new for name, _ in (request.amounts if may_clash else known[id(request)].others)}
    total: Counter[str] = Counter()
    for request, count in held:
        for name, amount in request.amounts if may_clash else known[id(request)].others:
            total[name] += amount * count
    at_one_address = _most_at_one_address(total)
    for resource in sorted(requested):
        amount, capacity = _amount_held(total, at_one_address, resource), _capacity(node, resource)
        if amount > capacity:
            yield (
                f"node {node.name}: overcommitted; pods would request {amount} of {resource},"
                f" but only {capacity} is allocatable"
            )


def _staying(job: Job, decision: ScaleDecision, nodes: Container[str] | None = None) -> list[Pod]:
    """The live pods that the plan keeps; a job that is not admitted loses its masters and pservers too.

    Args:
        job: the job.
        decision: what the plan says of it.
        nodes: only pods on these nodes, or nominated for them; None for all.
    """
    if not decision.admitted:
        return []
    deleted = {*decision.victims, *decision.moves}
    pods = job.pods if nodes is None else [p for p in job.pods if (p.node or p.nominated) in nodes]
    return [p for p in pods if p.is_live and p.name not in deleted]


def _most_at_one_address(held: Counter[str]) -> dict[str, int]:
    """By host port, how many pods hold it at the one address that most of them name."""
    most: dict[str, int] = {}
    for name, n in held.items():
        if name.startswith(HOST_PORT_PREFIX) and (port := port_at_every_address(name)) != name:
            most[port] = max(most.get(port, 0), n)
    return most


def _amount_held(held: Counter[str], ports: Mapping[str, int], resource: str) -> int:
    """The use of a resource; a host port at every address conflicts with the same port at a single address.

    `ports` is what `_most_at_one_address` says of the node.
    """
    everywhere = port_at_every_address(resource) if resource.startswith(HOST_PORT_PREFIX) else resource
    return held[resource] + (held[everywhere] if resource != everywhere else ports.get(resource, 0))


def _capacity(node: Node, resource: str) -> int:
    """The capacity of a resource on the node; 1 for each host port."""
    if resource.startswith(HOST_PORT_PREFIX):
        return 1
    return node.allocatable[resource] - node.reserved[resource]


def _check_quotas(pairs: list[tuple[Job, ScaleDecision]], quotas: tuple[Quota, ...]) -> Iterable[str]:
    """Check that the pods that stay and the new ones are within the quotas of their queue and namespace."""
    table = QuotaTable(quotas)
    total: dict[Quota, Counter[str]] = {}
    for job, decision in pairs:
        mine = table.of(job)
        pods = _pods_after(job, decision) if mine else []
        for quota in mine:
            used = total.setdefault(quota, Counter())
            for resource, _ in quota.amounts:
                used[resource] += sum(pod_use(resource, shape, limits) * n for shape, limits, n in pods)
    for quota, used in total.items():
        owner = f"namespace {quota.namespace}, ResourceQuota" if quota.namespace else "queue"
        for resource, limit in quota.amounts:
            if used[resource] > limit:
                asked = f"jobs would request {used[resource]} of {resource}"
                yield f"{owner} {quota.queue}: {asked}; the quota is {limit}"


def _pods_after(job: Job, decision: ScaleDecision) -> list[tuple[PodShape, Resources, int]]:
    """The pods of a job once the plan is carried out: shape, limits, and how many."""
    limits_of: dict[Role | None, Resources] = {fixed.role: fixed.limits for fixed in job.fixed}
    pods = [(pod.shape, limits_of.get(pod.role, job.limits), 1) for pod in _staying(job, decision)]
    pods += [(job.trainer, job.limits, count) for _, count in decision.nodes]
    fixed = {f.role: (f.shape, f.limits, 1) for f in job.fixed}
    return pods + [fixed[role] for role, _ in decision.fixed_nodes if role in fixed]


def _check_dropped(
    snapshot: ClusterSnapshot, pairs: list[tuple[Job, ScaleDecision]], quotas: QuotaTable
) -> Iterable[str]:
    """Check that a running job is only stopped for serving pods, for a job of a higher rank, or for its quota."""
    if any(pod.needs_capacity for pod in snapshot.waiting_serving):
        return
    dropped = [
        job for job, d in pairs if not d.admitted and job.is_schedulable and job.was_admitted and is_whole(job)
    ]
    if not dropped:
        return
    ranks_in_need = [job.rank for job, d in pairs if d.admitted and (not is_whole(job) or not job.was_admitted)]
    for job in dropped:
        if not any(rank > job.rank for rank in ranks_in_need) and not _is_over_quota(job, pairs, quotas):
            yield f"job {job.key}: runs but is dropped; no serving pod, no higher tier and no quota requires that"


def _is_over_quota(job: Job, pairs: list[tuple[Job, ScaleDecision]], quotas: QuotaTable) -> bool:
    """True if the minimum of a job exceeds its quota together with the minimums of the admitted jobs."""
    needed: Counter[QuotaRow] = Counter()
    for other, decision in pairs:
        if decision.admitted:
            for quota_use in quota_uses_of(other, quotas):
                needed[quota_use.row] += quota_use.total(other.bounds.min_trainers)
    low = job.bounds.min_trainers
    return any(
        needed[quota_use.row] + quota_use.total(low) > quota_use.row.limit for quota_use in quota_uses_of(job, quotas)
    )


def is_whole(job: Job) -> bool:
    """True if each master and pserver of a job, and its minimum of trainers, has a node; in whole slices, if any."""
    there = [p for p in job.pods if p.is_live and (p.node or p.nominated)]
    bound = Counter(p.role for p in there)
    fixed = all(bound[f.role] >= f.count for f in job.fixed)
    size = job.topology.slices.size if job.topology is not None and job.topology.slices is not None else 1
    slices = Counter(slice_of(p.index, size) for p in there if p.role is Role.TRAINER)
    return fixed and sum(n for n in slices.values() if n == size) >= job.bounds.min_trainers


def _check_serving(snapshot: ClusterSnapshot, plan: ScalePlan) -> Iterable[str]:
    """Check that the numbers of serving pods in the plan match the snapshot."""
    pods = snapshot.waiting_serving
    waiting, marked = len(pods), sum(not pod.needs_capacity for pod in pods)
    report = plan.serving
    if report.short < marked:
        yield f"serving: the plan counts {report.short} short pods, but {marked} are marked as unplaceable"
    if report.waiting != waiting:
        yield f"serving: the plan counts {report.waiting} waiting pods, but there are {waiting}"
    if min(report.placed, report.short) < 0 or report.placed + report.short > waiting:
        yield f"serving: {report.placed} placed and {report.short} short pods do not match {waiting} waiting pods"
