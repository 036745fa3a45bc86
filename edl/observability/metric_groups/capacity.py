"""The capacity of the cluster and how much of it is requested."""

from __future__ import annotations

from edl.model.cluster import ClusterSnapshot
from edl.model.resources import HOST_PORT_PREFIX, Resources
from edl.observability.metric_groups.declarations import Dashboard, GaugeMetric, Panel
from edl.observability.metric_groups.events import ControllerMetricGroup

_BASE_UNITS = {"cpu": 1000}


class CapacityMetrics(ControllerMetricGroup):
    """The capacity of ready nodes and the requests of bound pods, in cores, bytes and devices."""

    title = "Capacity"

    allocatable = GaugeMetric(
        "edl_cluster_allocatable", "Capacity of ready nodes, in base units (cores, bytes, devices).", ("resource",)
    )
    requested = GaugeMetric(
        "edl_cluster_requested",
        "Requests of bound pods, in base units (cores, bytes, devices).",
        ("resource",),
        panels=(
            Panel(
                Dashboard.SCALING,
                "Requested part of the capacity",
                (
                    (
                        "max by (resource) (edl_cluster_requested) / max by (resource) (edl_cluster_allocatable)",
                        "{{resource}}",
                    ),
                ),
                "Requests of bound pods, divided by the allocatable resources of ready nodes.",
                "percentunit",
            ),
        ),
    )

    def observed(self, snapshot: ClusterSnapshot, *, leader: bool) -> None:  # noqa: ARG002 - the event has both
        """Set capacity and requests."""
        offered = [node.allocatable for node in snapshot.nodes if node.ready and not node.cordoned]
        training = (pod for job in snapshot.jobs for pod in job.pods)
        bound = (pod for pod in (*snapshot.pods, *training) if pod.node and not pod.is_finished)
        for metric, resources in (
            (self.allocatable, offered),
            (self.requested, [pod.shape.request for pod in bound]),
        ):
            metric.clear()
            for name, amount in _total(resources).items():
                if not name.startswith(HOST_PORT_PREFIX):
                    metric.labels(name).set(amount / _BASE_UNITS.get(name, 1))


def _total(resources: list[Resources]) -> dict[str, int]:
    total: dict[str, int] = {}
    for one in resources:
        for name, amount in one.amounts:
            total[name] = total.get(name, 0) + amount
    return total
