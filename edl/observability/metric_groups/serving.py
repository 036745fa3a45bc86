"""Serving pods that wait for a node.

A pod for which kube-scheduler preempts trainers waits too, until they have left: that is the usual case.
"""

from __future__ import annotations

from edl.model.cluster import ClusterSnapshot
from edl.model.plan import ScalePlan
from edl.observability.metric_groups.declarations import Dashboard, GaugeMetric, Panel
from edl.observability.metric_groups.events import ControllerMetricGroup


class ServingMetrics(ControllerMetricGroup):
    """Serving pods that wait for capacity."""

    title = "Serving"

    waiting = GaugeMetric(
        "edl_serving_waiting_pods",
        "Serving pods without a node, also those for which kube-scheduler preempts trainers.",
        panels=(
            Panel(
                Dashboard.SCALING,
                "Waiting serving pods now",
                (("max(edl_serving_waiting_pods)", "waiting"), ("max(edl_serving_short_pods)", "short")),
                "Short: no plan can place these pods, even without training.",
                kind="stat",
            ),
        ),
    )
    short = GaugeMetric("edl_serving_short_pods", "Waiting serving pods that no plan can place.")
    unplaceable = GaugeMetric(
        "edl_serving_unplaceable_pods",
        "Waiting serving pods that no eviction helps: a rule keeps them, or they did not use free capacity.",
        panels=(
            Panel(
                Dashboard.SCALING,
                "Waiting serving pods",
                (
                    ("max(edl_serving_waiting_pods)", "waiting"),
                    ("max(edl_serving_short_pods)", "short"),
                    ("max(edl_serving_unplaceable_pods)", "no eviction helps"),
                    ("max(edl_lingering_pods)", "pods that do not end"),
                ),
                "A peak of waiting pods ends once trainers have left.",
            ),
        ),
    )

    lingering = GaugeMetric(
        "edl_lingering_pods",
        "Terminating pods on a node that are overdue or have over ten minutes left; their capacity counts as taken.",
    )

    def observed(self, snapshot: ClusterSnapshot, *, leader: bool) -> None:  # noqa: ARG002 - the event has both
        """Set how many pods wait, and how many do not end."""
        self.waiting.set(len(snapshot.waiting_serving) + len(snapshot.nominated_serving))
        ending = (pod for pod in snapshot.terminating if pod.node and not pod.is_finished)
        self.lingering.set(sum(pod.lingers(snapshot.observed_at_s) for pod in ending))

    def planned(self, snapshot: ClusterSnapshot, plan: ScalePlan) -> None:
        """Set how many waiting pods the plan does not place, and how many it skips as unplaceable."""
        self.short.set(plan.serving.short)
        self.unplaceable.set(sum(pod.unplaceable or bool(pod.blocked) for pod in snapshot.waiting_serving))
