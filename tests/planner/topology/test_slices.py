"""Jobs whose trainers come and go in slices: each slice is whole, in one rack, and stays there."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.topology import Level, Slices, Topology
from edl.planner.guard import check
from tests.planner.topology.slice_world import (
    BLOCK,
    LEVELS,
    PREFERRED,
    RACK,
    REQUIRED,
    carried_out,
    racks,
    racks_of,
    sliced,
)
from tests.worlds.builders import make_job, make_node, make_serving, make_snapshot
from tests.worlds.effort import examples
from tests.worlds.small_clusters import decision_of, plan_for, targets


def settled(*jobs: Job, nodes: tuple[int, ...] = (4, 4, 4, 4)) -> ClusterSnapshot:
    """The cluster in which these jobs run what a plan gives them."""
    world = make_snapshot(racks(*nodes), jobs)
    return carried_out(world, plan_for(world))


def assert_whole(world: ClusterSnapshot, name: str, size: int) -> None:
    for homes in racks_of(world, name).values():
        assert len(homes) == size
        assert len(set(homes)) == 1
        assert homes[0]


def test_no_slice_is_divided_between_racks() -> None:
    """Each rack has capacity for 8, so a job of slices of 6 has four of them and not five."""
    world = settled(sliced("job", 6, 1, 5))
    assert targets(plan_for(world)) == {"job": 24}
    assert_whole(world, "job", 6)
    assert len(racks_of(world, "job")) == 4


def test_two_slices_may_share_a_rack_and_few_racks_are_used() -> None:
    world = settled(sliced("job", 4, 3, 3))
    homes = {homes[0] for homes in racks_of(world, "job").values()}
    assert homes == {("b0", "r0"), ("b0", "r1")}


def test_a_rack_of_the_same_name_in_another_block_is_another_rack() -> None:
    nodes = (
        make_node("a", 3, labels={BLOCK: "b0", RACK: "r0"}),
        make_node("b", 3, labels={BLOCK: "b1", RACK: "r0"}),
    )
    decision = decision_of(plan_for(make_snapshot(nodes, (sliced("job", 6, 1, 1),))), "job")
    assert not decision.admitted
    assert "6 trainers in 1 slice of 6, each in one rack" in decision.message


def test_nodes_without_a_label_hold_no_slice() -> None:
    nodes = (*racks(2), make_node("bare", 64), make_node("half", 64, labels={RACK: "r0"}))
    decision = decision_of(plan_for(make_snapshot(nodes, (sliced("job", 4, 1, 3),))), "job")
    assert (decision.target, {name for name, _ in decision.nodes}) == (4, {"r0n0", "r0n1"})


def test_all_slices_are_in_one_block_if_that_is_required() -> None:
    levels = (Level(BLOCK, REQUIRED), Level(RACK, PREFERRED))
    world = settled(sliced("job", 4, 1, 8, levels=levels))
    homes = {homes[0] for homes in racks_of(world, "job").values()}
    assert len({block for block, _ in homes}) == 1
    assert len(racks_of(world, "job")) == 4


def test_an_older_job_that_starts_takes_whole_slices() -> None:
    world = settled(sliced("job", 4, 1, 8))
    assert targets(plan_for(world)) == {"job": 32}
    other = make_job("other", min_trainers=5, max_trainers=5, age_s=1.0)
    world = replace(world, jobs=(*world.jobs, other))
    plan = plan_for(world)
    assert targets(plan) == {"job": 24, "other": 5}
    assert check(world, plan) == ()
    after = carried_out(world, plan)
    assert_whole(after, "job", 4)
    assert len(racks_of(after, "job")) == 6


def test_serving_that_needs_one_place_ends_one_slice() -> None:
    world = settled(sliced("job", 4, 1, 8))
    web = replace(make_serving("web", cpu=1, memory_gib=1), tried=True)
    world = replace(world, pods=(web,))
    decision = decision_of(plan_for(world), "job")
    assert (decision.target, len(decision.victims)) == (28, 4)
    assert decision.shrink_reason == "ServingNeedsRoom"
    numbers = {int(name.rpartition("-")[2]) // 4 for name in decision.victims}
    assert len(numbers) == 1


def test_what_a_slice_lost_is_replaced_in_its_rack_under_its_number() -> None:
    world = settled(sliced("job", 4, 2, 4))
    (job,), before = world.jobs, racks_of(world, "job")
    lost = replace(job, pods=tuple(pod for pod in job.pods if pod.index != 5))
    world = replace(world, jobs=(lost,))
    after = carried_out(world, plan_for(world))
    assert racks_of(after, "job") == before


def test_a_slice_whose_rack_has_no_capacity_left_starts_elsewhere() -> None:
    """A node is lost. Its rack holds three trainers less than the slice, and another rack is free."""
    world = settled(sliced("job", 6, 1, 1), nodes=(4, 4))
    home = racks_of(world, "job")[0][0]
    lost = next(node.name for node in world.nodes if dict(node.labels)[RACK] == home[1])
    (job,) = world.jobs
    job = replace(job, pods=tuple(pod for pod in job.pods if pod.node != lost))
    world = replace(world, jobs=(job,), nodes=tuple(node for node in world.nodes if node.name != lost))
    for _ in range(3):
        world = carried_out(world, plan_for(world))
    assert_whole(world, "job", 6)
    assert racks_of(world, "job")[0][0] != home


def test_a_relabelled_node_keeps_its_trainers_and_replacements_go_to_most_of_the_slice() -> None:
    world = settled(sliced("job", 4, 1, 1), nodes=(2, 2))
    (job,) = world.jobs
    moved = next(pod.node for pod in job.pods)
    rest = next(pod.node for pod in job.pods if pod.node != moved)
    nodes = tuple(
        replace(node, labels=tuple(sorted({**dict(node.labels), RACK: "else"}.items())))
        if node.name == moved
        else node
        for node in world.nodes
    )
    world = replace(world, nodes=nodes)
    assert not decision_of(plan_for(world), "job").victims
    gone = next(pod for pod in job.pods if pod.node == moved)
    world = replace(world, jobs=(replace(job, pods=tuple(pod for pod in job.pods if pod is not gone)),))
    plan = plan_for(world)
    assert check(world, plan) == ()
    assert {name for name, _ in decision_of(plan, "job").nodes} != {rest}


def test_a_job_that_is_finishing_is_not_kept_in_slices() -> None:
    topology = Topology(LEVELS, Slices(4, 2))
    job = make_job("job", trainers=3, min_trainers=3, max_trainers=3, on=("r0n0",))
    world = make_snapshot(racks(4), (replace(job, topology=replace(topology, slices=None)),))
    assert targets(plan_for(world)) == {"job": 3}


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_two_jobs_with_slices_share_the_racks(order: tuple[str, str]) -> None:
    ages = {name: 10.0 - place for place, name in enumerate(order)}
    world = settled(sliced("a", 4, 1, 8, age_s=ages["a"]), sliced("b", 8, 1, 4, age_s=ages["b"]))
    plan = plan_for(world)
    assert sum(targets(plan).values()) >= 24
    assert_whole(world, "a", 4)
    assert_whole(world, "b", 8)


@st.composite
def histories(draw: st.DrawFn) -> tuple[ClusterSnapshot, list[str]]:
    cores = draw(st.lists(st.integers(1, 6), min_size=2, max_size=4))
    jobs = []
    for i in range(draw(st.integers(1, 2))):
        size, low = draw(st.integers(2, 4)), draw(st.integers(1, 2))
        levels = draw(st.sampled_from([LEVELS, (Level(BLOCK, REQUIRED), Level(RACK, PREFERRED))]))
        high = low + draw(st.integers(0, 2))
        jobs.append(sliced(f"j{i}", size, low, high, levels=levels, age_s=50.0 - i, cpu=draw(st.integers(1, 2))))
    plain = make_job("plain", min_trainers=1, max_trainers=draw(st.integers(1, 8)), age_s=draw(st.integers(0, 99)))
    events = draw(st.lists(st.sampled_from(EVENTS), max_size=5))
    return make_snapshot(racks(*cores), (*jobs, plain)), events


EVENTS = ["serving", "cordon", "lose node", "lose pod", "relabel", "new job", "tiers", "nothing"]


def changed(world: ClusterSnapshot, event: str, turn: int) -> ClusterSnapshot:
    """The cluster after something has happened to it."""
    node = world.nodes[turn % len(world.nodes)]
    jobs, nodes, pods = list(world.jobs), list(world.nodes), list(world.pods)
    match event:
        case "serving":
            pods.append(replace(make_serving(f"web-{turn}", cpu=1 + turn % 3, memory_gib=0.1), tried=True))
        case "cordon":
            nodes = [replace(n, cordoned=n is node) for n in nodes]
        case "lose node" if len(nodes) > 1:
            nodes.remove(node)
            jobs = [replace(j, pods=tuple(p for p in j.pods if p.node != node.name)) for j in jobs]
        case "lose pod":
            jobs = [replace(j, pods=j.pods[:turn] + j.pods[turn + 1 :]) for j in jobs]
        case "relabel":
            labels = tuple(sorted({**dict(node.labels), RACK: "other"}.items()))
            nodes = [replace(n, labels=labels) if n is node else n for n in nodes]
        case "new job":
            jobs.append(sliced(f"n{turn}", 2, 1, 2, age_s=500.0))
        case "tiers":
            jobs = [replace(j, tier=place % 2) for place, j in enumerate(jobs, start=turn)]
    jobs.sort(key=lambda job: job.key)
    return replace(world, jobs=tuple(jobs), nodes=tuple(nodes), pods=tuple(pods))


@given(histories())
@examples(80)
def test_whatever_happens_no_slice_mixes_racks_and_plans_pass_their_checks(
    history: tuple[ClusterSnapshot, list[str]],
) -> None:
    world, events = history
    relabelled = False
    for turn, event in enumerate(["nothing", *events]):
        world = changed(world, event, turn)
        relabelled = relabelled or event == "relabel"
        plan = plan_for(world)
        assert check(world, plan) == ()
        world = carried_out(world, plan)
        again = carried_out(world, plan_for(world))
        for job in again.jobs:
            if job.topology is not None and job.topology.slices is not None and not relabelled:
                for homes in racks_of(again, job.key.name).values():
                    assert len(set(homes)) == 1
                    assert homes[0]


def test_a_job_with_fewer_whole_slices_than_its_minimum_ends() -> None:
    """Eight trainers run, as many as the minimum, but no rack has capacity for what two of the slices have lost."""
    world = settled(sliced("job", 4, 2, 4), nodes=(4, 4))
    (job,), gone = world.jobs, {2, 3, 5, 6, 9, 10, 13}
    job = replace(job, pods=tuple(pod for pod in job.pods if pod.index not in gone))
    bare = tuple(replace(node, cordoned=True) for node in world.nodes)
    world = replace(world, jobs=(job,), nodes=bare)
    plan = plan_for(world)
    assert check(world, plan) == ()
    decision = decision_of(plan, "job")
    assert (len(job.live_trainers), decision.admitted, len(decision.victims)) == (9, False, 9)


def test_slices_that_are_whole_stay_before_those_that_are_not() -> None:
    world = settled(sliced("job", 4, 2, 4), nodes=(4, 4))
    (job,) = world.jobs
    job = replace(job, pods=tuple(pod for pod in job.pods if pod.index not in {1, 5}))
    world = replace(world, jobs=(job,), nodes=tuple(replace(node, cordoned=True) for node in world.nodes))
    plan = plan_for(world)
    assert check(world, plan) == ()
    kept = {pod.index for pod in job.live_trainers if pod.name not in decision_of(plan, "job").victims}
    assert kept == {*range(8, 16)}


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        ((("r0n0", 3), ("r1n0", 1)), "rack r0 of block b0 would have a part of a slice of 4"),
        ((("r0n0", 2), ("r0n1", 2)), ""),
        ((("bare", 4),), "4 new trainers would be in no domain of its slices"),
    ],
)
def test_a_plan_with_a_part_of_a_slice_is_refused(nodes: tuple[tuple[str, int], ...], says: str) -> None:
    world = make_snapshot((*racks(4, 4), make_node("bare", 8)), (sliced("job", 4, 1, 1),))
    plan = plan_for(world)
    changed_plan = replace(plan, decisions=(replace(plan.decisions[0], nodes=nodes),))
    assert check(world, changed_plan) == ((f"job default/job: {says}",) if says else ())


def test_many_domains_are_no_fault_of_a_job() -> None:
    """The order of domains is a list of preferences, longer than a user may write."""
    nodes = tuple(make_node(f"n{i}", 1, labels={BLOCK: "b", RACK: f"r{i}"}) for i in range(80))
    levels = (*LEVELS, Level("kubernetes.io/hostname", PREFERRED))
    job = replace(make_job("job", min_trainers=2, max_trainers=80), topology=Topology(levels))
    assert targets(plan_for(make_snapshot(nodes, (job,)))) == {"job": 80}
