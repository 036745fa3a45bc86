"""The stated number of series is the number that a process exports."""

from __future__ import annotations

import pytest

from edl.install.reference import CONTROLLER_METRICS, MASTER_METRICS
from edl.observability.metric_groups.declarations import (
    LABELS_WITHOUT_LIST,
    CounterMetric,
    GaugeMetric,
    HistogramMetric,
)
from edl.observability.metrics import Metrics


@pytest.mark.parametrize(
    "name",
    [
        "edl_actions_total",
        "edl_decision_failures_total",
        "edl_job_wait_seconds",
        "edl_resize_decisions_total",
        "edl_round_seconds",
        "edl_victims_total",
    ],
)
def test_metrics_whose_values_are_known_export_the_stated_number(name: str) -> None:
    (metric,) = (metric for metric in CONTROLLER_METRICS if metric.name == name)
    families = (f for f in Metrics().registry.collect() if f.name == name.removesuffix("_total"))
    assert int(metric.most_series) == sum(len(family.samples) for family in families)


def test_every_event_has_its_series_from_the_start_or_with_its_job_or_call() -> None:
    events = [m for m in (*CONTROLLER_METRICS, *MASTER_METRICS) if isinstance(m, CounterMetric | HistogramMetric)]
    late = {metric.name for metric in events if not set(metric.labels) <= set(metric.values)}
    assert late == {"edl_resizes_total", "edl_master_calls_total", "edl_master_call_seconds"}


def test_labels_that_describe_a_series_add_none() -> None:
    info = GaugeMetric("edl_x", "X.", ("namespace", "job", "reason"), describing=("reason",))
    assert info.most_series == "jobs"


def test_labels_without_a_list_state_what_bounds_them() -> None:
    per_job = CounterMetric(
        "edl_things_total", "Things.", ("namespace", "job", "direction"), {"direction": ("up", "down")}
    )
    assert per_job.most_series == "jobs x 4"
    assert HistogramMetric("edl_x_seconds", "X.", ("route",), buckets=(1.0, 2.0)).most_series == "routes x 6"


def test_no_metric_has_a_label_that_nothing_bounds() -> None:
    for metric in (*CONTROLLER_METRICS, *MASTER_METRICS):
        assert set(metric.labels) <= {*metric.values, *LABELS_WITHOUT_LIST}, metric.name
        assert not set(metric.labels) & {"pod", "uid", "node", "message"}
