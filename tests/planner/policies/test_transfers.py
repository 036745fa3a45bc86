"""At rest no trainer of a better-off job would fit for a job that stays more than the dead band below it."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.planner.decide import Study, study
from edl.planner.guard import DEAD_BAND
from edl.planner.policies.registry import POLICIES
from edl.planner.policies.transfers import levelled
from edl.planner.problem_reader import read_problem
from edl.planner.trial_packing import TrialPacking
from tests.worlds.builders import make_job, make_node, make_nodes, make_serving, make_snapshot
from tests.worlds.effort import examples
from tests.worlds.small_clusters import LIMITS, apply_plan, later, targets, victims, with_status

ROUNDS = 12
POOR, RICH = 0, 1
SIZES = (1, 1, 2, 2.5, 5)


def world_of(seed: int) -> ClusterSnapshot:
    """A few nodes, jobs of three sizes that run with random counts, and perhaps a serving pod that waits."""
    random = Random(seed)  # noqa: S311
    nodes = tuple(make_node(f"n{i}", random.choice([8, 12, 16.5, 21]), 64) for i in range(random.randint(2, 6)))
    left = {node.name: node.allocatable["cpu"] for node in nodes}
    sizes = random.sample(SIZES, 3)
    jobs = tuple(_running(f"j{i}", random.choice(sizes), left, random) for i in range(random.randint(2, 6)))
    waiting = tuple(make_serving(f"s{i}", cpu=2) for i in range(random.choice([0, 0, 1])))
    return make_snapshot(nodes, tuple(with_status(job) for job in jobs), waiting)


def _running(name: str, cpu: float, left: dict[str, int], random: Random) -> Job:
    low, span = random.randint(1, 2), random.randint(0, 20)
    on = []
    for _ in range(random.randint(0, low + span)):
        fitting = [node for node, milli in left.items() if milli >= 1000 * cpu]
        if not fitting:
            break
        on.append(random.choice(fitting))
        left[on[-1]] -= int(1000 * cpu)
    if len(on) < low:
        for node in on:
            left[node] += int(1000 * cpu)
        on = []
    return make_job(
        name, trainers=len(on), min_trainers=low, max_trainers=low + span, cpu=cpu, on=tuple(on), age_s=100.0
    )


def at_rest(snapshot: ClusterSnapshot) -> Study:
    """Carry plans out, two minutes apart, until one changes nothing."""
    for _ in range(ROUNDS):
        made = study(snapshot, POLICIES["maxmin"], LIMITS)
        if not any(d.victims or d.nodes or d.fixed_nodes for d in made.plan.decisions):
            return made
        snapshot = later(apply_plan(snapshot, made.plan), 120)
    raise AssertionError("the cluster does not come to rest")


def unfair_pairs(made: Study) -> list[tuple[str, str]]:
    """(giver, taker): one trainer of the giver would make room for one of the taker, still far below it."""
    packing = made.context.shared.packing
    problem = packing.problem
    trainers, nodes = packing.with_node()
    where = set(zip(nodes.tolist(), problem.trainer_demand[trainers].tolist(), strict=True))
    found = []
    for j in packing.members:
        taker = problem.demands[j]
        if packing.count[j] >= taker.max_trainers:
            continue
        for node, d in where:
            giver = problem.demands[d]
            room = packing.free[node] + problem.request[giver.shape]
            if (
                d != j
                and packing.count[d] > giver.min_trainers
                and problem.opened[taker.shape, node]
                and (problem.request[taker.shape] <= room).all()
                and packing.fulfilment(j, 1) < packing.fulfilment(d, -1) - DEAD_BAND - 1e-6
            ):
                found.append((giver.job.key.name, taker.job.key.name))
    return found


@examples(40)
@given(st.integers(0, 100_000))
def test_at_rest_the_dead_band_holds_between_any_two_jobs(seed: int) -> None:
    made = at_rest(world_of(seed))
    assert unfair_pairs(made) == []
    packing = made.context.shared.packing
    demands = packing.problem.demands
    growing = [j for j in packing.members if packing.count[j] < demands[j].max_trainers]
    assert not any(packing.slots(demands[j].shape).any() for j in growing)


def test_a_job_with_many_small_trainers_gives_to_equals_although_the_worst_off_gain_nothing() -> None:
    """Jobs of seven cores cannot gain, so the lowest fulfilment stays 0; those of one core are levelled."""
    nodes = tuple(node.name for node in make_nodes(2, cpu=15))
    jobs = (
        make_job("large", trainers=2, cpu=7, min_trainers=2, max_trainers=20, on=nodes),
        make_job("rich", trainers=12, min_trainers=1, max_trainers=31, on=nodes),
        make_job("poor", trainers=1, min_trainers=1, max_trainers=31, on=nodes[:1]),
        make_job("low", trainers=1, min_trainers=1, max_trainers=31, on=nodes[:1]),
    )
    snapshot = make_snapshot(make_nodes(2, cpu=15), tuple(with_status(job) for job in jobs), now_s=5000.0)
    made = at_rest(snapshot)
    assert unfair_pairs(made) == []
    counts = targets(made.plan)
    assert counts["large"] == 2
    assert abs(counts["rich"] - counts["poor"]) <= 5
    assert abs(counts["rich"] - counts["low"]) <= 5


def test_free_room_goes_to_the_worst_off_that_it_fits() -> None:
    jobs = (
        make_job("short", trainers=8, min_trainers=1, max_trainers=12, on=("n000",)),
        make_job("long", trainers=8, min_trainers=1, max_trainers=41, on=("n000",)),
    )
    snapshot = make_snapshot(make_nodes(1, cpu=20), tuple(with_status(job) for job in jobs), now_s=5000.0)
    plan = study(snapshot, POLICIES["maxmin"], LIMITS).plan
    assert victims(plan) == []
    assert targets(plan) == {"short": 8, "long": 12}


def pair(rich: int, poor: int) -> TrialPacking:
    """Two jobs of one core on a full node; both may have 1 to 21 trainers."""
    jobs = (
        make_job("poor", trainers=poor, min_trainers=1, max_trainers=21, on=("n000",)),
        make_job("rich", trainers=rich, min_trainers=1, max_trainers=21, on=("n000",)),
    )
    problem = read_problem(make_snapshot(make_nodes(1, cpu=rich + poor), jobs, now_s=5000.0), LIMITS)
    return TrialPacking(problem, (POOR, RICH))


def test_trainers_change_hands_until_the_dead_band_holds_and_no_further() -> None:
    packing = pair(12, 4)
    after = levelled(packing, dict.fromkeys(packing.members, 21), dict.fromkeys(packing.members, 0))
    assert (after.count[RICH], after.count[POOR]) == (10, 6)
    assert packing.count[RICH] == 12


def test_a_job_in_its_cooldown_gives_nothing() -> None:
    packing = pair(12, 4)
    after = levelled(packing, dict.fromkeys(packing.members, 21), {POOR: 0})
    assert after.count == packing.count


def test_nobody_takes_for_room_that_is_left_soon() -> None:
    packing = pair(12, 4)
    leaving = packing.problem.leaving.copy()
    leaving[0] = packing.problem.request[packing.problem.demands[0].shape]
    waits = TrialPacking(replace(packing.problem, leaving=leaving), packing.members)
    after = levelled(waits, dict.fromkeys(packing.members, 21), dict.fromkeys(packing.members, 0))
    assert after.count == packing.count
