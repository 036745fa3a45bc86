"""The true speed of a job."""

from __future__ import annotations

import pytest

from edl.planner.speedup import Point, curve_of, seen_speed
from edl.sim.simulation import simulate
from tests.sim.scenarios import make_group, make_scenario

FALLING: tuple[Point, ...] = ((8, 5.0), (1, 10.0), (4, 20.0))


@pytest.mark.parametrize(("count", "speed"), [(1, 10), (2, 40 / 3), (4, 20), (6, 12.5), (8, 5), (16, 5)])
def test_a_speed_that_falls_is_interpolated(count: int, speed: float) -> None:
    assert seen_speed(FALLING, curve_of(FALLING)).at(count) == pytest.approx(speed)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6, 8, 16, 40])
def test_a_concave_curve_is_true(count: int) -> None:
    concave: tuple[Point, ...] = ((2, 2.0), (4, 3.5), (8, 5.0))
    assert seen_speed(concave, curve_of(concave)).at(count) == curve_of(concave).speed(count)


def test_a_job_is_as_slow_as_its_scenario_says() -> None:
    falls = make_group(min=8, max=8, work=100.0, throughput=FALLING)
    slow = make_group("slow", max=1, work=2e-9, throughput=[[1, 1e-10]])
    for group, jct_s in ((falls, 20), (slow, 20)):
        done = simulate(make_scenario(jobs=[group]), "static-2017", 0)
        assert done.figures["jct_mean_s"] == pytest.approx(jct_s, abs=0.5)
