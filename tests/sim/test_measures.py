"""Averages of step functions, and what counts as one resize."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edl.model.names import JobKey
from edl.sim.measures import mean_over
from edl.sim.meter import Resizes
from edl.sim.simulation import simulate
from tests.sim.scenarios import make_group, make_scenario


def test_a_mean_weighs_each_step_by_its_time() -> None:
    assert mean_over(np.array([0.0, 10.0]), np.array([1.0, 3.0]), (0.0, 40.0)) == pytest.approx(2.5)


def test_only_the_span_counts() -> None:
    assert mean_over(np.array([0.0, 10.0, 20.0]), np.array([1.0, 3.0, 9.0]), (5.0, 15.0)) == pytest.approx(2.0)


def test_before_the_first_step_there_is_nothing() -> None:
    assert mean_over(np.array([5.0]), np.array([4.0]), (0.0, 10.0)) == pytest.approx(2.0)


@pytest.mark.parametrize("window", [{"from_s": 50}, {"steady_s": (50, 60)}, {"until_s": 1}])
def test_finish_time_fairness_is_of_whole_lives_whatever_is_measured(window: dict[str, Any]) -> None:
    jobs = [make_group(count=2, max=32, work=100.0, throughput=[[1, 1], [32, 32]])]
    fields: dict[str, Any] = {"duration_s": 2000, "jobs": jobs, "controller": {"interval_s": 600}}
    whole, part = (simulate(make_scenario(**fields, measure=each), "maxmin", 0).figures for each in ({}, window))
    assert part["finish_time_fairness_mean"] == whole["finish_time_fairness_mean"]
    assert 0.9 < whole["finish_time_fairness_mean"] < 1.4, "two equal jobs have half of the cluster each"


def test_a_job_of_a_few_seconds_in_a_long_scenario_has_its_peers() -> None:
    job = make_group(count=4, max=32, work=160.0, throughput=[[1, 1], [32, 32]], arrival={"first_s": 10})
    late = make_group("late", max=1, work=40.0, arrival={"first_s": 90_000})
    done = simulate(make_scenario(duration_s=1e5, jobs=[job, late], controller={"interval_s": 3600}), "maxmin", 0)
    assert done.figures["finish_time_fairness_max"] < 2


def test_a_job_of_one_size_has_all_that_it_wants_once_it_runs() -> None:
    jobs = [make_group("rigid", min=4, max=4), make_group("elastic", max=4)]
    assert simulate(make_scenario(jobs=jobs), "static-max", 0).figures["jain"] > 0.95


def test_trainers_that_come_or_go_without_a_long_pause_are_one_resize() -> None:
    resizes, job = Resizes(), JobKey("ns", "a")
    for at_s in (0.75, 1.25, 2.0, 4.0):
        resizes.note(job, at_s, grows=True)
    resizes.note(JobKey("ns", "b"), 1.25, grows=True)
    assert (resizes.count, resizes.forced) == (3, 0)


def test_growth_and_shrinking_and_preemption_are_counted_apart() -> None:
    resizes, job = Resizes(), JobKey("ns", "a")
    resizes.note(job, 1.0, grows=True)
    resizes.note(job, 1.0, grows=False)
    resizes.note(job, 1.0, grows=False, is_forced=True)
    assert (resizes.count, resizes.forced) == (2, 1)
