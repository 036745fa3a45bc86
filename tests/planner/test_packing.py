from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import FixedPods, Job
from edl.model.limits import Limits, Quota, SharingLimits
from edl.model.names import Role
from edl.model.pods import PodPhase
from edl.model.resources import CPU
from edl.planner.packing import Grower, PodBatch, grow, place_batch
from edl.planner.problem_reader import read_problem
from edl.planner.programs import offers
from edl.planner.programs.offers import Choice, NodeOffer
from edl.planner.starts import Start, startable
from edl.planner.trial_packing import SERVING, Placed, TrialPacking
from edl.planner.victims import choose
from tests.worlds.builders import make_job, make_node, make_nodes, make_serving, make_shape, make_snapshot
from tests.worlds.effort import examples
from tests.worlds.small_clusters import (
    apply_plan,
    cluster_of,
    decision_of,
    later,
    plan_for,
    running_worlds,
    targets,
    with_jobs,
    with_pods,
)

quick = examples(60)


# What is deleted on which node


@given(
    st.lists(st.tuples(st.integers(0, 3), st.lists(st.integers(1, 3), max_size=3)), min_size=1, max_size=3),
    st.integers(1, 4),
    st.integers(1, 5),
)
@quick
def test_the_fewest_deletions_for_one_shape_are_found(
    nodes: list[tuple[int, list[int]]], size: int, count: int
) -> None:
    """Each node has some free cores and some trainers, one job for each; brute force over what is deleted."""
    jobs, cores = [], []
    for n, (free, trainers) in enumerate(nodes):
        cores.append(free + sum(trainers))
        jobs += [make_job(f"j{n}-{k}", trainers=1, cpu=cpu, on=(f"n{n}",)) for k, cpu in enumerate(trainers)]
    world = read_problem(with_pods(cluster_of(cores, jobs), make_serving("s", cpu=size)), Limits())
    room = TrialPacking(world, range(len(jobs)))
    choices = choose(room, world.waiting[0].shape, count, dict.fromkeys(room.members, 1))

    def slots(dying: tuple[tuple[bool, ...], ...]) -> int:
        return sum(
            (free + sum(t for t, is_victim in zip(trainers, who, strict=True) if is_victim)) // size
            for (free, trainers), who in zip(nodes, dying, strict=True)
        )

    ways = [*product(*(product((False, True), repeat=len(trainers)) for _, trainers in nodes))]
    most = min(count, max(map(slots, ways)))
    fewest = min(sum(map(sum, way)) for way in ways if slots(way) >= most)
    assert sum(choice.slots for choice in choices) == most
    assert sum(len(choice.live_trainers) for choice in choices) == fewest


def test_pods_go_where_they_cost_the_fewest_trainers() -> None:
    """Two pods of 4 cores cost one trainer of 5 together on a node of 23, but one each on nodes of 11."""
    trainer = make_job("a", cpu=5, max_trainers=20)
    world = read_problem(
        with_pods(cluster_of([11, 11, 23], [trainer]), make_serving("s0", cpu=4), make_serving("s1", cpu=4)), Limits()
    )
    room = TrialPacking(world, (0,))
    (choice,) = choose(room, world.waiting[0].shape, 2, {})
    assert (choice.node, choice.slots, choice.live_trainers) == (2, 2, ())


def test_what_does_not_suffice_for_all_promises_goes_to_the_worst_off_in_turn() -> None:
    """Six slots, and twelve trainers are fair: neither the first by name nor the widest job takes them all."""
    jobs = (make_job("a", max_trainers=7), make_job("b", max_trainers=4))
    room = TrialPacking(read_problem(make_snapshot(make_nodes(1, cpu=6), jobs), Limits()), (0, 1))
    grow(room, {0: 7, 1: 4}, {0: 7, 1: 4})
    assert room.count == {0: 4, 1: 2}


