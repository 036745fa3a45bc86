"""The parts of docs/ that the code knows best: fields of a job, metrics, alerts; `make generate` writes them.

A document holds such a table between two marks and is written by people around it; a test compares what stands there
with what would be generated now. This module also writes everything else that is generated.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from edl.api.crd import render_schema
from edl.api.roles import RoleSpec
from edl.controller.ports import RoundResult
from edl.errors import PlanFailure
from edl.install.alerts import ALERTS
from edl.install.command_reference import COMMANDS_PAGE, commands_page
from edl.install.manifests import generated_files
from edl.master.metrics import PLACES, MasterMetrics
from edl.model.actions import Result
from edl.model.names import Role
from edl.model.status import JobPhase
from edl.observability.metrics import Metrics

Schema = Mapping[str, Any]
_ROLES = tuple(role.value for role in Role)
_RAW = "x-kubernetes-preserve-unknown-fields"
_RULES = "x-kubernetes-validations"


def _values(words: Iterable[StrEnum]) -> tuple[str, ...]:
    return tuple(word.value for word in words)


# (metric, label) -> the values that it takes, where they are few and the same everywhere.
LABEL_VALUES: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("edl_job_trainers", "state"): ("current", "target", "min", "max"),
    ("edl_jobs", "phase"): _values(JobPhase),
    ("edl_resizes_total", "direction"): ("up", "down"),
    ("edl_rounds_total", "result"): _values(RoundResult),
    ("edl_decision_failures_total", "failure"): _values(PlanFailure),
    ("edl_actions_total", "result"): _values(Result),
    ("edl_master_positions", "place"): PLACES,
    ("edl_master_reports_total", "result"): ("accepted", "duplicate", "stale"),
}


@dataclass(frozen=True, slots=True)
class Exported:
    """A metric as it is scraped.

    Attributes:
        name: with `_total` where it is a counter; of a histogram without `_bucket`.
        kind: gauge, counter or histogram.
        labels: their names, in order.
    """

    name: str
    kind: str
    labels: tuple[str, ...]
    about: str

    @property
    def series(self) -> tuple[str, ...]:
        """The names of its series."""
        parts = ("_bucket", "_count", "_sum") if self.kind == "histogram" else ("",)
        return tuple(self.name + part for part in parts)


def exported_metrics() -> tuple[tuple[Exported, ...], tuple[Exported, ...]]:
    """What a controller exports, and what a master does."""
    return _read(Metrics().registry), _read(MasterMetrics().registry)


def _read(registry: CollectorRegistry) -> tuple[Exported, ...]:
    # prometheus_client tells the labels of a metric to nobody but itself.
    found = []
    for collector in registry._collector_to_names:  # noqa: SLF001
        if isinstance(collector, MetricWrapperBase):
            (family,) = collector.describe()
            name = f"{family.name}_total" if family.type == "counter" else family.name
            labels = tuple(collector._labelnames)  # noqa: SLF001
            found.append(Exported(name, family.type, labels, family.documentation))
    return tuple(found)


def tables() -> dict[str, str]:
    """Name of a mark -> what stands between it and its end."""
    controller, master = exported_metrics()
    return {
        "fields": _fields_table(),
        "rules": _rules_list(),
        "metrics of the controller": _metrics_table(controller),
        "metrics of the master": _metrics_table(master),
        "alerts": _alerts_table(),
    }


def filled_in(text: str) -> str:
    """A document with every table in it made anew.

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
    """Write every generated file, and the tables of the documents, below the root of the repository."""
    for name, text in {**generated_files(), COMMANDS_PAGE: commands_page()}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for document in sorted((root / "docs").glob("*.md")):
        document.write_text(filled_in(document.read_text(encoding="utf-8")), encoding="utf-8")


def _fields_table() -> str:
    spec = render_schema()["properties"]["spec"]
    rows = [_row(path, node, required=required) for path, node, required in _fields(spec)]
    return _table(("field of `spec`", "type", "default", "rule", "meaning"), rows)


def _fields(spec: Schema) -> Iterator[tuple[str, Schema, bool]]:
    """(path below spec, schema, whether it must be given); what every role has stands once, as `<role>.resources`."""
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
    """A field and what is in it; parts of pods are not unfolded."""
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
    """As it would stand in YAML."""
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
    """What the value alone must satisfy."""
    if "enum" in node:
        return ", ".join(map(_code, node["enum"]))
    said = [_bounds(node), _length(node, "Length", "characters"), _length(node, "Items", "items")]
    if "pattern" in node and not node.get("x-kubernetes-int-or-string"):
        said.append(_code(node["pattern"]))
    if keys := node.get("x-kubernetes-list-map-keys"):
        said.append(f"no two of one {keys[0]}")
    return "; ".join(part for part in said if part)


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
    """Rules over several fields, each with where it holds."""
    schema = render_schema()
    said: dict[str, dict[str, None]] = {}
    for path, node in _nodes(schema["properties"]["spec"], "spec"):
        for rule in node.get(_RULES, ()):
            said.setdefault(rule["message"], {})[_code(_place(path))] = None
    lines = [f"- {', '.join(places)}: {message}" for message, places in said.items()]
    return "\n".join([*lines, *(f"- on a change: {rule['message']}" for rule in schema[_RULES])])


def _place(path: str) -> str:
    """Where a rule holds, said once for what every role has, and once for a whole template."""
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


def _metrics_table(metrics: Iterable[Exported]) -> str:
    rows = [(f"`{m.name}`", m.kind, _labels(m), m.about) for m in sorted(metrics, key=lambda m: m.name)]
    return _table(("metric", "type", "labels", "meaning"), rows)


def _labels(metric: Exported) -> str:
    return "; ".join(
        f"{label}: {', '.join(map(_code, values))}" if (values := LABEL_VALUES.get((metric.name, label))) else label
        for label in metric.labels
    )


def _alerts_table() -> str:
    rows = [
        (f"`{a.name}`<br>{a.severity.value}", f"`{a.expr}`{f' for {a.hold}' if a.hold else ''}", a.why, a.remedy)
        for a in ALERTS
    ]
    return _table(("alert", "fires when", "why so", "what to do"), rows)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _code(text: str) -> str:
    return f"`{text}`"


if __name__ == "__main__":
    write_all(Path(sys.argv[1]) if len(sys.argv) > 1 else Path.cwd())
