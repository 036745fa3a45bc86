"""Reduces the last plan if no new one could be made in time: it may delete, but no job grows.

The old plan was made for another snapshot, so it never shrinks a job for the growth of another one. Only deletions
that waiting serving pods still need are kept. Every other job stays unchanged, its masters and pservers included. The
caller checks the result against the new snapshot, as it checks any plan.
"""

from __future__ import annotations

from dataclasses import replace

from edl.errors import PlanError, PlanFailure
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.plan import ScaleDecision, ScalePlan, ServingReport
from edl.model.status import Reason


def failure_of(error: BaseException) -> PlanFailure:
    """The kind of failure of a decision, by the error that it raised."""
    if isinstance(error, PlanError):
        return error.failure
    return PlanFailure.NOT_A_NUMBER if isinstance(error, ArithmeticError) else PlanFailure.BUG


def without_growth(plan: ScalePlan, snapshot: ClusterSnapshot, failure: PlanFailure) -> ScalePlan:
    """Reduce an old plan to what is safe in another snapshot.

    Args:
        plan: the last plan that was made and passed its checks.
        snapshot: the cluster now.
        failure: why there is no new plan.

    Returns:
        A plan that creates no pod. A job has no decision in it if none is safe: the job is new, or its spec has
        changed, or it lacks pods. The caller leaves such a job unchanged.
    """
    waiting = len(snapshot.waiting_serving)
    to_place = sum(pod.needs_capacity for pod in snapshot.waiting_serving)
    before = {decision.job: decision for decision in plan.decisions}
    decisions = (_without_growth_of(before.get(job.key), job, serving_waits=to_place > 0) for job in snapshot.jobs)
    return replace(
        plan,
        decisions=tuple(_without_new_asks(d, snapshot) for d in decisions if d is not None),
        serving=ServingReport(waiting=waiting, short=waiting - to_place),
        seconds=0.0,
        headroom=(),
        fallback=failure,
    )


def _without_new_asks(decision: ScaleDecision, snapshot: ClusterSnapshot) -> ScaleDecision:
    """Let a decision ask for no further node; existing request pods of its group stay."""
    if decision.asks is None:
        return decision
    group = decision.asks.group
    kept = tuple(r.pod.name for r in snapshot.node_requests if r.job == decision.job and r.group == group)
    return replace(decision, asks=replace(decision.asks, kept=kept, new=()))


def _without_growth_of(old: ScaleDecision | None, job: Job, *, serving_waits: bool) -> ScaleDecision | None:
    """The decision of one job without its growth; None if none is safe."""
    if old is None or old.generation != job.generation:
        return None
    live = {pod.name for pod in job.live_trainers}
    victims = tuple(name for name in old.victims if name in live)
    is_for_serving = serving_waits and Reason.SERVING_NEEDS_ROOM in {old.shrink_reason, old.reason}
    if not serving_waits or old.shrink_reason != Reason.SERVING_NEEDS_ROOM:
        victims = ()
    target = len(live) - len(victims)
    admitted = target > 0
    if not (_can_stay(job, target) if admitted else _may_lose_all(old, job, is_for_serving=is_for_serving)):
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


def _may_lose_all(old: ScaleDecision, job: Job, *, is_for_serving: bool) -> bool:
    """True if a job has no pods to lose, or lost its admission for serving pods that still wait."""
    return not old.admitted and (is_for_serving or not any(pod.is_live for pod in job.pods))


def _can_stay(job: Job, trainers: int) -> bool:
    """True if the job still has its minimum with `trainers` trainers and no new pod."""
    low, high = job.bounds
    fixed = all(sum(p.role is f.role and p.is_live for p in job.pods) >= f.count for f in job.fixed)
    return job.is_schedulable and low <= trainers <= high and fixed
