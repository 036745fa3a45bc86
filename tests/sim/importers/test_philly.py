"""Scenarios from arrival traces."""

from __future__ import annotations

from pathlib import Path

import pytest

from edl.errors import ConfigError
from edl.sim.importers.philly import POWER, scenario_of_trace
from edl.sim.scenario import Scenario

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
