"""What to do when no plan could be made in time: the last good plan, without its growth.

A guess never shrinks anybody: only the deletions that waiting serving pods still need are kept, and every other job
stays as it is, its masters and pservers included. The caller checks the result against the new snapshot like any
plan.
"""

from __future__ import annotations

from dataclasses import replace

from edl.errors import PlanError, PlanFailure
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.plan import ScaleDecision, ScalePlan, ServingReport
from edl.model.status import Reason


def failure_of(error: BaseException) -> PlanFailure:
    """How a decision failed, by what it raised."""
    if isinstance(error, PlanError):
        return error.failure
    return PlanFailure.NOT_A_NUMBER if isinstance(error, ArithmeticError) else PlanFailure.BUG


def without_growth(plan: ScalePlan, snapshot: ClusterSnapshot, failure: PlanFailure) -> ScalePlan:
    """The plan reduced to what is safe in another snapshot.

    Args:
        plan: the last one that was made and passed its checks.
        snapshot: the world now.
        failure: why there is no new one.

    Returns:
        A plan that creates nothing. A job has no decision where none is safe: it is new, its spec has changed, it
        lacks pods. Such a job is left as it is.
    """
    waiting = sum(pod.is_waiting_serving for pod in snapshot.pods)
    needy = sum(pod.needs_room for pod in snapshot.pods)
    before = {decision.job: decision for decision in plan.decisions}
    decisions = (_reduced(before.get(job.key), job, serving_waits=needy > 0) for job in snapshot.jobs)
    return replace(
        plan,
        decisions=tuple(d for d in decisions if d is not None),
        serving=ServingReport(waiting=waiting, short=waiting - needy),
        seconds=0.0,
        fallback=failure,
    )


def _reduced(old: ScaleDecision | None, job: Job, *, serving_waits: bool) -> ScaleDecision | None:
    if old is None or old.generation != job.generation:
        return None
    live = {pod.name for pod in job.live_trainers}
    victims = tuple(name for name in old.victims if name in live)
    is_for_serving = serving_waits and Reason.SERVING_NEEDS_ROOM in {old.shrink_reason, old.reason}
    if not serving_waits or old.shrink_reason != Reason.SERVING_NEEDS_ROOM:
        victims = ()
    target = len(live) - len(victims)
    admitted = target > 0
    if not (_can_stay(job, target) if admitted else _may_go(old, job, is_for_serving=is_for_serving)):
        return None
    return replace(
        old,
        current=len(live),
        target=target,
        admitted=admitted,
        victims=victims,
        nodes=(),
        fixed_nodes=(),
        moves=(),
        shrink_reason=old.shrink_reason if victims else "",
    )


def _may_go(old: ScaleDecision, job: Job, *, is_for_serving: bool) -> bool:
    """True where a job has nothing to lose, or was to make way, whole, for serving that still waits."""
    return not old.admitted and (is_for_serving or not any(pod.is_live for pod in job.pods))


def _can_stay(job: Job, trainers: int) -> bool:
    """True where a job that keeps so many trainers, and is given nothing, has all that an admitted job must have."""
    low, high = job.bounds
    fixed = all(sum(p.role is f.role and p.is_live for p in job.pods) >= f.count for f in job.fixed)
    return job.is_schedulable and low <= trainers <= high and fixed
