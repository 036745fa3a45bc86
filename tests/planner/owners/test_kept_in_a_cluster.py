"""Workloads that must not be stopped, such as the RayCluster of a RayJob whose job runs, in the loop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial

import pytest

from edl.model.jobs import Job
from edl.model.names import JobKey
from tests.worlds.builders import make_job, make_nodes
from tests.worlds.job_owner import make_batch
from tests.worlds.simulated_cluster import World
from tests.worlds.simulated_controller import Living


@pytest.fixture
def living() -> Iterator[Living]:
    with closing(Living(make_nodes(2, cpu=8))) as made:
        yield made


def enter(living: Living, *jobs: Job) -> None:
    for job in jobs:
        living.do(partial(World.add, job=job))
    living.settle()


def count(living: Living, key: JobKey) -> int:
    return sum(bool(pod.node) for pod in living.world.job(key).live_trainers)


def serve(living: Living, count: int) -> None:
    for i in range(count):
        living.do(partial(World.serve, name=f"w{i}", cpu=1))
    living.settle()


@pytest.mark.parametrize("keeps", [True, False])
def test_one_that_must_not_be_stopped_keeps_its_minimum_beside_serving(living: Living, *, keeps: bool) -> None:
    enter(living, replace(make_batch("night", 6, low=4, high=6), keeps_minimum=keeps))
    key = make_batch("night", 0).key
    assert count(living, key) == 6
    serve(living, 13)
    assert count(living, key) == (4 if keeps else 0)
    written = len(living.world.writes)
    living.wait(300)
    assert len(living.world.writes) == written, "nothing is tried again and again"
    assert sum(bool(pod.node) for pod in living.world.serving.values()) == (12 if keeps else 13)
    living.do(lambda world: world.serving.clear())
    living.wait(120)
    living.settle()
    assert count(living, key) == 6


def test_others_stop_before_one_that_must_not_be_stopped(living: Living) -> None:
    enter(living, make_batch("day", 4, low=4, high=4))
    enter(living, replace(make_batch("night", 4, low=4, high=4), keeps_minimum=True))
    day, night = make_batch("day", 0).key, make_batch("night", 0).key
    serve(living, 9)
    assert (count(living, day), count(living, night)) == (0, 4), "although the other one is older"
    assert all(pod.node for pod in living.world.serving.values())


def test_a_training_job_beside_it_gets_what_is_left(living: Living) -> None:
    enter(living, replace(make_batch("night", 4, low=4, high=4), keeps_minimum=True))
    serve(living, 9)
    enter(living, make_job("ours", min_trainers=1, max_trainers=9))
    night, ours = make_batch("night", 0).key, JobKey("default", "ours")
    assert (count(living, night), count(living, ours)) == (4, 3)
    serve(living, 13)
    assert (count(living, night), count(living, ours)) == (4, 0)
