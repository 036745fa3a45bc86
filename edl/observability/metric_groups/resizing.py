"""What resizes cost: training time that they lose, and the time until the new count of trainers is there.

The leader counts each resize once. A resize that another one replaces before it is complete has no recovery, and a
controller that starts again measures an incomplete one from its own first decision.
"""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.names import JobKey, Role
from edl.model.plan import ScaleDecision, ScalePlan
from edl.observability.metric_groups.declarations import Dashboard, HistogramMetric, Panel
from edl.observability.metric_groups.events import ControllerMetricGroup

_BUCKETS_S = (0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_DIRECTION = {"direction": ("up", "down")}


@dataclass(frozen=True, slots=True)
class _OpenResize:
    """A resize whose pods are not all there, or not all gone."""

    target: int
    direction: str
    since_s: float

    def is_complete(self, job: Job) -> bool:
        """True if the count of trainers is what the decision wanted."""
        if self.direction == "up":
            return sum(pod.ready for pod in job.live_trainers) >= self.target
        left = [pod for pod in job.pods if pod.role is Role.TRAINER and not pod.is_finished]
        return len(left) <= self.target


class ResizeMetrics(ControllerMetricGroup):
    """The cost of resizes."""

    title = "Resizes"

    cost = HistogramMetric(
        "edl_resize_cost_seconds",
        "Training time that a resize cost, as the master of the job measured it.",
        ("direction",),
        _DIRECTION,
        buckets=_BUCKETS_S,
        panels=(
            Panel(
                Dashboard.SCALING,
                "Training time lost to a resize, mean",
                (
                    (
                        "sum by (direction) (rate(edl_resize_cost_seconds_sum[1h]))"
                        " / sum by (direction) (rate(edl_resize_cost_seconds_count[1h]) > 0)",
                        "{{direction}}",
                    ),
                ),
                "In seconds at the speed after the resize. Only jobs with a data master are measured.",
                "s",
            ),
        ),
    )
    recovery = HistogramMetric(
        "edl_resize_recovery_seconds",
        "From the decision to change the trainers of a job until all were ready, or all removed ones were gone.",
        ("direction",),
        _DIRECTION,
        buckets=_BUCKETS_S,
        panels=(
            Panel(
                Dashboard.SCALING,
                "Recovery of a resize, 0.9 quantile",
                (
                    (
                        "histogram_quantile(0.9, sum by (le, direction)"
                        " (rate(edl_resize_recovery_seconds_bucket[1h])))",
                        "{{direction}}",
                    ),
                ),
                "From the decision until the count of trainers is as planned.",
                "s",
            ),
        ),
    )

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        self._open: dict[JobKey, _OpenResize] = {}
        self._costed: dict[str, float] | None = None

    def observed(self, snapshot: ClusterSnapshot, *, leader: bool) -> None:
        """Count each resize that was completed or measured since the last snapshot."""
        before, self._open = self._open, {}
        for job in snapshot.jobs:
            if leader and (resize := before.get(job.key)) is not None:
                if resize.is_complete(job):
                    self.recovery.labels(resize.direction).observe(snapshot.observed_at_s - resize.since_s)
                else:
                    self._open[job.key] = resize
        self._observe_costs(snapshot, leader=leader)

    def observed_again(self, snapshot: ClusterSnapshot, *, leader: bool) -> None:
        """Count each resize that was complete when it was decided."""
        self.observed(snapshot, leader=leader)

    def planned(self, snapshot: ClusterSnapshot, plan: ScalePlan) -> None:
        """Begin to measure each resize that the plan decides."""
        for decision in plan.decisions:
            resize = self._open.get(decision.job)
            if resize is None or resize.target != decision.target:
                self._open.pop(decision.job, None)
                if decision.target != decision.current:
                    self._open[decision.job] = _begun(decision, snapshot.observed_at_s)

    def _observe_costs(self, snapshot: ClusterSnapshot, *, leader: bool) -> None:
        """Count each measured cost that was not in the status before; those of the first snapshot are old."""
        before, self._costed = self._costed, {}
        for job in snapshot.jobs:
            resize = job.status.last_resize if job.status is not None else None
            if resize is None or resize.lost_s is None:
                continue
            self._costed[job.uid] = resize.time_s
            if leader and before is not None and before.get(job.uid) != resize.time_s:
                direction = "up" if resize.to_count > resize.from_count else "down"
                self.cost.labels(direction).observe(resize.lost_s)


def _begun(decision: ScaleDecision, now_s: float) -> _OpenResize:
    return _OpenResize(decision.target, "up" if decision.target > decision.current else "down", now_s)
