"""Writes every generated file: crds/, deploy/ and the reference tables in docs/ (`make generate`).

A document has a table between two marks; people write the text around it. A test compares each table and each file
with what would be generated now.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from edl.api.crd import render_schema
from edl.api.roles import RoleSpec
from edl.install.alerts import ALERTS
from edl.install.command_reference import COMMANDS_PAGE, commands_page
from edl.install.json_reference import JSON_PAGE, json_page
from edl.install.manifests import generated_files
from edl.install.reference_pages import CONDITIONS_PAGE, HTTP_PAGE, conditions_page, http_page
from edl.master.metrics import MasterMetrics
from edl.model.names import Role
from edl.observability.metric_groups.build import BuildMetrics
from edl.observability.metric_groups.declarations import Metric
from edl.observability.metrics import CONTROLLER_GROUPS

Schema = Mapping[str, Any]
_ROLES = tuple(role.value for role in Role)
_RAW = "x-kubernetes-preserve-unknown-fields"
_RULES = "x-kubernetes-validations"


CONTROLLER_METRICS: tuple[Metric[Any], ...] = tuple(
    metric for group in (*CONTROLLER_GROUPS, BuildMetrics) for metric in group.declared()
)
MASTER_METRICS: tuple[Metric[Any], ...] = (*MasterMetrics.declared(), *BuildMetrics.declared())


def tables() -> dict[str, str]:
    """Name of a mark -> the table that belongs there."""
    return {
        "fields": _fields_table(),
        "rules": _rules_list(),
        "metrics of the controller": _metrics_table(CONTROLLER_METRICS),
        "metrics of the master": _metrics_table(MASTER_METRICS),
        "alerts": _alerts_table(),
    }


def pages() -> dict[str, str]:
    """Name of each page that is generated as a whole -> its text."""
    return {
        COMMANDS_PAGE: commands_page(),
        CONDITIONS_PAGE: conditions_page(),
        HTTP_PAGE: http_page(),
        JSON_PAGE: json_page(),
    }


def filled_in(text: str) -> str:
    """The document with every table replaced by a new one.

    Raises:
        ValueError: a mark has no end.
    """
    for name, table in tables().items():
        begin, end = f"<!-- generated: {name} -->\n", f"<!-- end: {name} -->"
        if begin in text:
            before, rest = text.split(begin, 1)
            _, after = rest.split(end, 1)
            text = f"{before}{begin}\n{table}\n{end}{after}"
    return text


def write_all(root: Path) -> None:
    """Write every generated file and every table of docs/ below the root of the repository."""
    for name, text in {**generated_files(), **pages()}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for document in sorted((root / "docs").rglob("*.md")):
        document.write_text(filled_in(document.read_text(encoding="utf-8")), encoding="utf-8")


def _fields_table() -> str:
    spec = render_schema()["properties"]["spec"]
    rows = [_row(path, node, required=required) for path, node, required in _fields(spec)]
    return _table(("field of `spec`", "type", "default", "rule", "meaning"), rows)


def _fields(spec: Schema) -> Iterator[tuple[str, Schema, bool]]:
    """(path below spec, schema, whether it is required); fields that all roles share appear once, as `<role>.`."""
    shared = [field.alias or name for name, field in RoleSpec.model_fields.items()]
    for name, node in spec["properties"].items():
        if name not in _ROLES:
            yield from _below(name, node, required=name in spec.get("required", ()))
    for name in shared:
        yield from _below(f"<role>.{name}", spec["properties"][Role.TRAINER.value]["properties"][name])
    for role in reversed(_ROLES):
        node = spec["properties"][role]
        for name, inner in node["properties"].items():
            if name not in shared:
                yield from _below(f"{role}.{name}", inner, required=name in node.get("required", ()))


def _below(path: str, node: Schema, *, required: bool = False) -> Iterator[tuple[str, Schema, bool]]:
    """A field and the fields inside it, without the fields of pod templates."""
    yield path, node, required
    inner = node.get("items", node)
    place = f"{path}[]" if "items" in node else path
    if _RAW in inner or path.endswith(".template"):
        return
    for name, part in inner.get("properties", {}).items():
        yield from _below(f"{place}.{name}", part, required=name in inner.get("required", ()))


def _row(path: str, node: Schema, *, required: bool) -> tuple[str, ...]:
    default = "required" if required else _code(_plain(node["default"])) if "default" in node else ""
    return f"`{path}`", _type(node), default, _rule(node), node.get("description", "").replace("\n", " ")


def _plain(value: object) -> str:
    """The value as YAML writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value) or '""'


