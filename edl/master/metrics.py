"""The metrics of a master: its calls, its journal, and where the positions of the open epoch are."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from edl.ledger.events import Replied
from edl.observability.metric_groups.build import BuildMetrics
from edl.observability.metric_groups.declarations import (
    SELECTED_JOB,
    CounterMetric,
    Dashboard,
    GaugeMetric,
    HistogramMetric,
    MetricGroup,
    Panel,
)

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
_PLACES = ("todo", "leased", "reported", "committed", "quarantined")


class MasterMetrics(MetricGroup):
    """Every metric of a master; Prometheus adds the labels `namespace` and `job` of its pod."""

    title = "Data"

    sessions = GaugeMetric(
        "edl_master_sessions",
        "Trainers that made a call within one lease TTL.",
        panels=(
            Panel(
                Dashboard.JOB,
                "Trainers that call the master",
                ((f"max(edl_master_sessions{{{SELECTED_JOB}}})", "trainers"),),
                "Trainers that made a call within one lease TTL.",
            ),
        ),
    )
    positions = GaugeMetric(
        "edl_master_positions",
        "Positions of the open epoch, by place.",
        ("place",),
        {"place": _PLACES},
        panels=(
            Panel(
                Dashboard.JOB,
                "Positions of the open epoch",
                ((f"max by (place) (edl_master_positions{{{SELECTED_JOB}}})", "{{place}}"),),
                "todo: nobody has a lease; quarantined: left out after repeated failures.",
                stacked=True,
            ),
        ),
    )
    redispatched = GaugeMetric(
        "edl_master_redispatched_positions",
        "Positions of the open epoch that were leased and came back undone; each return counts.",
        panels=(
            Panel(
                Dashboard.JOB,
                "Positions dispatched again",
                ((f"max(edl_master_redispatched_positions{{{SELECTED_JOB}}})", "positions"),),
                "Their trainers were killed or lost their leases. Each position still counts once.",
            ),
        ),
    )
    epoch = GaugeMetric(
        "edl_master_epoch",
        "The open epoch, counted from 0.",
        panels=(
            Panel(
                Dashboard.JOB,
                "Epoch",
                ((f"max(edl_master_epoch{{{SELECTED_JOB}}})", "epoch"),),
                "Counted from 0.",
                kind="stat",
                columns=8,
            ),
        ),
    )
    blocked = GaugeMetric(
        "edl_master_journal_blocked",
        "1 while the journal cannot be written because the disk is full, else 0.",
        panels=(
            Panel(
                Dashboard.JOB,
                "Journal blocked",
                ((f"max(edl_master_journal_blocked{{{SELECTED_JOB}}})", "blocked"),),
                "1 while the disk is full. Training is paused until there is space.",
                kind="stat",
                columns=8,
            ),
        ),
    )
    hung = GaugeMetric(
        "edl_master_hung_trainers",
        "Trainers in step that hang: the others went on without them, and their processes are still there.",
        panels=(
            Panel(
                Dashboard.JOB,
                "Trainers that hang",
                ((f"max(edl_master_hung_trainers{{{SELECTED_JOB}}})", "trainers"),),
                "Condition Degraded names them. edl replaces a trainer that hangs for 120 s.",
                kind="stat",
                columns=8,
            ),
        ),
    )
    records = GaugeMetric(
        "edl_master_journal_records",
        "Records in the journal.",
        panels=(
            Panel(
                Dashboard.JOB,
                "Records in the journal",
                ((f"max(edl_master_journal_records{{{SELECTED_JOB}}})", "records"),),
                kind="stat",
                columns=8,
            ),
        ),
    )
    leases = CounterMetric("edl_master_leases_total", "Granted leases.")
    reports = CounterMetric(
        "edl_master_reports_total",
        "Reported leases, by result.",
        ("result",),
        {"result": ("accepted", "duplicate", "stale")},
        panels=(
            Panel(
                Dashboard.JOB,
                "Leases per second",
                (
                    (f"sum(rate(edl_master_leases_total{{{SELECTED_JOB}}}[5m]))", "granted"),
                    (f"sum by (result) (rate(edl_master_reports_total{{{SELECTED_JOB}}}[5m]))", "{{result}}"),
                ),
                "stale: the trainer reported after its lease had ended; the report does not count, and another"
                " trainer may have got the records.",
            ),
        ),
    )
    calls = CounterMetric(
        "edl_master_calls_total",
        "HTTP calls, by route and status code.",
        ("route", "code"),
        panels=(
            Panel(
                Dashboard.JOB,
                "Calls per second",
                (
                    (
                        f"sum by (route, code) (rate(edl_master_calls_total{{{SELECTED_JOB}}}[5m]))",
                        "{{route}} {{code}}",
                    ),
                ),
            ),
        ),
    )
    call_seconds = HistogramMetric(
        "edl_master_call_seconds",
        "Duration of an HTTP call.",
        ("route",),
        buckets=_SECONDS,
        panels=(
            Panel(
                Dashboard.JOB,
                "Duration of a call, 0.95 quantile",
                (
                    (
                        "histogram_quantile(0.95, sum by (le, route)"
                        f" (rate(edl_master_call_seconds_bucket{{{SELECTED_JOB}}}[5m])))",
                        "{{route}}",
                    ),
                ),
                "A sync call that waits for work takes as long as it waits.",
                "s",
            ),
        ),
    )

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        super().__init__(self.registry)
        BuildMetrics(self.registry)

    def count_call(self, route: str, status: int, seconds: float) -> None:
        """Count one answered call."""
        self.calls.labels(route, str(status)).inc()
        self.call_seconds.labels(route).observe(seconds)

    def count_reply(self, reply: Replied) -> None:
        """Count the results and the leases of one sync reply."""
        for result in reply.results:
            self.reports.labels(result).inc()
        if reply.leases:
            self.leases.inc(len(reply.leases))

    def render(self, status: dict[str, Any]) -> bytes:
        """The page for Prometheus.

        Args:
            status: the body of `GET /v1/status`.
        """
        for place in _PLACES:
            self.positions.labels(place).set(status[place])
        self.redispatched.set(status["redispatched"])
        self.epoch.set(status["epoch"])
        self.sessions.set(status["sessions"]["live"])
        self.records.set(status["records"])
        self.blocked.set(status["blocked"] is not None)
        self.hung.set(len((status["group"] or {"hung": ()})["hung"]))
        return generate_latest(self.registry)
