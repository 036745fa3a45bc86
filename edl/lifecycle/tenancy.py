"""Applies the rule of a job's namespace: a priority above its highest is lowered, and a queue may be closed to it.

The priority and the queue are in the job, which its owner writes; whose work stops for whose is the operator's
decision. A closed queue is no error of the spec: the job waits, and it runs once the operator opens the queue.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from edl.model.jobs import Job, Refusal
from edl.model.limits import Limits, Quota
from edl.model.queues import Queue
from edl.model.status import Reason
from edl.model.tenants import UnknownQueues
from edl.model.units import listed

DEFAULT_QUEUE = "default"
"""The queue of a job that names none."""


def as_permitted(job: Job, limits: Limits, queues: Collection[str] = ()) -> Job:
    """The job for the planner, with the priority and the queue that its namespace may use.

    Args:
        job: as its owner wrote it.
        limits: what the operator allows.
        queues: the names of the Queue objects of the cluster.
    """
    if limits.tenants is None or not job.is_schedulable:
        return job
    rule, queue = limits.tenants.rule_of(job.key.namespace), job.queue
    if rule.max_priority is not None and job.tier > rule.max_priority:
        job = replace(job, tier=rule.max_priority)
    if rule.queues is not None and queue not in rule.queues and job.kueue is None:  # Kueue has rules of its own
        open_queues = f"use {listed(rule.queues)}" if rule.queues else "no queue is"
        return _closed(job, f"queue {queue} is not open to namespace {job.key.namespace}; {open_queues}")
    if (
        job.kueue is not None
        or queue == DEFAULT_QUEUE
        or queue in queues
        or queue in {q.queue for q in limits.quotas}
    ):
        return job
    if limits.tenants.unknown_queues is UnknownQueues.REFUSE:
        return _closed(job, f"queue {queue} does not exist; use a Queue of the cluster or of --queues")
    if limits.tenants.unknown_queues is UnknownQueues.DEFAULT:
        return replace(job, queue=DEFAULT_QUEUE)
    return job


def as_held(job: Job, unknown: Collection[str]) -> Job:
    """The job for the planner, with no more than it has if the limits of its queue are unknown.

    Args:
        job: as its namespace may have it.
        unknown: the names of the Queue objects that are not valid and of which no valid version is known.
    """
    if job.queue not in unknown or not job.is_schedulable:
        return job
    live = len(job.live_trainers)
    runs = job.was_admitted and any(pod.is_live for pod in job.pods)
    message = f"Queue {job.queue} is not valid, so its jobs get no more than they have; correct the object"
    allowed = max(live, job.bounds.min_trainers) if runs else 0
    refusal = Refusal(
        allowed, is_tried=False, reason=Reason.QUOTA_REACHED, message=message, details="", bars=not runs
    )
    return replace(job, refusal=refusal)


def best_effort_queues(queues: Collection[Queue], quotas: Collection[Quota]) -> frozenset[str]:
    """The queues whose jobs may have trainers that request neither cpu nor memory.

    Args:
        queues: the Queue objects of the cluster; one whose limits are unknown is among the result, because its jobs
            keep what they have.
        quotas: the quotas of the file of `--queues`; an object of the same name counts instead.
    """
    objects = {queue.name for queue in queues}
    of_file = (quota.queue for quota in quotas if quota.best_effort and quota.queue not in objects)
    return frozenset((*of_file, *(queue.name for queue in queues if queue.best_effort or queue.is_unknown)))


def as_requested(job: Job, best_effort: Collection[str]) -> Job:
    """The job for the planner; refused if its trainers request nothing and its queue does not allow that.

    Args:
        job: as its namespace may have it.
        best_effort: the queues that allow it; see `best_effort_queues`.
    """
    if not job.is_best_effort or not job.is_schedulable or job.queue in best_effort:
        return job
    message = (
        f"trainers of {job.key} request neither cpu nor memory, and queue {job.queue} does not allow that; set"
        f" spec.trainer.resources, use a queue that allows it, or write bestEffort: Allowed in queue {job.queue}"
    )
    return _closed(job, message, Reason.BEST_EFFORT_NOT_ALLOWED)


def limited_priority(job: Job, limits: Limits) -> tuple[str, str] | None:
    """(reason, message) for condition Degraded if the job's priority is higher than its namespace may use."""
    most = limits.tenants.rule_of(job.key.namespace).max_priority if limits.tenants is not None else None
    if most is None or job.tier <= most:
        return None
    return (
        "PriorityLimited",
        f"spec.priority {job.tier} counts as {most}, the most that namespace {job.key.namespace} may use; lower it,"
        " or ask the operator of the cluster",
    )


def _closed(job: Job, message: str, reason: Reason = Reason.QUEUE_NOT_ALLOWED) -> Job:
    refusal = Refusal(0, is_tried=False, reason=reason, message=message, details="", bars=True)
    return replace(job, refusal=refusal)
