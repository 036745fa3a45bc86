"""Policy `utility`: trainers go where they add most speed, measured against brute force on small clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import log
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl.explain.decision import decide
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.plan import ScalePlan
from edl.model.status import Reason
from edl.planner.guard import check
from edl.planner.packing import grow
from edl.planner.policies import trading
from edl.planner.policies.registry import policy_named
from edl.planner.problem_reader import read_problem
from edl.planner.programs.fair_share import fair_shares, read_share_problem
from edl.planner.speedup import Worth, curve_of
from edl.planner.trial_packing import TrialPacking
from tests.worlds.builders import make_job, make_node, make_nodes, make_serving, make_snapshot
from tests.worlds.effort import examples
from tests.worlds.small_clusters import (
    LIMITS,
    apply_plan,
    cluster_of,
    cores_of,
    decision_of,
    essence,
    fresh_worlds,
    jobs_that_could_grow,
    later,
    plan_for,
    reachable,
    running_worlds,
    small_jobs,
    small_nodes,
    targets,
    victims,
    with_jobs,
    with_pods,
)

quick = examples(100)
curves = st.sampled_from(
    [
        (),
        ((1, 100.0), (2, 195.0), (4, 380.0)),
        ((1, 50.0), (2, 60.0), (6, 62.0)),
        ((2, 1000.0),),
        ((1, 10.0), (3, 40.0)),
    ]
)


@st.composite
def with_curves(draw: st.DrawFn, worlds: st.SearchStrategy[ClusterSnapshot]) -> ClusterSnapshot:
    world = draw(worlds)
    return replace(world, jobs=tuple(replace(job, throughput=draw(curves)) for job in world.jobs))


worlds = with_curves(st.one_of(fresh_worlds(), running_worlds()))


def useful(snapshot: ClusterSnapshot, limits: Limits = LIMITS) -> ScalePlan:
    return plan_for(snapshot, limits, "utility")


def utility(jobs: Sequence[Job], counts: Sequence[int]) -> float:
    """The definition, once more: the sum of the logarithms of what is gained over each minimum."""
    pairs = ((curve_of(job.throughput), job, n) for job, n in zip(jobs, counts, strict=True))
    return sum(log(curve.speed(n) / curve.speed(job.min_trainers)) for curve, job, n in pairs)


@given(small_nodes(), st.lists(small_jobs(with_fixed=False, with_tiers=False), min_size=1, max_size=3), st.data())
@quick
def test_no_way_to_fill_the_cluster_is_worth_more(cores: list[int], jobs: list[Job], data: st.DataObject) -> None:
    """Every way in which each job has half its fair share at least."""
    world = cluster_of(cores, [replace(job, throughput=data.draw(curves)) for job in jobs])
    plan = useful(world)
    run = [job for job, d in zip(world.jobs, plan.decisions, strict=True) if d.admitted]
    rooms = [node.allocatable["cpu"] // 1000 for node in world.nodes]
    alone = [sum(room // cores_of(job.trainer) for room in rooms) for job in run]
    tops = [min(job.max_trainers, most) for job, most in zip(run, alone, strict=True)]
    got = [d.target for d in plan.decisions if d.admitted]
    floors = half_shares(world, run, tops)
    assert all(n >= floor for n, floor in zip(got, floors, strict=True))
    ways = reachable(rooms, [cores_of(job.trainer) for job in run], tuple(tops))
    allowed = [way for way in ways if all(n >= floor for n, floor in zip(way, floors, strict=True))]
    best = max((utility(run, way) for way in allowed), default=0.0)
    assert utility(run, got) >= best - 1e-6
    assert plan.certificate.objective == "utility"
    assert plan.certificate.achieved == pytest.approx(utility(run, got), abs=1e-6)
    assert plan.certificate.bound >= plan.certificate.achieved


def half_shares(
    world: ClusterSnapshot, run: Sequence[Job], tops: Sequence[int], limits: Limits = LIMITS
) -> list[int]:
    """The floors: halfway from each minimum to the fair share, in whole trainers."""
    capped = [replace(job, max_trainers=max(top, job.min_trainers)) for job, top in zip(run, tops, strict=True)]
    read = read_problem(replace(world, jobs=tuple(capped)), limits)
    room = TrialPacking(read, range(len(capped)))
    least = {j: read.demands[j].min_trainers for j in room.members}
    grow(room, least, least)
    level = fair_shares(read_share_problem(room), 10.0)
    return [int(n + (level[j] - n) / 2 + 1e-6) for j, n in least.items()]


@given(worlds)
@quick
def test_every_plan_passes_its_checks_and_its_bound(world: ClusterSnapshot) -> None:
    plan = useful(world)
    assert check(world, plan) == ()
    assert plan.certificate.bound >= plan.certificate.achieved


@given(worlds)
@quick
def test_equal_snapshots_give_equal_plans(world: ClusterSnapshot) -> None:
    assert replace(useful(world), seconds=0) == replace(useful(world), seconds=0)


@given(worlds)
@quick
def test_no_further_trainer_of_any_job_fits(world: ClusterSnapshot) -> None:
    assert jobs_that_could_grow(world, useful(world)) == []


@given(worlds)
@quick
def test_planning_again_on_what_results_changes_nothing(world: ClusterSnapshot) -> None:
    plan = useful(world)
    again = useful(apply_plan(world, plan))
    assert essence(again) == essence(plan)
    assert not victims(again)


@given(worlds, st.booleans(), st.booleans())
@quick
def test_planning_again_while_pods_come_and_go_changes_nothing(
    world: ClusterSnapshot, gone: bool, only_startable: bool
) -> None:
    plan = useful(world)
    between = apply_plan(world, plan, gone=gone, bound=False, only_startable=only_startable)
    again = useful(between)
    assert not victims(again)
    assert essence(again) == essence(plan)


# Which policy


def test_trainers_go_where_they_add_more_speed() -> None:
    scales = replace(make_job("scales", max_trainers=12), throughput=((1, 100.0), (8, 800.0)))
    stalls = replace(make_job("stalls", max_trainers=12), throughput=((1, 100.0), (2, 110.0), (8, 112.0)))
    plan = useful(make_snapshot(make_nodes(1, cpu=12), (scales, stalls)))
    assert targets(plan) == {"scales": 9, "stalls": 3}  # 3 is the floor: half its fair share of 6


def test_idle_room_is_used_up_beyond_what_a_curve_is_trusted_for() -> None:
    known = replace(make_job("a", max_trainers=30), throughput=((1, 10.0), (2, 19.0)))
    assert targets(useful(make_snapshot(make_nodes(2, cpu=10), (known,)))) == {"a": 20}


def test_no_job_changes_the_policy_of_others_by_what_it_declares() -> None:
    jobs = (make_job("a", max_trainers=12), make_job("b", max_trainers=12))
    known = replace(jobs[1], throughput=((1, 100.0), (8, 150.0)))
    elsewhere = replace(
        make_job("c", cpu=0.1, max_trainers=10_000), throughput=tuple((1 + i, 1.0 + i) for i in range(64))
    )
    unschedulable = replace(make_job("c", cpu=99), throughput=((1, 1.0),))
    nodes = make_nodes(1, cpu=12)

    def default(*jobs: Job) -> ScalePlan:
        return decide(make_snapshot(nodes, jobs), policy_named(""), LIMITS)

    for beside in ((), (unschedulable,), (elsewhere,)):
        with_curve, without = (default(*pair, *beside) for pair in (jobs, (jobs[0], known)))
        assert targets(with_curve) == targets(without)
        assert (without.policy, without.certificate.objective) == ("maxmin", "fulfilment")
    plain = replace(elsewhere, throughput=())
    assert targets(default(*jobs, elsewhere)) == targets(default(*jobs, plain))
    assert decide(make_snapshot(nodes, (jobs[0], known)), policy_named("utility"), LIMITS).policy == "utility"


# Resizes that pay


def unequal(*, cost_s: float = 0.0) -> ClusterSnapshot:
    """Two jobs that run for long, one of them with much more than what it makes use of."""
    job = replace(make_job("x"), resize_cost_s=cost_s)
    scales = replace(job, key=job.key._replace(name="scales"), throughput=((1, 100.0), (12, 1200.0)))
    stalls = replace(job, key=job.key._replace(name="stalls"), throughput=((1, 100.0), (2, 110.0), (12, 120.0)))
    world = make_snapshot(make_nodes(1, cpu=12), (replace(scales, max_trainers=4), stalls))
    world = later(apply_plan(world, useful(world)), 1000)
    return with_jobs(world, replace(world.jobs[0], max_trainers=12))


def test_trainers_change_hands_where_that_is_worth_much() -> None:
    assert targets(useful(unequal())) == {"scales": 9, "stalls": 3}


def test_but_not_while_serving_is_leaving_room_that_is_worth_as_much() -> None:
    world = replace(unequal(), nodes=make_nodes(2, cpu=12))
    leaving = replace(make_serving("goes", cpu=12, node="n001"), terminating=True)
    assert targets(useful(with_pods(world, leaving))) == {"scales": 4, "stalls": 8}
    assert targets(useful(world)) == {"scales": 12, "stalls": 10}
    little = (
        replace(make_serving("goes", cpu=1, node="n001"), terminating=True),
        make_serving("s", cpu=11, node="n001"),
    )
    assert targets(useful(with_pods(world, *little))) == {"scales": 9, "stalls": 3}


def test_but_not_where_the_gain_does_not_pay_for_the_restarts() -> None:
    """The logarithm of 9/4 over 600 s, less what the other loses, is worth about 450 s, and two jobs are resized."""
    assert targets(useful(unequal(cost_s=150.0))) == {"scales": 9, "stalls": 3}
    dear = useful(unequal(cost_s=400.0))
    assert targets(dear) == {"scales": 4, "stalls": 8}
    assert decision_of(dear, "scales").reason == "ResizeNotWorthIt"
    assert victims(dear) == []


SLOWED = ((1, 10.0), (4, 30.0), (8, 15.0))


@pytest.mark.parametrize("policy", ["utility", ""])
def test_nobody_gets_trainers_that_slow_it(policy: str) -> None:
    job = replace(make_job("a", max_trainers=16), throughput=SLOWED)
    made = decide(make_snapshot(make_nodes(2), (job,)), policy_named(policy), LIMITS)
    (decision,) = made.decisions
    assert (decision.target, decision.max_trainers, decision.reason) == (4, 16, Reason.AT_MAX)
    assert decision.message == "4 of 16: more trainers would slow it, by the speeds that are known"


def test_what_would_slow_one_job_goes_to_another() -> None:
    slowed = replace(make_job("a", max_trainers=16), throughput=SLOWED)
    other = replace(make_job("b", max_trainers=16), throughput=((1, 10.0), (16, 20.0)))
    plan = plan_for(make_snapshot(make_nodes(2), (slowed, other)), policy="utility")
    assert [decision.target for decision in plan.decisions] == [4, 12]


def test_trainers_that_a_job_has_stay_although_they_slow_it() -> None:
    job = replace(make_job("a", trainers=6, max_trainers=16, on=("n000",)), throughput=SLOWED)
    (decision,) = plan_for(make_snapshot(make_nodes(2), (job,)), policy="utility").decisions
    assert (decision.target, decision.victims) == (6, ())


def test_a_minimum_is_given_although_it_slows_the_job() -> None:
    job = replace(make_job("a", min_trainers=6, max_trainers=16), throughput=SLOWED)
    (decision,) = plan_for(make_snapshot(make_nodes(2), (job,)), policy="utility").decisions
    assert decision.target == 6


def test_under_maxmin_a_curve_limits_its_own_job_alone() -> None:
    job = replace(make_job("a", max_trainers=16), throughput=SLOWED)
    other = make_job("b", max_trainers=16)
    world = make_snapshot(make_nodes(4), (job, other))
    assert targets(plan_for(world, policy="maxmin")) == {"a": 4, "b": 16}
    assert targets(plan_for(with_jobs(world, replace(job, throughput=())), policy="maxmin")) == {"a": 16, "b": 16}


@pytest.mark.parametrize(("most", "orders"), [(200, 2), (9_000, 1)])
def test_much_growth_is_tried_in_one_order_alone(monkeypatch: pytest.MonkeyPatch, most: int, orders: int) -> None:
    """A job that wants ten thousand trainers costs one decision twice the time otherwise."""
    packings = set[int]()

    def noted(packing: TrialPacking, *args: Any, **more: Any) -> None:
        packings.add(id(packing))
        kept.append(packing)
        grow(packing, *args, **more)

    kept: list[TrialPacking] = []
    monkeypatch.setattr(trading, "grow", noted)
    jobs = tuple(
        replace(make_job(f"j{i}", cpu=0.01, memory_gib=0, max_trainers=most), throughput=((1, 10.0), (most, 900.0)))
        for i in range(3)
    )
    world = make_snapshot((make_node("n0", cpu=1000, pods=100_000),), jobs)
    plan = plan_for(world, Limits(deadline_s=120.0), policy="utility")  # the count matters here, not the time
    assert set(targets(plan).values()) == {most}
    assert len(packings) == orders


@pytest.mark.parametrize("count", range(-1, 12))
def test_the_next_trainer_is_worth_what_the_total_rises_by(count: int) -> None:
    worth = Worth(1, ((2, 5.0), (1, 3.0), (4, 1.0)))
    rises = worth.value(count + 1) - worth.value(count) if count >= 1 else 5.0
    assert worth.next(count) == rises
