"""The Grafana dashboards: one for the scaling decisions in the cluster, one for a single job.

The panels are declared with the metrics that they show (`MetricGroup`). This module puts the panels of each group
under a heading and writes the JSON of Grafana. A dashboard asks for its data source when it is imported.
"""

from __future__ import annotations

from typing import Any

from edl.master.metrics import MasterMetrics
from edl.observability.metric_groups.build import BuildMetrics
from edl.observability.metric_groups.declarations import (
    SELECTED_JOB,
    SELECTED_NAMESPACES,
    Dashboard,
    MetricGroup,
    Panel,
)
from edl.observability.metrics import CONTROLLER_GROUPS

Object = dict[str, Any]

GROUPS: tuple[type[MetricGroup], ...] = (*CONTROLLER_GROUPS, MasterMetrics, BuildMetrics)
"""The groups of metrics in the order of the dashboards."""

_WIDTH = 24
_HEIGHT = 8
_SCHEMA_VERSION = 39
_RESOURCES = "label_values(edl_cluster_allocatable, resource)"
_SOURCE = {"type": "prometheus", "uid": "${source}"}


def dashboards() -> dict[str, Object]:
    """The dashboards: file name -> content."""
    return {
        Dashboard.SCALING.value: _dashboard(
            Dashboard.SCALING,
            "edl-scaling-decisions",
            "edl: scaling decisions",
            (_namespace(multiple=True), _variable("resource", "Resource", _RESOURCES)),
            _resizes(SELECTED_NAMESPACES, "{{namespace}}/{{job}}: {{direction}}"),
        ),
        Dashboard.JOB.value: _dashboard(
            Dashboard.JOB,
            "edl-job",
            "edl: one job",
            (_namespace(multiple=False), _job()),
            _resizes(SELECTED_JOB, "{{direction}}"),
        ),
    }


def panels_of(dashboard: Dashboard) -> dict[str, tuple[Panel, ...]]:
    """The panels of a dashboard: heading -> panels."""
    found = {
        group.title: tuple(p for metric in group.declared() for p in metric.panels if p.dashboard is dashboard)
        for group in GROUPS
    }
    return {title: panels for title, panels in found.items() if panels}


def _dashboard(
    dashboard: Dashboard, uid: str, title: str, variables: tuple[Object, ...], annotation: Object
) -> Object:
    source = {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    return {
        "uid": uid,
        "title": title,
        "tags": ["edl"],
        "schemaVersion": _SCHEMA_VERSION,
        "editable": True,
        "time": {"from": "now-3h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [source, *variables]},
        "annotations": {"list": [annotation]},
        "panels": _layout(panels_of(dashboard)),
    }


def _resizes(selector: str, title: str) -> Object:
    """A mark at the time of each resize, with its reason; the value of the series is that time."""
    by = "namespace, job, direction, reason"
    return {
        "name": "Resizes",
        "datasource": _SOURCE,
        "enable": True,
        "iconColor": "orange",
        "expr": f"1000 * max by ({by}) (edl_job_last_resize_timestamp_seconds{{{selector}}})",
        "useValueForTime": True,
        "titleFormat": title,
        "textFormat": "{{reason}}",
        "step": "15s",
    }


def _namespace(*, multiple: bool) -> Object:
    variable = _variable("namespace", "Namespace", "label_values(edl_job_trainers, namespace)")
    all_values = {"includeAll": True, "multi": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}}
    return {**variable, **all_values} if multiple else variable


def _job() -> Object:
    return _variable("job", "Job", 'label_values(edl_job_trainers{namespace="$namespace"}, job)')


def _variable(name: str, label: str, query: str) -> Object:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": _SOURCE,
        "query": query,
        "refresh": 2,  # Grafana runs the query again if the time range changes, because jobs come and go
        "sort": 1,
    }


def _layout(sections: dict[str, tuple[Panel, ...]]) -> list[Object]:
    """Place headings and panels: panels from left to right; one that does not fit starts a new line."""
    placed: list[Object] = []
    y = 0
    for title, panels in sections.items():
        placed.append({**_heading(title), "id": len(placed) + 1, "gridPos": {"x": 0, "y": y, "w": _WIDTH, "h": 1}})
        x, y = 0, y + 1
        for panel in panels:
            if x + panel.columns > _WIDTH:
                x, y = 0, y + _HEIGHT
            place = {"x": x, "y": y, "w": panel.columns, "h": _HEIGHT}
            placed.append({"id": len(placed) + 1, "gridPos": place, **_panel(panel)})
            x += panel.columns
        y += _HEIGHT
    return placed


def _heading(title: str) -> Object:
    return {"title": title, "type": "row", "collapsed": False, "panels": []}


def _panel(panel: Panel) -> Object:
    defaults: Object = {"unit": panel.unit, "min": 0}
    if panel.kind == "timeseries":
        stacking = {"mode": "normal" if panel.stacked else "none", "group": "A"}
        defaults["custom"] = {"fillOpacity": 40 if panel.stacked else 0, "stacking": stacking}
    return {
        "title": panel.title,
        "type": panel.kind,
        "datasource": _SOURCE,
        **({"description": panel.description} if panel.description else {}),
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + i), "datasource": _SOURCE, "expr": expression, "legendFormat": legend}
            for i, (expression, legend) in enumerate(panel.queries)
        ],
    }
