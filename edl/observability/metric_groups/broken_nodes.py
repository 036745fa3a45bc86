"""Nodes on which trainers of several jobs failed or hung."""

from __future__ import annotations

from collections import Counter

from edl.model.cluster import AvoidedNode, ClusterSnapshot
from edl.model.plan import ScalePlan
from edl.observability.metric_groups.declarations import Dashboard, GaugeMetric, Panel
from edl.observability.metric_groups.events import ControllerMetricGroup

_STATES = ("avoided", "tried", "spared")


class BrokenNodeMetrics(ControllerMetricGroup):
    """Nodes that new trainers avoid; all are 0 without `--avoid-nodes-after`."""

    title = "Nodes that break trainers"

    nodes = GaugeMetric(
        "edl_avoided_nodes",
        "Nodes on which trainers of several jobs failed or hung: avoided, tried with one trainer, or spared because"
        " edl avoids as many as it may.",
        ("state",),
        {"state": _STATES},
        panels=(
            Panel(
                Dashboard.SCALING,
                "Nodes that trainers avoid",
                (("max by (state) (edl_avoided_nodes)", "{{state}}"),),
                "Events of the nodes and `edl explain` name them.",
            ),
        ),
    )

    def planned(self, snapshot: ClusterSnapshot, plan: ScalePlan) -> None:  # noqa: ARG002 - the event has both
        """Count the nodes by state."""
        states = Counter(map(_state, snapshot.avoided))
        for state in _STATES:
            self.nodes.labels(state).set(states[state])


def _state(node: AvoidedNode) -> str:
    if node.spared:
        return "spared"
    return "avoided" if node.probe is None else "tried"
