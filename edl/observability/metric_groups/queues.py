"""What each Queue object owns, may use, uses and borrows, and how many of its jobs wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edl.model.queues import Queue, QueueStatus
from edl.observability.metric_groups.declarations import BASE_UNITS, Dashboard, GaugeMetric, Panel
from edl.observability.metric_groups.events import ControllerMetricGroup

_STATES = ("nominal", "share", "used", "borrowed")


class QueueMetrics(ControllerMetricGroup):
    """Queue objects, and ClusterQueues whose jobs edl sizes; limits of the file of --queues are not shown."""

    title = "Queues"

    resources = GaugeMetric(
        "edl_queue_resources",
        "What a queue owns (nominal), may use (share), uses, and uses beyond its own (borrowed), in base units.",
        ("queue", "resource", "state"),
        {"state": _STATES},
        panels=(
            Panel(
                Dashboard.SCALING,
                "Queues",
                (
                    (
                        'max by (queue, state) (edl_queue_resources{resource="$resource",state=~"used|share"})',
                        "{{queue}}: {{state}}",
                    ),
                ),
                "What the jobs of each Queue object use of the chosen resource, and what they may use now.",
            ),
            Panel(
                Dashboard.SCALING,
                "Borrowed by queues",
                (
                    (
                        'max by (queue) (edl_queue_resources{resource="$resource",state="borrowed"})',
                        "{{queue}}",
                    ),
                ),
                "What each queue uses beyond its own; its owner gets it back when it needs it.",
            ),
        ),
    )
    jobs = GaugeMetric(
        "edl_queue_jobs",
        "Jobs of a queue that are admitted (running) and that wait (pending).",
        ("queue", "state"),
        {"state": ("running", "pending")},
        panels=(
            Panel(
                Dashboard.SCALING,
                "Jobs that wait, by queue",
                (('max by (queue) (edl_queue_jobs{state="pending"})', "{{queue}}"),),
                "`kubectl get queues` says what holds the capacity.",
            ),
        ),
    )

    def queued(self, queues: Sequence[Queue], statuses: Mapping[str, QueueStatus]) -> None:
        """Set all of them; a queue that was deleted is no longer shown."""
        self.resources.clear()
        self.jobs.clear()
        for queue in queues:
            status = statuses[queue.name]
            borrowed = dict.fromkeys(dict(queue.nominal), 0) | dict(status.borrowed)
            amounts = (queue.nominal, status.share, status.used, tuple(borrowed.items()))
            for state, found in zip(_STATES, amounts, strict=True):
                for resource, amount in found:
                    self.resources.labels(queue.name, resource, state).set(amount / BASE_UNITS.get(resource, 1))
            self.jobs.labels(queue.name, "running").set(status.running)
            self.jobs.labels(queue.name, "pending").set(status.pending)
