"""CPU that trainers lend to serving: how much they offer, how much serving uses, and how many trainers it slows."""

from __future__ import annotations

from collections import Counter

from edl.model.cluster import ClusterSnapshot
from edl.model.plan import ScalePlan
from edl.model.resources import CPU
from edl.observability.metric_groups.declarations import (
    JOB_LABELS,
    SELECTED_NAMESPACES,
    Dashboard,
    GaugeMetric,
    Panel,
)
from edl.observability.metric_groups.events import ControllerMetricGroup

_STATES = ("offered", "used")
_MILLI = 1000


class LendingMetrics(ControllerMetricGroup):
    """CPU that trainers declare and do not request, and what serving makes of it."""

    title = "Lending"
    is_sum = True

    cpu = GaugeMetric(
        "edl_lent_cpu_cores",
        "CPU that trainers declare and do not request (offered), and the part that other pods request (used).",
        ("state",),
        {"state": _STATES},
        panels=(
            Panel(
                Dashboard.SCALING,
                "CPU that trainers lend",
                (
                    ('max(edl_lent_cpu_cores{state="offered"})', "offered"),
                    ('max(edl_lent_cpu_cores{state="used"})', "used"),
                ),
                "Serving uses lent CPU at once; trainers there are slow until serving leaves or edl clears the node.",
            ),
        ),
    )
    declared_cpu = GaugeMetric(
        "edl_cluster_declared_cpu_cores",
        "CPU that bound pods declare: what they request and what trainers lend.",
        panels=(
            Panel(
                Dashboard.SCALING,
                "CPU requested and declared",
                (
                    ('sum(max by (use) (edl_cluster_requested{resource="cpu"}))', "requested"),
                    ("max(edl_cluster_declared_cpu_cores)", "declared"),
                    ('max(edl_cluster_allocatable{resource="cpu"})', "capacity"),
                ),
                "kube-scheduler counts requests. edl counts what trainers declare.",
            ),
        ),
    )
    slowed = GaugeMetric(
        "edl_slowed_trainers",
        "Trainers that lend CPU on a node whose pods declare more than it has.",
        panels=(
            Panel(
                Dashboard.SCALING,
                "Trainers that serving slows",
                (("max(edl_slowed_trainers)", "slowed"),),
                "They are deleted or start elsewhere after --clear-lending-after-s.",
            ),
        ),
    )

    price = GaugeMetric(
        "edl_job_lending_price",
        "Cores' worth of speed that a job loses for each core that slowed trainers lend; no series until measured.",
        JOB_LABELS,
        panels=(
            Panel(
                Dashboard.SCALING,
                "Price of lending, by job",
                (
                    (
                        f"max by (namespace, job) (edl_job_lending_price{{{SELECTED_NAMESPACES}}})",
                        "{{namespace}}/{{job}}",
                    ),
                ),
                "1 is what a core trains. Nodes where it is high are cleared first.",
            ),
        ),
    )

    def observed(self, snapshot: ClusterSnapshot, *, leader: bool) -> None:  # noqa: ARG002 - the event has both
        """Set what is offered, used and declared."""
        declared: Counter[str] = Counter()
        offered: Counter[str] = Counter()
        for pod in (*snapshot.pods, *(pod for job in snapshot.jobs for pod in job.pods)):
            if pod.node and not pod.is_finished:
                declared[pod.node] += pod.shape.request[CPU]
                offered[pod.node] += pod.lent_cpu_milli
        nodes = [node for node in snapshot.nodes if offered[node.name]]
        used = sum(min(offered[node.name], max(0, declared[node.name] - node.allocatable[CPU])) for node in nodes)
        self.declared_cpu.set(declared.total() / _MILLI)
        self.cpu.labels("offered").set(offered.total() / _MILLI)
        self.cpu.labels("used").set(used / _MILLI)
        self.price.clear()
        for job in snapshot.jobs:
            price = job.status.measured.lending_price if job.status is not None else None
            if price is not None and not job.finished:
                self.price.labels(*job.key).set(price)

    def planned(self, snapshot: ClusterSnapshot, plan: ScalePlan) -> None:  # noqa: ARG002 - the event has both
        """Set how many trainers are slow."""
        self.slowed.set(sum(decision.slowed for decision in plan.decisions))
