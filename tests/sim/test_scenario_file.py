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
        ("max: 4", "max: 0", ", line 8, jobs.0.max '0': it must be at least 1; raise it"),
        ("max: 4", "min: 5\n  max: 4", ", line 7, jobs.0: min 5 exceeds max 4; lower min"),
        ("  max: 4\n", "", ", line 7, jobs.0.max: it is missing; add it"),
        ("cpu: 8", "cpu: eight", ", line 5, nodes.0.resources.cpu: cpu 'eight' is not a quantity"),
        ("max: 4", "max: 4\n  maxx: 5", ", line 9, jobs.0.maxx: there is no such field"),
        ("duration_s: 60", "duration_s: -1", ", line 2, duration_s '-1': it must be more than 0; raise it"),
        ("{cpu: 1}", "{memory: 8GB}", ", line 9, jobs.0.trainer.memory: memory '8GB' is not a quantity; write"),
        ("max: 4", "max: three", ", line 8, jobs.0.max 'three': give a whole number"),
        ("duration_s: 60", "duration_s: .nan", ", line 2, duration_s 'nan': it is not a number; give a number"),
        ("duration_s: 60", "duration_s: .inf", ", line 2, duration_s 'inf': it is not a finite number; give"),
        ("max: 4", "max: 4\n  work: .inf", ", line 9, jobs.0.work 'inf': it is not a finite number"),
        ("jobs:", "nodes_: []\njobs:", ", line 6, nodes_: there is no such field"),
        ("name: small", "name: A b", ", line 1, name 'A b': use at most 52 of a-z, 0-9 and -"),
        ("{cpu: 1}", "{}", ", line 9, jobs.0.trainer: it is empty; add an entry"),
        (
            "jobs:",
            "scheduler: {retry: never}\njobs:",
            ", line 6, scheduler.retry 'never': give one of events, backoff",
        ),
        (
            "jobs:",
            "latency: {stop_s: {web: [1, 2]}}\njobs:",
            ", line 6, latency.stop_s.web 'web': give one of trainer",
        ),
        ("max: 4", "max: 4\n  max: 5", ", line 9: 'max' appears twice; keep one of them"),
    ],
)
def test_a_bad_field_is_refused_with_line_and_reason(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert refusal(tmp_path, old, new).startswith(message)


SERVING = "serving: [{name: web, resources: {cpu: 9}, replicas: [[0, 1]]}]\njobs:"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "{cpu: 1}",
            "{cpu: 64}",
            ", line 9, jobs.0.trainer.cpu '64': no node has more than 8 for pods;"
            " lower it, or give a node group more cpu",
        ),
        (
            "{cpu: 1}",
            "{nvidia.com/gpu: 1}",
            ", line 9, jobs.0.trainer.nvidia.com/gpu '1': no node has nvidia.com/gpu for pods;"
            " add nvidia.com/gpu to the resources of a node group, or remove it here",
        ),
        (
            "max: 4",
            "max: 4\n  master: {resources: {memory: 33Gi}}",
            ", line 9, jobs.0.master.resources.memory '33Gi': no node has more than 32Gi for pods;"
            " lower it, or give a node group more memory",
        ),
        (
            "max: 4",
            "max: 4\n  pserver:\n    resources: {cpu: 8001m}",
            ", line 10, jobs.0.pserver.resources.cpu '8001m': no node has more than 8 for pods;"
            " lower it, or give a node group more cpu",
        ),
        (
            "jobs:",
            SERVING,
            ", line 6, serving.0.resources.cpu '9': no node has more than 8 for pods;"
            " lower it, or give a node group more cpu",
        ),
        (
            "jobs:\n- name: job\n  max: 4\n  trainer: {cpu: 1}",
            "- {name: m, resources: {cpu: 2, memory: 99Gi}}\n"
            "jobs: [{name: job, max: 1, trainer: {cpu: 3, memory: 40Gi}}]",
            ", line 7, jobs.0.trainer 'cpu 3, memory 40Gi': no node has all of these together;"
            " lower one, or add it to the group with the others",
        ),
    ],
)
def test_a_pod_that_no_node_can_hold_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert refusal(tmp_path, old, new) == message


def test_what_the_daemons_of_a_node_use_is_not_for_pods(tmp_path: Path) -> None:
    message = refusal(tmp_path, "32Gi}", "32Gi}\n  system_cpu: 7500m")
    assert ", line 10, jobs.0.trainer.cpu '1': no node has more than 500m for pods" in message


LATE = "the scenario ends at second 60, its duration_s; choose an earlier second, or raise duration_s"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("measure: {steady_s: [50, 20]}", "measure.steady_s '[50, 20]': until 20 is not after from 50; write [from,"),
        ("measure: {ramps_s: [20, 20]}", "measure.ramps_s '[20, 20]': until 20 is not after from 20; write [from,"),
        ("measure: {steady_s: [20, 70]}", f"measure.steady_s '[20, 70]': {LATE}"),
        ("measure: {ramps_s: [70, 1209600]}", f"measure.ramps_s '[70, 1209600]': {LATE}"),
        ("measure: {until_s: 61}", f"measure.until_s '61': {LATE}"),
        ("measure: {from_s: 60}", "measure.from_s '60': what is measured ends at second 60; choose an earlier"),
        ("measure: {from_s: 9, until_s: 8}", "measure.from_s '9': what is measured ends at second 8; choose an"),
        ("node_events: [{at_s: 61, node: n-0, event: lost}]", f"node_events.0.at_s '61': {LATE}"),
        ("seeds: true", "seeds 'true': true and false are no numbers; give a number"),
        ("latency: {write_s: no}", "latency.write_s 'false': true and false are no numbers; give a number"),
        ("latency: {start_s: {trainer: [true, 2]}}", "latency.start_s.trainer.0 'true': true and false are no"),
        ("controller: {serving_headroom: yes}", "controller.serving_headroom 'true': true and false are no numbers"),
        ("policies: []", "policies '[]': nothing would run; name a policy, or remove the field for maxmin"),
        (
            "measure: {steady_s: [1, 2, 3]}",
            "measure.steady_s '[1, 2, 3]': it has more than 2 items; remove the others",
        ),
        ("policies: [static-min, best]", "policies.1: policy 'best' does not exist; choose one of static-2017, "),
    ],
)
def test_what_would_run_and_mean_nothing_is_refused(tmp_path: Path, line: str, message: str) -> None:
    found = refusal(tmp_path, "jobs:", f"{line}\njobs:")
    assert found.startswith(f", line 6, {message}")
    assert len(found.splitlines()) == 1


