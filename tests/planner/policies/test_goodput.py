"""Policy `goodput`: counts by the speeds that were seen, and a resize only if it pays."""

from __future__ import annotations

from dataclasses import replace
from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.plan import ScalePlan
from edl.model.status import Reason, Resize
from edl.planner.speedup import TRUSTED, seen_of
from tests.worlds.builders import make_job, make_nodes, make_snapshot
from tests.worlds.effort import examples
from tests.worlds.small_clusters import (
    LIMITS,
    apply_plan,
    decision_of,
    fresh_worlds,
    later,
    plan_for,
    running_worlds,
    targets,
    victims,
    with_jobs,
)

quick = examples(60)
NODES_OF_FOUR = ((1, 100.0), (2, 190.0), (4, 360.0), (5, 300.0), (7, 330.0), (8, 600.0))
"""A job that one GPU on a second node slows."""

curves = st.sampled_from([(), ((1, 100.0), (4, 380.0)), NODES_OF_FOUR, ((1, 50.0), (2, 60.0), (6, 62.0))])
costs = st.sampled_from([None, 0.0, 30.0, 250.0])


@st.composite
def with_curves(draw: st.DrawFn, worlds: st.SearchStrategy[ClusterSnapshot]) -> ClusterSnapshot:
    world = draw(worlds)
    return replace(
        world,
        jobs=tuple(replace(job, throughput=draw(curves), resize_cost_s=draw(costs)) for job in world.jobs),
    )


worlds = with_curves(st.one_of(fresh_worlds(), running_worlds()))


def useful(world: ClusterSnapshot) -> ScalePlan:
    return plan_for(world, LIMITS, "goodput")


def running(*jobs: Job, cpu: int, most: int) -> ClusterSnapshot:
    """Jobs that have run for long with at most so many trainers each, and may have twelve now."""
    nodes = make_nodes(1, cpu=cpu)
    world = make_snapshot(nodes, tuple(replace(job, max_trainers=most) for job in jobs))
    world = later(apply_plan(world, useful(world)), 1000)
    return with_jobs(world, *(replace(job, max_trainers=12) for job in world.jobs))


def scaling(name: str, cost_s: float | None, *, max_trainers: int = 12) -> Job:
    job = make_job(name, max_trainers=max_trainers)
    return replace(job, throughput=((1, 100.0), (12, 1200.0)), resize_cost_s=cost_s)


def test_free_capacity_stays_free_if_growth_costs_more_than_it_adds() -> None:
    """From 8 to 9 trainers the logarithm grows by 0.118, which is 71 s of the 600 s that count."""
    world = running(scaling("a", 60.0), cpu=9, most=8)
    assert targets(useful(world)) == {"a": 9}
    dear = with_jobs(world, replace(world.jobs[0], resize_cost_s=80.0))
    assert targets(useful(dear)) == {"a": 8}
    assert targets(plan_for(dear, LIMITS, "utility")) == {"a": 9}
    decision = decision_of(useful(dear), "a")
    less = "8 of 12: more trainers would not pay: 9 add 12 %, and a resize must add 14 %"
    assert (decision.reason, decision.message) == ("ResizeNotWorthIt", less)
    assert "there is capacity for more trainers" in decision.details
    assert decision.details.endswith("for a resize of 80 s; 10 would pay and do not fit")


def test_a_cost_that_nobody_knows_is_the_usual_one() -> None:
    world = running(scaling("a", None), cpu=9, most=8)
    assert targets(useful(world)) == {"a": 9}
    assert 600 * log(26 / 25) < 30 < 600 * log(9 / 8)
    large = running(replace(scaling("a", None), throughput=((1, 100.0), (9, 104.0))), cpu=9, most=8)
    assert targets(useful(large)) == {"a": 8}


def test_a_new_job_pays_nothing_for_its_start() -> None:
    assert targets(useful(make_snapshot(make_nodes(1, cpu=12), (scaling("a", 5000.0),)))) == {"a": 12}


def test_no_job_gets_a_count_that_slows_it_even_between_faster_ones() -> None:
    job = replace(make_job("a", max_trainers=8), throughput=NODES_OF_FOUR)
    for cpu, expected in ((8, 8), (7, 4), (5, 4), (4, 4)):
        assert targets(useful(make_snapshot(make_nodes(1, cpu=cpu), (job,)))) == {"a": expected}


def test_a_job_that_still_starts_pays_nothing_for_more() -> None:
    world = make_snapshot(make_nodes(1, cpu=8), (scaling("a", 5000.0),))
    starting = apply_plan(world, useful(world), bound=False)
    assert targets(useful(replace(starting, nodes=make_nodes(1, cpu=12)))) == {"a": 12}


def test_no_job_gets_a_count_far_below_what_its_envelope_promises() -> None:
    """Six would be faster than four, but 600 is what six are worth elsewhere in the curve."""
    job = replace(make_job("a", max_trainers=8), throughput=((1, 100.0), (4, 400.0), (6, 420.0), (8, 800.0)))
    for cpu, expected in ((8, 8), (7, 4), (6, 4)):
        assert targets(useful(make_snapshot(make_nodes(1, cpu=cpu), (job,)))) == {"a": expected}


