"""How long people wait: jobs from their creation to their trainers, serving pods from their creation to a node.

A wait is counted once, when it ends, by the replica that leads. What a controller finds already running when it
starts is not counted, because it did not see the wait end; so a restart loses a few waits and repeats none.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.plan import ScalePlan
from edl.model.pods import Pod
from edl.model.status import Reason
from edl.observability.metric_groups.declarations import (
    Dashboard,
    GaugeMetric,
    HistogramMetric,
    Panel,
)
from edl.observability.metric_groups.events import PART_OF_JOBS, PART_OF_PODS, ObservesInParts, parts

_BUCKETS_S = (1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 21600.0, 86400.0)
_REACHED = ("first", "minimum", "maximum")
_TRAINING, _OTHER = "training", "other"


class WaitMetrics(ObservesInParts):
    """How long jobs wait for trainers, and serving pods for a node."""

    title = "Waiting"

    jobs = HistogramMetric(
        "edl_job_wait_seconds",
        "From the creation of a job until its first, its minimum and its maximum number of trainers were ready."
        " Jobs that were ever suspended do not count.",
        ("reached",),
        {"reached": _REACHED},
        buckets=_BUCKETS_S,
        panels=(
            Panel(
                Dashboard.SCALING,
                "Wait of jobs for their trainers, 0.9 quantile",
                (
                    (
                        "histogram_quantile(0.9, sum by (le, reached) (rate(edl_job_wait_seconds_bucket[1h])))",
                        "{{reached}}",
                    ),
                ),
                "Of the jobs that reached their first, their minimum or their maximum count within the last hour.",
                "s",
            ),
        ),
    )
    oldest = GaugeMetric(
        "edl_oldest_waiting_job_seconds",
        "Age of the oldest job that may have trainers and never had its minimum ready; 0 if there is none.",
        panels=(
            Panel(
                Dashboard.SCALING,
                "Oldest job without its minimum",
                (("max(edl_oldest_waiting_job_seconds)", "age"),),
                "The histograms count a wait when it ends; this one has not ended.",
                "s",
            ),
        ),
    )
    serving = HistogramMetric(
        "edl_serving_wait_seconds",
        "From the creation of a serving pod until it had a node; behind: training if trainers were evicted for it.",
        ("behind",),
        {"behind": (_TRAINING, _OTHER)},
        buckets=_BUCKETS_S,
        panels=(
            Panel(
                Dashboard.SCALING,
                "Wait of serving pods for a node",
                tuple(
                    (
                        f"histogram_quantile({q}, sum by (le, behind) (rate(edl_serving_wait_seconds_bucket[10m])))",
                        f"{q:g} behind {{{{behind}}}}",
                    )
                    for q in (0.5, 0.99)
                ),
                "Behind training: trainers were deleted or preempted while the pod waited.",
                "s",
            ),
        ),
    )

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        self._is_first = True
        self._oldest_s = float("inf")
        self._left: dict[str, frozenset[str]] = {}
        self._pods: set[str] = set()
        self._waiting: dict[str, str] = {}

    def observing(self, snapshot: ClusterSnapshot, *, leader: bool) -> Iterator[None]:
        """Count each wait that ended since the last snapshot."""
        yield from self._observing_jobs(snapshot, leader=leader)
        yield from self._observing_serving(snapshot, leader=leader)
        self._is_first = False

    def observed_again(self, snapshot: ClusterSnapshot, *, leader: bool) -> None:  # noqa: ARG002 - the event has both
        """Set the longest wait again: nothing has changed but the time."""
        self._set_oldest(snapshot.observed_at_s)

    def planned(self, snapshot: ClusterSnapshot, plan: ScalePlan) -> None:
        """Note which serving pods wait for trainers that the plan deletes."""
        if any(d.victims and d.shrink_reason == Reason.SERVING_NEEDS_ROOM for d in plan.decisions):
            self.evicted_early(snapshot)

    def evicted_early(self, snapshot: ClusterSnapshot) -> None:
        """Note which serving pods wait for trainers that are evicted ahead of the plan."""
        self._waiting |= {pod.uid: _TRAINING for pod in snapshot.waiting_serving if pod.needs_capacity}

    def _observing_jobs(self, snapshot: ClusterSnapshot, *, leader: bool) -> Iterator[None]:
        now_s, oldest_s = snapshot.observed_at_s, float("inf")
        before, left = self._left, dict[str, frozenset[str]]()
        for some in parts(snapshot.jobs, PART_OF_JOBS):
            for job in some:
                waited_for = before.get(job.uid)
                if waited_for is not None and not waited_for:
                    left[job.uid] = waited_for
                    continue
                wanted = self._to_count(job) if waited_for is None else waited_for
                reached = frozenset(_reached(job)) & wanted
                if leader and not self._is_first:
                    for milestone in reached:
                        self.jobs.labels(milestone).observe(max(0.0, now_s - job.created_s))
                left[job.uid] = frozenset() if job.suspended or job.finished else wanted - reached
                if "minimum" in left[job.uid] and job.is_schedulable:
                    oldest_s = min(oldest_s, job.created_s)
            yield
        self._left, self._oldest_s = left, oldest_s
        self._set_oldest(now_s)

    def _set_oldest(self, now_s: float) -> None:
        self.oldest.set(max(0.0, now_s - self._oldest_s))

    def _to_count(self, job: Job) -> frozenset[str]:
        """The milestones that a job which is seen for the first time has yet to reach."""
        has_run = job.status is not None and job.status.start_s is not None
        return frozenset() if self._is_first and has_run else frozenset(_REACHED)

    def _observing_serving(self, snapshot: ClusterSnapshot, *, leader: bool) -> Iterator[None]:
        known, present = self._pods, set[str]()
        waiting: dict[str, str] = {}
        for some in parts(snapshot.pods, PART_OF_PODS):
            waited = self._waiting
            changed = (pod for pod in some if not pod.node or pod.uid in waited or pod.uid not in known)
            for pod in [pod for pod in changed if pod.priority >= 0 and not pod.daemon and not pod.gated]:
                before = waited.get(pod.uid)
                if not pod.node:
                    # A pod that had a gate was created long before anybody could place it.
                    if before is not None or pod.uid not in known:
                        waiting[pod.uid] = _TRAINING if pod.nominated else before or _OTHER
                elif leader and (before or not (self._is_first or pod.uid in known)):
                    self.serving.labels(before or _OTHER).observe(_wait_s(pod, snapshot.observed_at_s))
            present.update([pod.uid for pod in some])
            yield
        evicted_for = {uid: behind for uid, behind in self._waiting.items() if behind == _TRAINING and uid in waiting}
        self._pods, self._waiting = present, waiting | evicted_for


def _reached(job: Job) -> Iterator[str]:
    ready = sum(pod.ready for pod in job.live_trainers)
    needed = (1, job.bounds.min_trainers, job.bounds.max_trainers)
    return (milestone for milestone, count in zip(_REACHED, needed, strict=True) if ready >= count)


def _wait_s(pod: Pod, now_s: float) -> float:
    """How long a pod has waited: until kube-scheduler found a node, or until now if that time is not known."""
    end_s = now_s if pod.answered_s is None else pod.answered_s
    return max(0.0, end_s - pod.created_s)
