"""Plans on random worlds of several resources, against brute force that knows nothing of the planner.

Pods ask for cpu, memory and devices, some only for a pool of nodes, some nodes only take who tolerates them, and a
node may hold few pods. What the brute force does stands in `oracle`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from random import Random

from hypothesis import assume, given
from hypothesis import strategies as st

from edl.model.cluster import ClusterSnapshot, Node
from edl.model.jobs import Job
from edl.model.plan import ScalePlan
from edl.model.resources import PodShape
from edl.model.status import Reason
from edl.planner.admission.admit import admit
from edl.planner.admission.capping import cap
from edl.planner.admission.trial import AdmissionTrial
from edl.planner.guard import check
from edl.planner.minimums.serving import count_serving
from edl.planner.problem_reader import read_problem
from edl.planner.programs.fair_share import prove
from tests.worlds import brute_force as oracle
from tests.worlds.effort import examples
from tests.worlds.rich_clusters import nodes, rich_fresh_worlds, rich_running_worlds
from tests.worlds.small_clusters import LIMITS, apply_plan, essence, later, plan_for, victims

fresh = rich_fresh_worlds()
arrivals = rich_running_worlds(("a job comes",))
worlds = st.one_of(fresh, rich_running_worlds())


def running(world: ClusterSnapshot, plan: ScalePlan) -> list[Job]:
    return [job for job, d in zip(world.jobs, plan.decisions, strict=True) if d.admitted]


# Serving


@given(worlds)
@examples(60)
def test_serving_is_never_short_where_training_could_have_yielded(world: ClusterSnapshot) -> None:
    plan = plan_for(world)
    world = oracle.as_pinned(world, plan)
    choices = oracle.servings(world)
    most = choices[0].total()
    assert (plan.serving.placed, plan.serving.short) == (most, plan.serving.waiting - most)
    left = oracle.leftover(world, apply_plan(world, plan))
    assert any(oracle.fits(left, choice) for choice in choices)


@given(rich_running_worlds(("serving comes",)))
@examples(60)
def test_the_fewest_trainers_are_deleted_for_serving_on_any_node(world: ClusterSnapshot) -> None:
    plan = plan_for(world)
    world = oracle.as_pinned(world, plan)
    choices = oracle.servings(world)
    jobs = running(world, plan)
    deleted = sum(len(d.victims) for d in plan.decisions if d.admitted)
    fewest = [n for choice in choices if (n := oracle.fewest_victims(world, jobs, choice)) is not None]
    assert fewest
    assert deleted <= max(fewest)


# Who runs


@given(worlds, st.sampled_from([0, 0, 560, 650]))
@examples(80)
def test_who_runs_goes_by_tier_and_age_with_backfill_until_the_head_has_waited(
    world: ClusterSnapshot, wait_s: float
) -> None:
    """Jobs are up to 99 s old, so that 560 s later some of them have waited ten minutes."""
    world = later(world, wait_s)
    plan = plan_for(world)
    world = oracle.as_pinned(world, plan)
    admitted = {d.job for d in plan.decisions if d.admitted}
    choices = oracle.servings(world)
    assert admitted in [oracle.admitted_of(world, choice)[0] for choice in choices]


@given(fresh)
@examples(60)
def test_unschedulable_are_those_that_would_not_fit_alone_and_no_others(world: ClusterSnapshot) -> None:
    plan = plan_for(world)
    world = oracle.as_pinned(world, plan)
    named = {d.job for d in plan.decisions if d.reason is Reason.UNSCHEDULABLE}
    assert named in [oracle.admitted_of(world, choice)[1] for choice in oracle.servings(world)]


# How many each gets


@given(fresh)
@examples(80)
def test_the_worst_off_job_could_not_be_better_off(world: ClusterSnapshot) -> None:
    plan = plan_for(world)
    world = oracle.as_pinned(world, plan)
    jobs = running(world, plan)
    for serving in oracle.servings(world):
        best = oracle.fair_levels(world, jobs, serving)
        if oracle.fulfilments(world, plan, serving)[:1] >= [level - 1e-9 for level in best[:1]]:
            return
    raise AssertionError("the worst off could be better off")


@given(arrivals)
@examples(100)
def test_when_a_job_arrives_the_worst_off_is_as_well_off_as_it_can_be_without_moves(world: ClusterSnapshot) -> None:
    """The job that is better off gives; no running trainer has to start anew elsewhere."""
    plan = plan_for(world)
    world = oracle.as_pinned(world, plan)
    jobs = running(world, plan)
    none: Counter[PodShape] = Counter()
    worst = oracle.fulfilments(world, plan, none)[:1]
    if worst < [level - 1e-9 for level in oracle.fair_levels(world, jobs, none)[:1]]:
        assert not oracle.could_rise(world, jobs, none, worst[0])


@given(fresh)
@examples(60)
def test_the_bound_holds_whatever_is_packed_and_the_plan_reaches_what_can_be_had_beyond_it(
    world: ClusterSnapshot,
) -> None:
    """Bound >= the best that brute force finds with everybody at the planned count or above >= achieved."""
    plan = plan_for(world)
    assume(world == oracle.as_pinned(world, plan))  # a pinned count that does not fit is shared from below it
    jobs = running(world, plan)
    assume(jobs)
    counts = {d.job: d.target for d in plan.decisions if d.admitted}
    choices = oracle.servings(world)
    best = [oracle.most_fulfilment(world, jobs, serving, counts) for serving in choices]
    tops = [{job.key: oracle.top_of(world, job, serving) for job in jobs} for serving in choices]
    achieved = [
        sum(job.weight * oracle.fulfilment(job, counts[job.key], top[job.key]) for job in jobs) for top in tops
    ]
    assert any(abs(a - b) < 1e-6 <= plan.certificate.bound - b + 2e-6 for a, b in zip(achieved, best, strict=True))


@given(fresh)
@examples(40)
def test_the_bound_of_the_minimums_alone_holds_too(world: ClusterSnapshot) -> None:
    """The program does not know the plan, so that it bounds every way to share."""
    read = read_problem(world, LIMITS)
    served = count_serving(read, 10.0)
    capped, infeasible = cap(read, served, 10.0)
    room = admit(AdmissionTrial(capped, served, 10.0), infeasible).packing
    assume(room.members)
    jobs = [capped.demands[j].job for j in room.members]
    least = {job.key: oracle.low_of(job) for job in jobs}
    proof = prove(room, {j: float(capped.demands[j].min_trainers) for j in room.members}, 10.0)
    best = min(oracle.most_fulfilment(world, jobs, serving, least) for serving in oracle.servings(world))
    assert proof.bound >= best - 1e-9


# Room


@given(worlds)
@examples(80)
def test_every_planned_pod_has_a_place_and_no_node_is_overcommitted_for_it(world: ClusterSnapshot) -> None:
    plan = plan_for(world)
    assert check(world, plan) == ()
    after = apply_plan(world, plan)
    for job, decision in zip(after.jobs, plan.decisions, strict=True):
        assert len(job.live_trainers) == decision.target
        if decision.admitted:
            roles = Counter(p.role for p in job.pods if p.is_live)
            assert all(roles[fixed.role] >= fixed.count for fixed in job.fixed)
    old = {p.uid for job in world.jobs for p in job.pods}
    left = {each.node.name: each for each in oracle.leftover(world, after)}
    for pod in (p for job in after.jobs for p in job.pods if p.uid not in old):
        here = left[pod.node]
        assert oracle.may_go(pod.shape, here.node)
        assert all(here.free[name] >= 0 for name in pod.shape.request)


# Rest, repetition and more room


@given(worlds)
@examples(60)
def test_planning_again_on_the_planned_world_changes_nothing(world: ClusterSnapshot) -> None:
    """But for a job that serving drives out: once its masters and pservers are gone too, it may fit elsewhere."""
    plan = plan_for(world)
    after = apply_plan(world, plan)
    again = plan_for(after)
    driven_out = {d.job for d in plan.decisions if d.reason is Reason.SERVING_NEEDS_ROOM and not d.admitted}
    back = {d.job for d in again.decisions if d.admitted and d.job in driven_out}
    assert not victims(again) or back
    assert essence(again) == essence(plan) or back


@given(worlds, st.randoms(use_true_random=False))
@examples(50)
def test_the_order_in_which_things_are_listed_changes_no_plan(world: ClusterSnapshot, random: Random) -> None:
    plan = replace(plan_for(world), seconds=0.0)
    shuffled = replace(
        world,
        pods=tuple(random.sample(world.pods, len(world.pods))),
        jobs=tuple(replace(job, pods=tuple(random.sample(job.pods, len(job.pods)))) for job in world.jobs),
    )
    assert replace(plan_for(shuffled), seconds=0.0) == plan
    turned = replace(world, nodes=tuple(random.sample(world.nodes, len(world.nodes))))
    assert essence(plan_for(turned)) == essence(plan)


def test_another_process_with_other_hashes_makes_the_same_plan() -> None:
    code = (
        "from tests.worlds.small_clusters import *; from tests.planner.policies.test_edl_2017_experiment import *;"
        "from tests.worlds.rich_clusters import DEDICATED;"
        "world = make_snapshot(nodes_2017()[:9], jobs_2017(2), tuple(make_serving(f's{i}') for i in range(5)));"
        "plan = plan_for(world); after = plan_for(with_pods(apply_plan(world, plan), make_serving('t', cpu=4)));"
        "print([(d, e) for d, e in zip(plan.decisions, after.decisions)])"
    )
    named = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(named) == 1


@given(rich_fresh_worlds(most_waiting=0), nodes("n9"))
@examples(60)
def test_a_further_node_never_makes_the_worst_off_worse_off(world: ClusterSnapshot, node: Node) -> None:
    """An un-admitted job counts below every admitted one. No maximum is above what fits: a node would raise it."""
    none: Counter[PodShape] = Counter()
    possible = [job for job in world.jobs if oracle.all_fit(world, [job], none)]
    cut = tuple(replace(job, max_trainers=max(job.min_trainers, oracle.cap_of(world, job, none))) for job in possible)
    before = replace(world, jobs=cut)
    after = replace(before, nodes=(*before.nodes, node))
    assert worst_off(after) >= worst_off(before) - 1e-9


def worst_off(world: ClusterSnapshot) -> float:
    pairs = zip(world.jobs, plan_for(world).decisions, strict=True)
    levels = (oracle.fulfilment(job, d.target, job.max_trainers) if d.admitted else -1.0 for job, d in pairs)
    return min(levels, default=1.0)
