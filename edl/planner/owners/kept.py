"""Plans beside workloads that must not be stopped: what they keep is no capacity for anybody else.

Such a workload is admitted before all others. If it is stopped all the same, because serving or its queue needs what
it has, it is shrunk to its minimum at most. So the plan is made once more, in which that minimum stays: else others
would keep their trainers, and what waits would wait for capacity that never comes free.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.names import JobKey
from edl.model.plan import ScalePlan
from edl.model.units import count
from edl.planner.owners.order import in_deletion_order


def stopped_in_vain(snapshot: ClusterSnapshot, plan: ScalePlan) -> frozenset[JobKey]:
    """The running workloads that the plan stops although that frees nothing: they keep their minimum in any case."""
    kept = {job.key for job in snapshot.jobs if job.keeps_minimum and job.is_schedulable and job.was_admitted}
    return frozenset(decision.job for decision in plan.decisions if decision.job in kept and not decision.admitted)


def as_kept(snapshot: ClusterSnapshot, kept: Collection[JobKey]) -> ClusterSnapshot:
    """Return the snapshot in which some workloads keep their minimum; their other trainers count as terminating."""
    return snapshot.with_changed(_at_minimum(job) if job.key in kept else job for job in snapshot.jobs)


def with_kept(first: ScalePlan, last: ScalePlan, kept: Collection[JobKey]) -> ScalePlan:
    """Turn the last plan of the series into one for the snapshot of the first plan.

    Args:
        first: the plan that stops these workloads; what it decides for them stands.
        last: the plan for the snapshot in which they are left alone.
        kept: these workloads.
    """
    pairs = zip(first.decisions, last.decisions, strict=True)
    decisions = tuple(old if old.job in kept else new for old, new in pairs)
    return replace(last, decisions=decisions, given=first.given)


def _at_minimum(job: Job) -> Job:
    low = job.bounds.min_trainers
    surplus = {pod.name for pod in in_deletion_order(job)[: max(0, len(job.live_trainers) - low)]}
    pods = tuple(replace(pod, terminating=True) if pod.name in surplus else pod for pod in job.pods)
    words = f"what runs on it would fail if it were stopped, so it keeps its minimum of {count(low, 'pod')}"
    return replace(job, pods=pods, problem=words)
