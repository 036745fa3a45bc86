"""What a job may have while the API server rejects its pods: a quota, a LimitRange, PodSecurity or a webhook.

A refusal is capacity that does not exist. The planner gets a job that wants no more than it was allowed, so no other
job is shrunk for a pod that cannot be made, and capacity that only this job could use goes to others.
"""

from __future__ import annotations

from dataclasses import replace

from edl.model.jobs import Job, Refusal
from edl.model.names import Role
from edl.model.pods import PodPhase
from edl.model.status import Reason


def wants_pods(job: Job) -> bool:
    """Return True if the job would get more pods if there were capacity for them."""
    if not job.is_schedulable:
        return False
    return len(job.live_trainers) < job.bounds.max_trainers or not _has_fixed(job)


def missing_roles(job: Job) -> tuple[Role, ...]:
    """The roles of which the job has fewer live pods than it wants, masters first."""
    fixed = [f.role for f in job.fixed if _count(job, f.role) < f.count]
    return (*fixed, Role.TRAINER) if len(job.live_trainers) < job.bounds.max_trainers else tuple(fixed)


def next_index(job: Job, role: Role) -> int:
    """The lowest index of a role that no pod has."""
    used = {p.index for p in job.pods if p.role is role}
    return next(i for i in range(len(used) + 1) if i not in used)


def as_allowed(job: Job, refusal: Refusal | None) -> Job:
    """Return the job for the planner with its trainers limited to those that the API server accepts.

    The limit is no maximum: what share of the cluster is fair for a job depends on its maximum, and stays. A job that
    may try may have what it may try, and at least its minimum. One that must not try keeps the pods it has, and lacks
    nothing; a pinned one, too. If these are not enough to run, it gets none and its pods go. A fault-tolerant job
    with a running trainer runs, whatever its minimum. A job of which a trainer completed is left as it is.

    Args:
        job: the job with the bounds that it would have otherwise.
        refusal: what the API server rejects; None if nothing.
    """
    low, high = job.bounds
    if refusal is None or not wants_pods(job) or job.completed_trainers:
        return job
    if refusal.is_tried:
        most = max(low, refusal.allowed)
        return job if most >= high else replace(job, refusal=replace(refusal, allowed=most))
    live = len(job.live_trainers)
    runs = job.fault_tolerant and any(p.phase is PodPhase.RUNNING for p in job.live_trainers)
    has_minimum = live >= job.min_trainers and _has_fixed(job)
    if not live or not (has_minimum or runs):
        return replace(job, refusal=replace(refusal, allowed=0, bars=True))
    # Without its pin a job would fall to its share of the cluster, which may be less than what it has.
    kept = replace(job, pin_floor=live) if job.pinned else replace(job, max_trainers=high)
    return replace(
        kept,
        min_trainers=min(job.min_trainers, live),
        fixed=tuple(replace(f, count=min(f.count, _count(job, f.role))) for f in job.fixed),
        refusal=replace(refusal, allowed=live),
    )


def as_unasked(job: Job) -> Job:
    """Return the job for the planner while no dry run has checked its changed pods: it keeps the pods that it has.

    Args:
        job: with pods; one without any is left out of the plan.
    """
    live = len(job.live_trainers)
    message = "edl asks the API server whether it accepts pods of the changed spec"
    refusal = Refusal(live, is_tried=False, reason=Reason.PODS_REFUSED, message=message, details="")
    return job if not job.is_schedulable or job.refusal is not None else as_allowed(job, refusal)


def _has_fixed(job: Job) -> bool:
    return all(_count(job, f.role) >= f.count for f in job.fixed)


def _count(job: Job, role: Role) -> int:
    return sum(p.role is role and p.is_live for p in job.pods)
