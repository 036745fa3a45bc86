"""A plan takes trainers without the protection of the minimum first, whatever the numbers of the others are."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from edl.model.jobs import Job
from edl.model.names import JobKey
from edl.model.pods import PodPhase
from tests.worlds.builders import make_job, make_node, make_nodes, make_serving, make_snapshot
from tests.worlds.simulated_controller import Living
from tests.worlds.small_clusters import plan_for, victims, with_status

A = JobKey("default", "a")
BASE, SURPLUS = -5, -100


def job_of(minimum: int, priorities: dict[int, int]) -> Job:
    """A job of so large a minimum, whose trainers of 2 CPUs on one node have these numbers and priorities."""
    job = with_status(make_job("a", trainers=8, min_trainers=minimum, cpu=2, on=("n0",), age_s=100), admitted=True)
    pods = tuple(replace(job.pods[index], priority=priority) for index, priority in priorities.items())
    return replace(job, pods=pods, max_trainers=len(pods))


@pytest.mark.parametrize(
    ("minimum", "priorities", "gone"),
    [
        (4, {0: BASE, 1: BASE, 2: SURPLUS, 3: SURPLUS, 4: BASE, 5: BASE}, {2, 3}),
        (2, {0: BASE, 2: SURPLUS, 3: SURPLUS, 5: BASE}, {2, 3}),
        (1, {2: SURPLUS, 3: SURPLUS, 4: SURPLUS}, {3, 4}),
        (2, {0: BASE, 1: BASE, 2: SURPLUS, 3: SURPLUS}, {2, 3}),
    ],
)
def test_serving_takes_those_first_that_kube_scheduler_would_take(
    minimum: int, priorities: dict[int, int], gone: set[int]
) -> None:
    serving = tuple(make_serving(f"web-{i}", cpu=2) for i in range(2))
    world = make_snapshot((make_node("n0", 2.0 * len(priorities)),), (job_of(minimum, priorities),), serving)
    assert set(victims(plan_for(world))) == {f"a-trainer-{index}" for index in gone}


def test_a_protected_trainer_that_runs_outlives_an_unprotected_one_of_a_lower_number() -> None:
    """The minimum is a trainer that has yet to start, so it goes first."""
    job = job_of(1, {0: SURPLUS, 1: BASE, 2: BASE})
    pods = tuple(replace(pod, phase=PodPhase.PENDING) if pod.index == 1 else pod for pod in job.pods)
    serving = tuple(make_serving(f"web-{i}", cpu=2) for i in range(2))
    plan = plan_for(make_snapshot((make_node("n0", 6),), (replace(job, pods=pods),), serving))
    assert set(victims(plan)) == {"a-trainer-0", "a-trainer-1"}


def test_a_minimum_that_was_raised_is_protected_as_soon_as_the_job_grows_and_stays_so() -> None:
    with closing(Living(make_nodes(2, cpu=4), runs=True)) as living:

        def minimum() -> list[bool]:
            job = living.world.job(A)
            return [pod.is_protected for pod in job.live_trainers if pod.name in job.minimum_trainers]

        living.do(lambda world: world.add(make_job("a", min_trainers=2, max_trainers=4)))
        living.settle()
        assert minimum() == [True, True]
        living.do(lambda world: world.add(replace(world.job(A), min_trainers=4, max_trainers=6, generation=2)))
        living.settle()
        assert living.trainers(A) == 6
        assert minimum() == [True] * 4
        living.do(lambda world: world.add(replace(world.job(A), max_trainers=4, generation=3)))
        living.settle()
        assert sorted(pod.index or 0 for pod in living.world.job(A).live_trainers) == [0, 1, 4, 5]
        assert minimum() == [True] * 4
