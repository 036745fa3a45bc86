"""The planner's decisions, remembered: thousands of histories of a small cluster meet the same situations.

A plan from memory is exact if nothing in the cluster waits for a time (`UNHURRIED`, and jobs without a cooldown):
then a plan depends on the order of some times in a snapshot, not on the times. `check_every` makes some of the plans
again, and a plan that then comes out different is an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from edl.explain.decision import decide
from edl.explain.early_evictions import early_decisions
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.limits import Limits, ServingLimits, SharingLimits
from edl.model.plan import ScaleDecision, ScalePlan
from edl.model.pods import Pod
from edl.planner.policies.registry import policy_named

UNHURRIED = Limits(
    deadline_s=1e9,
    serving=ServingLimits(grace_s=0.0),
    sharing=SharingLimits(consolidate_after_s=0.0, growth_hold_s=0.0, head_wait_s=1e9),
)
"""Limits under which no decision waits for a time."""


@dataclass
class RememberedPlans:
    """`decide` with the policy maxmin, once for each situation.

    Attributes:
        check_every: this many plans from memory for each one that is made again and compared; 0 for none.
        made, recalled, checked: how many.
    """

    check_every: int = 0
    made: int = 0
    recalled: int = 0
    checked: int = 0
    _plans: dict[Any, ScalePlan] = field(default_factory=dict)
    _early: dict[Any, tuple[ScaleDecision, ...]] = field(default_factory=dict)

    def decide(self, snapshot: ClusterSnapshot, limits: Limits) -> ScalePlan:
        """The plan for a snapshot."""
        key = situation(snapshot)
        if (plan := self._plans.get(key)) is None:
            plan = self._plans[key] = self._make(snapshot, limits)
            return plan
        self.recalled += 1
        plan = replace(plan, decisions=_of_generations(plan.decisions, snapshot))
        if self.check_every and self.recalled % self.check_every == 0:
            self.checked += 1
            assert self._make(snapshot, limits) == plan, key
        return plan

    def early_evictions(self, snapshot: ClusterSnapshot, limits: Limits) -> tuple[ScaleDecision, ...]:
        """The evictions for serving ahead of a plan."""
        key = situation(snapshot)
        if (decisions := self._early.get(key)) is None:
            decisions = self._early[key] = early_decisions(snapshot, policy_named("maxmin"), limits)
        return _of_generations(decisions, snapshot)

    def _make(self, snapshot: ClusterSnapshot, limits: Limits) -> ScalePlan:
        """A new plan; it takes no time, because what the controller does depends on the time that plans take."""
        self.made += 1
        return replace(decide(snapshot, policy_named("maxmin"), limits), seconds=0.0)


def _of_generations(decisions: Iterable[ScaleDecision], snapshot: ClusterSnapshot) -> tuple[ScaleDecision, ...]:
    """The decisions with the generations of the jobs of a snapshot."""
    generations = {job.key: job.generation for job in snapshot.jobs}
    return tuple(replace(d, generation=generations[d.job]) for d in decisions)


def situation(snapshot: ClusterSnapshot) -> tuple[Any, ...]:
    """What a plan depends on; where times matter, only their order."""
    jobs = _ranks(time_s for job in snapshot.jobs for time_s in (job.created_s, _admitted_s(job)))
    pods = _ranks(pod.created_s for pod in snapshot.pods)
    return (
        snapshot.nodes,
        tuple((*_pod(pod), pods[pod.created_s]) for pod in snapshot.pods),
        tuple(_job(job, jobs) for job in snapshot.jobs),
        snapshot.missing_priority_classes,
    )


def _ranks(times: Iterable[float]) -> dict[float, int]:
    return {time_s: rank for rank, time_s in enumerate(sorted(set(times)))}


def _admitted_s(job: Job) -> float:
    """Since when the job is admitted or waits; -1 without a status."""
    admitted = job.status.condition("Admitted") if job.status is not None else None
    return -1.0 if admitted is None else admitted.since_s


def _pod(pod: Pod) -> tuple[Any, ...]:
    place = (pod.namespace, pod.name, pod.node, pod.nominated, pod.planned, pod.pinned, pod.shape)
    state = (pod.phase, pod.ready, pod.tried, pod.terminating, pod.intent, pod.disruption, pod.unplaceable)
    return (*place, *state, pod.started_s is None, pod.priority, pod.job, pod.role, pod.index)


def _job(job: Job, ranks: dict[float, int]) -> tuple[Any, ...]:
    status: tuple[Any, ...] = ()
    if job.status is not None:
        admitted, resize = job.status.condition("Admitted"), job.status.last_resize
        status = (admitted and admitted.status, resize and resize.reason, job.status.measured)
    bare = replace(job, pods=(), status=None, created_s=0.0, uid="", generation=0)
    order = ranks[job.created_s], ranks[_admitted_s(job)]
    return (bare, *order, tuple(_pod(pod) for pod in job.pods), status)
