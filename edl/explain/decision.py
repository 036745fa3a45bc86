"""The decision with its sentences: what the controller, `edl plan` and a replay call."""

from __future__ import annotations

import time
from dataclasses import replace

from edl.explain.sentences import with_sentences
from edl.model.cluster import ClusterSnapshot
from edl.model.plan import NO_COLUMNS, KeptColumns, Limits, ScalePlan
from edl.planner.decide import Study, study
from edl.planner.policies.base import Policy


def decide(snapshot: ClusterSnapshot, policy: Policy, limits: Limits, columns: KeptColumns = NO_COLUMNS) -> ScalePlan:
    """Make a plan that has passed its checks and says for each job why it has its count; see `planner.decide.study`.

    Raises:
        PlanError: no plan was made in time; the last one stays in force.
        RefusedPlanError: the plan broke a rule.
    """
    return told_study(snapshot, policy, limits, columns).plan


def told_study(snapshot: ClusterSnapshot, policy: Policy, limits: Limits, columns: KeptColumns = NO_COLUMNS) -> Study:
    """The same with everything that the plan was made from."""
    started_s = time.perf_counter()
    made = study(snapshot, policy, limits, columns)
    told_s = time.perf_counter()
    plan = with_sentences(made)
    ended_s = time.perf_counter()
    stages = (*plan.stages, ("sentences", ended_s - told_s))
    return replace(made, plan=replace(plan, seconds=ended_s - started_s, stages=stages))
