"""Reads a scenario file; each error names the file, the line, the field, the value and the rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from edl.errors import ConfigError
from edl.kube.yaml_files import bytes_of, errors_with_position, read_text, reject_duplicate_keys
from edl.sim.scenario import Scenario

_LONGEST_QUOTE = 60


def read_scenario(path: Path) -> Scenario:
    """Read a scenario.

    Raises:
        ConfigError: the file cannot be read, or is no scenario; one line for each error.
    """
    text = read_text(str(path), bytes_of(path))
    with errors_with_position(str(path)):
        tree = yaml.compose(text, Loader=yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader)
        if not isinstance(tree, yaml.MappingNode):
            raise ConfigError(
                f"{path} holds no scenario; write a mapping with the keys name, duration_s, nodes, jobs"
            )
        _reject_duplicates(tree)
        content = yaml.safe_load(text)
    try:
        return Scenario.model_validate(content)
    except ValidationError as error:
        raise ConfigError("\n".join(_message(path, tree, entry) for entry in error.errors())) from error


def _reject_duplicates(node: yaml.Node) -> None:
    if isinstance(node, yaml.MappingNode):
        reject_duplicate_keys(node)
        for _, value in node.value:
            _reject_duplicates(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _reject_duplicates(value)


def _message(path: Path, tree: yaml.Node, entry: ErrorDetails) -> str:
    field = ".".join(str(part) for part in entry["loc"]) or "the scenario"
    reason = entry["msg"].removeprefix("Value error, ")
    given = ""
    if entry["type"] not in {"missing", "value_error", "extra_forbidden"} and not isinstance(entry["input"], dict):
        given = f" {str(entry['input'])[:_LONGEST_QUOTE]!r}"
    if entry["type"] == "extra_forbidden":
        reason = "there is no such field; see docs/reference/scenario.schema.json"
    if entry["type"] == "missing":
        reason = "it is missing; add it"
    return f"{path}, line {_line(tree, entry['loc'])}, {field}{given}: {reason}"


def _line(tree: yaml.Node, loc: tuple[Any, ...]) -> int:
    """The line of a field, from 1; that of the innermost field around it which the file has."""
    node, line = tree, tree.start_mark.line
    for part in loc:
        if isinstance(node, yaml.MappingNode):
            found = next(((k, v) for k, v in node.value if k.value == str(part)), None)
            if found is None:
                break
            line, node = found[0].start_mark.line, found[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line
    return int(line) + 1
