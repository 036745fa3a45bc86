"""Why each job has the count it has: a reason for scripts, and the cause that its sentence is written from.

Reasons belong to the decision: the guard checks them and later decisions read them. Sentences do not; `edl.explain`
writes them from what is found here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from edl.model.jobs import Job
from edl.model.names import JobKey
from edl.model.status import Reason
from edl.planner.findings.context import EPSILON, DecisionContext
from edl.planner.problem import JobDemand
from edl.planner.quota import REFUSED, QuotaShortage
from edl.planner.scores import is_felt
from edl.planner.waits import growth_hold_left_s


class Cause(StrEnum):
    """The exact cause of a job's trainer count; several causes share one public reason."""

    DELETING = "deleting"
    ENDED = "ended"
    INVALID = "invalid"
    SUSPENDED = "suspended"
    REFUSED = "refused"
    # an admitted job
    PINNED = "pinned"
    AT_MAX = "at_max"
    SLOWED_BEYOND = "slowed_beyond"
    YIELDS_TO_SERVING = "yields_to_serving"
    YIELDED_LATELY = "yielded_lately"
    QUOTA_USED = "quota_used"
    RESERVES_FOR_OTHER = "reserves_for_other"
    DONOR_IN_COOLDOWN = "donor_in_cooldown"
    RESTS = "rests"
    NOT_WORTH_IT = "not_worth_it"
    GROWTH_NOT_WORTH_IT = "growth_not_worth_it"
    NO_ROOM = "no_room"
    # a job that is not admitted
    QUOTA_TOO_SMALL = "quota_too_small"
    WAITS_FOR_QUOTA = "waits_for_quota"
    NEVER_FITS = "never_fits"
    LOST_TO_SERVING = "lost_to_serving"
    HEAD_OF_QUEUE = "head_of_queue"
    BEHIND_HEAD = "behind_head"


@dataclass(frozen=True, slots=True)
class Finding:
    """Why a job has the count it has.

    Attributes:
        shrink_reason: why trainers of it are deleted, if any are.
        other: the job that it waits for or reserves capacity for.
        wait_s: how long that, or its own hold, still lasts.
        shortage: the quota that keeps it from more.
    """

    reason: Reason
    cause: Cause
    shrink_reason: Reason
    other: JobKey | None = None
    wait_s: float = 0.0
    shortage: QuotaShortage | None = None


def find_reason(job: Job, context: DecisionContext) -> Finding:
    """Find why a job has the count it has."""
    demand = context.demand(job)
    if demand is None:
        return excluded(job)
    if demand.index not in context.shared.packing.count:
        return _not_admitted(demand, context)
    found = _admitted(demand, context)
    if _yields_to_serving(demand, context):
        return _with_shrink(found, Reason.SERVING_NEEDS_ROOM)
    is_shrunk = context.deleted(demand.index) or context.yielded(demand.index)
    return _with_shrink(found, _shrink_reason(found.reason, demand, context)) if is_shrunk else found


def excluded(job: Job) -> Finding:
    """Find why a job may get no trainers, however much capacity is free."""
    if job.deleting:
        return _found(Reason.FINISHED, Cause.DELETING)
    if job.finished:
        return _found(Reason.FINISHED, Cause.ENDED)
    if job.problem:
        reason = Reason.FINISHING if job.finishing else Reason.NOT_RESIZED
        return _found(Reason.INVALID_SPEC if job.owner_count is None else reason, Cause.INVALID)
    if job.refusal is not None and not job.suspended:
        return _found(job.refusal.reason, Cause.REFUSED)
    return _found(Reason.SUSPENDED, Cause.SUSPENDED)


def makes_way_for(demand: JobDemand, context: DecisionContext) -> list[int]:
    """The newly admitted jobs for which trainers of this job are deleted."""
    is_shrunk = context.deleted(demand.index) or context.yielded(demand.index)
    if not is_shrunk or demand.live_count > demand.job.bounds.max_trainers:
        return []
    return [j for j in context.arriving() if j != demand.index]


