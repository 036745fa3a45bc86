"""Reads a scenario file; each error names the file, the line, the field, the value and the rule."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from stat import S_ISBLK, S_ISCHR
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from edl.errors import ConfigError
from edl.kube.yaml_files import errors_with_position, read_text, reject_duplicate_keys
from edl.model.units import count
from edl.sim.scenario import NOT_A_QUANTITY, TWICE, Scenario, check_amount
from edl.sim.scenario_checks import Finding, findings

LONGEST_FILE = 64 * 2**20
"""Bytes of a scenario file."""

_LOADER = yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader
_LONGEST_QUOTE = 60
_NUMBER = "give a number"
_WHOLE = "give a whole number"
_MAPPING = "write its fields below it, each as `name: value`"
_CHOICE = "give one of {expected}"
_REASONS = {
    "bool_parsing": "give true or false",
    "bool_type": "give true or false",
    "dict_type": _MAPPING,
    "enum": _CHOICE,
    "extra_forbidden": "there is no such field; see docs/reference/scenario.schema.json",
    "finite_number": "it is not a finite number; " + _NUMBER,
    "float_parsing": _NUMBER,
    "float_type": _NUMBER,
    "greater_than": "it must be more than {gt:.15g}; raise it",
    "greater_than_equal": "it must be at least {ge:.15g}; raise it",
    "int_from_float": _WHOLE,
    "int_parsing": _WHOLE,
    "int_parsing_size": _WHOLE,
    "int_type": _WHOLE,
    "invalid_key": "a field has a name; write it as text",
    "less_than_equal": "it must be at most {le:.15g}; lower it",
    "literal_error": _CHOICE,
    "missing": "it is missing; add it",
    "model_type": _MAPPING,
    "string_pattern_mismatch": "use at most 52 of a-z, 0-9 and -, and neither begin nor end with -",
    "string_type": "give text; write it in quotes",
    "too_long": "it has more than {items}; remove the others",
    "too_short": "it is empty; add an entry",
    "tuple_type": "write a list, such as [a, b]",
}


def read_scenario(path: Path) -> Scenario:
    """Read a scenario.

    Raises:
        ConfigError: the file cannot be read, or is no scenario; one line for each error.
    """
    text = read_text(str(path), partial(_bytes, path))
    with errors_with_position(str(path)):
        tree = _compose(path, text)
        if not isinstance(tree, yaml.MappingNode):
            raise ConfigError(
                f"{path} holds no scenario; write a mapping with the keys name, duration_s, nodes, jobs"
            )
        check_shape(str(path), tree)
        content = yaml.load(text, Loader=_LOADER)  # noqa: S506 - a safe one
    try:
        scenario = Scenario.model_validate(content)
    except ValidationError as error:
        found = [_finding(entry) for entry in error.errors() if not _is_consequence(entry)]
        raise ConfigError("\n".join(_message(path, tree, one) for one in found)) from error
    found = findings(scenario, content)
    if found:
        raise ConfigError("\n".join(_message(path, tree, one) for one in found))
    return scenario


def _bytes(path: Path) -> bytes:
    """The content of a file or a pipe, unless it is too long.

    Raises:
        OSError: it cannot be read.
        ConfigError: it is a device, or too long.
    """
    mode = path.stat().st_mode
    if S_ISCHR(mode) or S_ISBLK(mode):
        raise ConfigError(f"{path} is a device; give the path of a scenario file")
    with path.open("rb") as file:
        content = file.read(LONGEST_FILE + 1)
    if len(content) > LONGEST_FILE:
        raise ConfigError(f"{path} is longer than {LONGEST_FILE // 2**20} MiB; give a shorter scenario")
    return content


def _compose(path: Path, text: str) -> yaml.Node | None:
    try:
        return yaml.compose(text, Loader=_LOADER)
    except RecursionError as error:
        raise ConfigError(f"{path}, line {line_that_is_too_deep(text)}: {too_deep()}") from error


def _is_consequence(entry: ErrorDetails) -> bool:
    """True if a list only seems too short because its items have errors, which are reported themselves."""
    return entry["type"] == "too_short" and bool(entry["input"])


def _finding(entry: ErrorDetails) -> Finding:
    loc = tuple(part for part in entry["loc"] if part != "[key]")
    kind, value, facts = entry["type"], entry["input"], entry.get("ctx", {})
    if kind == TWICE:
        return Finding((facts["field"], facts["index"], "name"), "", entry["msg"])
    if kind == NOT_A_QUANTITY:
        return Finding(loc, "", _quantity_reason(value, str(loc[-1])))
    if isinstance(value, float) and math.isnan(value):
        return Finding(loc, "nan", f"it is not a number; {_NUMBER}")
    reason = entry["msg"].removeprefix("Value error, ")
    if kind in _REASONS:
        items = count(facts.get("max_length", 0), "item")
        choices = str(facts.get("expected", "")).replace("'", "").replace(" or ", ", ")
        reason = _REASONS[kind].format(**facts | {"items": items, "expected": choices})
    is_named = kind in {"missing", "value_error", "extra_forbidden"} or isinstance(value, dict)
    return Finding(loc, "" if is_named else str(value), reason)


def _quantity_reason(value: str | float, resource: str) -> str:
    try:
        check_amount(value, resource)
    except ConfigError as error:
        return str(error)
    return f"{resource} is not a quantity"


def _message(path: Path, tree: yaml.Node, one: Finding) -> str:
    field = ".".join(str(part) for part in one.loc) or "the scenario"
    given = f" {one.given[:_LONGEST_QUOTE]!r}" if one.given else ""
    return f"{path}, line {_line(tree, one.loc)}, {field}{given}: {one.reason}"


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


DEEPEST = 30
"""Levels within levels; a scenario has ten."""

MOST_VALUES = 5_000_000
"""Values of a scenario with all aliases written out."""

Sizes = dict[int, int]


def check_shape(name: str, tree: yaml.Node) -> None:
    """Refuse a document that is too deep or too large, and keys that appear twice.

    Raises:
        ConfigError: it is too deep or too large, or an alias stands inside its own anchor.
        DuplicateKeyError: a key appears twice.
    """
    _size(name, tree, {}, ())


def _size(name: str, node: yaml.Node, sizes: Sizes, around: tuple[int, ...]) -> int:
    """How many values a node is, aliases written out; each node is looked at once."""
    if id(node) in sizes:
        return sizes[id(node)]
    if isinstance(node, yaml.ScalarNode):
        return 1
    line = node.start_mark.line + 1
    if id(node) in around:
        raise ConfigError(f"{name}, line {line}: an alias stands inside its own anchor; write the value out there")
    if len(around) >= DEEPEST:
        raise ConfigError(f"{name}, line {line}: {too_deep()}")
    if isinstance(node, yaml.MappingNode):
        reject_duplicate_keys(node)
        inner = [one for pair in node.value for one in pair]
    else:
        inner = node.value if isinstance(node, yaml.SequenceNode) else []
    size = 1 + sum(_size(name, one, sizes, (*around, id(node))) for one in inner)
    if size > MOST_VALUES:
        raise ConfigError(f"{name}, line {line}: its aliases stand for more than {MOST_VALUES:,} values; use fewer")
    sizes[id(node)] = size
    return size


def too_deep() -> str:
    """Why a document is refused."""
    return f"there are more than {DEEPEST} levels within each other; a scenario has fewer, so remove brackets"


def line_that_is_too_deep(text: str) -> int:
    """The line, from 1, at which a document first has more than `DEEPEST` levels; for one that cannot be read."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEEPEST:
                return event.start_mark.line + 1 if event.start_mark else 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
    return 1
