"""What the cluster achieves: how much of what jobs could use they have, and how fast they read their data."""

from __future__ import annotations

from statistics import fmean

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.observability.metric_groups.declarations import (
    JOB_LABELS,
    SELECTED_JOB,
    SELECTED_NAMESPACES,
    Dashboard,
    GaugeMetric,
    Panel,
)
from edl.observability.metric_groups.events import ControllerMetricGroup


class ProgressMetrics(ControllerMetricGroup):
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

    def observed(self, snapshot: ClusterSnapshot, *, leader: bool) -> None:  # noqa: ARG002 - the event has both
        """Set everything anew: a job that ended has no series."""
        may_run = [job for job in snapshot.jobs if job.is_schedulable]
        shares = [min(1.0, len(job.live_trainers) / job.bounds.max_trainers) for job in may_run]
        self.fulfilment.set(fmean(shares) if shares else 1.0)
        self.speed.clear()
        self.epoch_done.clear()
        for job in snapshot.jobs:
            self._set_progress(job)

    def _set_progress(self, job: Job) -> None:
        if job.status is None or job.finished:
            return
        trainers = len(job.live_trainers)
        for speed in job.status.measured.speeds:
            if speed.trainers == trainers:
                self.speed.labels(*job.key).set(speed.per_s)
        if job.status.dataset is not None and job.status.dataset.total:
            self.epoch_done.labels(*job.key).set(job.status.dataset.done / job.status.dataset.total)
