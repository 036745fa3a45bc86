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
"""The number of jobs, and of pods, to report before other tasks may run, which takes about 10 ms."""

T = TypeVar("T")


def parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield items in groups of limited size, so that other tasks may run in between."""
    for begin in range(0, len(items), size):
        yield items[begin : begin + size]


def remove_series(metric: Counter | Gauge, *values: str) -> None:
    """Remove the series with these values of the labels, if it exists."""
    with suppress(KeyError):
        metric.remove(*values)


class ControllerMetricGroup(MetricGroup):
    """A group of controller metrics; a subclass overrides the events that change its metrics.

    Attributes:
        is_sum: it only adds up what a snapshot shows, which is done in a thread once somebody asks for the page.
    """

    is_sum: ClassVar[bool] = False

    def observed(self, snapshot: ClusterSnapshot, *, leader: bool) -> None:
        """Called after a snapshot was taken; `leader` is True if this replica leads."""

    def observing(self, snapshot: ClusterSnapshot, *, leader: bool) -> Iterator[None]:
        """Called in place of `observed` for groups that handle a snapshot in parts; see `ObservesInParts`."""
        self.observed(snapshot, leader=leader)
        yield

    def observed_again(self, snapshot: ClusterSnapshot, *, leader: bool) -> None:
        """Called in place of `observed` if nothing in the cluster has changed: set only what depends on the time."""

    def limited(self, limits: Limits) -> None:
        """Called with the limits that the next plan keeps."""

    def planned(self, snapshot: ClusterSnapshot, plan: ScalePlan) -> None:
        """Called after a plan has passed its checks; `plan.fallback` is set if it is a fallback plan."""

    def planning(self, snapshot: ClusterSnapshot, plan: ScalePlan) -> Iterator[None]:
        """Called after a plan, in parts: a group with a metric for each job overrides this in place of `planned`."""
        self.planned(snapshot, plan)
        yield

    def evicted_early(self, snapshot: ClusterSnapshot) -> None:
        """Called when trainers are evicted for waiting serving pods ahead of a plan."""

    def decided(self, decision: ScaleDecision) -> None:
        """Called if the decision about one job changes, or deletes or moves pods."""

    def not_planned(self, failure: PlanFailure) -> None:
        """Called if no plan could be made, or if the plan broke a rule."""

    def acted(self, outcome: Outcome) -> None:
        """Called after a write was carried out or rejected."""

    def queued(self, queues: Sequence[Queue], statuses: Mapping[str, QueueStatus]) -> None:
        """Called after a plan with the status of each queue, by name."""

    def ended(self, result: RoundResult, seconds: float) -> None:
        """Called after a plan has ended, or if there was none to make."""

    def left_out(self, count: int) -> None:
        """Called with the number of objects that edl cannot read."""

    def rejected_files(self, count: int) -> None:
        """Called after files of flags were read again: 1 if changed files are rejected, 0 if all are in force."""

    def led(self, *, leads: bool) -> None:
        """Called when this replica begins or ceases to lead."""


class ObservesInParts(ControllerMetricGroup):
    """A group that looks at each job or pod: a subclass overrides `observing`."""

    def observed(self, snapshot: ClusterSnapshot, *, leader: bool) -> None:
        """Handle a snapshot in one go, by all parts of `observing`."""
        for _ in self.observing(snapshot, leader=leader):
            pass
