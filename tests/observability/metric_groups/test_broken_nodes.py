"""What the metrics show of nodes that trainers avoid."""

from __future__ import annotations

from dataclasses import replace

from edl.model.cluster import AvoidedNode
from edl.model.names import JobKey
from edl.observability.metrics import Metrics
from tests.worlds.builders import make_nodes, make_snapshot
from tests.worlds.small_clusters import plan_for

STATES = ("avoided", "tried", "spared")


def values(*avoided: AvoidedNode) -> list[float]:
    metrics, snapshot = Metrics(), make_snapshot(make_nodes(4))
    for seen in (avoided, avoided[:1]):
        metrics.planned(replace(snapshot, avoided=seen), plan_for(snapshot))
        if seen is avoided:
            found = _read(metrics)
    assert sum(_read(metrics)) == min(1, len(avoided))
    return found


def _read(metrics: Metrics) -> list[float]:
    lines = dict(line.rsplit(" ", 1) for line in metrics.render().decode().splitlines() if not line.startswith("#"))
    return [float(lines[f'edl_avoided_nodes{{state="{state}"}}']) for state in STATES]


def test_nodes_are_counted_by_what_happens_to_them() -> None:
    key = JobKey("default", "a")
    node = AvoidedNode("n000", 2000.0, (key,))
    other = replace(node, name="n001")
    assert values(node, other, replace(node, name="n002", probe=key), replace(node, name="n003", spared=True)) == [
        2, 1, 1,
    ]  # fmt: skip
    assert values() == [0, 0, 0]
