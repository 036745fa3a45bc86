"""The file of expected nodes: what is read, and the messages of invalid files."""

from __future__ import annotations

from pathlib import Path

import pytest

from edl.errors import ConfigError
from edl.kube.expected_nodes_file import read_expected_nodes
from edl.model.node_groups import NodeGroup
from edl.model.resources import Resources, Taint

GIB = 2**30


def read(tmp_path: Path, text: str) -> tuple[NodeGroup, ...]:
    path = tmp_path / "nodes.yaml"
    path.write_text(text)
    return read_expected_nodes(path)


def group(**values: str) -> str:
    fields = {
        "name": "a",
        "allocatable": "{cpu: 4, memory: 8Gi}",
        "labels": "{pool: a}",
        "limit": "2",
        "seconds-to-come": "60",
        **{key.replace("_", "-"): value for key, value in values.items()},
    }
    return "groups: [{" + ", ".join(f"{key}: {value}" for key, value in fields.items() if value) + "}]"


def test_groups_are_read_and_sorted(tmp_path: Path) -> None:
    text = """
groups:
  - name: spot
    allocatable: {cpu: 7900m, memory: 30Gi, nvidia.com/gpu: 1, pods: 50}
    labels: {pool: spot, zone: a}
    taints: [{key: spot, value: "true", effect: NoSchedule}]
    price-per-hour: 0.11
    limit: 10
    keep: 1
    seconds-to-come: 90
  - {name: on-demand, allocatable: {cpu: 4, memory: 8Gi}, labels: {pool: od}, limit: 2, seconds-to-come: 60}
"""
    od, spot = read(tmp_path, text)
    amounts = {"cpu": 7900, "memory": 30 * GIB, "nvidia.com/gpu": 1, "pods": 50}
    labels, taints = (("pool", "spot"), ("zone", "a")), (Taint("spot", "true", "NoSchedule"),)
    assert spot == NodeGroup("spot", Resources.of(amounts), labels, taints, 0.11, 10, 1, 90.0)
    assert (od.name, od.price_per_hour, od.keep, od.allocatable["pods"]) == ("on-demand", 0.0, 0, 110)
    assert spot.give_up_s == 240.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no mapping"),
        ("groups: []", "Expected `array` of length >= 1"),
        ("groups: [{name: a}]", "missing required field `allocatable`"),
        (group(limit="0"), "Expected `int` >= 1"),
        (group(seconds_to_come="0"), "Expected `float` > 0"),
        (group(price_per_hour="-1"), "Expected `float` >= 0"),
        (group(colour="red"), "unknown field `colour`"),
        (group(labels="{}"), "has no labels; give the labels that only nodes of this group have"),
        (group(name="Spot"), "use at most 63 lowercase letters"),
        (group(allocatable="{cpu: 4}"), "allocatable has no memory"),
        (group(allocatable="{cpu: lots, memory: 1Gi}"), "group 'a': allocatable: "),
        (group(keep="3"), "keep 3 exceeds limit 2; lower keep"),
        (group(taints="[{key: a, effect: Never}]"), "Invalid enum value 'Never'"),
        (group(name="a, name: b"), "'name' appears twice"),
    ],
)
def test_an_invalid_file_is_refused_with_the_rule(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(tmp_path, text)
    assert message in str(error.value)
    assert str(error.value).startswith("--expect-nodes ")


def test_two_groups_of_one_name_are_refused(tmp_path: Path) -> None:
    one = group().removeprefix("groups: [").removesuffix("]")
    with pytest.raises(ConfigError, match="two groups have the name a"):
        read(tmp_path, f"groups: [{one}, {one}]")


def test_a_file_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_expected_nodes(tmp_path / "none.yaml")
