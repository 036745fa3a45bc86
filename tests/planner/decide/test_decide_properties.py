"""Properties of every plan, on small random worlds, against brute force."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.plan import ScalePlan
from edl.model.pods import Pod
from edl.model.status import Reason
from edl.planner.guard import check
from tests.worlds.builders import make_serving
from tests.worlds.effort import examples
from tests.worlds.small_clusters import (
    apply_plan,
    cluster_of,
    cores_of,
    essence,
    free_cores,
    fresh_worlds,
    jobs_that_could_grow,
    plan_for,
    reachable,
    running_worlds,
    small_jobs,
    small_nodes,
    victims,
    with_pods,
)

quick = examples(100)
worlds = st.one_of(fresh_worlds(), running_worlds())


@given(worlds)
@quick
def test_every_plan_passes_its_checks_and_its_bound(world: ClusterSnapshot) -> None:
    plan = plan_for(world)
    assert check(world, plan) == ()
    assert plan.certificate.bound >= plan.certificate.achieved
    for decision in plan.decisions:
        assert decision.account
        assert decision.admitted == (decision.target >= max(1, decision.min_trainers))


@pytest.mark.parametrize(("policy", "bound"), [("static-min", "min_trainers"), ("static-max", "max_trainers")])
@given(worlds)
@examples(30)
def test_a_static_policy_holds_whom_it_admits_at_a_bound_and_its_plan_is_certified_and_stays(
    policy: str, bound: str, world: ClusterSnapshot
) -> None:
    plan = plan_for(world, policy=policy)
    assert plan == replace(plan_for(world, policy=policy), seconds=plan.seconds)
    assert plan.certificate.bound >= plan.certificate.achieved
    for job, decision in zip(world.jobs, plan.decisions, strict=True):
        wanted = (job.pinned or getattr(job, bound)) if decision.admitted else 0
        fits_fewer = decision.admitted and job.pinned and job.min_trainers <= decision.target < job.pinned
        assert decision.target == wanted or fits_fewer
    result = apply_plan(world, plan)
    assert essence(plan_for(result, policy=policy)) == essence(plan)


@given(worlds)
@quick
def test_equal_snapshots_give_equal_plans(world: ClusterSnapshot) -> None:
    assert replace(plan_for(world), seconds=0) == replace(plan_for(world), seconds=0)


@given(worlds)
@quick
def test_no_further_trainer_of_any_job_fits(world: ClusterSnapshot) -> None:
    assert jobs_that_could_grow(world, plan_for(world)) == []


@given(worlds)
@quick
def test_serving_gets_as_much_as_if_there_were_no_training(world: ClusterSnapshot) -> None:
    plan = plan_for(world)
    waiting = [p for p in world.pods if p.is_waiting_serving]
    sizes = sorted({cores_of(p.shape) for p in waiting})
    wanted = tuple(sum(cores_of(p.shape) == size for p in waiting) for size in sizes)
    empty = free_cores(replace(world, jobs=()), replace(plan, decisions=()))
    most = max(sum(way) for way in reachable(empty.values(), sizes, wanted))
    assert plan.serving.short == len(waiting) - most
    assert plan.serving.placed == most
    left = free_cores(world, plan)
    assert most in {sum(way) for way in reachable(left.values(), sizes, wanted)}


@given(worlds)
@quick
def test_planning_again_on_what_results_changes_nothing(world: ClusterSnapshot) -> None:
    plan = plan_for(world)
    after = apply_plan(world, plan)
    again = plan_for(after)
    assert essence(again) == essence(plan)
    assert not victims(again)


@given(worlds, st.booleans(), st.booleans())
@quick
def test_planning_again_while_pods_come_and_go_changes_nothing(
    world: ClusterSnapshot, gone: bool, only_startable: bool
) -> None:
    plan = plan_for(world)
    between = apply_plan(world, plan, gone=gone, bound=False, only_startable=only_startable)
    again = plan_for(between)
    assert not victims(again)
    if not _may_return(world, plan):
        assert essence(again) == essence(plan)


def _may_return(world: ClusterSnapshot, plan: ScalePlan) -> bool:
    """Whether a job gives up running pservers; started anew they may fit elsewhere, so the job may return at once."""
    keeps = {decision.job for decision in plan.decisions if decision.admitted}
    return any(
        pod.node and pod.role is not Role.TRAINER for job in world.jobs if job.key not in keeps for pod in job.pods
    )


def _fits(world: ClusterSnapshot, jobs: tuple[Job, ...]) -> bool:
    """Brute force: all minimums and fixed pods of these jobs on an empty cluster."""
    wanted: dict[int, int] = {}
    for job in jobs:
        wanted[cores_of(job.trainer)] = wanted.get(cores_of(job.trainer), 0) + job.min_trainers
        for fixed in job.fixed:
            wanted[cores_of(fixed.shape)] = wanted.get(cores_of(fixed.shape), 0) + fixed.count
    sizes = sorted(wanted)
    goal = tuple(wanted[size] for size in sizes)
    rooms = [node.allocatable["cpu"] // 1000 for node in world.nodes]
    return goal in reachable(rooms, sizes, goal)


@given(small_nodes(), st.lists(small_jobs(), max_size=4))
@quick
def test_admission_goes_by_tier_and_age_and_fills_up_behind_the_head(cores: list[int], jobs: list[Job]) -> None:
    world = cluster_of(cores, jobs)
    plan = plan_for(world)
    admitted: tuple[Job, ...] = ()
    for job in sorted(world.jobs, key=lambda j: (-j.tier, j.created_s, j.key)):
        if _fits(world, (*admitted, job)):
            admitted = (*admitted, job)
        elif not _fits(world, (job,)):
            decision = plan.decision(job.key)
            assert decision is not None
            assert decision.reason is Reason.UNSCHEDULABLE
    assert {d.job for d in plan.decisions if d.admitted} == {job.key for job in admitted}


@given(small_nodes(), st.lists(small_jobs(with_fixed=False, with_tiers=False), min_size=1, max_size=3))
@quick
def test_the_worst_off_job_of_a_fresh_cluster_could_not_be_better_off(cores: list[int], jobs: list[Job]) -> None:
    world = cluster_of(cores, jobs)
    plan = plan_for(world)
    run = [job for job, d in zip(world.jobs, plan.decisions, strict=True) if d.admitted]
    rooms = [node.allocatable["cpu"] // 1000 for node in world.nodes]
    alone = [sum(room // cores_of(job.trainer) for room in rooms) for job in run]
    tops = [min(job.max_trainers, most) for job, most in zip(run, alone, strict=True)]
    ways = reachable(rooms, [cores_of(job.trainer) for job in run], tuple(tops))

    def fulfilments(counts: tuple[int, ...]) -> list[float]:
        triples = zip(run, tops, counts, strict=True)
        return [
            (n - j.min_trainers) / (top - j.min_trainers) if top > j.min_trainers else 1.0 for j, top, n in triples
        ]

    feasible = [way for way in ways if all(n >= j.min_trainers for j, n in zip(run, way, strict=True))]
    best = max((min(fulfilments(way), default=1.0) for way in feasible), default=1.0)
    got = fulfilments(tuple(d.target for d in plan.decisions if d.admitted))
    assert min(got, default=1.0) >= best - 1e-9
    assert sum(got) <= plan.certificate.bound + 1e-9


@given(
    small_nodes(),
    st.lists(small_jobs(with_tiers=False), min_size=1, max_size=3),
    st.integers(1, 3),
    st.integers(1, 3),
)
@quick
def test_the_fewest_trainers_die_for_serving(cores: list[int], jobs: list[Job], size: int, count: int) -> None:
    empty = cluster_of(cores, jobs)
    running = apply_plan(empty, plan_for(empty))
    world = with_pods(running, *(make_serving(f"w{i}", cpu=size) for i in range(count)))
    plan = plan_for(world)
    live_trainers = [
        (job, pod) for job in world.jobs for pod in job.live_trainers if (d := plan.decision(job.key)) and d.admitted
    ]
    if not all(d.admitted for d in plan.decisions if d.current):
        return  # a whole job had to go

    def frees_enough(dying: tuple[tuple[Job, Pod], ...]) -> bool:
        if any(len(job.live_trainers) - sum(j is job for j, _ in dying) < job.min_trainers for job, _ in dying):
            return False
        free = free_cores(running, plan_for(running))
        for job, pod in dying:
            free[pod.node] += cores_of(job.trainer)
        return sum(room // size for room in free.values()) >= plan.serving.placed

    fewest = next(
        (k for k in range(len(live_trainers) + 1) if any(map(frees_enough, combinations(live_trainers, k)))), None
    )
    assert fewest is None or len(victims(plan)) <= fewest
