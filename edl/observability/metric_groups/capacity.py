"""The capacity of the cluster and how much of it is requested."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from edl.model.cluster import ClusterSnapshot
from edl.model.pods import Pod
from edl.model.resources import Resources, is_amount
from edl.observability.metric_groups.declarations import BASE_UNITS, Dashboard, GaugeMetric, Panel
from edl.observability.metric_groups.events import ControllerMetricGroup

_USES = ("training", "serving", "other")


class CapacityMetrics(ControllerMetricGroup):
    """The capacity of ready nodes and the requests of bound pods, in cores, bytes and devices."""

    title = "Capacity"
    is_sum = True

    allocatable = GaugeMetric(
        "edl_cluster_allocatable", "Capacity of ready nodes, in base units (cores, bytes, devices).", ("resource",)
    )
    requested = GaugeMetric(
        "edl_cluster_requested",
        "Requests of bound pods, in base units (cores, bytes, devices), by what the pods are for.",
        ("resource", "use"),
        {"use": _USES},
        panels=(
            Panel(
                Dashboard.SCALING,
                "Use of the cluster",
                (
                    ('max by (use) (edl_cluster_requested{resource="$resource"})', "{{use}}"),
                    (
                        'max(edl_cluster_allocatable{resource="$resource"})'
                        ' - sum(max by (use) (edl_cluster_requested{resource="$resource"}))',
                        "idle",
                    ),
                ),
                "What bound pods request of the chosen resource: pods of jobs, serving pods, others such as"
                " DaemonSets, and what nobody requests.",
                stacked=True,
            ),
            Panel(
                Dashboard.SCALING,
                "Requested part of the capacity",
                (
                    (
                        "sum by (resource) (max by (resource, use) (edl_cluster_requested))"
                        " / max by (resource) (edl_cluster_allocatable)",
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
        offered = _total(node.allocatable for node in snapshot.nodes if node.ready and not node.cordoned)
        self.allocatable.clear()
        for name, amount in _shown(offered):
            self.allocatable.labels(name).set(amount)
        self.requested.clear()
        for use, pods in _bound(snapshot).items():
            for name, amount in _shown(dict.fromkeys(offered, 0) | _total(pod.requested for pod in pods)):
                self.requested.labels(name, use).set(amount)


def _bound(snapshot: ClusterSnapshot) -> dict[str, list[Pod]]:
    """Use -> the pods on nodes that are for it."""
    found: dict[str, list[Pod]] = {use: [] for use in _USES}
    found["training"] = [pod for job in snapshot.jobs for pod in job.pods if pod.node and not pod.is_finished]
    for pod in snapshot.pods:
        if pod.node and not pod.is_finished:
            is_serving = pod.priority >= 0 and not pod.daemon
            found["serving" if is_serving else "other"].append(pod)
    return found


def _shown(amounts: dict[str, int]) -> Iterator[tuple[str, float]]:
    """The resources that nodes and pods can have in any amount, in base units."""
    for name, amount in amounts.items():
        if is_amount(name):
            yield name, amount / BASE_UNITS.get(name, 1)


def _total(resources: Iterable[Resources]) -> dict[str, int]:
    """Add up requests; thousands of pods share a few requests, so each is multiplied by its number of pods."""
    found = list(resources)
    counts, shared = Counter(map(id, found)), {id(one): one for one in found}
    total: Counter[str] = Counter()
    for key, count in counts.items():
        for name, amount in shared[key].amounts:
            total[name] += amount * count
    return total
