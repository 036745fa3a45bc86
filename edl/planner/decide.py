"""The decision: a snapshot, a policy and limits in; a plan that has passed its checks out.

Serving first, then who runs, then how many each gets, then which pods die where: the stages stand in `admission` and
`sharing`; here they are put in order, turned into a plan and checked. A policy may change what jobs ask for, never
the rules that hold for all.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from edl.errors import ConfigError, PlanError, PlanFailure
from edl.explain.sentences import explain, prices_of
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.plan import NO_COLUMNS, Certificate, KeptColumns, Limits, ScaleDecision, ScalePlan, ServingReport
from edl.planner.admission import admit, cap, serve
from edl.planner.consolidation import moves, pays, reason_to_wait, with_moves, without
from edl.planner.context import DecisionContext
from edl.planner.guard import RefusedPlanError, check
from edl.planner.preference import follow_preferences
from edl.planner.problem_reader import read_problem
from edl.planner.programs.columns import keep_columns
from edl.planner.programs.fair_share import Proof, prove
from edl.planner.programs.utility import prove_utility
from edl.planner.sharing import Share, share
from edl.planner.speedup import Worth, worth_of
from edl.planner.trial_packing import TrialPacking


@dataclass(frozen=True, slots=True)
class Policy:
    """A way to share a cluster.

    Attributes:
        name: what `--policy` calls it; empty for the default.
        adapt: what each job asks for under it.
        by_worth: whether jobs share by what trainers are worth to them, or by fulfilment; None decides by what is
            known of the jobs that run.
    """

    name: str
    adapt: Callable[[Job], Job]
    by_worth: bool | None = False


def _as_it_is(job: Job) -> Job:
    return job


def _always_min(job: Job) -> Job:
    return replace(job, pinned=job.pinned or job.min_trainers)


def _always_max(job: Job) -> Job:
    return replace(job, pinned=job.pinned or job.max_trainers)


POLICIES: Mapping[str, Policy] = {
    policy.name: policy
    for policy in (
        Policy("maxmin", _as_it_is),
        Policy("utility", _as_it_is, by_worth=True),
        Policy("static-min", _always_min),
        Policy("static-max", _always_max),
    )
}
DEFAULT = Policy("", _as_it_is, by_worth=None)


def policy_named(name: str) -> Policy:
    """The policy of that name; an empty name is the default: `utility` once the speed of an admitted job is known.

    Raises:
        ConfigError: there is none; the message names those that are.
    """
    if not name:
        return DEFAULT
    if name not in POLICIES:
        raise ConfigError(f"policy {name!r} is unknown; choose one of {', '.join(sorted(POLICIES))}")
    return POLICIES[name]


@dataclass(frozen=True, slots=True)
class Study:
    """A decision with all that it was made of, for whoever asks further."""

    plan: ScalePlan
    context: DecisionContext
    proof: Proof


def decide(snapshot: ClusterSnapshot, policy: Policy, limits: Limits, columns: KeptColumns = NO_COLUMNS) -> ScalePlan:
    """Decide which jobs run, how many trainers each has, where new ones go and which die.

    Args:
        snapshot: the world; equal snapshots give equal plans, but for `seconds`.
        policy: see POLICIES.
        limits: what the operator allows; `deadline_s` bounds each linear program and the decision as a whole.
        columns: the columns of the last plan; with them this one is made sooner. They belong to what is decided from:
            equal snapshots and columns give equal plans.

    Returns:
        A plan that has passed `guard.check`.

    Raises:
        PlanError: no plan could be made in time; the last one stays in force.
        RefusedPlanError: the plan broke a rule.
    """
    return study(snapshot, policy, limits, columns).plan


def study(snapshot: ClusterSnapshot, policy: Policy, limits: Limits, columns: KeptColumns = NO_COLUMNS) -> Study:
    """Decide, and keep what the decision was made of."""
    started_s = time.perf_counter()

    def watch(stage: str) -> None:
        if time.perf_counter() - started_s > limits.deadline_s:
            raise PlanError(
                f"no plan within {limits.deadline_s:g} s: late after {stage}; the last plan stays in force",
                PlanFailure.LATE_SOLVER,
            )

    adapted = replace(snapshot, jobs=tuple(policy.adapt(job) for job in snapshot.jobs))
    problem = read_problem(adapted, limits, columns)
    served = serve(problem, limits.deadline_s)
    watch("serving")
    problem, hopeless = cap(problem, served, limits.deadline_s)
    admission = admit(problem, served, hopeless, limits.deadline_s)
    watch("admission")
    worths = _worths(policy, admission.packing)
    shared = share(admission.packing, served, limits.deadline_s, worths)
    watch("sharing")
    follow_preferences(shared.packing)
    proof = _prove(shared, limits.deadline_s)
    name = policy.name or ("maxmin" if worths is None else "utility")
    context = DecisionContext(problem, served, admission, shared)
    plan = _write(adapted, context, proof, name)
    if limits.consolidate_after_s:
        left_s = limits.deadline_s - (time.perf_counter() - started_s)
        plan = _consolidated(adapted, policy, replace(limits, deadline_s=left_s), plan, shared.packing)
    problems = check(adapted, plan, limits.quotas)
    plan = replace(plan, seconds=time.perf_counter() - started_s)
    if problems:
        raise RefusedPlanError(plan, problems)
    return Study(plan, context, proof)


def _consolidated(
    snapshot: ClusterSnapshot, policy: Policy, limits: Limits, plan: ScalePlan, packing: TrialPacking
) -> ScalePlan:
    """The plan, or that for the pservers that move, where more trainers find room by it."""
    if reason_to_wait(snapshot, plan, limits.consolidate_after_s):
        return plan
    moving = moves(packing, limits.deadline_s)
    if not moving.pservers:
        return plan
    try:
        after = decide(without(snapshot, moving), policy, replace(limits, consolidate_after_s=0.0), plan.columns)
    except PlanError:  # it was only a try
        return plan
    return with_moves(plan, after, moving) if pays(plan, after, len(moving.pservers)) else plan


def _worths(policy: Policy, packing: TrialPacking) -> Mapping[int, Worth] | None:
    """What trainers are worth to each job that runs; None where the policy shares by fulfilment."""
    demands = [packing.problem.demands[j] for j in packing.members]
    by_worth = policy.by_worth
    if by_worth is None:
        by_worth = any(demand.job.throughput for demand in demands)
    return {c.index: worth_of(c.job, c.min_trainers, c.max_trainers) for c in demands} if by_worth else None


def _prove(shared: Share, deadline_s: float) -> Proof:
    if shared.worths is None:
        return prove(shared.packing, shared.level, deadline_s)
    return prove_utility(shared.packing, shared.worths, {j: int(n) for j, n in shared.level.items()}, deadline_s)


def _write(snapshot: ClusterSnapshot, context: DecisionContext, proof: Proof, policy: str) -> ScalePlan:
    waiting = [pod for pod in snapshot.pods if pod.is_waiting_serving]
    marked = sum(not pod.needs_room for pod in waiting)
    placed = sum(context.served.due.values()) + context.shared.in_grace_placed
    return ScalePlan(
        decisions=tuple(_decision(job, context) for job in snapshot.jobs),
        certificate=Certificate(context.shared.objective, proof.achieved, proof.bound),
        prices=prices_of(proof, context.problem),
        serving=ServingReport(len(waiting), placed, context.served.short + marked),
        policy=policy,
        given=context.problem.columns,
        columns=keep_columns(context.problem),
    )


def _decision(job: Job, context: DecisionContext) -> ScaleDecision:
    explanation = explain(job, context)
    index = context.member(job)
    live = [pod.name for pod in job.live_trainers]
    base = ScaleDecision(
        job=job.key,
        generation=job.generation,
        current=len(live),
        target=0,
        min_trainers=job.min_trainers,
        max_trainers=job.max_trainers,
        admitted=False,
        reason=explanation.reason,
        message=explanation.message,
        victims=tuple(sorted(live)),
        shrink_reason=explanation.shrink_reason if live else "",
    )
    if index is None:
        return base
    live_trainers, nodes = context.problem.live_trainers, context.problem.snapshot.nodes
    victims = tuple(sorted(live_trainers[i].pod.name for i in context.deleted(index)))
    new = context.placed(index)
    places = Counter(nodes[place.node].name for place in new if place.role is Role.TRAINER)
    fixed = [(place.role, nodes[place.node].name) for place in new if place.role and place.role is not Role.TRAINER]
    return replace(
        base,
        target=context.shared.packing.count[index],
        admitted=True,
        victims=victims,
        nodes=tuple(sorted(places.items())),
        fixed_nodes=tuple(sorted(fixed)),
        shrink_reason=explanation.shrink_reason if victims else "",
    )
