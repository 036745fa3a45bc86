"""Means and intervals over seeds."""

from __future__ import annotations

import math

import pytest

from edl.sim.campaign import interval, run_all
from tests.sim.scenarios import make_group, make_scenario


def test_an_interval_is_students() -> None:
    found = interval([1.0, 2.0, 3.0])
    assert found.mean == 2
    assert found.half == pytest.approx(4.303 / math.sqrt(3), abs=1e-3)


def test_one_seed_has_no_interval() -> None:
    assert interval([7.0]).half == math.inf


def test_runs_come_in_the_order_of_their_seeds_and_each_is_announced() -> None:
    calls: list[int] = []
    runs = run_all(make_scenario(duration_s=5, jobs=[make_group()]), ["static-min"], 2, lambda: calls.append(1), 1)
    assert [run.seed for run in runs["static-min"]] == [0, 1]
    assert len(calls) == 2


def test_processes_give_the_same_figures() -> None:
    scenario = make_scenario(duration_s=5, jobs=[make_group()])
    alone, together = (run_all(scenario, ["static-2017"], 2, processes=count) for count in (1, 2))
    assert [run.figures for run in alone["static-2017"]] == [run.figures for run in together["static-2017"]]
