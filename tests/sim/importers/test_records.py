"""Scenarios from the decision records of a controller."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from edl.errors import ConfigError
from edl.explain.decision import decide
from edl.model.plan import Limits
from edl.observability.decision_records import DecisionRecord, RecordFolder
from edl.planner.policies.registry import policy_named
from edl.sim.importers.records import AFTER_S, scenario_of_records
from edl.sim.simulation import simulate
from tests.worlds.builders import make_job, make_nodes, make_serving, make_snapshot


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """Two jobs; one of them ends, and serving grows from none to two pods."""
    folder, limits = RecordFolder(tmp_path), Limits()
    first = make_snapshot(make_nodes(2), (make_job("a"), make_job("b")), now_s=1000.0)
    serving = tuple(make_serving(f"web-{i}", node="n000") for i in range(2))
    second = replace(make_snapshot(make_nodes(2), (make_job("a"),), serving), observed_at_s=1030.0)
    for snapshot in (first, second):
        plan = decide(snapshot, policy_named("maxmin"), limits)
        folder.write(DecisionRecord("maxmin", limits, snapshot, plan))
    return tmp_path


def test_records_become_nodes_jobs_and_serving_over_time(records: Path) -> None:
    scenario = scenario_of_records(records)
    assert scenario.duration_s == 30 + AFTER_S
    assert [group.count for group in scenario.nodes] == [2]
    assert [group.removal is not None for group in scenario.jobs] == [False, True]
    assert scenario.serving[0].replicas == ((0.0, 0), (30.0, 2))


def test_what_was_recorded_runs_under_another_policy(records: Path) -> None:
    scenario = scenario_of_records(records)
    ours, least = simulate(scenario, "maxmin", 0), simulate(scenario, "static-min", 0)
    assert ours.problems == least.problems == ()
    assert ours.figures["utilisation"] > least.figures["utilisation"]


def test_a_folder_without_records_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no records"):
        scenario_of_records(tmp_path)


def test_a_record_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "decision-1.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"decision-1\.json: not a decision record"):
        scenario_of_records(tmp_path)