def _yields_to_serving(demand: JobDemand, context: DecisionContext) -> bool:
    """True if a trainer of the job is deleted for a serving pod."""
    deleted, yielded = context.deleted(demand.index), context.yielded(demand.index)
    return any(i in context.shared.packing.for_serving for i in deleted) or any(one.for_serving for one in yielded)


def _found(
    reason: Reason,
    cause: Cause,
    *,
    other: JobKey | None = None,
    wait_s: float = 0.0,
    shortage: QuotaShortage | None = None,
) -> Finding:
    return Finding(reason, cause, reason, other, wait_s, shortage)


def _with_shrink(found: Finding, reason: Reason) -> Finding:
    return Finding(found.reason, found.cause, reason, found.other, found.wait_s, found.shortage)


def _shrink_reason(reason: Reason, demand: JobDemand, context: DecisionContext) -> Reason:
    """Why trainers are deleted other than for serving; what keeps the job from growing is no reason to shrink it."""
    if context.shared.cleared.intersection(demand.live_trainers):
        return Reason.LENDING_CLEARED
    arriving = makes_way_for(demand, context)
    for_quota = any(one.for_quota for one in context.yielded(demand.index))
    if for_quota or any(i in context.shared.for_quota for i in demand.live_trainers):
        is_theirs = any(_share_quota(context.problem.demands[j], demand) for j in arriving)
        return Reason.ADMITTED if is_theirs else Reason.QUOTA_REACHED
    if arriving:
        return Reason.ADMITTED
    keeps = reason in {Reason.QUOTA_REACHED, Reason.COOLDOWN, Reason.RESIZE_NOT_WORTH_IT}
    return Reason.INSUFFICIENT_CAPACITY if keeps else reason


def _share_quota(one: JobDemand, other: JobDemand) -> bool:
    return not {use.row for use in one.quota_uses}.isdisjoint(use.row for use in other.quota_uses)


def _admitted(demand: JobDemand, context: DecisionContext) -> Finding:
    packing, job = context.shared.packing, demand.job
    have = packing.count[demand.index]
    if job.pinned and have >= job.pinned:
        return _found(Reason.PINNED, Cause.PINNED)
    if have >= job.max_trainers:
        return _found(Reason.AT_MAX, Cause.AT_MAX)
    if job.slowed_beyond and have >= job.bounds.max_trainers:
        return _found(Reason.AT_MAX, Cause.SLOWED_BEYOND)
    if have < demand.live_count and _yields_to_serving(demand, context):
        return _found(Reason.SERVING_NEEDS_ROOM, Cause.YIELDS_TO_SERVING)
    return _short_of_max(demand, context)


def _short_of_max(demand: JobDemand, context: DecisionContext) -> Finding:
    problem = context.problem
    hold_s = growth_hold_left_s(demand.job, problem.limits, problem.snapshot.observed_at_s)
    if hold_s > 0 and context.has_capacity(demand.shape):
        return _found(Reason.COOLDOWN, Cause.YIELDED_LATELY, wait_s=hold_s)
    if (shortage := context.quota_shortage(demand.index)) is not None:
        return _at_limit(demand.job, shortage)
    if (held := _held_neighbour(demand, context)) is not None:
        return _found(Reason.COOLDOWN, Cause.RESERVES_FOR_OTHER, other=held[1], wait_s=held[0])
    if (cooling := _cooling_donor(demand, context)) is not None:
        return _found(Reason.COOLDOWN, Cause.DONOR_IN_COOLDOWN, other=cooling[1], wait_s=cooling[0])
    return _found(*_not_resized(demand, context))


