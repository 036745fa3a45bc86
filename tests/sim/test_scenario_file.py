"""Scenario files: what is stored runs, and what is wrong is refused with its line, field and reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edl.errors import ConfigError
from edl.sim.policies import check_policy
from edl.sim.scenario import Scenario
from edl.sim.scenario_file import read_scenario

ROOT = Path(__file__).parents[2]
GOOD = """\
name: small
duration_s: 60
nodes:
- name: n
  resources: {cpu: 8, memory: 32Gi}
jobs:
- name: job
  max: 4
  trainer: {cpu: 1}
"""


def refusal(tmp_path: Path, old: str, new: str) -> str:
    path = tmp_path / "scenario.yaml"
    assert old in GOOD
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        read_scenario(path)
    return str(caught.value).removeprefix(str(path))


@pytest.mark.parametrize("path", sorted((ROOT / "example" / "scenarios").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_stored_scenario_can_be_read(path: Path) -> None:
    scenario = read_scenario(path)
    assert scenario.name == path.stem
    for policy in scenario.policies:
        check_policy(policy)


def test_a_good_scenario_is_read(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(GOOD)
    assert read_scenario(path).jobs[0].max == 4


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("max: 4", "max: 0", ", line 8, jobs.0.max '0': Input should be greater than or equal to 1"),
        ("max: 4", "min: 5\n  max: 4", ", line 7, jobs.0: min 5 exceeds max 4; lower min"),
        ("  max: 4\n", "", ", line 7, jobs.0.max: it is missing; add it"),
        ("cpu: 8", "cpu: eight", ", line 5, nodes.0.resources.cpu: cpu 'eight' is not a quantity"),
        ("max: 4", "max: 4\n  maxx: 5", ", line 9, jobs.0.maxx: there is no such field"),
        ("duration_s: 60", "duration_s: -1", ", line 2, duration_s '-1': Input should be greater than 0"),
        ("max: 4", "max: 4\n  max: 5", ", line 9: 'max' appears twice; keep one of them"),
    ],
)
def test_a_bad_field_is_refused_with_line_and_reason(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert refusal(tmp_path, old, new).startswith(message)


def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text("- a\n")
    with pytest.raises(ConfigError, match="holds no scenario; write a mapping"):
        read_scenario(path)


def test_every_error_has_a_line_of_its_own(tmp_path: Path) -> None:
    message = refusal(tmp_path, "max: 4", "max: 0\n  weight: -1")
    assert [line.partition(", line ")[2][:1] for line in message.splitlines()] == ["8", "9"]


def test_an_event_of_an_unknown_node_is_refused(tmp_path: Path) -> None:
    event = "node_events: [{at_s: 1, node: x-0, event: lost}]\njobs:"
    assert "node_events names node x-0, which no group has" in refusal(tmp_path, "jobs:", event)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_scenario(tmp_path / "none.yaml")


def test_the_schema_in_the_documentation_is_that_of_the_code() -> None:
    stored = json.loads((ROOT / "docs" / "reference" / "scenario.schema.json").read_text())
    assert stored == Scenario.model_json_schema()
