"""The capacity that `--serving-headroom` keeps free: how many pods it is for, and for how many it suffices now."""

from __future__ import annotations

from collections.abc import Iterable

from edl.model.cluster import ClusterSnapshot, Node
from edl.model.limits import Limits
from edl.model.plan import ScalePlan
from edl.model.resources import PodShape, Resources
from edl.observability.metric_groups.declarations import Dashboard, GaugeMetric, Panel
from edl.observability.metric_groups.events import ControllerMetricGroup
from edl.planner.eligibility import takes

_STATES = ("wanted", "held")


class HeadroomMetrics(ControllerMetricGroup):
    """Capacity kept free for serving pods that do not exist yet."""

    title = "Headroom"
    is_sum = True

    pods = GaugeMetric(
        "edl_headroom_pods",
        "Serving pods for which --serving-headroom keeps capacity (wanted), and those that would fit now (held);"
        " each shape is judged alone.",
        ("state",),
        {"state": _STATES},
        panels=(
            Panel(
                Dashboard.SCALING,
                "Headroom for serving",
                (
                    ('max(edl_headroom_pods{state="held"})', "held"),
                    ('max(edl_headroom_pods{state="wanted"}) - max(edl_headroom_pods{state="held"})', "used"),
                ),
                "Used: serving pods have taken it, and training has not given it back yet.",
                stacked=True,
            ),
        ),
    )

    def planned(self, snapshot: ClusterSnapshot, plan: ScalePlan) -> None:  # noqa: ARG002 - the event has both
        """Note for how many serving pods the plan keeps capacity; the gauges show the last plan."""
        self._planned = snapshot

    def observed(self, snapshot: ClusterSnapshot, *, leader: bool) -> None:  # noqa: ARG002 - the event has both
        """Set for how many pods capacity is kept, and for how many it suffices now."""
        planned, self._planned = self._planned, None
        if planned is not None:
            self._count(planned)

    def observed_again(self, snapshot: ClusterSnapshot, *, leader: bool) -> None:
        """Set both gauges again, because the plan may be another one."""
        self.observed(snapshot, leader=leader)

    def _count(self, snapshot: ClusterSnapshot) -> None:
        serving = (pod for pod in snapshot.pods if pod.is_live and pod.priority >= 0 and not pod.daemon)
        wanted = {pod.shape: self._wanted for pod in serving} if self._wanted else {}
        wanted |= {learned.shape: learned.pods for learned in snapshot.headroom}
        free = _free(snapshot) if wanted else {}
        held = sum(_fitting(shape, snapshot.nodes, free, pods) for shape, pods in wanted.items())
        self.pods.labels("wanted").set(sum(wanted.values()))
        self.pods.labels("held").set(held)

    def limited(self, limits: Limits) -> None:
        """Note for how many pods of each shape the operator wants capacity."""
        self._wanted = limits.serving.headroom

    _wanted = 0
    _planned: ClusterSnapshot | None = None


def _free(snapshot: ClusterSnapshot) -> dict[str, Resources]:
    """By node, the capacity that no pod on it requests."""
    free = {node.name: node.allocatable - node.reserved for node in snapshot.nodes}
    for pod in (*snapshot.pods, *(pod for job in snapshot.jobs for pod in job.pods)):
        if pod.node in free and not pod.is_finished:
            free[pod.node] -= pod.requested
    return free


def _fitting(shape: PodShape, nodes: Iterable[Node], free: dict[str, Resources], most: int) -> int:
    """How many pods of a shape fit, at most `most`."""
    found = 0
    for node in nodes:
        capacity = free[node.name]
        if shape.request.fits(capacity) and takes(node, shape.placement):
            found += min(capacity[name] // amount for name, amount in shape.request.amounts if amount)
        if found >= most:
            return most
    return found
