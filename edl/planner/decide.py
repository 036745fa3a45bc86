"""Decides: makes from a snapshot, a policy and limits a plan that has passed its checks.

The stages run here in their order: serving, admission, sharing, preferences, proof, consolidation, check. A policy
changes what jobs ask for and how they share, never the rules that hold for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, islice

from edl.errors import PlanError
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.names import JobKey
from edl.model.plan import NO_COLUMNS, KeptColumns, ScalePlan
from edl.planner.admission.admit import admit
from edl.planner.admission.capping import cap
from edl.planner.admission.pins import Admitted, may_have_fewer, with_pins_that_fit
from edl.planner.admission.stopgap import stopgap
from edl.planner.admission.trial import AdmissionTrial
from edl.planner.best_effort.remainder import with_remainder
from edl.planner.clock import Clock, OutOfTimeError, without_collections
from edl.planner.consolidation import moves, pays, reason_to_wait, with_moves, without
from edl.planner.findings.context import DecisionContext
from edl.planner.findings.written import written
from edl.planner.guard import RefusedPlanError, check
from edl.planner.lending.guard import check_lent_capacity
from edl.planner.minimums.gangs import with_whole_gangs
from edl.planner.minimums.serving import count_serving
from edl.planner.nodes.asking import with_asks
from edl.planner.nodes.idle import with_idle, without_idle
from edl.planner.nodes.requests import with_holding
from edl.planner.owners.kept import as_kept, stopped_in_vain, with_kept
from edl.planner.owners.order import (
    Chain,
    Victims,
    as_predicted,
    disruption,
    evicted_in_vain,
    stopped,
    to_predict,
    with_owner_order,
    without_replacements,
)
from edl.planner.policies.base import Policy
from edl.planner.preference import follow_preferences
from edl.planner.problem import Problem
from edl.planner.problem_reader import read_problem
from edl.planner.programs.engine import with_engine
from edl.planner.programs.fair_share import Proof
from edl.planner.reading.kept import KeptReading
from edl.planner.scores import DIGITS, PlanScore, from_worst
from edl.planner.sharing import share
from edl.planner.sizes.rounding import in_sizes
from edl.planner.solvers.choice import DEFAULT_SOLVER
from edl.planner.solvers.integer_program import SolvedPrograms
from edl.planner.solvers.linear_program import Solver
from edl.planner.topology.choices import Assignment, Choices, read_choices
from edl.planner.topology.gathering import as_gathered, gatherings, holds_together, with_gathering
from edl.planner.topology.relaxed import without_domains
from edl.planner.topology.search import decide_together
from edl.planner.topology.whole import ROUNDS, count_spread, with_ended_slices, with_fewer_slices
from edl.planner.topping_up import without_proved
from edl.planner.waits import price_in_trainers

ADMIT_BY, FIT_BY, SHARE_BY = 0.65, 0.85, 0.8  # parts of the deadline by which stages end
PREFER_BY, PROVE_BY = 0.87, 0.92
GATHERINGS = 3  # moves into one domain that are tried in one decision
READ_AGAIN = 1.5  # reasons and checks read all pods again: so many times what reading the snapshot took


@dataclass(frozen=True, slots=True)
class Study:
    """A plan with everything that it was made from; its decisions have reasons and no sentences yet.

    Attributes:
        context: what the plan was made from and came to.
        proof: the solution behind the certificate.
        final_context: the same as `context`, unless pods move: then what the plan comes to once they have moved.
        predicted: the workloads whose victims were predicted; see `owners.order`.
        observed: the cluster as observed, if the plan was made for one in which slices have their places; else None.
            A pinned job that has fewer trainers has its `pin_floor` there.
    """

    plan: ScalePlan
    context: DecisionContext
    proof: Proof
    final_context: DecisionContext
    predicted: frozenset[JobKey] = frozenset()
    observed: ClusterSnapshot | None = None


def study(
    snapshot: ClusterSnapshot,
    policy: Policy,
    limits: Limits,
    columns: KeptColumns = NO_COLUMNS,
    clock: Clock | None = None,
    *,
    solver: Solver = DEFAULT_SOLVER,
    kept: KeptReading | None = None,
) -> Study:
    """Decide which jobs run, how many trainers each has, where new ones go and which are deleted.

    Args:
        snapshot: the cluster; equal snapshots give equal plans, but for `seconds`.
        policy: how jobs share; see `policies.registry`.
        limits: what the operator allows; `deadline_s` bounds each program and the decision as a whole.
        columns: those of the last plan, with which this one is made sooner. They belong to the input: equal snapshots
            and equal columns give equal plans.
        clock: a clock that runs already; by default one that begins now and ends at `deadline_s`.
        solver: what solves the linear programs.
        kept: what the last plan has read; the plan does not depend on it.

    Raises:
        PlanError: no plan was made in time; the last one stays in force.
        RefusedPlanError: the plan broke a rule.
    """
    first = _Making(policy, limits, columns, clock or Clock(limits.deadline_s), solver, kept or KeptReading())
    snapshot = with_whole_gangs(snapshot, limits, first.watch, first.kept)
    with without_collections():
        return (_study_with_nodes if limits.nodes.expected else _study_in_domains)(snapshot, first)


@dataclass(frozen=True, slots=True)
class _Making:
    """The settings with which a plan is made; a decision may make further plans for changed snapshots."""

    policy: Policy
    limits: Limits
    columns: KeptColumns
    watch: Clock
    solver: Solver
    kept: KeptReading
    solved: SolvedPrograms = field(default_factory=SolvedPrograms)

    def further(self, columns: KeptColumns, *, may_move: bool = False) -> _Making:
        """Return the settings for another plan, in the time that is left.

        Args:
            columns: those of the last plan.
            may_move: pods may move so that capacity comes together.

        Raises:
            OutOfTimeError: none is left.
        """
        left_s, sharing = self.limits.deadline_s - self.watch.spent_s, self.limits.sharing
        if left_s <= 0:
            raise OutOfTimeError("the decision has no time left for another plan")
        sharing = sharing if may_move else replace(sharing, consolidate_after_s=0.0)
        limits = replace(self.limits, deadline_s=left_s, sharing=sharing)
        return replace(self, limits=limits, columns=columns, watch=self.watch.again(left_s))

    def then_further(self) -> Iterator[_Making]:
        """Yield the settings for each plan of a series; the series continues after an `OutOfTimeError`."""
        return chain((self,), iter(lambda: self.further(self.columns, may_move=True), None))


def _study_with_nodes(snapshot: ClusterSnapshot, making: _Making) -> Study:
    """Decide in a cluster with an autoscaler: empty idle nodes, and let jobs ask for nodes."""
    real, limits = with_holding(snapshot), making.limits
    seen = without_idle(real, limits)
    made = _study_in_domains(seen, making)
    plan = with_idle(real, seen, made.plan)
    if real is not seen and (problems := check(real, plan, limits.quotas)):
        raise RefusedPlanError(plan, problems)

    def replan(extended: ClusterSnapshot) -> ScalePlan:
        return _study_in_domains(extended, making.further(plan.columns)).plan

    return replace(made, plan=with_asks(snapshot, plan, limits, replan))


def _study_in_domains(snapshot: ClusterSnapshot, making: _Making) -> Study:
    """Decide with topology domains for the jobs that need some; a single plan if no job does."""
    if any(job.topology is not None for job in snapshot.jobs):  # what the choice adds to a job is no fault of it
        snapshot = replace(snapshot, jobs=tuple(map(_within_limits, snapshot.jobs)))
    choices = read_choices(snapshot, making.limits)
    if choices is None:
        return _study(snapshot, making)
    each = making.then_further()

    def decide(assignment: Assignment) -> Study:
        return _study_in_slices(choices, assignment, each)

    return decide_together(choices, making.limits, decide, _score, lambda: making.watch.spent_s)


def _study_in_slices(choices: Choices, assignment: Assignment, each: Iterator[_Making]) -> Study:
    """Decide with given domains so that every slice of a job is whole.

    Raises:
        PlanError: no such plan was made in time.
    """
    making = next(each)
    made = _study(choices.applied(assignment), making)
    first = made.plan
    for turn in range(ROUNDS):
        fewer = with_fewer_slices(choices, assignment, made.plan, made.context.shared.packing, turn)
        if fewer is None:
            break
        assignment = fewer
        made = _study(choices.applied(assignment), next(each))
    if not any(choice.layout for choice in assignment.values()):
        return made
    plan = with_ended_slices(choices, assignment, first, made.plan)
    adapt = making.policy.adapt
    seen = replace(choices.snapshot, jobs=tuple(_within_limits(adapt(job)) for job in choices.snapshot.jobs))
    if problems := check(seen, plan, making.limits.quotas):
        raise RefusedPlanError(plan, problems)
    floors = {demand.job.key: demand.job.pin_floor for demand in made.context.problem.demands}
    jobs = tuple(replace(job, pin_floor=floors.get(job.key, job.pin_floor)) for job in choices.snapshot.jobs)
    return replace(made, plan=plan, observed=replace(choices.snapshot, jobs=jobs))


def _score(made: Study) -> PlanScore:
    """Score a study, to compare it with others that give jobs other domains."""
    packing, plan = made.context.shared.packing, made.plan
    turns = sorted(packing.problem.demands, key=lambda d: d.job.turn)
    counts = [(packing.count.get(demand.index, 0), demand.job.pinned) for demand in turns]
    return PlanScore(
        placed=plan.serving.placed,
        admitted=tuple((count > 0) + (count >= max(1, pinned)) for count, pinned in counts),
        pinned=tuple(count for count, pinned in counts if pinned),
        worst=next(iter(from_worst(packing)), 1.0),
        achieved=round(plan.certificate.achieved, DIGITS),
        kept=-sum(len(decision.victims) for decision in plan.decisions),
        gathered=-count_spread(packing.problem.snapshot, plan),
    )


def _study(snapshot: ClusterSnapshot, making: _Making, series: Chain | None = None) -> Study:
    """Make one plan; `series` counts the plans made for workloads whose own controllers choose the victims."""
    policy, limits, watch = making.policy, making.limits, making.watch
    watch.begin("read")
    adapted = replace(snapshot, jobs=tuple(_within_limits(policy.adapt(job)) for job in snapshot.jobs))
    pinned = frozenset(job.key for job in snapshot.jobs if may_have_fewer(job))
    who = with_pins_that_fit(adapted, pinned, lambda seen: _admitted(seen, making))
    adapted, problem, served, admission = who.applied_to(adapted), who.problem, who.served, who.admission
    watch.begin("sharing")
    objective = policy.objective(admission.packing)
    watch.allow(SHARE_BY if who.may_grow else 0.0)
    shared = share(admission.packing, served, objective, limits.deadline_s)
    shared = replace(shared, packing=in_sizes(shared.packing))
    watch.begin("proof")
    watch.allow(PREFER_BY)
    follow_preferences(shared.packing)
    watch.allow(PROVE_BY)
    proof = objective.prove(without_domains(shared.packing), shared.level, limits.deadline_s)
    unsure = without_proved(
        shared.unsure, shared.packing, proof.bound - proof.achieved, lambda j: objective.gain(shared.packing, j)
    )
    shared = with_remainder(replace(shared, unsure=unsure), may_grow=who.may_grow)
    context = DecisionContext(problem, served, admission, shared)
    watch.begin("reasons")
    made = Study(written(adapted, context, proof, policy.name), context, proof, context)
    watch.begin("consolidation")
    if limits.sharing.consolidate_after_s and not watch.cut and not watch.is_over:
        made = _consolidated(adapted, making, made)
    if any(job.owner_count is not None for job in adapted.jobs):
        watch.begin("owner order")
        made = _in_owner_order(adapted, making, made, series or Chain())
        made = made if series is not None else _beside_kept(adapted, making, made)
    watch.begin("check")
    problems = (*check(adapted, made.plan, limits.quotas), *check_lent_capacity(adapted, made.plan, limits))
    if problems:
        raise RefusedPlanError(made.plan, problems)
    watch.begin("")
    stages = tuple(watch.stages.items())
    plan = replace(made.plan, seconds=watch.spent_s, stages=stages, costliest=_costliest(problem))
    return replace(made, plan=replace(plan, cut=tuple(watch.cut)))


def _within_limits(job: Job) -> Job:
    """Mark a job as invalid if its pods exceed `pod_limits`, so that no other job waits while they are read."""
    if job.topology is not None and job.topology.order:  # judged before its domains were chosen
        return job
    return replace(job, problem=excess) if not job.problem and (excess := job.excess) else job


def _costliest(problem: Problem) -> tuple[JobKey, float] | None:
    """The job whose fields took the decision longest, and the CPU seconds."""
    costs = problem.clock.costs
    index = max(costs, key=lambda j: (costs[j], -j), default=None)
    return None if index is None else (problem.demands[index].job.key, costs[index])


def _admitted(snapshot: ClusterSnapshot, making: _Making) -> Admitted:
    """Count serving, cap maximums and admit jobs; without the time for it, keep what runs and what fits beside it."""
    problem, watch, served = _read(snapshot, making), making.watch, None
    watch.allow(ADMIT_BY)
    try:
        watch.begin("serving")
        served = count_serving(problem, making.limits.deadline_s)
        watch.begin("admission")
        problem, infeasible = cap(problem, served, making.limits.deadline_s)
        trial = AdmissionTrial(problem, served, making.limits.deadline_s)
        return Admitted(problem, served, admit(trial, infeasible), trial)
    except OutOfTimeError:
        watch.cut_short("admission")
        instead = stopgap(problem, served, FIT_BY)
        return Admitted(problem, instead.served, instead.admission, may_grow=instead.is_complete)


def _read(snapshot: ClusterSnapshot, making: _Making) -> Problem:
    """The arrays of a snapshot, whose jobs may be changed ones."""
    since_s = making.watch.spent_s
    read = read_problem(snapshot, making.limits, making.columns, making.watch, defers=True, kept=making.kept)
    making.watch.keep(READ_AGAIN * (making.watch.spent_s - since_s))
    return with_engine(replace(read, solver=making.solver, solved=making.solved))


def _consolidated(snapshot: ClusterSnapshot, making: _Making, made: Study) -> Study:
    """Return the plan that moves pservers if more trainers fit then; else one that gathers trainers in a domain."""
    plan = made.plan
    if reason_to_wait(snapshot, plan, making.limits.sharing.consolidate_after_s):
        return made

    def decide_again(changed: ClusterSnapshot) -> Study | None:
        try:
            return _study(changed, making.further(plan.columns))
        except PlanError:  # without the move the plan is good
            return None

    moving = moves(made.context.shared.packing, making.limits.deadline_s - making.watch.spent_s)
    if not moving.pservers:
        return _gathered(snapshot, made, decide_again)
    price = sum(price_in_trainers(job) for job in snapshot.jobs if job.key in moving.pservers)
    after = decide_again(without(snapshot, moving))
    if after is None or not pays(plan, after.plan, price):
        return _gathered(snapshot, made, decide_again)
    return replace(made, plan=with_moves(plan, after.plan, moving), final_context=after.context)


def _gathered(
    snapshot: ClusterSnapshot, made: Study, decide_again: Callable[[ClusterSnapshot], Study | None]
) -> Study:
    """Return the plan that gathers a job's trainers in one domain, if no job loses; else the plan as it is."""
    for gathering in islice(gatherings(made.context.shared.packing), GATHERINGS):
        after = decide_again(as_gathered(snapshot, gathering))
        if after is not None and holds_together(snapshot, made.plan, after.plan, gathering):
            return replace(made, plan=with_gathering(made.plan, after.plan, gathering), final_context=after.context)
    return made


