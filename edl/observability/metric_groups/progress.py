"""What the cluster achieves: the fulfilment of jobs, and how fast they read their data."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from prometheus_client import CollectorRegistry

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.names import JobKey
from edl.observability.metric_groups.declarations import (
    JOB_LABELS,
    SELECTED_JOB,
    SELECTED_NAMESPACES,
    Dashboard,
    GaugeMetric,
    Panel,
)
from edl.observability.metric_groups.events import PART_OF_JOBS, ObservesInParts, parts, remove_series


class ProgressMetrics(ObservesInParts):
    """Fulfilment, and the progress of jobs through their data."""

    title = "Progress"

    fulfilment = GaugeMetric(
        "edl_fulfilment_ratio",
        "Live trainers as a part of the maximum, the mean over all jobs that may have trainers; 1 without jobs.",
        panels=(
            Panel(
                Dashboard.SCALING,
                "Fulfilment",
                (("max(edl_fulfilment_ratio)", "mean over jobs"),),
                "How much of what the jobs could use they have.",
                "percentunit",
            ),
        ),
    )
    speed = GaugeMetric(
        "edl_job_samples_per_second",
        "Measured speed of a job with the trainers that it has now; no series until edl has measured it.",
        JOB_LABELS,
        panels=(
            Panel(
                Dashboard.SCALING,
                "Samples per second, by job",
                (
                    (
                        f"max by (namespace, job) (edl_job_samples_per_second{{{SELECTED_NAMESPACES}}})",
                        "{{namespace}}/{{job}}",
                    ),
                ),
                "The speed that the planner uses, for the trainers that the job has now.",
                stacked=True,
            ),
            Panel(
                Dashboard.JOB,
                "Samples per second",
                ((f"max(edl_job_samples_per_second{{{SELECTED_JOB}}})", "measured"),),
                "With the trainers that the job has now.",
            ),
        ),
    )
    epoch_done = GaugeMetric(
        "edl_job_epoch_done_ratio",
        "Done part of the open epoch, as stored in the status of the job; only jobs with a data set.",
        JOB_LABELS,
        panels=(
            Panel(
                Dashboard.JOB,
                "Done part of the epoch",
                ((f"max(edl_job_epoch_done_ratio{{{SELECTED_JOB}}})", "done"),),
                unit="percentunit",
            ),
        ),
    )

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        self._seen: dict[JobKey, tuple[Job, float]] = {}  # each with its share

    def observing(self, snapshot: ClusterSnapshot, *, leader: bool) -> Iterator[None]:  # noqa: ARG002 - as in the base
        """Set the series of jobs that have changed; a job that ended has none."""
        before, seen = self._seen, dict[JobKey, tuple[Job, float]]()
        for some in parts(snapshot.jobs, PART_OF_JOBS):
            for job in some:
                known = before.get(job.key)
                if known is None or known[0] is not job:
                    known = job, min(1.0, len(job.live_trainers) / job.bounds.max_trainers)
                    self._set_progress(job)
                seen[job.key] = known
            yield
        self._seen = seen
        for key in before.keys() - seen.keys():
            self._remove(key)
        shares = [share for job, share in seen.values() if job.is_schedulable]
        self.fulfilment.set(fmean(shares) if shares else 1.0)

    def _remove(self, key: JobKey) -> None:
        for metric in (self.speed, self.epoch_done):
            remove_series(metric, *key)

    def _set_progress(self, job: Job) -> None:
        self._remove(job.key)
        if job.status is None or job.finished:
            return
        trainers = len(job.live_trainers)
        for speed in job.status.measured.speeds:
            if speed.trainers == trainers:
                self.speed.labels(*job.key).set(speed.per_s)
        if job.status.dataset is not None and job.status.dataset.total:
            self.epoch_done.labels(*job.key).set(job.status.dataset.done / job.status.dataset.total)