def test_what_ends_with_the_scenario_is_read(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    event = "node_events: [{at_s: 60, node: n-0, event: lost}]"
    path.write_text(f"{GOOD}{event}\nsettled: false\nmeasure: {{until_s: 60, steady_s: [0, 60]}}\n")
    assert read_scenario(path).measure.steady_s == (0, 60)


@pytest.mark.parametrize("value", ["lots", "-1", "1.5"])
def test_a_bad_headroom_has_one_line(tmp_path: Path, value: str) -> None:
    message = refusal(tmp_path, "jobs:", f"controller: {{serving_headroom: {value}}}\njobs:")
    rule = "give a count of pods from 0 to 100000, or one of auto, peak, conformal, foresight"
    assert message.startswith(", line 6, controller.serving_headroom '")
    assert message.endswith(f"': {rule}")
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("- name: n\n", "- name: n\n  cout: 4\n", ", line 5, nodes.0.cout: there is no such field"),
        ("cpu: 8", "cpu: null", ", line 5, nodes.0.resources.cpu: cpu 'None' is not a quantity"),
    ],
)
def test_a_bad_item_does_not_make_its_list_too_short(tmp_path: Path, old: str, new: str, message: str) -> None:
    found = refusal(tmp_path, old, new)
    assert found.startswith(message)
    assert len(found.splitlines()) == 1


def test_an_empty_list_is_too_short(tmp_path: Path) -> None:
    nodes = GOOD[GOOD.index("nodes:") : GOOD.index("jobs:")]
    assert refusal(tmp_path, nodes, "nodes: []\n") == (", line 3, nodes '[]': it is empty; add an entry")


def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text("- a\n")
    with pytest.raises(ConfigError, match="holds no scenario; write a mapping"):
        read_scenario(path)


NESTED = "\n".join(
    ["a0: &a0 [x, x]", *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 20)}]" for i in range(1, 12)), f"nodes: {'*a11'}"]
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (NESTED, ", line 6: its aliases stand for more than 5,000,000 values; use fewer"),
        ("a: 1\nnodes: &a\n- *a\n", ", line 2: an alias stands inside its own anchor; write the value out there"),
        (
            "a: 1\nb: " + "[" * 40 + "]" * 40,
            ", line 2: there are more than 30 levels within each other; a scenario has",
        ),
        ("a: 1\nb: " + "[" * 9000 + "]" * 9000, ", line 2: there are more than 30 levels within each other; a scen"),
    ],
)
def test_aliases_and_levels_without_end_are_refused_with_their_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_scenario(path)
    assert str(caught.value).removeprefix(str(path)).startswith(message)


def test_a_device_is_refused() -> None:
    with pytest.raises(ConfigError, match="/dev/zero is a device; give the path of a scenario file"):
        read_scenario(Path("/dev/zero"))


def test_a_file_that_is_too_long_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edl.sim.scenario_file.LONGEST_FILE", 2**20)
    path = tmp_path / "scenario.yaml"
    path.write_bytes(b" " * (2**20 + 1))
    with pytest.raises(ConfigError, match="is longer than 1 MiB; give a shorter scenario"):
        read_scenario(path)


def test_every_error_has_a_line_of_its_own(tmp_path: Path) -> None:
    message = refusal(tmp_path, "max: 4", "max: 0\n  weight: -1")
    assert [line.partition(", line ")[2][:1] for line in message.splitlines()] == ["8", "9"]


def test_an_event_of_an_unknown_node_is_refused_at_its_line_with_the_names(tmp_path: Path) -> None:
    events = "- {name: gpu, count: 4, resources: {cpu: 1}}\nnode_events:\n- {at_s: 1, node: gpu-3, event: lost}\n"
    assert refusal(tmp_path, "jobs:", f"{events}- {{at_s: 2, node: gpu, event: lost}}\njobs:") == (
        ", line 9, node_events.1.node 'gpu': no group has such a node; nodes are named <group>-<number> from 0:"
        " group n has n-0, group gpu has gpu-0 to gpu-3"
    )


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_scenario(tmp_path / "none.yaml")


def test_the_schema_in_the_documentation_is_that_of_the_code() -> None:
    stored = json.loads((ROOT / "docs" / "reference" / "scenario.schema.json").read_text())
    assert stored == Scenario.model_json_schema()


def test_the_schema_says_what_windows_and_names_of_nodes_are() -> None:
    parts = Scenario.model_json_schema()["$defs"]
    for window in ("steady_s", "ramps_s"):
        description = parts["MeasureSpec"]["properties"][window]["anyOf"][0]["description"]
        assert description == "From and until, in seconds of the scenario."
    assert "gpu-0 to gpu-3" in parts["NodeEvent"]["properties"]["node"]["description"]
