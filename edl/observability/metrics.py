"""The metrics of one controller: a registry of its own, and the events that set the metrics.

`metric_groups` declares the metrics. They are labelled by namespace and job, never by pod, UID or free text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, generate_latest

from edl.controller.ports import RoundResult
from edl.errors import PlanFailure
from edl.model.actions import Outcome
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.plan import ScaleDecision, ScalePlan
from edl.model.queues import Queue, QueueStatus
from edl.observability.metric_groups.broken_nodes import BrokenNodeMetrics
from edl.observability.metric_groups.build import BuildMetrics
from edl.observability.metric_groups.capacity import CapacityMetrics
from edl.observability.metric_groups.controllers import ControllerMetrics
from edl.observability.metric_groups.events import ControllerMetricGroup
from edl.observability.metric_groups.headroom import HeadroomMetrics
from edl.observability.metric_groups.jobs import JobMetrics
from edl.observability.metric_groups.lending import LendingMetrics
from edl.observability.metric_groups.nodes import NodeMetrics
from edl.observability.metric_groups.plans import PlanMetrics
from edl.observability.metric_groups.progress import ProgressMetrics
from edl.observability.metric_groups.queues import QueueMetrics
from edl.observability.metric_groups.resizing import ResizeMetrics
from edl.observability.metric_groups.serving import ServingMetrics
from edl.observability.metric_groups.tiers import TierMetrics
from edl.observability.metric_groups.waits import WaitMetrics

CONTROLLER_GROUPS = (
    ControllerMetrics,
    ServingMetrics,
    WaitMetrics,
    HeadroomMetrics,
    LendingMetrics,
    BrokenNodeMetrics,
    JobMetrics,
    QueueMetrics,
    NodeMetrics,
    ProgressMetrics,
    ResizeMetrics,
    CapacityMetrics,
    TierMetrics,
    PlanMetrics,
)
"""The groups of metrics in the order of the dashboards."""


class Metrics:
    """Every metric of a controller; each method reports an event to all groups (see `metric_groups.events`).

    On a large cluster the sums over all pods take as long as a decision, and many plans may follow each other. So
    they are made when somebody asks for the page, from the last snapshot.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._groups = tuple(group(self.registry) for group in CONTROLLER_GROUPS)
        self._prompt = tuple(group for group in self._groups if not group.is_sum)
        self._sums = tuple(group for group in self._groups if group.is_sum)
        BuildMetrics(self.registry)
        self._last: tuple[ClusterSnapshot, bool] | None = None
        self._last_summed: ClusterSnapshot | None = None
        self._rendering = asyncio.Lock()

    def render(self) -> bytes:
        """The metrics in the text format that Prometheus scrapes."""
        self._sum()
        return generate_latest(self.registry)

    async def page(self) -> bytes:
        """Render the metrics in a thread, one call at a time: on a large cluster it takes half a second."""
        async with self._rendering:
            return await asyncio.to_thread(self.render)

    def observed(self, snapshot: ClusterSnapshot, *, leader: bool) -> None:
        """Set the gauges from a new snapshot, unless the cluster is unchanged."""
        for _ in self.observing(snapshot, leader=leader):
            pass

    def observing(self, snapshot: ClusterSnapshot, *, leader: bool) -> Iterator[None]:
        """Set the gauges from a new snapshot in parts, so that other tasks may run in between on a large cluster."""
        before = self._last[0] if self._last is not None else None
        self._last = (snapshot, leader)
        yield from _observing(self._prompt, snapshot, before, leader=leader)

    def _sum(self) -> None:
        """Add up the last snapshot."""
        if self._last is not None:
            (snapshot, leader), before = self._last, self._last_summed
            self._last_summed = snapshot
            for _ in _observing(self._sums, snapshot, before, leader=leader):
                pass

    def limited(self, limits: Limits) -> None:
        """Take the limits of the next plan."""
        for group in self._groups:
            group.limited(limits)

    def planned(self, snapshot: ClusterSnapshot, plan: ScalePlan) -> None:
        """Take a plan that has passed its checks."""
        for _ in self.planning(snapshot, plan):
            pass

    def planning(self, snapshot: ClusterSnapshot, plan: ScalePlan) -> Iterator[None]:
        """Take a plan that has passed its checks, in parts; see `observing`."""
        for group in self._groups:
            yield from group.planning(snapshot, plan)

    def evicted_early(self, snapshot: ClusterSnapshot) -> None:
        """Count the evictions for pending serving pods ahead of a plan."""
        for group in self._groups:
            group.evicted_early(snapshot)

    def decided(self, decision: ScaleDecision) -> None:
        """Take a changed decision about one job."""
        for group in self._groups:
            group.decided(decision)

    def not_planned(self, failure: PlanFailure) -> None:
        """Count that no plan could be made, or that a plan broke a rule."""
        for group in self._groups:
            group.not_planned(failure)

    def acted(self, outcome: Outcome) -> None:
        """Count a write that was carried out or rejected."""
        for group in self._groups:
            group.acted(outcome)

    def queued(self, queues: Sequence[Queue], statuses: Mapping[str, QueueStatus]) -> None:
        """Set the share of each queue, as the last plan computed it."""
        for group in self._groups:
            group.queued(queues, statuses)

    def ended(self, result: RoundResult, seconds: float) -> None:
        """Count the end of a plan, or that there was none to make."""
        for group in self._groups:
            group.ended(result, seconds)

    def left_out(self, count: int) -> None:
        """Set the number of objects that edl cannot read."""
        for group in self._groups:
            group.left_out(count)

    def rejected_files(self, count: int) -> None:
        """Set whether changed files of flags were rejected (1), or are in force (0)."""
        for group in self._groups:
            group.rejected_files(count)

    def led(self, *, leads: bool) -> None:
        """Set whether this replica leads."""
        for group in self._groups:
            group.led(leads=leads)


def _observing(
    groups: Iterable[ControllerMetricGroup], snapshot: ClusterSnapshot, last: ClusterSnapshot | None, *, leader: bool
) -> Iterator[None]:
    """Report a snapshot to the groups one by one; `last` is the snapshot that they saw before."""
    is_same = last is not None and snapshot.shares_all(last)
    for group in groups:
        if is_same:
            group.observed_again(snapshot, leader=leader)
            yield
        else:
            yield from group.observing(snapshot, leader=leader)
