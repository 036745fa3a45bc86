"""The decision that the controller would take on a snapshot, without a controller.

`edl plan` must say what would happen, so it looks at jobs as the controller does: one whose trainers have begun to
finish neither grows nor needs its minimum any more. What is reported of a job are the bounds that it declares. Some
policies are only to compare with: their plans break our rules, and no controller runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from edl.errors import ConfigError
from edl.lifecycle.desired_state import as_planned
from edl.model.cluster import ClusterSnapshot
from edl.model.plan import Limits, ScalePlan
from edl.planner.decide import POLICIES, Policy, Study, decide, policy_named, study
from edl.planner.policies import edl_2017 as greedy2017

COMPARISONS: Mapping[str, Callable[[ClusterSnapshot, Limits], ScalePlan]] = {greedy2017.NAME: greedy2017.decide}


def policy_names(*, comparisons: bool = True) -> tuple[str, ...]:
    """What `--policy` takes: every policy, and those that are only to compare with where that is wanted."""
    return (*POLICIES, *(COMPARISONS if comparisons else ()))


def policy_to_run(name: str) -> Policy:
    """The policy of that name for a controller; an empty name takes the default.

    Raises:
        ConfigError: there is none, or it is only to compare with.
    """
    if name in COMPARISONS:
        raise ConfigError(
            f"--policy {name} is only to compare with, by edl plan: it counts totals and looks at no node, so its"
            f" plans may not fit; choose one of {', '.join(sorted(POLICIES))}"
        )
    return policy_named(name)


def plan_snapshot(snapshot: ClusterSnapshot, policy: str, limits: Limits) -> ScalePlan:
    """Decide as the controller does; an empty name of a policy takes the default.

    Raises:
        ConfigError: there is no policy of that name.
        PlanError: no plan could be made, or it broke a rule.
    """
    if policy and policy not in (known := policy_names()):
        raise ConfigError(f"policy {policy!r} is unknown; choose one of {', '.join(sorted(known))}")
    view = _as_controllers_see(snapshot)
    compare = COMPARISONS.get(policy)
    plan = compare(view, limits) if compare else decide(view, policy_named(policy), limits)
    return _with_declared_bounds(plan, snapshot)


def study_snapshot(snapshot: ClusterSnapshot, policy: str, limits: Limits) -> Study:
    """Decide as the controller does, and keep what the decision was made of.

    Raises:
        ConfigError: there is no such policy, or it is only to compare with.
        PlanError: no plan could be made, or it broke a rule.
    """
    made = study(_as_controllers_see(snapshot), policy_to_run(policy), limits)
    return replace(made, plan=_with_declared_bounds(made.plan, snapshot))


def _as_controllers_see(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    return replace(snapshot, jobs=tuple(as_planned(job) for job in snapshot.jobs))


def _with_declared_bounds(plan: ScalePlan, snapshot: ClusterSnapshot) -> ScalePlan:
    declared = {job.key: job for job in snapshot.jobs}
    decisions = tuple(
        replace(d, min_trainers=declared[d.job].min_trainers, max_trainers=declared[d.job].max_trainers)
        for d in plan.decisions
    )
    return replace(plan, decisions=decisions)
