"""Averages of step functions, and what counts as one resize."""

from __future__ import annotations

import numpy as np
import pytest

from edl.model.names import JobKey
from edl.sim.measures import mean_over
from edl.sim.meter import Resizes


def test_a_mean_weighs_each_step_by_its_time() -> None:
    assert mean_over(np.array([0.0, 10.0]), np.array([1.0, 3.0]), (0.0, 40.0)) == pytest.approx(2.5)


def test_only_the_span_counts() -> None:
    assert mean_over(np.array([0.0, 10.0, 20.0]), np.array([1.0, 3.0, 9.0]), (5.0, 15.0)) == pytest.approx(2.0)


def test_before_the_first_step_there_is_nothing() -> None:
    assert mean_over(np.array([5.0]), np.array([4.0]), (0.0, 10.0)) == pytest.approx(2.0)


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
