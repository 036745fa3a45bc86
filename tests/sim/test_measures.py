"""Averages of step functions."""

from __future__ import annotations

import numpy as np
import pytest

from edl.sim.measures import mean_over


def test_a_mean_weighs_each_step_by_its_time() -> None:
    assert mean_over(np.array([0.0, 10.0]), np.array([1.0, 3.0]), (0.0, 40.0)) == pytest.approx(2.5)


def test_only_the_span_counts() -> None:
    assert mean_over(np.array([0.0, 10.0, 20.0]), np.array([1.0, 3.0, 9.0]), (5.0, 15.0)) == pytest.approx(2.0)


def test_before_the_first_step_there_is_nothing() -> None:
    assert mean_over(np.array([5.0]), np.array([4.0]), (0.0, 10.0)) == pytest.approx(2.0)
