"""Computes what each queue has and may have after a plan, for its status: `kubectl get queues` shows it."""

from __future__ import annotations

from collections import Counter, defaultdict

from edl.explain.queue_capacity import QueueCapacities, QueueCapacity
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.plan import ScaleDecision, ScalePlan
from edl.model.queues import Amounts, Queue, QueueStatus
from edl.model.quota_trees import Pool
from edl.model.units import plain, rank_of
from edl.planner.queues.kueue_quotas import kueue_quotas

LONGEST_PROBLEM = 900
"""Characters of a problem in a status, whose message has 1024 at most."""


def queue_statuses(view: ClusterSnapshot, plan: ScalePlan) -> dict[str, QueueStatus]:
    """The status of each Queue object, by name.

    Args:
        view: what the plan was made for.
        plan: a decision for each of its jobs.
    """
    capacities, jobs = QueueCapacities(view), _jobs_by_queue(view, plan)
    found: dict[str, QueueStatus] = {}
    for queue in view.queues:
        own = [one for resource, _ in queue.nominal if (one := capacities.of(queue.name, resource)) is not None]
        shares = {one.resource: one.share for one in own}
        message = _invalid(queue) if queue.problem else _message(own)
        found[queue.name] = _status(queue, jobs[queue.name], shares, message)
    return found


def kueue_statuses(view: ClusterSnapshot, plan: ScalePlan) -> dict[Queue, QueueStatus]:
    """Compute the status of each ClusterQueue from the jobs that edl sizes; `nominal` is its own quota.

    Args:
        view: what the plan was made for.
        plan: a decision for each of its jobs.
    """
    jobs, shares = _jobs_by_queue(view, plan), {quota.queue: dict(quota.amounts) for quota in kueue_quotas(view)}
    limits = {node.name: dict(node.limits) for node in view.kueue.nodes}
    found: dict[Queue, QueueStatus] = {}
    for sized in view.kueue.queues:
        own = {resource: limits[sized.node].get(Pool(flavor, resource)) for resource, flavor in sized.flavors}
        nominal = {resource: limit.nominal for resource, limit in own.items() if limit is not None}
        queue = Queue(sized.name, _sorted(nominal))
        found[queue] = _status(queue, jobs[sized.name], shares[sized.name], "")
    return found


def _jobs_by_queue(view: ClusterSnapshot, plan: ScalePlan) -> dict[str, list[tuple[Job, ScaleDecision]]]:
    decisions = {decision.job: decision for decision in plan.decisions}
    jobs: dict[str, list[tuple[Job, ScaleDecision]]] = defaultdict(list)
    for job in view.jobs:
        if job.key in decisions:
            jobs[job.queue].append((job, decisions[job.key]))
    return jobs


def _status(queue: Queue, jobs: list[tuple[Job, ScaleDecision]], shares: dict[str, int], message: str) -> QueueStatus:
    used: Counter[str] = Counter({resource: 0 for resource, _ in queue.nominal})
    for job, decision in jobs:
        if decision.admitted:
            for resource in used:
                used[resource] += decision.target * job.trainer.request[resource]
                used[resource] += sum(f.count * f.shape.request[resource] for f in job.fixed)
        for pod in job.kept_by_owner:
            for resource in used:
                used[resource] += pod.shape.request[resource]
    borrowed = {resource: used[resource] - own for resource, own in queue.nominal if used[resource] > own}
    return QueueStatus(
        used=_sorted(used),
        borrowed=_sorted(borrowed),
        share=_sorted(shares),
        running=sum(decision.admitted or bool(job.kept_by_owner) for job, decision in jobs),
        pending=sum(not decision.admitted and (job.is_schedulable or job.is_barred) for job, decision in jobs),
        message=message,
    )


def _invalid(queue: Queue) -> str:
    """Say why the Queue object is not valid, and which limits apply until somebody repairs it."""
    rule = "its jobs get no more than they have" if queue.is_unknown else "its last valid limits count"
    return f"invalid: {queue.problem[:LONGEST_PROBLEM]}; {rule} until then"


def _message(capacities: list[QueueCapacity]) -> str:
    """Say what share of its scarcest resource a queue has, and who uses the rest; empty if it is short of none."""
    scarce = sorted((one for one in capacities if one.is_scarce), key=lambda one: rank_of(one.resource))
    if not scarce:
        return ""
    holders = scarce[0].holders()
    return f"{plain(scarce[0].resource)}: {scarce[0].origin()}" + (f"; {holders}" if holders else "")


def _sorted(amounts: dict[str, int]) -> Amounts:
    return tuple(sorted(amounts.items()))
