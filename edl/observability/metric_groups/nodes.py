"""Nodes that jobs ask an autoscaler for, and nodes that are emptied so that it removes them."""

from __future__ import annotations

from collections import Counter

from edl.model.cluster import ClusterSnapshot
from edl.model.plan import ScalePlan
from edl.observability.metric_groups.declarations import Dashboard, GaugeMetric, Panel
from edl.observability.metric_groups.events import ControllerMetricGroup

_STATES = ("open", "bound")


class NodeMetrics(ControllerMetricGroup):
    """Nodes that a controller with --expect-nodes asks for and releases."""

    title = "Nodes on demand"

    requests = GaugeMetric(
        "edl_node_requests",
        "Request pods without a node (open), and on a node that came for them (bound).",
        ("state",),
        {"state": _STATES},
        panels=(
            Panel(
                Dashboard.SCALING,
                "Nodes on demand",
                (
                    ('max(edl_node_requests{state="open"})', "asked for"),
                    ('max(edl_node_requests{state="bound"})', "came"),
                    ("max(edl_idle_nodes)", "emptied"),
                    ("max(edl_resting_node_groups)", "groups that bring none"),
                ),
                "Nodes that jobs ask an autoscaler for, and nodes that edl empties so that it removes them.",
            ),
        ),
    )
    idle = GaugeMetric("edl_idle_nodes", "Nodes of expected groups that edl has emptied or is emptying.")
    resting = GaugeMetric(
        "edl_resting_node_groups", "Node groups that brought no node in time and are not asked at present."
    )

    def planned(self, snapshot: ClusterSnapshot, plan: ScalePlan) -> None:  # noqa: ARG002 - the event has both
        """Set how many nodes the plan asks for and empties."""
        found = Counter(request.is_open for request in snapshot.node_requests if request.pod.is_live)
        self.requests.labels("open").set(found[True])
        self.requests.labels("bound").set(found[False])
        self.idle.set(len(snapshot.idle_nodes))
        self.resting.set(len(snapshot.resting_groups))
