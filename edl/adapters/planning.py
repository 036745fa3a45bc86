"""The decision that the controller would take on a snapshot, without a controller.

`edl plan` must say what would happen, so it looks at jobs as the controller does: one whose trainers have begun to
finish neither grows nor needs its minimum any more. What is reported of a job are the bounds that it declares.
"""

from __future__ import annotations

from dataclasses import replace

from edl.core.lifecycle import as_planned
from edl.core.model import ClusterSnapshot
from edl.core.plan import Limits, ScalePlan
from edl.core.policy import decide, policy_named


def plan_snapshot(snapshot: ClusterSnapshot, policy: str, limits: Limits) -> ScalePlan:
    """Decide as the controller does; an empty name of a policy takes the default.

    Raises:
        ConfigError: there is no policy of that name.
        PlanError: no plan could be made, or it broke a rule.
    """
    view = replace(snapshot, jobs=tuple(as_planned(job) for job in snapshot.jobs))
    plan = decide(view, policy_named(policy), limits)
    declared = {job.key: job for job in snapshot.jobs}
    decisions = tuple(
        replace(d, minimum=declared[d.job].min_trainers, maximum=declared[d.job].max_trainers) for d in plan.decisions
    )
    return replace(plan, decisions=decisions)
