"""The version of a running process."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from edl import __version__
from edl.observability.metric_groups.declarations import Dashboard, GaugeMetric, MetricGroup, Panel


class BuildMetrics(MetricGroup):
    """The version of this process; controllers and masters export it."""

    title = "Versions"

    info = GaugeMetric(
        "edl_build_info",
        "1, with the version as a label.",
        ("version",),
        panels=(
            Panel(
                Dashboard.SCALING,
                "Processes by version",
                (("count by (version) (edl_build_info)", "{{version}}"),),
                "Controllers and masters.",
            ),
        ),
    )

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        self.info.labels(__version__).set(1)