def test_what_a_job_leaves_because_it_would_slow_it_goes_to_another() -> None:
    job = replace(make_job("a", max_trainers=8), throughput=NODES_OF_FOUR)
    other = replace(make_job("b", max_trainers=8), throughput=((1, 10.0), (8, 20.0)))
    assert targets(useful(make_snapshot(make_nodes(1, cpu=7), (job, other)))) == {"a": 4, "b": 3}


def test_goodput_counts_instead_of_speed() -> None:
    fast = replace(
        make_job("a", max_trainers=8), throughput=((1, 100.0), (8, 800.0)), goodput=((1, 100.0), (8, 120.0))
    )
    slow = replace(
        make_job("b", max_trainers=8), throughput=((1, 100.0), (8, 120.0)), goodput=((1, 100.0), (8, 800.0))
    )
    world = make_snapshot(make_nodes(1, cpu=8), (fast, slow))
    by_speed, by_goodput = targets(plan_for(world, LIMITS, "utility")), targets(useful(world))
    assert by_speed["a"] > by_speed["b"]
    assert by_goodput["b"] > by_goodput["a"]


def test_each_job_keeps_half_of_its_fair_share() -> None:
    scales = scaling("scales", 0.0, max_trainers=12)
    stalls = replace(make_job("stalls", max_trainers=12), throughput=((1, 100.0), (2, 101.0), (12, 103.0)))
    assert targets(useful(make_snapshot(make_nodes(1, cpu=12), (scales, stalls)))) == {"scales": 9, "stalls": 3}


def test_trainers_change_hands_only_for_more_than_both_resizes_cost() -> None:
    """As under `utility`: the logarithm of 9/4 over 600 s, less what the other loses, is worth about 450 s."""

    def unequal(cost_s: float) -> ClusterSnapshot:
        stalls = replace(make_job("stalls"), throughput=((1, 100.0), (2, 110.0), (12, 120.0)), resize_cost_s=cost_s)
        world = make_snapshot(make_nodes(1, cpu=12), (scaling("scales", cost_s, max_trainers=4), stalls))
        world = later(apply_plan(world, useful(world)), 1000)
        return with_jobs(world, replace(world.jobs[0], max_trainers=12))

    assert targets(useful(unequal(150.0))) == {"scales": 9, "stalls": 3}
    dear = useful(unequal(400.0))
    assert targets(dear) == {"scales": 4, "stalls": 8}
    assert victims(dear) == []


def test_a_job_that_was_just_resized_does_not_grow_before_it_has_trained() -> None:
    world = running(scaling("a", 30.0), cpu=9, most=8)
    (job,) = world.jobs
    status = job.status
    assert status is not None

    def resized(ago_s: float) -> ClusterSnapshot:
        at_s = world.observed_at_s - ago_s
        resize = Resize(time_s=at_s, from_count=7, to_count=8, reason="InsufficientCapacity")
        return with_jobs(world, replace(job, status=replace(status, last_resize=resize)))

    assert targets(useful(resized(59.0))) == {"a": 8}
    assert targets(useful(resized(61.0))) == {"a": 9}


@given(worlds)
@quick
def test_a_plan_is_within_its_bound_and_each_count_is_trusted(world: ClusterSnapshot) -> None:
    plan = useful(world)
    assert plan.certificate.bound >= plan.certificate.achieved
    for job, decision in zip(world.jobs, plan.decisions, strict=True):
        points = seen_of(job).points
        if decision.target > max(decision.current, job.min_trainers) and points:
            assert decision.target <= max(TRUSTED * points[-1][0], job.min_trainers)


@given(worlds)
@quick
def test_the_next_plan_changes_nothing(world: ClusterSnapshot) -> None:
    between = apply_plan(world, useful(world))
    plan = useful(between)
    assert not victims(plan)
    assert [d.target for d in plan.decisions] == [d.current for d in plan.decisions]


@pytest.mark.parametrize("sizes", [(1, 2, 4, 8)])
def test_sizes_of_the_owner_hold_too(sizes: tuple[int, ...]) -> None:
    job = replace(scaling("a", 0.0, max_trainers=8), sizes=sizes)
    assert targets(useful(make_snapshot(make_nodes(1, cpu=7), (job,)))) == {"a": 4}


def test_beyond_what_was_seen_more_trainers_would_not_pay_and_the_next_plan_says_so_too() -> None:
    job = replace(make_job("a", max_trainers=10), throughput=((1, 100.0), (2, 190.0), (4, 360.0)), resize_cost_s=0.0)
    world = make_snapshot(make_nodes(2, cpu=8), (job,))
    for _ in range(2):
        found = decision_of(useful(world), "a")
        assert (found.target, found.reason) == (TRUSTED * 4, Reason.RESIZE_NOT_WORTH_IT)
        world = later(apply_plan(world, useful(world)), 1000)


def test_where_nothing_is_free_a_job_that_would_gain_nothing_waits_for_capacity() -> None:
    """Nobody says that trainers of others would add speed here."""
    job = replace(make_job("a", max_trainers=10), throughput=((1, 100.0), (2, 190.0), (4, 360.0)), resize_cost_s=0.0)
    found = decision_of(useful(make_snapshot(make_nodes(1, cpu=8), (job,))), "a")
    assert (found.target, found.reason) == (8, Reason.INSUFFICIENT_CAPACITY)
