"""Keeps the last plan as long as a new decision would be the same: nothing has changed, and no timer has ended.

A decision depends on the snapshot, the limits and the time. The time enters only through waiting times that end: of
a serving pod, of a quiet cluster, and of a job that was shrunk, was admitted or waits. So if two snapshots differ
only in their time, and no such wait ends between them, the decisions are equal, and the second one need not be made.

On a large cluster the waits of jobs end one after the other, and each end would cost a decision of a second. So after
a plan that took long, jobs wait a little longer, and the ends of some time bring one plan. Any change brings one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf
from typing import Generic, TypeVar

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.plan import ScalePlan
from edl.planner.consolidation import time_unchanged
from edl.planner.lending.clearing import clearing_times_s
from edl.planner.topology.gathering import settled_s
from edl.planner.waits import cooldown_left_s, growth_hold_left_s, is_arriving, rest_left_s, serving_grace_left_s

KEPT_FOR_S, MOST_KEPT_FOR_S = 60.0, 600.0
"""The age at which a plan is replaced in any case, and the greatest age for a plan that took long to make."""
KEPT_TIMES = 200
"""The greatest age of a plan as a multiple of its duration: a cluster at rest costs half a percent of a core."""

QUICK_S, GROUPED_TIMES, MOST_GROUPED_S = 0.2, 200, 60.0
"""If a plan took longer than QUICK_S, waits of jobs that end within GROUPED_TIMES the excess end together; within
MOST_GROUPED_S at most."""

S = TypeVar("S")


class KeptPlan(Generic[S]):
    """Holds one plan with its input, and which of its pods may still start.

    Args:
        limits: what the operator allows.
        rests: jobs rest after a resize, see `Policy.rests`.

    Attributes:
        starts: the pods of the plan that may start; None until they were computed.
    """

    def __init__(self, limits: Limits, *, rests: bool = True) -> None:
        self._limits, self._rests = limits, rests
        self._view: ClusterSnapshot | None = None
        self._plan: ScalePlan | None = None
        self._due_s = 0.0
        self._ends: dict[str, tuple[Job, float, float]] = {}  # by UID: its next end, and until when that counts
        self.starts: S | None = None

    def keep(self, view: ClusterSnapshot, plan: ScalePlan) -> None:
        """Keep a plan that was just made; a fallback plan, or one that the deadline cut short, is not kept."""
        is_whole = plan.fallback is None and not plan.cut
        self._view, self._plan, self.starts = (view, plan, None) if is_whole else (None, None, None)
        self._due_s = self.next_timer_s(view, plan.seconds) if is_whole else 0.0

    def explain(self, plan: ScalePlan, said: ScalePlan) -> None:
        """Replace the kept plan by the same plan with its sentences."""
        if self._plan is plan:
            self._plan = said

    def forget(self) -> None:
        """Forget the kept plan, so that the next one is computed."""
        self._view = self._plan = self.starts = None

    def plan_for(self, view: ClusterSnapshot) -> ScalePlan | None:
        """The kept plan if a decision on this view would be the same; else None."""
        before = self._view
        if before is None or not before.observed_at_s <= view.observed_at_s < self._due_s:
            return None
        return self._plan if replace(before, observed_at_s=view.observed_at_s) == view else None

    def is_kept(self, view: ClusterSnapshot, plan: ScalePlan) -> bool:
        """Return True if `plan` is the kept plan, and the view has not changed since it was made."""
        return plan is self._plan and self.plan_for(view) is plan

    def next_timer_s(self, view: ClusterSnapshot, took_s: float) -> float:
        """The first time, in seconds since the epoch, at which a decision on an unchanged view may differ.

        Args:
            view: the snapshot as the planner sees it.
            took_s: how long the decision took; for so long and more the time is `KEPT_FOR_S` after the view at most,
                and waits of jobs end in groups.
        """
        now_s = view.observed_at_s
        kept_for_s = min(MOST_KEPT_FOR_S, max(KEPT_FOR_S, KEPT_TIMES * took_s))
        grouped_s = min(MOST_GROUPED_S, GROUPED_TIMES * max(0.0, took_s - QUICK_S))
        if len(self._ends) > 2 * len(view.jobs):
            self._ends = {}
        of_jobs_s = min([self._end_s(job, now_s) for job in view.jobs], default=inf)
        ends_s = (now_s + kept_for_s, max(of_jobs_s, now_s + grouped_s), *_timers(view, self._limits))
        return min(end_s for end_s in ends_s if end_s > now_s)

    def _end_s(self, job: Job, now_s: float) -> float:
        """The next time at which a waiting time of a job ends; cached until it is over or the job changes."""
        known = self._ends.get(job.uid)
        if known is None or known[0] is not job or now_s >= known[2]:
            ends_s = _waits(job, self._limits, now_s, rests=self._rests)
            end_s = min((end_s for end_s in ends_s if end_s > now_s), default=inf)
            self._ends[job.uid] = known = (job, end_s, min(end_s, now_s + KEPT_FOR_S))
        return known[1]


def _timers(view: ClusterSnapshot, limits: Limits) -> Iterator[float]:
    """Yield when each waiting time of the whole cluster ends that decisions depend on, in seconds since the epoch."""
    now_s = view.observed_at_s
    for left_s in serving_grace_left_s(view, limits).values():
        yield now_s + left_s
    if limits.sharing.consolidate_after_s:
        yield now_s - time_unchanged(view)[0] + limits.sharing.consolidate_after_s
        yield from (settled_s(job) for job in view.jobs if job.topology is not None)
    yield from clearing_times_s(view, limits)


def _waits(job: Job, limits: Limits, now_s: float, *, rests: bool) -> Iterator[float]:
    """Yield when each waiting time of a job ends that decisions depend on, in seconds since the epoch."""
    yield now_s + growth_hold_left_s(job, limits, now_s)
    yield now_s + cooldown_left_s(job, now_s)
    if rests:
        yield now_s + rest_left_s(job, now_s)
    yield job.created_s + limits.sharing.head_wait_s
    if job.status is not None and (admitted := job.status.condition("Admitted")) is not None:
        if admitted.status == "False":
            yield admitted.since_s + limits.sharing.head_wait_s
        if is_arriving(job, now_s):
            yield admitted.since_s + job.cooldown_s
