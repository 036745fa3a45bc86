"""How a metric is declared: its name, its help text, its labels, and the Grafana panels that show it.

A metric and its panels are declared together in the class that also sets the metric (a `MetricGroup`). The registry,
the dashboards and the reference tables in docs/ are made from these declarations, so no other file lists metrics.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import product
from math import inf, prod
from typing import Any, ClassVar, Generic, Self, TypeVar, cast, overload

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

C = TypeVar("C", Gauge, Counter, Histogram)

JOB_LABELS = ("namespace", "job")
SELECTED_JOB = 'namespace="$namespace", job="$job"'
"""Matchers for the job that is selected in the job dashboard."""
SELECTED_NAMESPACES = 'namespace=~"$namespace"'
"""Matcher for the namespaces that are selected in the scaling dashboard."""

LABELS_WITHOUT_LIST = {
    "namespace": "",
    "job": "jobs",
    "resource": "resources of nodes",
    "queue": "queues",
    "reason": "reasons",
    "action": "kinds of writes",
    "route": "routes",
    "code": "status codes",
    "version": "",
}
"""Label whose values differ between clusters or are many -> what bounds their number; empty if it adds none."""


BASE_UNITS = {"cpu": 1000}
"""By resource, how many units of the model are one unit of the metric, if more than one."""


class Dashboard(StrEnum):
    """A dashboard, by its file in deploy/grafana."""

    SCALING = "scaling-decisions.json"
    JOB = "job.json"


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel of a dashboard.

    Attributes:
        title: short, unique in its dashboard.
        queries: (PromQL, legend); a legend may contain labels as Grafana writes them: `{{label}}`.
        description: what a reader learns from the panel; empty if the title says it all.
        unit: as Grafana names it.
        kind: type of the panel in Grafana.
        columns: width; a dashboard has 24 columns.
        stacked: True if the values add up.
    """

    dashboard: Dashboard
    title: str
    queries: tuple[tuple[str, str], ...]
    description: str = ""
    unit: str = "short"
    kind: str = "timeseries"
    columns: int = 12
    stacked: bool = False


@dataclass(frozen=True)
class Metric(ABC, Generic[C]):
    """One metric; use GaugeMetric, CounterMetric or HistogramMetric.

    Attributes:
        name: as Prometheus shows it: a counter ends in `_total`; a histogram has no suffix.
        help: one sentence for the page /metrics and the reference table.
        labels: names of the labels, in order.
        values: label -> all its values, if they are few and the same in every cluster. A counter or histogram whose
            labels all have such a list has its series from the start: a rate does not see the event that creates one.
        describing: labels that describe the one series of the other labels, and so add none.
        panels: the panels that show it; a panel with several metrics is declared with one of them.
    """

    name: str
    help: str
    labels: tuple[str, ...] = ()
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    panels: tuple[Panel, ...] = ()
    describing: tuple[str, ...] = ()

    kind: ClassVar[str]

    @abstractmethod
    def create(self, registry: CollectorRegistry) -> C:
        """Create the collector that holds the values."""

    @property
    def series(self) -> tuple[str, ...]:
        """The names of the metric's time series in Prometheus."""
        return (self.name,)

    @property
    def samples(self) -> int:
        """How many time series each set of labels has."""
        return 1

    @property
    def most_series(self) -> str:
        """How many time series a process exports at most: a number, times the bounds of labels without a list."""
        values: Mapping[str, tuple[str, ...]] = self.values
        counting = [label for label in self.labels if label not in self.describing]
        number: int = self.samples * prod(len(values[label]) for label in counting if label in values)
        named = [LABELS_WITHOUT_LIST[label] for label in counting if label not in values]
        parts: list[str] = [name for name in named if name]
        return " x ".join(parts if parts and number == 1 else [*parts, str(number)])

    def _begin(self, collector: Counter | Histogram) -> None:
        """Create every series now, if all of them are known."""
        if self.labels and set(self.labels) <= set(self.values):
            for values in product(*(self.values[label] for label in self.labels)):
                collector.labels(*values)

    @overload
    def __get__(self, group: None, owner: type[MetricGroup]) -> Self: ...

    @overload
    def __get__(self, group: MetricGroup, owner: type[MetricGroup]) -> C: ...

    def __get__(self, group: MetricGroup | None, owner: type[MetricGroup]) -> Self | C:
        """The declaration if read from the class, the collector if read from an instance."""
        return self if group is None else cast("C", group.collectors[self.name])


@dataclass(frozen=True)
class GaugeMetric(Metric[Gauge]):
    """A value that goes up and down."""

    kind: ClassVar[str] = "gauge"

    def create(self, registry: CollectorRegistry) -> Gauge:
        """Create the collector that holds the values."""
        return Gauge(self.name, self.help, self.labels, registry=registry)


@dataclass(frozen=True)
class CounterMetric(Metric[Counter]):
    """A number of events."""

    kind: ClassVar[str] = "counter"

    @property
    def samples(self) -> int:
        """How many time series each set of labels has: the count and the time of creation."""
        return 2

    def create(self, registry: CollectorRegistry) -> Counter:
        """Create the collector that holds the values."""
        counter = Counter(self.name, self.help, self.labels, registry=registry)
        self._begin(counter)
        return counter


@dataclass(frozen=True)
class HistogramMetric(Metric[Histogram]):
    """Durations or sizes, counted by bucket.

    Attributes:
        buckets: upper bounds, ascending.
    """

    buckets: tuple[float, ...] = Histogram.DEFAULT_BUCKETS
    kind: ClassVar[str] = "histogram"

    def create(self, registry: CollectorRegistry) -> Histogram:
        """Create the collector that holds the values."""
        histogram = Histogram(self.name, self.help, self.labels, buckets=self.buckets, registry=registry)
        self._begin(histogram)
        return histogram

    @property
    def samples(self) -> int:
        """How many time series each set of labels has: all buckets, the count, the sum and the time of creation."""
        return len([bound for bound in self.buckets if bound != inf]) + 4

    @property
    def series(self) -> tuple[str, ...]:
        """The names of the metric's time series in Prometheus."""
        return tuple(self.name + suffix for suffix in ("_bucket", "_count", "_sum"))


class MetricGroup:
    """The metrics about one subject: class attributes declare them, methods set them.

    Attributes:
        title: heading of its panels in a dashboard.
        collectors: by name of the metric; read a metric as an attribute instead.
    """

    title: ClassVar[str]

    def __init__(self, registry: CollectorRegistry) -> None:
        self.collectors = {metric.name: metric.create(registry) for metric in self.declared()}

    @classmethod
    def declared(cls) -> tuple[Metric[Any], ...]:
        """The metrics of the group, in the order of their declaration."""
        return tuple(value for value in vars(cls).values() if isinstance(value, Metric))
