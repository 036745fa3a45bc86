"""The events that the metrics of the controller are set by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import ClassVar, TypeVar

from prometheus_client import Counter, Gauge

from edl.controller.ports import RoundResult
from edl.errors import PlanFailure
from edl.model.actions import Outcome
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.plan import ScaleDecision, ScalePlan
from edl.model.queues import Queue, QueueStatus
from edl.observability.metric_groups.declarations import MetricGroup

PART_OF_JOBS, PART_OF_PODS = 300, 10_000
"""So many jobs or pods are reported before anything else may be done: some 10 ms."""

T = TypeVar("T")


def parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The items a part at a time."""
    for begin in range(0, len(items), size):
        yield items[begin : begin + size]


def remove_series(metric: Counter | Gauge, *values: str) -> None:
    """Remove the series with these values of the labels, if there is one; by the others it is not looked for."""
    with suppress(KeyError):
        metric.remove(*values)


class ControllerMetricGroup(MetricGroup):
    """A group of controller metrics; a subclass overrides the events that change its metrics.

    Attributes:
        is_sum: it only adds up what a snapshot shows, which is done in a thread once somebody asks for the page.
    """

    is_sum: ClassVar[bool] = False

    def observed(self, snapshot: ClusterSnapshot, *, leader: bool) -> None:
        """A snapshot was taken; `leader` is True if this replica leads."""

    def observing(self, snapshot: ClusterSnapshot, *, leader: bool) -> Iterator[None]:
        """The same a part at a time; see `ObservesInParts`."""
        self.observed(snapshot, leader=leader)
        yield

    def observed_again(self, snapshot: ClusterSnapshot, *, leader: bool) -> None:
        """The same, if nothing in the cluster has changed since the last snapshot: set only what time changes."""

    def limited(self, limits: Limits) -> None:
        """The next plan keeps these limits."""

    def planned(self, snapshot: ClusterSnapshot, plan: ScalePlan) -> None:
        """Count a plan that has passed its checks; `plan.fallback` is set if it is a fallback plan."""

    def planning(self, snapshot: ClusterSnapshot, plan: ScalePlan) -> Iterator[None]:
        """The same a part at a time; a group that has a metric of each job overrides this instead of `planned`."""
        self.planned(snapshot, plan)
        yield

    def evicted_early(self, snapshot: ClusterSnapshot) -> None:
        """Capacity is made for waiting serving pods ahead of a plan."""

    def decided(self, decision: ScaleDecision) -> None:
        """The decision about one job changed, or deletes or moves pods."""

    def not_planned(self, failure: PlanFailure) -> None:
        """No plan could be made, or it broke a rule."""

    def acted(self, outcome: Outcome) -> None:
        """A write was carried out or refused."""

    def queued(self, queues: Sequence[Queue], statuses: Mapping[str, QueueStatus]) -> None:
        """The queues, and what a plan gives each of them, by name."""

    def ended(self, result: RoundResult, seconds: float) -> None:
        """A plan ended, or there was none to make."""

    def left_out(self, count: int) -> None:
        """Set the number of objects that edl cannot read."""

    def rejected_files(self, count: int) -> None:
        """Changed files of flags were refused (1), or are in force (0)."""

    def led(self, *, leads: bool) -> None:
        """This replica started to lead, or stopped."""


class ObservesInParts(ControllerMetricGroup):
    """A group that looks at each job or pod: a subclass overrides `observing`."""

    def observed(self, snapshot: ClusterSnapshot, *, leader: bool) -> None:
        """See `ControllerMetricGroup.observed`."""
        for _ in self.observing(snapshot, leader=leader):
            pass
