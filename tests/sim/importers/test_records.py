"""Scenarios from the decision records of a controller."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from edl.errors import ConfigError
from edl.explain.decision import decide
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.quantity import parse_quantity
from edl.model.resources import CPU, PodShape, Resources, Taint
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


def write(folder: Path, snapshot: ClusterSnapshot) -> Path:
    limits = Limits()
    RecordFolder(folder).write(
        DecisionRecord("maxmin", limits, snapshot, decide(snapshot, policy_named("maxmin"), limits))
    )
    return folder


def test_what_a_scenario_cannot_say_is_left_out_with_a_word(tmp_path: Path) -> None:
    usual, tainted, cordoned = make_nodes(3)
    nodes = (usual, replace(tainted, taints=(Taint("k", "v", "NoSchedule"),)), replace(cordoned, cordoned=True))
    bare = PodShape(Resources.of({"pods": 1}))
    pods = (replace(make_serving("web-0", node="n000"), shape=bare),)
    jobs = (make_job("a"), replace(make_job("b"), trainer=bare))
    said: list[str] = []
    scenario = scenario_of_records(write(tmp_path, make_snapshot(nodes, jobs, pods, now_s=1000.0)), said.append)
    assert ([group.count for group in scenario.nodes], len(scenario.jobs), scenario.serving) == ([1], 1, ())
    assert [line.partition(":")[0] for line in said] == [
        "left out n001, n002",
        "left out the jobs b",
        "left out serving pods without requests, which a scenario cannot say",
    ]


def test_daemons_take_cores_of_their_node(tmp_path: Path) -> None:
    daemon = replace(make_serving("agent", node="n000"), daemon=True)
    scenario = scenario_of_records(
        write(tmp_path, make_snapshot(make_nodes(2), (make_job("a"),), (daemon,), now_s=1000.0))
    )
    cores = daemon.shape.request[CPU]
    assert cores > 0
    assert [parse_quantity(group.system_cpu, CPU) for group in scenario.nodes] == [cores, 0]


def test_records_without_nodes_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path, make_snapshot((), (make_job("a"),), (), now_s=1000.0))
    with pytest.raises(ConfigError, match="its first record has no node for usual pods; give records with nodes"):
        scenario_of_records(folder)


def test_a_folder_without_records_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no records"):
        scenario_of_records(tmp_path)


def test_a_record_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "decision-1.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"decision-1\.json: not a decision record"):
        scenario_of_records(tmp_path)
