"""The last plan, for as long as a new decision would be the same: nothing has changed, and no timer is over.

A decision depends on the snapshot, the limits and the time. The time enters only through waiting times that end: of
a serving pod, of a quiet cluster, and of a job that was shrunk, was admitted or waits. So if two snapshots differ
only in their time, and no such wait ends between them, the decisions are equal, and the second one need not be made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Generic, TypeVar

from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.plan import ScalePlan
from edl.planner.consolidation import time_unchanged
from edl.planner.lending.clearing import clearing_times_s
from edl.planner.topology.gathering import settled_s
from edl.planner.waits import cooldown_left_s, growth_hold_left_s, is_arriving, rest_left_s, serving_grace_left_s

KEPT_FOR_S, MOST_KEPT_FOR_S = 60.0, 600.0
"""A plan is made anew after this time in any case; one that took long, after the longer of these at most."""
KEPT_TIMES = 200
"""A plan is kept for so many times as long as it took, so that a cluster at rest costs half a percent of a core."""

S = TypeVar("S")


class KeptPlan(Generic[S]):
    """Remembers one plan with its input, and which of its pods may still start.

    Args:
        limits: what the operator allows.

    Attributes:
        starts: the pods of the plan that may start; None until they were computed.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._view: ClusterSnapshot | None = None
        self._plan: ScalePlan | None = None
        self._due_s = 0.0
        self.starts: S | None = None

    def keep(self, view: ClusterSnapshot, plan: ScalePlan) -> None:
        """Keep a plan that was just made; a fallback plan, or one that the deadline cut short, is not kept."""
        is_whole = plan.fallback is None and not plan.cut
        self._view, self._plan, self.starts = (view, plan, None) if is_whole else (None, None, None)
        self._due_s = next_timer_s(view, self._limits, plan.seconds) if is_whole else 0.0

    def explain(self, plan: ScalePlan, said: ScalePlan) -> None:
        """Keep a plan with its sentences instead of the plan without."""
        if self._plan is plan:
            self._plan = said

    def forget(self) -> None:
        """Make the next plan anew."""
        self._view = self._plan = self.starts = None

    def plan_for(self, view: ClusterSnapshot) -> ScalePlan | None:
        """The kept plan if a decision on this view would be the same; else None."""
        before = self._view
        if before is None or not before.observed_at_s <= view.observed_at_s < self._due_s:
            return None
        return self._plan if replace(before, observed_at_s=view.observed_at_s) == view else None

    def is_kept(self, view: ClusterSnapshot, plan: ScalePlan) -> bool:
        """True if this is the kept plan, and the view is still the one that it was made from."""
        return plan is self._plan and self.plan_for(view) is plan


def next_timer_s(view: ClusterSnapshot, limits: Limits, took_s: float = 0.0) -> float:
    """The first time, in seconds since the epoch, at which a decision on an unchanged view may differ.

    Args:
        view: the snapshot as the planner sees it.
        limits: what the operator allows.
        took_s: how long the decision took; for so long and more the time is `KEPT_FOR_S` after the view at most.
    """
    now_s = view.observed_at_s
    kept_for_s = min(MOST_KEPT_FOR_S, max(KEPT_FOR_S, KEPT_TIMES * took_s))
    return min(end_s for end_s in (now_s + kept_for_s, *_timers(view, limits)) if end_s > now_s)


def _timers(view: ClusterSnapshot, limits: Limits) -> Iterator[float]:
    """When each waiting time that a decision looks at ends."""
    now_s = view.observed_at_s
    for left_s in serving_grace_left_s(view, limits).values():
        yield now_s + left_s
    if limits.sharing.consolidate_after_s:
        yield now_s - time_unchanged(view)[0] + limits.sharing.consolidate_after_s
        yield from (settled_s(job) for job in view.jobs if job.topology is not None)
    yield from clearing_times_s(view, limits)
    for job in view.jobs:
        yield now_s + growth_hold_left_s(job, limits, now_s)
        yield now_s + cooldown_left_s(job, now_s)
        yield now_s + rest_left_s(job, now_s)
        yield job.created_s + limits.sharing.head_wait_s
        if job.status is not None and (admitted := job.status.condition("Admitted")) is not None:
            yield admitted.since_s + limits.sharing.head_wait_s
            if is_arriving(job, now_s):
                yield admitted.since_s + job.cooldown_s