def _in_owner_order(snapshot: ClusterSnapshot, making: _Making, made: Study, series: Chain) -> Study:
    """Decide again so that workloads shrink in the order in which their controllers delete; see `owners.order`.

    If no time is left for a further plan, the last one that was made counts.

    Raises:
        PlanError: there was time for a further plan, and none was found.
    """
    predicted = to_predict(made.plan, made.context.shared.packing, series)
    last = replace(made, plan=without_replacements(snapshot, made.plan))
    if not predicted:
        return last

    def decide_with(victims: Victims) -> Study | None:
        try:
            after = _study(as_predicted(snapshot, victims), making.further(made.plan.columns), series.next)
        except OutOfTimeError:
            making.watch.cut_short("owner order")
            return None
        for stage in after.plan.cut:
            making.watch.cut_short(stage)
        plan = with_owner_order(snapshot, made.plan, after.plan, victims)
        return replace(after, plan=plan, predicted=after.predicted | victims.keys())

    found = decide_with(predicted)
    if found is None or not series.may_evict_anyway:
        return found or last
    if stopped(made.plan, found.plan):
        other = _in_owner_order(snapshot, making, made, Chain(evicts_anyway=True))
        if other.predicted:  # else there was no time for it
            found = min(found, other, key=lambda after: disruption(made.plan, after.plan, predicted))
    kept = evicted_in_vain(found.plan, found.predicted)
    after = decide_with({**predicted, **kept}) if kept else None  # a quota may want the capacity that they would keep
    if after is None or stopped(found.plan, after.plan) or check(snapshot, after.plan, making.limits.quotas):
        return found
    return after


def _beside_kept(snapshot: ClusterSnapshot, making: _Making, made: Study) -> Study:
    """Decide again so that workloads that must not be stopped keep their minimum; see `owners.kept`."""
    kept = stopped_in_vain(snapshot, made.plan)
    if not kept:
        return made
    try:
        after = _study(as_kept(snapshot, kept), making.further(made.plan.columns))
    except PlanError:  # what waits for their capacity waits a plan longer
        return made
    return replace(after, plan=with_kept(made.plan, after.plan, kept))
