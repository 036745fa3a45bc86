"""The file of `--expect-nodes`: the groups of nodes that an autoscaler can add, and what they cost.

groups:
  - name: spot-8
    allocatable: {cpu: 7900m, memory: 30Gi}
    labels: {pool: spot-8}
    taints: [{key: spot, value: "true", effect: NoSchedule}]
    price-per-hour: 0.11
    limit: 10
    keep: 0
    seconds-to-come: 120
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import yaml

from edl.errors import ConfigError
from edl.kube.translate.shapes import parse_amounts
from edl.kube.yaml_files import bytes_of, errors_with_position, read_text, reject_duplicate_keys
from edl.model.node_groups import NodeGroup
from edl.model.resources import CPU, MEMORY, PODS, Resources, Taint

_EXAMPLE = (
    "write groups: [{name: spot-8, allocatable: {cpu: 8, memory: 30Gi}, labels: {pool: spot-8}, price-per-hour: 0.11,"
    " limit: 10, seconds-to-come: 120}]"
)
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_MAX_NAME = 63
_MAX_PODS = 110
_LONGEST_S = 3600


class _Taint(msgspec.Struct, forbid_unknown_fields=True):
    key: Annotated[str, msgspec.Meta(min_length=1, max_length=316)]
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    value: Annotated[str, msgspec.Meta(max_length=63)] = ""


class _Group(msgspec.Struct, forbid_unknown_fields=True, rename="kebab"):
    name: str
    allocatable: dict[str, str | int | float]
    labels: dict[str, str]
    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000)]
    seconds_to_come: Annotated[float, msgspec.Meta(gt=0, le=_LONGEST_S)]
    price_per_hour: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 0.0
    taints: Annotated[list[_Taint], msgspec.Meta(max_length=32)] = []
    keep: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 0


class _File(msgspec.Struct, forbid_unknown_fields=True):
    groups: Annotated[list[_Group], msgspec.Meta(min_length=1, max_length=64)]


def read_expected_nodes(path: Path) -> tuple[NodeGroup, ...]:
    """Read the groups, sorted by name.

    Raises:
        ConfigError: the file cannot be read or is not valid; the message names the group, the value and the rule.
    """
    name = f"--expect-nodes {path}"
    text = read_text(name, bytes_of(path))
    with errors_with_position(name):
        _reject_duplicates(yaml.compose(text, Loader=yaml.SafeLoader))
        body = yaml.safe_load(text)
    if not isinstance(body, dict):
        raise ConfigError(f"{name} holds no mapping; {_EXAMPLE}, or remove the flag")
    try:
        found = msgspec.convert(body, _File)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{name}: {error}; {_EXAMPLE}") from error
    groups = [_group(group, name) for group in found.groups]
    names = [group.name for group in groups]
    if twice := next((n for n in names if names.count(n) > 1), ""):
        raise ConfigError(f"{name}: two groups have the name {twice}; give each group a name of its own")
    return tuple(sorted(groups, key=lambda group: group.name))


def _group(group: _Group, file: str) -> NodeGroup:
    at = f"{file}: group {group.name[:80]!r}"
    if not _NAME.fullmatch(group.name) or len(group.name) > _MAX_NAME:
        raise ConfigError(f"{at}: use at most {_MAX_NAME} lowercase letters, digits, hyphens and dots in a name")
    if not group.labels:
        raise ConfigError(f"{at} has no labels; give the labels that only nodes of this group have")
    try:
        amounts = parse_amounts(group.allocatable)
    except ConfigError as error:
        raise ConfigError(f"{at}: allocatable: {error}") from error
    for resource in (CPU, MEMORY):
        if amounts.get(resource, 0) <= 0:
            raise ConfigError(f"{at}: allocatable has no {resource}; give what pods may use of one node")
    if group.keep > group.limit:
        raise ConfigError(f"{at}: keep {group.keep} exceeds limit {group.limit}; lower keep")
    amounts.setdefault(PODS, _MAX_PODS)
    return NodeGroup(
        group.name,
        Resources.of(amounts),
        tuple(sorted(group.labels.items())),
        tuple(sorted(Taint(taint.key, taint.value, taint.effect) for taint in group.taints)),
        group.price_per_hour,
        group.limit,
        group.keep,
        group.seconds_to_come,
    )


def _reject_duplicates(node: yaml.Node | None) -> None:
    if isinstance(node, yaml.MappingNode):
        reject_duplicate_keys(node)
        for _, value in node.value:
            _reject_duplicates(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _reject_duplicates(value)
