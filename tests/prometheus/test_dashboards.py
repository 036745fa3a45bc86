"""The dashboards in the types that Grafana publishes for its JSON: every field is known to them and none is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from edl.install.dashboards import dashboards


def read_by_grafana(board: dict[str, Any]) -> object:
    """The dashboard after it was read into Grafana's types and written again; unknown fields are gone."""
    register_default_plugins()
    return json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(board)))


def lost(wanted: object, read: object, path: str = "") -> Iterator[str]:
    """Where the second value lacks something of the first; what Grafana adds does not count."""
    if isinstance(wanted, dict) and isinstance(read, dict):
        for key, value in wanted.items():
            yield from lost(value, read.get(key), f"{path}.{key}")
    elif isinstance(wanted, list) and isinstance(read, list) and len(wanted) == len(read):
        for at, (one, other) in enumerate(zip(wanted, read, strict=True)):
            yield from lost(one, other, f"{path}[{at}]")
    elif wanted != read:
        yield f"{path}: {wanted!r} became {read!r}"


# Grafana's types leave these out: they belong to the annotations of its data source Prometheus.
OF_PROMETHEUS = {"useValueForTime": True, "titleFormat": "{{direction}}", "textFormat": "{{reason}}", "step": "15s"}


@pytest.mark.parametrize("file", sorted(dashboards()))
def test_grafana_knows_every_field_of_a_dashboard(file: str) -> None:
    board = dashboards()[file]
    found = list(lost(board, read_by_grafana(board)))
    assert {entry.split(":")[0] for entry in found} == {f".annotations.list[0].{key}" for key in OF_PROMETHEUS}


def test_each_resize_is_an_annotation_with_its_reason() -> None:
    (annotation,) = dashboards()["job.json"]["annotations"]["list"]
    assert {key: annotation[key] for key in OF_PROMETHEUS} == OF_PROMETHEUS


@pytest.mark.parametrize("field", ["refreshs", "schemaversion"])
def test_a_misspelled_field_of_a_dashboard_is_found(field: str) -> None:
    board = {**dashboards()["job.json"], field: 1}
    assert f".{field}: 1 became None" in lost(board, read_by_grafana(board))


def test_a_misspelled_field_of_a_query_is_found() -> None:
    board = dashboards()["job.json"]
    panel = next(panel for panel in board["panels"] if panel.get("targets"))
    panel["targets"][0]["legend"] = "trainers"
    found = [entry for entry in lost(board, read_by_grafana(board)) if ".targets" in entry]
    assert found == [f".panels[{board['panels'].index(panel)}].targets[0].legend: 'trainers' became None"]
