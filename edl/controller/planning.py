"""The plan that the controller would make for a snapshot, without a controller: for `edl plan` and `edl explain`.

The planner gets each job as the controller passes it on: a job whose trainers have begun to finish neither grows nor
needs its minimum any more. The bounds in the answer are the declared ones. Comparison policies make plans that may
break rules; no controller runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from edl.errors import ConfigError
from edl.lifecycle.desired_state import as_planned
from edl.model.cluster import ClusterSnapshot
from edl.model.plan import Limits, ScalePlan
from edl.planner.decide import POLICIES, Policy, Study, decide, policy_named, study
from edl.planner.policies import edl_2017

COMPARISONS: Mapping[str, Callable[[ClusterSnapshot, Limits], ScalePlan]] = {edl_2017.NAME: edl_2017.decide}


def policy_names(*, comparisons: bool = True) -> tuple[str, ...]:
    """The values of `--policy`: every policy, with or without the comparison policies."""
    return (*POLICIES, *(COMPARISONS if comparisons else ()))


def policy_to_run(name: str) -> Policy:
    """The policy of that name, for a controller; an empty name is the default.

    Raises:
        ConfigError: there is no such policy, or it is a comparison policy.
    """
    if name in COMPARISONS:
        raise ConfigError(
            f"--policy {name} is for comparison in edl plan only: it adds up totals and ignores nodes, so its plans"
            f" may not fit; choose one of {', '.join(sorted(POLICIES))}"
        )
    return policy_named(name)


def plan_snapshot(snapshot: ClusterSnapshot, policy: str, limits: Limits) -> ScalePlan:
    """Make the plan that the controller would make; an empty policy name is the default.

    Raises:
        ConfigError: there is no policy of that name.
        PlanError: no plan could be made, or the plan broke a rule.
    """
    if policy and policy not in (known := policy_names()):
        raise ConfigError(f"policy {policy!r} is unknown; choose one of {', '.join(sorted(known))}")
    view = _planner_view(snapshot)
    compare = COMPARISONS.get(policy)
    plan = compare(view, limits) if compare else decide(view, policy_named(policy), limits)
    return _with_declared_bounds(plan, snapshot)


def study_snapshot(snapshot: ClusterSnapshot, policy: str, limits: Limits) -> Study:
    """Make the plan that the controller would make, and keep everything that it follows from.

    Raises:
        ConfigError: there is no such policy, or it is a comparison policy.
        PlanError: no plan could be made, or the plan broke a rule.
    """
    made = study(_planner_view(snapshot), policy_to_run(policy), limits)
    return replace(made, plan=_with_declared_bounds(made.plan, snapshot))


def _planner_view(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    return replace(snapshot, jobs=tuple(as_planned(job) for job in snapshot.jobs))


def _with_declared_bounds(plan: ScalePlan, snapshot: ClusterSnapshot) -> ScalePlan:
    declared = {job.key: job for job in snapshot.jobs}
    decisions = tuple(
        replace(d, min_trainers=declared[d.job].min_trainers, max_trainers=declared[d.job].max_trainers)
        for d in plan.decisions
    )
    return replace(plan, decisions=decisions)