def _not_resized(demand: JobDemand, context: DecisionContext) -> tuple[Reason, Cause]:
    """Why a job below its maximum that nothing else keeps back is not resized."""
    is_free = context.shared.objective.charges_growth and context.has_capacity(demand.shape)
    if is_free and demand.index in context.shared.resting:
        return Reason.COOLDOWN, Cause.RESTS
    if demand.index in context.shared.not_worth_it:
        return Reason.RESIZE_NOT_WORTH_IT, Cause.GROWTH_NOT_WORTH_IT if is_free else Cause.NOT_WORTH_IT
    return Reason.INSUFFICIENT_CAPACITY, Cause.NO_ROOM


def _at_limit(job: Job, shortage: QuotaShortage) -> Finding:
    """The finding that a quota, or the API server, allows the job no more trainers."""
    if job.refusal is not None and shortage.row.resource == REFUSED:
        return _found(job.refusal.reason, Cause.REFUSED)
    return _found(Reason.QUOTA_REACHED, Cause.QUOTA_USED, shortage=shortage)


def _held_neighbour(demand: JobDemand, context: DecisionContext) -> tuple[float, JobKey] | None:
    """A job below its fair share for which capacity is reserved, and the seconds until it may grow."""
    if not (context.shared.objective.reserves_for_yielded and context.has_capacity(demand.shape)):
        return None
    return next((wait for wait in context.held() if wait[1] != demand.job.key), None)


def _cooling_donor(demand: JobDemand, context: DecisionContext) -> tuple[float, JobKey] | None:
    """The job whose cooldown keeps this one below its fair share, as (seconds left, job); None if none does."""
    packing, level = context.shared.packing, context.shared.level
    promised = int(level[demand.index] + EPSILON)
    if not is_felt(demand.fulfilment(promised) - packing.fulfilment(demand.index)):
        return None
    cooling = context.cooling()
    return cooling[0] if cooling else None


def _not_admitted(demand: JobDemand, context: DecisionContext) -> Finding:
    admission, key = context.admission, _key_of_head(demand, context)
    if _is_too_large(demand, context):
        return _found(Reason.UNSCHEDULABLE, Cause.NEVER_FITS)
    if any(use.total(demand.min_trainers) > use.row.whole for use in demand.quota_uses):
        return _found(Reason.QUOTA_REACHED, Cause.QUOTA_TOO_SMALL)
    if (shortage := admission.short.get(demand.index) or _beside_others(demand)) is not None:
        return _found(Reason.QUOTA_REACHED, Cause.WAITS_FOR_QUOTA, other=key, shortage=shortage)
    if demand.index in admission.infeasible:
        return _found(Reason.UNSCHEDULABLE, Cause.NEVER_FITS)
    if demand.job.was_admitted and any(context.served.due.values()):
        return _found(Reason.SERVING_NEEDS_ROOM, Cause.LOST_TO_SERVING)
    return _found(Reason.MIN_UNSATISFIED, Cause.HEAD_OF_QUEUE if key is None else Cause.BEHIND_HEAD, other=key)


def _beside_others(demand: JobDemand) -> QuotaShortage | None:
    """The first quota of which pods that no plan changes leave less than the job's minimum; None if there is none."""
    low = demand.min_trainers
    beyond = (use for use in demand.quota_uses if use.total(low) > use.row.limit)
    return next((QuotaShortage(use.row, 0, use.total(low)) for use in beyond), None)


def _is_too_large(demand: JobDemand, context: DecisionContext) -> bool:
    """True if no node that accepts a trainer is large enough for one, so that no quota would help."""
    problem, request = context.problem, context.problem.request[demand.shape]
    accepting = problem.opened[demand.shape]
    fits = accepting.copy()
    for r in np.flatnonzero(request).tolist():
        fits &= problem.allocatable[:, r] >= request[r]
    return bool(accepting.any() and not fits.any())


def _key_of_head(demand: JobDemand, context: DecisionContext) -> JobKey | None:
    """The older job that this one waits behind; None if it is the first in the queue itself."""
    head = context.admission.head.get(demand.index, demand.index)
    return None if head == demand.index else context.problem.demands[head].job.key
