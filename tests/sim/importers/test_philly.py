"""Scenarios from arrival traces."""

from __future__ import annotations

from pathlib import Path

import pytest

from edl.errors import ConfigError
from edl.sim.importers.philly import POWER, scenario_of_trace
from edl.sim.scenario import Scenario
from tools import make_scenarios

TRACE = """\
timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 00:10:00,100,4,400,a
2017-10-09 00:20:00,100,4,400,a
2017-10-09 05:00:00,100,4,400,a
2017-10-09 00:30:00,50,999,1,a
"""


def test_the_jobs_of_a_part_of_the_trace_become_groups(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    body = scenario_of_trace(path, begin="2017-10-09 00:00:00", hours=1, nodes=2, gpus=4)
    (group,) = Scenario.model_validate(body).jobs
    assert group.arrival.times_s == (600.0, 1200.0)
    assert group.work == pytest.approx(100 * 4**POWER)
    assert group.fixed == 4


def test_a_part_without_jobs_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    with pytest.raises(ConfigError, match="has no job"):
        scenario_of_trace(path, begin="2019-01-01", hours=1, nodes=2, gpus=4)


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ConfigError, match="give a CSV"):
        scenario_of_trace(path, begin="2017-10-09", hours=1, nodes=2, gpus=4)


@pytest.mark.parametrize(
    ("duration", "reason"),
    [("1e12", "line 2: duration 1e\\+12 is not from 0 to 1e\\+08 seconds"), ("abc", "could not convert")],
)
def test_a_bad_duration_is_refused(tmp_path: Path, duration: str, reason: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE.replace("100,4,400", f"{duration},4,400", 1))
    with pytest.raises(ConfigError, match=reason):
        scenario_of_trace(path, begin="2017-10-09", hours=1, nodes=2, gpus=4)


@pytest.mark.parametrize("arguments", [[], ["philly"], ["philly", "trace.csv", "2017-10-09"], ["other", "a", "b"]])
def test_too_few_arguments_are_answered_with_the_usage(arguments: list[str]) -> None:
    with pytest.raises(SystemExit, match="give arguments as here"):
        make_scenarios.main(arguments)


def test_hours_that_are_no_number_are_named() -> None:
    with pytest.raises(SystemExit, match="HOURS 'soon' is not a number above 0"):
        make_scenarios.main(["philly", "trace.csv", "2017-10-09", "soon"])
