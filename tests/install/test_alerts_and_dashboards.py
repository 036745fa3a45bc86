"""Alerts, dashboards and documents name metrics that the code exports, with labels and values that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml
from prometheus_client import CollectorRegistry

from edl.api.pods import pod_manifest
from edl.api.v1 import parse_job
from edl.install.alerts import ALERTS, RUNBOOKS, runbook
from edl.install.dashboards import GROUPS, dashboards
from edl.install.manifests import generated_files
from edl.install.objects import workload
from edl.install.operator_objects import operator_objects
from edl.install.recording_rules import RECORDING_RULES
from edl.install.reference import CONTROLLER_METRICS, MASTER_METRICS
from edl.master.metrics import MasterMetrics
from edl.model.names import Role
from edl.observability.metric_groups.build import BuildMetrics
from edl.observability.metric_groups.declarations import Metric
from edl.observability.metrics import Metrics
from tests.worlds.hostile.manifests import make_manifest

ROOT = Path(__file__).parents[2]
EXPORTED = {series: metric for metric in (*CONTROLLER_METRICS, *MASTER_METRICS) for series in metric.series}
RECORDED = {rule.name: rule for rule in RECORDING_RULES}
POD_LABELS = ("namespace", "job")  # the PodMonitor adds them to every metric of a master
VARIABLE = re.compile(r"label_values\((?P<selector>.+), (?P<label>\w+)\)")

PANELS = {
    f"{file}: {panel['title']}": panel
    for file, dashboard in dashboards().items()
    for panel in dashboard["panels"]
    if panel["type"] != "row"
}
EXPRESSIONS = {
    **{rule.name: rule.expr for rule in RECORDING_RULES},
    **{alert.name: alert.expr for alert in ALERTS},
    **{f"{title} {t['refId']}": t["expr"] for title, panel in PANELS.items() for t in panel["targets"]},
}


def nodes(tree: Any) -> Iterator[Any]:
    """The expression and every expression inside it."""
    yield tree
    for part in ("lhs", "rhs", "expr", "args", "param", "vector_selector"):
        inner = getattr(tree, part, None) or ()
        for child in inner if isinstance(inner, list) else [inner]:
            if child != ():
                yield from nodes(child)


def selectors(expression: str) -> list[Any]:
    """The selectors of an expression."""
    return [node for node in nodes(promql.parse(expression)) if isinstance(node, promql.VectorSelector)]


def labels_of(metric: Metric[Any]) -> set[str]:
    """The labels of its series in Prometheus."""
    bucket = {"le"} if metric.kind == "histogram" else set()
    return {*metric.labels, *bucket, *(POD_LABELS if metric in MASTER_METRICS else ())}


def labels_selected(series: str) -> set[str]:
    """The labels of exported or of recorded series."""
    return set(RECORDED[series].labels) if series in RECORDED else labels_of(EXPORTED[series])


def mistakes(expression: str) -> list[str]:
    """What an expression names although no process exports it."""
    found = []
    for selector in selectors(expression):
        if selector.name in RECORDED:
            continue
        metric = EXPORTED.get(selector.name)
        if metric is None:
            found.append(f"no metric {selector.name}")
            continue
        for matcher in selector.matchers.matchers:
            known = metric.values.get(matcher.name)
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
def test_every_expression_names_exported_metrics(name: str) -> None:
    expression = EXPRESSIONS[name]
    assert selectors(expression), "an expression without a selector never fires"
    assert mistakes(expression) == []
    known = set().union(*(labels_selected(selector.name) for selector in selectors(expression)))
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
def test_a_misspelled_expression_is_found(expression: str, mistake: str) -> None:
    assert mistakes(expression) == [mistake]


def test_every_metric_has_a_panel() -> None:
    expressions = [target["expr"] for panel in PANELS.values() for target in panel["targets"]]
    shown = {EXPORTED[selector.name].name for expression in expressions for selector in selectors(expression)}
    assert {metric.name for metric in (*CONTROLLER_METRICS, *MASTER_METRICS)} == shown


def test_every_panel_shows_the_metric_that_it_is_declared_with() -> None:
    for metric in (metric for group in GROUPS for metric in group.declared()):
        for panel in metric.panels:
            shown = {EXPORTED[s.name].name for expression, _ in panel.queries for s in selectors(expression)}
            assert metric.name in shown, panel.title


@pytest.mark.parametrize(
    ("metrics", "registry"),
    [
        (CONTROLLER_METRICS, Metrics().registry),
        (MASTER_METRICS, MasterMetrics().registry),
    ],
)
def test_a_process_exports_exactly_the_declared_metrics(
    metrics: tuple[Metric[Any], ...], registry: CollectorRegistry
) -> None:
    families = {family.name: family for family in registry.collect()}
    assert sorted(families) == sorted(metric.name.removesuffix("_total") for metric in metrics)
    for metric in metrics:
        family = families[metric.name.removesuffix("_total")]
        assert (family.type, family.documentation) == (metric.kind, metric.help)
        assert metric.kind != "counter" or metric.name.endswith("_total")
        assert set(metric.values) <= set(metric.labels)


def test_no_metric_is_declared_twice() -> None:
    names = [metric.name for group in GROUPS for metric in group.declared()]
    assert len(names) == len(set(names))
    assert BuildMetrics in GROUPS


@pytest.mark.parametrize("title", sorted(PANELS))
def test_a_legend_names_only_labels_that_its_query_keeps(title: str) -> None:
    for target in PANELS[title]["targets"]:
        named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        assert named <= grouped_by(target["expr"])


@pytest.mark.parametrize("file", sorted(dashboards()))
def test_panels_do_not_overlap_and_variables_query_exported_metrics(file: str) -> None:
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
            query = VARIABLE.fullmatch(variable["query"])
            assert query is not None
            assert mistakes(query["selector"]) == []
            (selected,) = selectors(query["selector"])
            assert query["label"] in labels_of(EXPORTED[selected.name])


def test_summaries_name_only_labels_that_their_alert_keeps() -> None:
    for alert in ALERTS:
        found = (labels_selected(selector.name) for selector in selectors(alert.expr))
        kept = grouped_by(alert.expr, "by") or set().union(*found)
        assert set(re.findall(r"\$labels\.(\w+)", alert.summary)) <= kept


def test_both_rule_files_contain_the_same_alerts() -> None:
    files = generated_files()
    plain = yaml.safe_load(files["deploy/prometheus/alerts.yaml"])
    operated = yaml.safe_load(files["deploy/prometheus/prometheusrule.yaml"])
    assert plain == operated["spec"]
    recorded, alerts = (group["rules"] for group in plain["groups"])
    assert [rule["record"] for rule in recorded] == [rule.name for rule in RECORDING_RULES]
    assert [rule["alert"] for rule in alerts] == [alert.name for alert in ALERTS]
    assert all(re.fullmatch(r"\d+[mh]", rule.get("for", "1m")) for rule in alerts)


def test_every_alert_links_to_a_heading_that_exists() -> None:
    assert set(RUNBOOKS) == {alert.name for alert in ALERTS}
    for alert in ALERTS:
        document, _, anchor = runbook(alert.name).partition("#")
        headings = re.findall(r"^#+ (.+)$", (ROOT / document).read_text(), re.MULTILINE)
        assert RUNBOOKS[alert.name][1] in headings
        assert anchor in {heading.lower().replace(" ", "-") for heading in headings}


def test_monitors_select_objects_that_exist() -> None:
    objects = operator_objects()
    (service,) = (body for body in workload() if body["kind"] == "Service")
    scraped = objects["servicemonitor.yaml"]["spec"]
    assert scraped["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert {e["port"] for e in scraped["endpoints"]} <= {port["name"] for port in service["spec"]["ports"]}
    # Without honorLabels Prometheus renames the labels that it sets too, and no query finds them.
    assert set(POD_LABELS) & {label for metric in CONTROLLER_METRICS for label in metric.labels}
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
    documents = set((ROOT / "docs").rglob("*.md")) - {ROOT / "docs/how-to/add-a-metric.md"}  # an example metric
    for document in (*sorted(documents), ROOT / "README.md", ROOT / "CHANGELOG.md"):
        text = re.sub(r"`[a-z_]+:edl_[a-z_]+:ratio`", lambda found: recorded(found[0]), document.read_text())
        assert set(re.findall(r"\bedl_(?!controller\b)[a-z_]+\b(?!\.\w)", text)) - {"edl_master_"} <= known, document
        assert set(re.findall(r"`(Edl[A-Z]\w+)`", text)) <= alerts | {"EdlError"}, document


def recorded(name: str) -> str:
    """Nothing in place of the name of a recording rule."""
    assert name.strip("`") in RECORDED
    return ""
