"""Which trainers are deleted so that waiting pods fit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edl.model.jobs import Job
from tests.worlds.builders import make_job, make_node, make_serving, make_snapshot
from tests.worlds.small_clusters import plan_for, victims, with_status


def job_of(name: str, cost_s: float | None, trainers: int = 2) -> Job:
    job = make_job(name, trainers=trainers, max_trainers=trainers, cpu=4, on=("n0",), age_s=100)
    return replace(with_status(job, admitted=True), resize_cost_s=cost_s)


@pytest.mark.parametrize("dear", ["a", "b"])
def test_among_equals_the_job_whose_resize_costs_least_loses_a_trainer(dear: str) -> None:
    jobs = tuple(job_of(name, 60.0 if name == dear else 2.0) for name in "ab")
    world = make_snapshot((make_node("n0", 16),), jobs, (make_serving("web", cpu=4),))
    assert [name.split("-")[0] for name in victims(plan_for(world))] == [{"a": "b", "b": "a"}[dear]]


def test_a_job_that_is_better_off_loses_a_trainer_whatever_its_resize_costs() -> None:
    poor = replace(job_of("a", 0.0), max_trainers=6)
    world = make_snapshot((make_node("n0", 16),), (poor, job_of("b", 3600.0)), (make_serving("web", cpu=4),))
    assert [name.split("-")[0] for name in victims(plan_for(world))] == ["b"]