@pytest.mark.parametrize("kept", [SharingLimits(), SharingLimits(max_load_desired=0.9)])
def test_a_job_of_thousands_takes_few_turns_and_is_as_well_off_as_the_others(
    kept: SharingLimits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs of 8,000, of 4,000 and of 20 on 3,000 slots; one by one, they would have 3,000 turns."""
    widths = {"a": 8000, "b": 4000, "c": 20}
    jobs = tuple(make_job(name, min_trainers=0, max_trainers=most) for name, most in widths.items())
    room = TrialPacking(read_problem(make_snapshot(make_nodes(30, 100, 100), jobs), Limits(sharing=kept)), (0, 1, 2))
    turns, find = Counter[int](), Grower.find

    def counted(grower: Grower, shape: int) -> int:
        turns[shape] += 1
        return find(grower, shape)

    monkeypatch.setattr(Grower, "find", counted)
    grow(room, dict(enumerate(widths.values())), dict.fromkeys(range(3), 0))
    assert sum(room.count.values()) == int(3000 * kept.max_load_desired)
    assert turns.total() < 600
    levels = [room.fulfilment(j) for j in range(3)]
    assert max(levels[:2]) - min(levels[:2]) < 1.5 / 4000
    assert levels[2] >= min(levels[:2]) - 1 / 20
    assert (room.free >= 0).all()


def test_a_job_of_thousands_stays_within_its_quota_to_the_last_trainer() -> None:
    limits = Limits(quotas=(Quota("small", ((CPU, 333_000),)),))
    job = replace(make_job("a", min_trainers=0, max_trainers=5000), queue="small")
    room = TrialPacking(read_problem(make_snapshot(make_nodes(10, 100, 100), (job,)), limits), (0,))
    grow(room, {0: 5000}, {0: 0})
    assert room.count == {0: 333}


def test_a_batch_of_many_is_placed_over_as_many_deletions_as_the_table_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    """20 nodes of 40 cores, every other one full of trainers that may go; 500 of 800 slots are wanted."""
    names = tuple(f"n{i:03d}" for i in range(1, 20, 2))
    job = make_job("a", min_trainers=0, trainers=400, max_trainers=400, on=names)
    world = make_snapshot(make_nodes(20, 40, 40), (job, make_job("b", min_trainers=0, max_trainers=500)))
    plain, tables = TrialPacking(read_problem(world, Limits()), (0, 1)), list[int]()
    many, by_table = plain.copy(), offers._by_table

    def counted(offered: Mapping[int, list[NodeOffer]], count: int) -> list[Choice]:
        tables.append(count)
        return by_table(offered, count)

    batch = PodBatch(plain.problem.demands[1].shape, ((1, Role.TRAINER),) * 500)
    assert place_batch(plain, batch, {0: 400}) == 500
    monkeypatch.setattr(offers, "MOST_CELLS", 0)
    monkeypatch.setattr(offers, "_by_table", counted)
    assert place_batch(many, batch, {0: 400}) == 500
    assert len(many.victims) == len(plain.victims) == 100
    assert max(tables) < offers.FEW_PODS + 40
    assert (many.free >= 0).all()


def test_at_a_desired_load_whole_pods_are_lost_to_nobody_by_the_order_of_growth() -> None:
    cores = (4, 5, 7, 5, 3, 5, 4, 3)
    jobs = (make_job("a", max_trainers=6, cpu=2), make_job("b", max_trainers=6, cpu=3), make_job("c", max_trainers=3))
    world = make_snapshot(tuple(make_node(f"n{i}", cpu) for i, cpu in enumerate(cores)), jobs)
    assert targets(plan_for(world, Limits(sharing=SharingLimits(max_load_desired=0.95)))) == {"a": 6, "b": 6, "c": 3}


def test_a_trial_leaves_its_origin_alone() -> None:
    world = read_problem(make_snapshot(make_nodes(1), (make_job("a", trainers=2, on=("n000",)),)), Limits())
    room = TrialPacking(world, (0,))
    trial = room.copy()
    trial.delete(0)
    trial.place_trainer(0, 0)
    assert (room.count[0], room.victims, room.placed) == (2, [], [])
    assert trial.victims == [0]
    assert (trial.free == room.free).all()
    trial.drop(trial.placed[0])
    trial.undelete(0)
    assert (trial.free == room.free).all()
    assert trial.count == room.count
    assert SERVING not in trial.count


# What can be created now


def created(snapshot: ClusterSnapshot) -> list[tuple[str, str, str]]:
    return [(s.job.name, s.role.value, s.node) for s in startable(snapshot, plan_for(snapshot))]


def crowded_out() -> ClusterSnapshot:
    """A runs on all 8 cores; b has just come."""
    return make_snapshot(
        make_nodes(1), (make_job("a", trainers=8, max_trainers=8, on=("n000",)), make_job("b", max_trainers=8))
    )


def test_nothing_starts_on_room_that_victims_still_hold() -> None:
    world = crowded_out()
    assert created(world) == []
    dying = apply_plan(world, plan_for(world), gone=False, bound=False, only_startable=True)
    assert created(dying) == []
    gone = apply_plan(world, plan_for(world), bound=False, only_startable=True)
    assert created(gone) == [("b", "trainer", "n000")] * decision_of(plan_for(world), "b").target


def test_fixed_pods_start_first_then_minimums_then_the_rest_in_turn() -> None:
    fixed = (FixedPods(Role.PSERVER, make_shape(1), 1), FixedPods(Role.MASTER, make_shape(1), 1))
    jobs = tuple(make_job(name, min_trainers=1, max_trainers=3, fixed=fixed) for name in ("a", "b"))
    order = [(job, role) for job, role, _ in created(make_snapshot(make_nodes(1, cpu=10), jobs))]
    assert order[:4] == [("a", "master"), ("a", "pserver"), ("b", "master"), ("b", "pserver")]
    assert order[4:6] == [("a", "trainer"), ("b", "trainer")]
    assert order[6:] == [("a", "trainer"), ("b", "trainer")] * 2


def test_no_more_start_on_a_node_than_have_room_there_now() -> None:
    """Eight are planned; six that are dying still hold their room."""
    old = make_job("old", trainers=6, on=("n000",))
    dying = replace(old, suspended=True, pods=tuple(replace(pod, terminating=True) for pod in old.pods))
    world = make_snapshot(make_nodes(1), (dying, make_job("new", max_trainers=8)))
    assert decision_of(plan_for(world), "new").target == 8
    assert created(world) == [("new", "trainer", "n000")] * 2


def test_room_that_waiting_serving_could_take_now_is_left_to_it() -> None:
    world = make_snapshot((make_node("n0", 4),), (make_job("a", max_trainers=8),), (make_serving("s", cpu=3),))
    assert created(world) == [("a", "trainer", "n0")]


def test_room_of_pods_on_their_way_is_not_given_away() -> None:
    job = make_job("a", trainers=2, max_trainers=4)
    pods = tuple(replace(p, node="", planned="n0", phase=PodPhase.PENDING) for p in job.pods)
    world = make_snapshot((make_node("n0", 3),), (replace(job, pods=pods),))
    assert created(world) == [("a", "trainer", "n0")]


def test_room_of_a_pod_that_kube_scheduler_nominated_is_not_given_away() -> None:
    world = make_snapshot(
        (make_node("n0", 4),), (make_job("a", max_trainers=8),), (make_serving("s", cpu=3, nominated="n0"),)
    )
    assert created(world) == [("a", "trainer", "n0")]


@given(running_worlds())
@quick
def test_what_starts_is_part_of_the_plan_and_has_room_now(world: ClusterSnapshot) -> None:
    plan = plan_for(world)
    starts = startable(world, plan)
    planned = [
        Start(d.job, role, node)
        for d in plan.decisions
        for role, node in [*d.fixed_nodes, *((Role.TRAINER, node) for node, n in d.nodes for _ in range(n))]
    ]
    for start in starts:
        planned.remove(start)
    free = {n.name: n.allocatable[CPU] for n in world.nodes}
    for pod in (*world.pods, *(p for job in world.jobs for p in job.pods)):
        if pod.node in free and not pod.is_finished:
            free[pod.node] -= pod.shape.request[CPU]
    jobs: dict[object, Job] = {job.key: job for job in world.jobs}
    for start in starts:
        job = jobs[start.job]
        shapes = {fixed.role: fixed.shape for fixed in job.fixed} | {Role.TRAINER: job.trainer}
        free[start.node] -= shapes[start.role].request[CPU]
    assert all(room >= 0 for node, room in free.items() if any(s.node == node for s in starts))


@given(running_worlds())
@quick
def test_starting_what_can_start_until_nothing_can_reaches_the_plan(world: ClusterSnapshot) -> None:
    plan = plan_for(world)
    if plan.serving.waiting:
        return  # room is kept for serving pods wherever they might go
    for _ in range(3):
        world = later(apply_plan(world, plan_for(world), only_startable=True), 1)
    assert [len(job.live_trainers) for job in world.jobs] == [d.target for d in plan.decisions]


def test_a_job_that_is_gone_since_the_plan_starts_nothing() -> None:
    world = make_snapshot(make_nodes(1), (make_job("a"), make_job("b")))
    plan = plan_for(world)
    left = replace(world, jobs=world.jobs[1:])
    assert {start.job.name for start in startable(left, plan)} == {"b"}
    suspended = with_jobs(world, replace(world.jobs[0], suspended=True))
    assert {start.job.name for start in startable(suspended, plan)} == {"b"}


# Trainers without a node


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=5),
    st.lists(
        st.tuples(st.integers(1, 4), st.lists(st.sampled_from(["", "", "", "n0", "n1"]), min_size=1, max_size=8)),
        min_size=1,
        max_size=4,
    ),
)
@quick
def test_each_trainer_without_a_node_goes_to_the_tightest(
    cores: list[int], found: list[tuple[int, list[str]]]
) -> None:
    """As if each were placed alone, in reverse order of deletion; what is left stays in the order of deletion."""
    jobs = []
    for number, (size, planned) in enumerate(found):
        job = make_job(f"j{number}", trainers=len(planned), on=("",), cpu=size)
        pods = zip(job.pods, planned, strict=True)
        jobs.append(replace(job, pods=tuple(replace(pod, planned=node) for pod, node in pods)))
    problem = read_problem(cluster_of(cores, jobs), Limits())
    packing, free = TrialPacking(problem, range(len(jobs))), TrialPacking(problem, ())
    left: dict[int, list[int]] = {j: [] for j in range(len(jobs))}
    for index in sorted(
        range(len(problem.live_trainers)), key=lambda i: problem.live_trainers[i].order, reverse=True
    ):
        trainer = problem.live_trainers[index]
        node = problem.node_index.get(trainer.pod.planned, -1)
        if node < 0 or not free.slots(trainer.shape)[node]:
            node = free.tightest(trainer.shape)
        assert packing.node_of[index] == node
        if node >= 0:
            free.hold(Placed(SERVING, None, trainer.shape, node))
        else:
            left[trainer.demand].insert(0, index)
    assert packing.without_node == left
    assert (packing.free == free.free).all()