def _type(node: Schema) -> str:
    if node.get("x-kubernetes-int-or-string"):
        return "amount"
    if "items" in node:
        return f"list of {_type(node['items'])}s"
    if "additionalProperties" in node:
        return f"map of {_type(node['additionalProperties'])}s"
    return str({"string": "text", "boolean": "true or false"}.get(node["type"], node["type"]))


def _rule(node: Schema) -> str:
    """The rule that the value of one field must satisfy."""
    if "enum" in node:
        return ", ".join(map(_code, node["enum"]))
    rules = [_bounds(node), _length(node, "Length", "characters"), _length(node, "Items", "items")]
    if "pattern" in node and not node.get("x-kubernetes-int-or-string"):
        rules.append(_code(node["pattern"]))
    if keys := node.get("x-kubernetes-list-map-keys"):
        rules.append(f"no two with the same {keys[0]}")
    return "; ".join(rule for rule in rules if rule)


def _bounds(node: Schema) -> str:
    low, high = node.get("minimum"), node.get("maximum")
    if low is not None and high is not None:
        return f"{low:,} to {high:,}"
    return f"at least {low:,}" if low is not None else f"at most {high:,}" if high is not None else ""


def _length(node: Schema, what: str, unit: str) -> str:
    if node.get("x-kubernetes-int-or-string"):
        return ""
    low, high = node.get(f"min{what}", 0), node.get(f"max{what}")
    if high is None:
        return ""
    return f"{low} to {high:,} {unit}" if low else f"at most {high:,} {unit}"


def _rules_list() -> str:
    """The rules about several fields, each with the places where it holds."""
    schema = render_schema()
    places_of: dict[str, dict[str, None]] = {}
    for path, node in _nodes(schema["properties"]["spec"], "spec"):
        for rule in node.get(_RULES, ()):
            places_of.setdefault(rule["message"], {})[_code(_place(path))] = None
    lines = [f"- {', '.join(places)}: {message}" for message, places in places_of.items()]
    return "\n".join([*lines, *(f"- on a change: {rule['message']}" for rule in schema[_RULES])])


def _place(path: str) -> str:
    """Say where a rule holds: `<role>` for fields that all roles share, and only the template for rules in it."""
    parts = path.split(".")
    if len(parts) > 2 and parts[1] in _ROLES and parts[2] in {"resources", "template", "policies"}:
        parts = ["spec", "<role>", *(parts[2:3] if parts[2] == "template" else parts[2:])]
    return ".".join(parts)


def _nodes(node: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    yield path, node
    for name, inner in node.get("properties", {}).items():
        yield from _nodes(inner, f"{path}.{name}")
    if "items" in node:
        yield from _nodes(node["items"], f"{path}[]")


def _metrics_table(metrics: Iterable[Metric[Any]]) -> str:
    rows = [(f"`{m.name}`", m.kind, _labels(m), m.most_series, m.help) for m in sorted(metrics, key=lambda m: m.name)]
    return _table(("metric", "type", "labels", "most series", "meaning"), rows)


def _labels(metric: Metric[Any]) -> str:
    return "; ".join(
        f"{label}: {', '.join(map(_code, values))}" if (values := metric.values.get(label)) else label
        for label in metric.labels
    )


def _alerts_table() -> str:
    rows = [
        (f"`{a.name}`<br>{a.severity.value}", f"`{a.expr}`{f' for {a.hold}' if a.hold else ''}", a.why, a.remedy)
        for a in ALERTS
    ]
    return _table(("alert", "fires when", "why this threshold", "what to do"), rows)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _code(text: str) -> str:
    return f"`{text}`"


if __name__ == "__main__":
    write_all(Path(sys.argv[1]) if len(sys.argv) > 1 else Path.cwd())
