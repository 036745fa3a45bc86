"""Makes plans for a snapshot without a controller: for `edl plan`, `edl explain`, a replay and the simulator.

They look at jobs as the controller does: a job whose trainers have begun to finish neither grows nor needs its
minimum any more. Plans and reports show the bounds that the job declares.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from edl.errors import ConfigError
from edl.explain.best_possible import BestPossible, best_possible
from edl.explain.certificates.document import certify
from edl.explain.comparison import Changes, compare
from edl.explain.decision import decide, explained_study
from edl.explain.job_report import JobReport, report_on_job
from edl.explain.sentences import with_comparison_sentences
from edl.headroom.advisor import Advisor
from edl.lifecycle.broken_nodes import as_avoiding, watch_nodes
from edl.lifecycle.desired_state import as_planned
from edl.lifecycle.tenancy import as_held, as_permitted, as_requested, best_effort_queues
from edl.lifecycle.trials.ending import as_ending
from edl.lifecycle.trials.stranded import as_stranded
from edl.lifecycle.trials.unstarted import as_started
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.names import JobKey
from edl.model.plan import ScalePlan
from edl.planner.policies.registry import COMPARISONS, policy_named, policy_names


def plan_snapshot(snapshot: ClusterSnapshot, policy: str, limits: Limits) -> ScalePlan:
    """Make a plan as the controller does, or by a policy that exists only for comparison.

    Args:
        snapshot: the cluster.
        policy: its name; empty for the default.
        limits: what the operator allows.

    Raises:
        ConfigError: no policy has that name.
        PlanError: no plan was made, or it broke a rule.
    """
    if policy and policy not in (known := policy_names()):
        raise ConfigError(f"policy {policy!r} does not exist; choose one of {', '.join(sorted(known))}")
    view = _as_controller_sees(snapshot, limits)
    if (comparison := COMPARISONS.get(policy)) is not None:
        plan = with_comparison_sentences(comparison.plan(view, limits), view)
    else:
        plan = decide(view, policy_named(policy), limits)
    return _with_declared_bounds(plan, snapshot)


@dataclass(frozen=True, slots=True)
class JudgedPlan:
    """A plan, and how much better it could be.

    Attributes:
        best: what another plan could reach; None for a policy that is only for comparison, if pods move, or if there
            was no time for it.
        certificate: the proof in rationals, see `explain.certificates`; None if it was not asked for.
    """

    plan: ScalePlan
    best: BestPossible | None = None
    certificate: dict[str, Any] | None = None


def judge_snapshot(snapshot: ClusterSnapshot, policy: str, limits: Limits, *, proves: bool = False) -> JudgedPlan:
    """Decide as `plan_snapshot` does, and find out how much better the plan could be.

    Args:
        snapshot: the cluster.
        policy: its name; empty for the default.
        limits: what the operator allows.
        proves: also prove it in rationals.

    Raises:
        ConfigError: no policy has that name, or a certificate does not cover the plan.
        PlanError: no plan was made, it broke a rule, or the proof took too long.
    """
    if policy in COMPARISONS:
        if proves:
            raise ConfigError(f"--certificate: policy {policy} is only for comparison; choose --policy maxmin")
        return JudgedPlan(plan_snapshot(snapshot, policy, limits))
    made = explained_study(_as_controller_sees(snapshot, limits), policy_named(policy), limits)
    best = best_possible(made, limits.deadline_s)
    certificate = certify(made, best, limits) if proves else None
    return JudgedPlan(_with_declared_bounds(made.plan, snapshot), best, certificate)


def report_snapshot(snapshot: ClusterSnapshot, key: JobKey, policy: str, limits: Limits) -> JobReport:
    """Decide as the controller does and report on one job.

    Raises:
        ConfigError: no such policy exists, or it is only for comparison.
        PlanError: no plan was made, it broke a rule, or a price could not be confirmed in time.
    """
    made = explained_study(_as_controller_sees(snapshot, limits), policy_named(policy), limits)
    study = replace(made, plan=_with_declared_bounds(made.plan, snapshot))
    return report_on_job(study, key, limits.deadline_s)


def compare_snapshots(
    before: ClusterSnapshot, after: ClusterSnapshot, plan: ScalePlan, limits: Limits, against: str
) -> Changes:
    """Compare a plan with the plan for another snapshot of the same moment, by the policy of the given plan.

    Args:
        before: the cluster without the change.
        after: the cluster with it.
        plan: the plan for `after`.
        limits: what the operator allows; no pserver moves in either plan, because the change would end the rest.
        against: what a person calls `before`.

    Raises:
        PlanError: no plan was made, or it broke a rule.
    """
    if limits.sharing.consolidate_after_s:
        limits = replace(limits, sharing=replace(limits.sharing, consolidate_after_s=0.0))
        plan = plan_snapshot(after, plan.policy, limits)
    return compare(plan_snapshot(before, plan.policy, limits), plan, against)


def _as_controller_sees(snapshot: ClusterSnapshot, limits: Limits) -> ClusterSnapshot:
    queues = frozenset(queue.name for queue in snapshot.queues)
    unknown = frozenset(queue.name for queue in snapshot.queues if queue.is_unknown)
    avoided = watch_nodes(snapshot, limits).avoided
    allowing = best_effort_queues(snapshot.queues, limits.quotas)
    permitted = (as_requested(as_permitted(as_planned(job), limits, queues), allowing) for job in snapshot.jobs)
    jobs = (as_held(job, unknown) for job in permitted)
    able = (as_stranded(job, snapshot.nodes, limits.nodes.expected) for job in jobs)
    open_jobs = (as_avoiding(job, avoided, snapshot.nodes) for job in able)
    seen = tuple(as_started(job, snapshot.observed_at_s) for job in open_jobs)
    view = as_ending(replace(snapshot, jobs=seen, avoided=avoided))
    if limits.serving.slo and not view.headroom:  # nobody has watched this cluster
        return replace(view, headroom=Advisor(limits.serving.slo).advise(view))
    return view


def _with_declared_bounds(plan: ScalePlan, snapshot: ClusterSnapshot) -> ScalePlan:
    declared = {job.key: job for job in snapshot.jobs}
    decisions = tuple(
        replace(d, min_trainers=declared[d.job].min_trainers, max_trainers=declared[d.job].max_trainers)
        for d in plan.decisions
    )
    return replace(plan, decisions=decisions)
