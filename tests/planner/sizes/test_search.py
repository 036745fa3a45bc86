"""Jobs that may have some counts only: every plan keeps to them, and shares as fairly as brute force."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.plan import ScalePlan
from edl.model.sizes import Sizes, allows, at_most, named
from edl.planner.admission.early_evictions import early_evictions
from edl.planner.guard import check
from edl.planner.starts import startable
from tests.worlds.builders import make_job, make_node, make_serving, make_snapshot
from tests.worlds.effort import examples
from tests.worlds.small_clusters import (
    CHANGES,
    LIMITS,
    apply_plan,
    cluster_of,
    cores_of,
    decision_of,
    essence,
    later,
    plan_for,
    reachable,
    targets,
    victims,
    with_jobs,
    with_pods,
)

POWERS: Sizes = (2, 4, 8)


def sized(name: str, sizes: Sizes, *, trainers: int = 0, on: tuple[str, ...] = (), age_s: float = 0.0) -> Job:
    job = make_job(name, trainers=trainers, min_trainers=sizes[0], max_trainers=sizes[-1], on=on, age_s=age_s)
    return replace(job, sizes=sizes)


def carried_out(world: ClusterSnapshot, plan: ScalePlan) -> ClusterSnapshot:
    return later(apply_plan(world, plan), 100)


# What a plan gives


@pytest.mark.parametrize(("cores", "count"), [(1, 0), (2, 2), (3, 2), (4, 4), (7, 4), (8, 8), (40, 8)])
def test_a_job_alone_has_the_largest_size_that_fits(cores: int, count: int) -> None:
    assert targets(plan_for(cluster_of([cores], [sized("a", POWERS)]))) == {"a": count}


def test_what_a_job_cannot_use_goes_to_others() -> None:
    plan = plan_for(cluster_of([7, 6], [sized("a", POWERS), make_job("b", min_trainers=4, max_trainers=12)]))
    assert targets(plan) == {"a": 4, "b": 9}


def test_the_sizes_are_chosen_so_that_the_worst_off_is_as_well_off_as_can_be() -> None:
    plan = plan_for(cluster_of([8, 8], [sized("a", POWERS), make_job("b", min_trainers=4, max_trainers=12)]))
    assert targets(plan) == {"a": 8, "b": 8}


def test_a_step_allows_the_multiples_of_a_number() -> None:
    assert targets(plan_for(cluster_of([11, 4], [sized("a", tuple(range(3, 100, 3)))]))) == {"a": 15}
    assert targets(plan_for(cluster_of([11, 3], [sized("a", tuple(range(3, 100, 3)))]))) == {"a": 12}


def test_serving_takes_a_whole_size_and_the_rest_goes_to_a_job_that_can_use_it() -> None:
    jobs = [sized("a", POWERS, age_s=9), make_job("b", min_trainers=1, max_trainers=3)]
    world = cluster_of([10], jobs)
    world = carried_out(world, plan_for(world))
    assert {job.key.name: len(job.live_trainers) for job in world.jobs} == {"a": 8, "b": 2}
    plan = plan_for(with_pods(world, make_serving("web", cpu=2)))
    assert targets(plan) == {"a": 4, "b": 3}
    assert plan.serving.placed == 1
    assert len(victims(plan)) == 4


def test_a_lost_trainer_is_replaced_if_it_fits_and_else_the_job_falls_to_the_next_size() -> None:
    whole = sized("a", POWERS, trainers=8, on=("n0", "n1"))
    lost = replace(whole, pods=whole.pods[:-1])
    nodes = (make_node("n0", 4, 64), make_node("n1", 4, 64))
    assert targets(plan_for(make_snapshot(nodes, (lost,)))) == {"a": 8}
    full = plan_for(make_snapshot((nodes[0], replace(nodes[1], cordoned=True)), (lost,)))
    assert targets(full) == {"a": 4}
    assert decision_of(full, "a").shrink_reason


def test_a_job_that_runs_gives_a_size_to_one_that_is_far_behind() -> None:
    world = cluster_of([16], [make_job("b", min_trainers=4, max_trainers=14)])
    world = carried_out(world, plan_for(world))
    world = with_jobs(world, replace(sized("a", POWERS), created_s=world.observed_at_s))
    for _ in range(3):
        world = carried_out(world, plan_for(world))
    assert {job.key.name: len(job.live_trainers) for job in world.jobs} == {"a": 8, "b": 8}


def test_at_rest_nothing_changes() -> None:
    jobs = [sized("a", POWERS), sized("c", (1, 3, 9)), make_job("b", min_trainers=2, max_trainers=9)]
    world = cluster_of([7, 7, 5], jobs)
    world = carried_out(world, plan_for(world))
    first = plan_for(world)
    assert victims(first) == []
    assert essence(plan_for(carried_out(world, first))) == essence(first)


def test_a_maximum_that_fits_not_even_alone_counts_as_the_size_below() -> None:
    plan = plan_for(cluster_of([7], [sized("a", POWERS), make_job("b", min_trainers=1, max_trainers=9)]))
    assert targets(plan) == {"a": 4, "b": 3}
    assert plan.certificate.achieved == pytest.approx(1 + 2 / 6)


def test_the_guard_names_a_count_that_is_no_size() -> None:
    world = cluster_of([8], [sized("a", POWERS)])
    plan = plan_for(world)
    fault = replace(plan, decisions=tuple(replace(d, target=7, nodes=(("n0", 7),)) for d in plan.decisions))
    assert check(world, fault) == ("job default/a: target 7 is none of its sizes: 2, 4 and 8",)


# What it says


def test_a_plan_says_what_the_next_size_lacks() -> None:
    plan = plan_for(cluster_of([7, 1], [sized("a", POWERS), make_job("b", max_trainers=1)]))
    assert decision_of(plan, "a").message == "4 of 8: sizes 2, 4 and 8 are allowed, 8 needs 1 core more"
    steps = plan_for(cluster_of([10], [sized("a", tuple(range(3, 100, 3))), make_job("b", max_trainers=1)]))
    assert decision_of(steps, "a").message.startswith("9 of 99: multiples of 3 are allowed, 12 needs 3 cores")


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ((4,), "4"),
        ((2, 4, 8), "2, 4 and 8"),
        (tuple(range(4, 41, 4)), "multiples of 4"),
        (tuple(range(5, 41, 4)), "5, 9, 13"),
    ],
)
def test_sizes_have_a_short_name(sizes: Sizes, words: str) -> None:
    assert named(sizes).startswith(words)


# What is created now


def leaving(count: int) -> Job:
    """A suspended job whose trainers have not ended yet."""
    job = make_job("old", trainers=count, on=("n0",))
    return replace(job, suspended=True, pods=tuple(replace(pod, terminating=True) for pod in job.pods))


def test_the_trainers_up_to_a_size_are_created_once_all_of_them_fit() -> None:
    job = sized("a", POWERS, trainers=4, on=("n1",))
    world = cluster_of([4, 4], [job, leaving(3)])
    plan = plan_for(world)
    assert targets(plan)["a"] == 8
    assert startable(world, plan) == (), "one of four fits now"
    assert len(startable(with_jobs(world, leaving(0)), plan)) == 4


def test_a_job_below_its_minimum_is_made_whole_trainer_by_trainer() -> None:
    world = cluster_of([4], [sized("a", (4, 8)), leaving(3)])
    assert len(startable(world, plan_for(world))) == 1


def test_an_eviction_ahead_of_a_plan_takes_a_whole_size() -> None:
    world = with_pods(cluster_of([8], [sized("a", POWERS, trainers=8, on=("n0",))]), make_serving("web", cpu=1))
    (found,) = early_evictions(world, lambda job: job, LIMITS)
    assert len(found.victims) == 4


# Random worlds


@st.composite
def sized_jobs(draw: st.DrawFn, name: str) -> Job:
    low = draw(st.integers(1, 3))
    steps = draw(st.lists(st.integers(1, 4), max_size=3))
    sizes = [low]
    for step in steps:
        sizes.append(sizes[-1] + step)
    cpu = draw(st.integers(1, 2))
    job = make_job(name, cpu=cpu, min_trainers=low, max_trainers=sizes[-1], age_s=draw(st.integers(0, 99)))
    return replace(job, sizes=draw(st.sampled_from([tuple(sizes), ()])))


@st.composite
def sized_worlds(draw: st.DrawFn) -> ClusterSnapshot:
    cores = draw(st.lists(st.integers(2, 9), min_size=1, max_size=3))
    return cluster_of(cores, [draw(sized_jobs(name)) for name in draw(st.sampled_from(["a", "ab", "abc"]))])


@st.composite
def sized_histories(draw: st.DrawFn) -> tuple[str, list[ClusterSnapshot]]:
    """A policy, and a cluster that carries out its plans while something happens between them."""
    policy, world = draw(st.sampled_from(["maxmin", "utility"])), draw(sized_worlds())
    worlds = [world]
    for _ in range(2):
        world = carried_out(world, plan_for(world, policy=policy))
        name = draw(st.sampled_from(["serving comes", "a node goes", "a node is cordoned"]))
        worlds.append(world := CHANGES[name](draw, world) if world.nodes else world)
    return policy, worlds


def with_owners(world: ClusterSnapshot) -> ClusterSnapshot:
    """The cluster in which the pods of each job are made and chosen by a controller of its own."""
    return replace(world, jobs=tuple(replace(job, owner_count=len(job.live_trainers)) for job in world.jobs))


@given(sized_histories())
@examples(150)
def test_no_plan_has_a_count_that_is_not_allowed(history: tuple[str, list[ClusterSnapshot]]) -> None:
    policy, worlds = history
    for world in (*worlds, *map(with_owners, worlds)):
        plan = plan_for(world, policy=policy)
        for job, decision in zip(world.jobs, plan.decisions, strict=True):
            assert not decision.admitted or allows(job.sizes, decision.target), (job.sizes, decision)


@given(sized_worlds())
@examples(150)
def test_shares_are_those_of_brute_force(world: ClusterSnapshot) -> None:
    plan = plan_for(world)
    jobs = [job for job, decision in zip(world.jobs, plan.decisions, strict=True) if decision.admitted]
    had = sorted(level_of(world, job, decision_of(plan, job.key.name).target) for job in jobs)
    best = max((sorted(levels) for levels in all_levels(world, jobs)), default=[])
    assert [round(level, 6) for level in had] >= [round(level, 6) for level in best]


def top_of(world: ClusterSnapshot, job: Job) -> int:
    """The most trainers that the job could have alone."""
    slots = sum(node.allocatable["cpu"] // 1000 // cores_of(job.trainer) for node in world.nodes)
    return max(job.min_trainers, at_most(job.sizes, min(slots, job.max_trainers)))


def level_of(world: ClusterSnapshot, job: Job, count: int) -> float:
    span = top_of(world, job) - job.min_trainers
    return (count - job.min_trainers) / span if span else 1.0


def all_levels(world: ClusterSnapshot, jobs: Sequence[Job]) -> Iterator[list[float]]:
    """The fulfilments of every choice of allowed counts that whole pods on whole nodes can have."""
    cores = [node.allocatable["cpu"] // 1000 for node in world.nodes]
    tops = [top_of(world, job) for job in jobs]
    held = reachable(cores, [cores_of(job.trainer) for job in jobs], tuple(tops))
    options = (
        [n for n in range(job.min_trainers, top + 1) if allows(job.sizes, n)]
        for job, top in zip(jobs, tops, strict=True)
    )
    for counts in product(*options):
        if any(all(a <= b for a, b in zip(counts, way, strict=True)) for way in held):
            yield [level_of(world, job, n) for job, n in zip(jobs, counts, strict=True)]
