"""The replicas of the controller: who leads, how plans end, what is written."""

from __future__ import annotations

from typing import get_args

from edl.controller.ports import RoundResult
from edl.model.actions import Action, Outcome, Result
from edl.model.cluster import ClusterSnapshot
from edl.observability.metric_groups.declarations import (
    CounterMetric,
    Dashboard,
    GaugeMetric,
    HistogramMetric,
    Panel,
)
from edl.observability.metric_groups.events import ControllerMetricGroup


class ControllerMetrics(ControllerMetricGroup):
    """The replicas of the controller."""

    title = "Controllers"

    leader = GaugeMetric(
        "edl_leader",
        "1 while this replica leads, else 0.",
        panels=(
            Panel(
                Dashboard.SCALING,
                "Leader",
                (("max(edl_leader)", "leads"),),
                "1 while a replica leads. At 0 no decisions are made.",
                kind="stat",
                columns=8,
            ),
            Panel(
                Dashboard.SCALING,
                "Standby replicas",
                (("count(edl_leader) - sum(edl_leader)", "replicas"),),
                "Replicas that can take over.",
                kind="stat",
                columns=8,
            ),
        ),
    )
    quarantined = GaugeMetric(
        "edl_quarantined_objects",
        "Objects that the controller cannot read and leaves out of every decision.",
        panels=(
            Panel(
                Dashboard.SCALING,
                "Kubernetes objects ignored",
                (("max(edl_quarantined_objects)", "objects"),),
                "Nodes, pods and jobs whose content edl cannot read; it decides without them."
                " The log names each one in a line `object left out`.",
                kind="stat",
                columns=8,
            ),
        ),
    )
    rejected = GaugeMetric(
        "edl_rejected_files",
        "1 while a file of --queues, --tenants or --expect-nodes was changed and cannot be used, else 0.",
        panels=(
            Panel(
                Dashboard.SCALING,
                "Changed files refused",
                (("max(edl_rejected_files)", "refused"),),
                "1 while edl goes on with what the files of --queues, --tenants and --expect-nodes held before."
                " The log names the error in a line `changed files refused`.",
                kind="stat",
                columns=8,
            ),
        ),
    )
    rounds = CounterMetric(
        "edl_rounds_total",
        "Plans of the controller and what came instead of one, by result.",
        ("result",),
        {"result": tuple(result.value for result in RoundResult)},
        panels=(
            Panel(
                Dashboard.SCALING,
                "Plans per minute, by result",
                (("60 * sum by (result) (rate(edl_rounds_total[5m]))", "{{result}}"),),
                "acted: a plan was published; followed: a standby replica; failed: no plan could be made; skipped:"
                " the cluster could not be observed.",
            ),
        ),
    )
    round_seconds = HistogramMetric(
        "edl_round_seconds",
        "From the beginning of a plan until it is published, in seconds.",
        panels=(
            Panel(
                Dashboard.SCALING,
                "Duration of a plan",
                tuple(
                    (f"histogram_quantile({q}, sum by (le) (rate(edl_round_seconds_bucket[5m])))", f"{q:g}")
                    for q in (0.5, 0.95)
                ),
                "Quantiles of the time from the beginning of a plan until it is published.",
                "s",
            ),
        ),
    )
    actions = CounterMetric(
        "edl_actions_total",
        "Writes to the API server, by action and result.",
        ("action", "result"),
        {
            "action": tuple(action.__name__ for action in get_args(Action)),
            "result": tuple(result.value for result in Result),
        },
        panels=(
            Panel(
                Dashboard.SCALING,
                "Writes per minute",
                (("60 * sum by (action, result) (rate(edl_actions_total[5m])) > 0", "{{action}} {{result}}"),),
                "A quiet cluster has none.",
            ),
        ),
    )

    def observed(self, snapshot: ClusterSnapshot, *, leader: bool) -> None:  # noqa: ARG002 - the event has both
        """Set whether this replica is the leader."""
        self.leader.set(leader)

    def observed_again(self, snapshot: ClusterSnapshot, *, leader: bool) -> None:
        """Set whether this replica is the leader."""
        self.observed(snapshot, leader=leader)

    def led(self, *, leads: bool) -> None:
        """Set whether this replica is the leader."""
        self.leader.set(leads)

    def left_out(self, count: int) -> None:
        """Set how many objects cannot be read."""
        self.quarantined.set(count)

    def rejected_files(self, count: int) -> None:
        """Set whether changed files cannot be used."""
        self.rejected.set(count)

    def acted(self, outcome: Outcome) -> None:
        """Count a write."""
        self.actions.labels(type(outcome.action).__name__, outcome.result.value).inc()

    def ended(self, result: RoundResult, seconds: float) -> None:
        """Count a plan, or what came instead of it."""
        self.rounds.labels(result.value).inc()
        self.round_seconds.observe(seconds)
