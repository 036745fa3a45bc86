"""The Prometheus metrics of a master: its calls, and the positions of the open epoch."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from edl import __version__
from edl.ledger.events import Replied

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
PLACES = ("todo", "leased", "reported", "committed", "quarantined")


class MasterMetrics:
    """Every metric of a master.

    Attributes:
        registry: the metrics, for Prometheus.
    """

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._calls = Counter(
            "edl_master_calls", "HTTP calls by route and status code.", ("route", "code"), registry=registry
        )
        self._seconds = Histogram(
            "edl_master_call_seconds", "Duration of an HTTP call.", ("route",), buckets=_SECONDS, registry=registry
        )
        self._reports = Counter("edl_master_reports", "Reported leases by result.", ("result",), registry=registry)
        self._granted = Counter("edl_master_leases", "Granted leases.", registry=registry)
        self._positions = Gauge(
            "edl_master_positions", "Positions of the open epoch by place.", ("place",), registry=registry
        )
        self._epoch = Gauge("edl_master_epoch", "The open epoch, counted from 0.", registry=registry)
        self._sessions = Gauge(
            "edl_master_sessions", "Sessions of trainers that made a call within one lease TTL.", registry=registry
        )
        self._records = Gauge("edl_master_journal_records", "Records in the journal.", registry=registry)
        self._blocked = Gauge(
            "edl_master_journal_blocked",
            "1 if the journal cannot be written because the disk is full.",
            registry=registry,
        )
        Gauge(
            "edl_build_info", "Always 1; the label names the version of edl.", ("version",), registry=registry
        ).labels(__version__).set(1)

    def count_call(self, route: str, status: int, seconds: float) -> None:
        """Count one answered call."""
        self._calls.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def count_reply(self, reply: Replied) -> None:
        """Count the results and the leases of one sync reply."""
        for result in reply.results:
            self._reports.labels(result).inc()
        if reply.leases:
            self._granted.inc(len(reply.leases))

    def render(self, status: dict[str, Any]) -> bytes:
        """The page for Prometheus.

        Args:
            status: the body of `GET /v1/status`.
        """
        for place in PLACES:
            self._positions.labels(place).set(status[place])
        self._epoch.set(status["epoch"])
        self._sessions.set(status["sessions"]["live"])
        self._records.set(status["records"])
        self._blocked.set(status["blocked"] is not None)
        return generate_latest(self.registry)
