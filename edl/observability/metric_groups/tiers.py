"""The QoS classes of trainers, and by how much the limits of pods exceed the capacity of nodes."""

from __future__ import annotations

from collections import Counter

from edl.model.cluster import ClusterSnapshot
from edl.model.overcommit import COUNTED, overcommit
from edl.model.resources import QosClass
from edl.observability.metric_groups.declarations import Dashboard, GaugeMetric, Panel
from edl.observability.metric_groups.events import ControllerMetricGroup

_PLACES = ("cluster", "worst node")


class TierMetrics(ControllerMetricGroup):
    """Trainers by QoS class, and limits against capacity."""

    title = "QoS classes and overcommit"
    is_sum = True

    trainers = GaugeMetric(
        "edl_trainers_by_qos",
        "Live trainers by their QoS class.",
        ("qos",),
        {"qos": tuple(QosClass)},
        panels=(
            Panel(
                Dashboard.SCALING,
                "Trainers by QoS class",
                (("max by (qos) (edl_trainers_by_qos)", "{{qos}}"),),
                "Trainers of class BestEffort request nothing: each counts as one pod and is evicted first.",
                stacked=True,
            ),
        ),
    )
    limits = GaugeMetric(
        "edl_overcommit_ratio",
        "Sum of the limits of bound pods, divided by what nodes have; above 1 it is overcommitted.",
        ("resource", "place"),
        {"resource": COUNTED, "place": _PLACES},
        panels=(
            Panel(
                Dashboard.SCALING,
                "Limits against capacity",
                (("max by (resource, place) (edl_overcommit_ratio)", "{{resource}}, {{place}}"),),
                "Above 100 % the pods may use more than there is. Pods without a limit are not in the sum.",
                "percentunit",
            ),
        ),
    )
    unlimited = GaugeMetric(
        "edl_pods_without_limit",
        "Bound pods that have no limit of a resource, on ready nodes.",
        ("resource",),
        {"resource": COUNTED},
        panels=(
            Panel(
                Dashboard.SCALING,
                "Pods without a limit",
                (("max by (resource) (edl_pods_without_limit)", "{{resource}}"),),
                "Each of them may use all of its node.",
            ),
        ),
    )

    def observed(self, snapshot: ClusterSnapshot, *, leader: bool) -> None:  # noqa: ARG002 - the event has both
        """Count trainers, and add up limits."""
        live: Counter[QosClass] = Counter()
        for job in snapshot.jobs:
            live[job.qos] += len(job.live_trainers)
        for qos in QosClass:
            self.trainers.labels(qos.value).set(live[qos])
        found = overcommit(snapshot)
        for limit in found.cluster:
            worst = found.worst(limit.resource)
            self.limits.labels(limit.resource, "cluster").set(limit.part)
            self.limits.labels(limit.resource, "worst node").set(worst[1].part if worst else 0.0)
            self.unlimited.labels(limit.resource).set(limit.unlimited)
