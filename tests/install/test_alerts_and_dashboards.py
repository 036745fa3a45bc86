"""Alerts, dashboards and documents name metrics that the code exports, with labels and values that they have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml

from edl.api.manifest import pod_manifest
from edl.api.v1 import parse_job
from edl.install.alerts import ALERTS, operator_objects
from edl.install.dashboards import dashboards
from edl.install.manifests import generated_files
from edl.install.objects import workload
from edl.install.reference import LABEL_VALUES, Exported, exported_metrics
from edl.model.names import Role
from tests.worlds.hostile_jobs import make_manifest

ROOT = Path(__file__).parents[2]
CONTROLLER, MASTER = exported_metrics()
EXPORTED = {series: metric for metric in (*CONTROLLER, *MASTER) for series in metric.series}
OF_THE_POD = ("namespace", "job")  # what the PodMonitor adds to whatever a master exports
VARIABLE = re.compile(r"label_values\((?P<selector>.+), (?P<label>\w+)\)")

QUERIES = {f"{file}: {p['title']}": p for file, board in dashboards().items() for p in board["panels"]}
EXPRESSIONS = {
    **{alert.name: alert.expr for alert in ALERTS},
    **{f"{title} {t['refId']}": t["expr"] for title, panel in QUERIES.items() for t in panel["targets"]},
}


def nodes(tree: Any) -> Iterator[Any]:
    """An expression and all that is in it."""
    yield tree
    for part in ("lhs", "rhs", "expr", "args", "param", "vector_selector"):
        inner = getattr(tree, part, None) or ()
        for child in inner if isinstance(inner, list) else [inner]:
            if child != ():
                yield from nodes(child)


def selectors(expression: str) -> list[Any]:
    """What an expression selects."""
    return [node for node in nodes(promql.parse(expression)) if isinstance(node, promql.VectorSelector)]


def labels_of(metric: Exported) -> set[str]:
    """The labels of its series in Prometheus."""
    bucket = {"le"} if metric.kind == "histogram" else set()
    return {*metric.labels, *bucket, *(OF_THE_POD if metric in MASTER else ())}


def mistakes(expression: str) -> list[str]:
    """What an expression names and nobody exports."""
    found = []
    for selector in selectors(expression):
        metric = EXPORTED.get(selector.name)
        if metric is None:
            found.append(f"no metric {selector.name}")
            continue
        for matcher in selector.matchers.matchers:
            known = LABEL_VALUES.get((metric.name, matcher.name))
            wanted = matcher.value.split("|")
            if matcher.name not in labels_of(metric):
                found.append(f"{metric.name} has no label {matcher.name}")
            elif known and not set(wanted) <= set(known):
                found.append(f"{metric.name} has no {matcher.name} {matcher.value}")
    return found


def grouped_by(expression: str, words: str = "by|ignoring|on") -> set[str]:
    """The labels that an expression groups, joins or matches by."""
    listed = re.findall(rf"\b(?:{words}) ?\(([^)]*)\)", expression)
    return {label.strip() for names in listed for label in names.split(",")}


@pytest.mark.parametrize("name", sorted(EXPRESSIONS))
def test_every_expression_names_what_is_exported(name: str) -> None:
    expression = EXPRESSIONS[name]
    assert selectors(expression), "it selects something"
    assert mistakes(expression) == []
    known = set().union(*(labels_of(EXPORTED[s.name]) for s in selectors(expression)))
    assert grouped_by(expression) <= known


@pytest.mark.parametrize(
    ("expression", "mistake"),
    [
        ("sum(edl_reszes_total)", "no metric edl_reszes_total"),
        ("edl_decision_seconds", "no metric edl_decision_seconds"),
        ('edl_jobs{namespace="a"}', "edl_jobs has no label namespace"),
        ('rate(edl_rounds_total{result=~"acted|fine"}[5m])', "edl_rounds_total has no result acted|fine"),
    ],
)
def test_a_slip_of_the_pen_is_found(expression: str, mistake: str) -> None:
    assert mistakes(expression) == [mistake]


def test_every_metric_is_drawn_somewhere() -> None:
    texts = [target["expr"] for panel in QUERIES.values() for target in panel["targets"]]
    drawn = {EXPORTED[selector.name].name for text in texts for selector in selectors(text)}
    assert {metric.name for metric in (*CONTROLLER, *MASTER)} == drawn


@pytest.mark.parametrize("title", sorted(QUERIES))
def test_a_legend_names_labels_that_its_query_keeps(title: str) -> None:
    for target in QUERIES[title]["targets"]:
        named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        assert named <= grouped_by(target["expr"])


@pytest.mark.parametrize("file", sorted(dashboards()))
def test_panels_stand_side_by_side_and_variables_ask_for_what_there_is(file: str) -> None:
    board = dashboards()[file]
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in board["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            asked = VARIABLE.fullmatch(variable["query"])
            assert asked is not None
            assert mistakes(asked["selector"]) == []
            (selected,) = selectors(asked["selector"])
            assert asked["label"] in labels_of(EXPORTED[selected.name])


def test_summaries_name_labels_that_their_alert_keeps() -> None:
    for alert in ALERTS:
        metrics = [EXPORTED[s.name] for s in selectors(alert.expr)]
        kept = grouped_by(alert.expr, "by") or set().union(*map(labels_of, metrics))
        assert set(re.findall(r"\$labels\.(\w+)", alert.summary)) <= kept


def test_prometheus_rules_are_one_list_in_both_files() -> None:
    files = generated_files()
    plain = yaml.safe_load(files["deploy/prometheus/alerts.yaml"])
    operated = yaml.safe_load(files["deploy/prometheus/prometheusrule.yaml"])
    assert plain == operated["spec"]
    assert [rule["alert"] for rule in plain["groups"][0]["rules"]] == [alert.name for alert in ALERTS]
    assert all(re.fullmatch(r"\d+[mh]", rule.get("for", "1m")) for rule in plain["groups"][0]["rules"])


def test_monitors_select_what_is_there() -> None:
    objects = operator_objects()
    (service,) = (body for body in workload() if body["kind"] == "Service")
    scraped = objects["servicemonitor.yaml"]["spec"]
    assert scraped["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert {e["port"] for e in scraped["endpoints"]} <= {port["name"] for port in service["spec"]["ports"]}
    # Labels of ours that Prometheus sets too would be renamed, and every query would miss them.
    assert set(OF_THE_POD) & {label for metric in CONTROLLER for label in metric.labels}
    assert all(endpoint["honorLabels"] for endpoint in scraped["endpoints"])
    body = make_manifest()
    body["metadata"] |= {"uid": "0123abcd-4567-89ef-0123-456789abcdef", "namespace": "ads"}
    master = pod_manifest(parse_job(body), Role.MASTER, 0, default_master_image="edl", priority_classes=())
    followed = objects["podmonitor.yaml"]["spec"]
    assert followed["selector"]["matchLabels"].items() <= master["metadata"]["labels"].items()
    ports = {port["name"] for c in master["spec"]["containers"] for port in c["ports"]}
    assert {e["port"] for e in followed["podMetricsEndpoints"]} <= ports


def test_documents_name_metrics_and_alerts_that_exist() -> None:
    known = {*EXPORTED, *(metric.name for metric in EXPORTED.values())}
    alerts = {alert.name for alert in ALERTS}
    for document in (*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CHANGELOG.md"):
        text = document.read_text()
        assert set(re.findall(r"\bedl_(?!controller\b)[a-z_]+\b(?!\.\w)", text)) - {"edl_master_"} <= known, document
        assert set(re.findall(r"`(Edl[A-Z]\w+)`", text)) <= alerts | {"EdlError"}, document
