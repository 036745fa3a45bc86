"""The decision with its sentences: what the controller, `edl plan` and a replay call."""

from __future__ import annotations

from dataclasses import replace

from edl.explain.node_asks import with_node_sentences
from edl.explain.sentences import with_sentences
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.plan import NO_COLUMNS, KeptColumns, ScalePlan
from edl.planner.clock import Clock, without_collections
from edl.planner.decide import Study, study
from edl.planner.policies.base import Policy

SAY_BY = 1.05  # of the deadline: the plan is made by then, and its sentences must not hold it up


def decide(snapshot: ClusterSnapshot, policy: Policy, limits: Limits, columns: KeptColumns = NO_COLUMNS) -> ScalePlan:
    """Make a plan that has passed its checks and says for each job why it has its count; see `planner.decide.study`.

    Raises:
        PlanError: no plan was made in time; the last one stays in force.
        RefusedPlanError: the plan broke a rule.
    """
    return explained_study(snapshot, policy, limits, columns).plan


def explained_study(
    snapshot: ClusterSnapshot,
    policy: Policy,
    limits: Limits,
    columns: KeptColumns = NO_COLUMNS,
    clock: Clock | None = None,
) -> Study:
    """Make an explained plan as `decide` does, with everything that it was made from; `clock` as in `study`."""
    watch = clock or Clock(limits.deadline_s)
    with without_collections():
        made = study(snapshot, policy, limits, columns, watch)
        return replace(made, plan=explained(made, snapshot, watch))


def explained(made: Study, snapshot: ClusterSnapshot, clock: Clock) -> ScalePlan:
    """The plan of a study with its sentences.

    Args:
        made: the study.
        snapshot: what it was made from.
        clock: its clock, which counts the time of the sentences, too.
    """
    with without_collections():
        clock.allow(SAY_BY)
        began_s = clock.spent_s
        clock.begin("sentences")
        plan = with_node_sentences(with_sentences(made, clock), snapshot)
    clock.begin("")
    seconds = made.plan.seconds + clock.spent_s - began_s  # it may have been published meanwhile
    return replace(plan, seconds=seconds, stages=tuple(clock.stages.items()), cut=tuple(clock.cut))
