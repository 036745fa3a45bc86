"""What Prometheus scrapes from a master: its calls, and where the positions of the open epoch stand."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from edl import __version__
from edl.ledger.events import Replied

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
PLACES = ("todo", "leased", "reported", "committed", "quarantined")


class MasterMetrics:
    """Every metric of a master."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._calls = Counter("edl_master_calls", "Calls by route and status.", ("route", "code"), registry=registry)
        self._seconds = Histogram(
            "edl_master_call_seconds", "Time of a call.", ("route",), buckets=_SECONDS, registry=registry
        )
        self._reports = Counter("edl_master_reports", "Reported leases by result.", ("result",), registry=registry)
        self._granted = Counter("edl_master_leases", "Leases granted.", registry=registry)
        self._positions = Gauge("edl_master_positions", "Positions of the epoch.", ("place",), registry=registry)
        self._epoch = Gauge("edl_master_epoch", "The open epoch, from 0.", registry=registry)
        self._sessions = Gauge("edl_master_sessions", "Trainers heard within a TTL.", registry=registry)
        self._records = Gauge("edl_master_journal_records", "Records of the journal.", registry=registry)
        self._blocked = Gauge("edl_master_journal_blocked", "1 while the disk is full.", registry=registry)
        Gauge("edl_build_info", "1, with the version.", ("version",), registry=registry).labels(__version__).set(1)

    def answered(self, route: str, status: int, seconds: float) -> None:
        """A call was answered."""
        self._calls.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def synced(self, reply: Replied) -> None:
        """A trainer was told something."""
        for result in reply.results:
            self._reports.labels(result).inc()
        if reply.leases:
            self._granted.inc(len(reply.leases))

    def render(self, status: dict[str, Any]) -> bytes:
        """The page, with what the status says."""
        for place in PLACES:
            self._positions.labels(place).set(status[place])
        self._epoch.set(status["epoch"])
        self._sessions.set(status["sessions"]["live"])
        self._records.set(status["records"])
        self._blocked.set(status["blocked"] is not None)
        return generate_latest(self.registry)
