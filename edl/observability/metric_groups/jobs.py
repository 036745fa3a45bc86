"""TrainingJobs: phases, trainers and resizes. The series of a job end with the job."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry

from edl.model.actions import Intent
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.names import JobKey
from edl.model.plan import ScaleDecision, ScalePlan
from edl.model.status import JobPhase, Reason
from edl.observability.metric_groups.declarations import (
    JOB_LABELS,
    SELECTED_JOB,
    SELECTED_NAMESPACES,
    CounterMetric,
    Dashboard,
    GaugeMetric,
    Panel,
)
from edl.observability.metric_groups.events import PART_OF_JOBS, ObservesInParts, parts, remove_series

_DIRECTION = {"direction": ("up", "down")}
_REASON = {"reason": (*(reason.value for reason in Reason), Intent.MOVED.value)}
_STATES = {"current": "live", "target": "planned", "min": "min-instance", "max": "max-instance"}


class JobMetrics(ObservesInParts):
    """The jobs and their trainers."""

    title = "Jobs"

    jobs = GaugeMetric(
        "edl_jobs",
        "TrainingJobs by phase.",
        ("phase",),
        {"phase": tuple(phase.value for phase in JobPhase)},
        panels=(
            Panel(
                Dashboard.SCALING,
                "Jobs by phase",
                (("max by (phase) (edl_jobs)", "{{phase}}"),),
                kind="stat",
            ),
        ),
    )
    admitted = GaugeMetric(
        "edl_job_admitted",
        "1 if the job is admitted, else 0.",
        JOB_LABELS,
        panels=(
            Panel(
                Dashboard.SCALING,
                "Jobs that are not admitted",
                (
                    (
                        "count by (namespace) (max by (namespace, job)"
                        f" (edl_job_admitted{{{SELECTED_NAMESPACES}}}) == 0)",
                        "{{namespace}}",
                    ),
                ),
                "Jobs that wait, are suspended or have finished.",
            ),
            Panel(
                Dashboard.JOB,
                "Admitted",
                ((f"max(edl_job_admitted{{{SELECTED_JOB}}})", "admitted"),),
                "1 if the job is admitted.",
                kind="stat",
                columns=6,
            ),
        ),
    )
    trainers = GaugeMetric(
        "edl_job_trainers",
        "Trainers of a job: live (current), planned (target), and the declared bounds (min, max).",
        (*JOB_LABELS, "state"),
        {"state": tuple(_STATES)},
        panels=(
            Panel(
                Dashboard.SCALING,
                "Trainers by job",
                (
                    (
                        f'max by (namespace, job) (edl_job_trainers{{state="current", {SELECTED_NAMESPACES}}})',
                        "{{namespace}}/{{job}}",
                    ),
                ),
                "Live trainers.",
                stacked=True,
            ),
            Panel(
                Dashboard.JOB,
                "Trainers",
                tuple(
                    (f'max(edl_job_trainers{{state="{state}", {SELECTED_JOB}}})', legend)
                    for state, legend in _STATES.items()
                ),
                "The live count follows the planned count. If they differ for long, a pod cannot start.",
                columns=18,
            ),
        ),
    )
    resizes = CounterMetric(
        "edl_resizes_total",
        "Changes of the number of trainers of a job, by direction; the series begin with the job.",
        (*JOB_LABELS, "direction"),
        _DIRECTION,
        panels=(
            Panel(
                Dashboard.JOB,
                "Resizes in the last hour",
                ((f"sum by (direction) (increase(edl_resizes_total{{{SELECTED_JOB}}}[1h]))", "{{direction}}"),),
                "`edl explain` names the job or the serving pod that caused the last one.",
            ),
        ),
    )
    decided_resizes = CounterMetric(
        "edl_resize_decisions_total",
        "Changes of the number of trainers of a job, by direction and reason.",
        ("direction", "reason"),
        {**_DIRECTION, **_REASON},
        panels=(
            Panel(
                Dashboard.SCALING,
                "Resizes per minute, by reason",
                (
                    (
                        "60 * sum by (direction, reason) (rate(edl_resize_decisions_total[5m])) > 0",
                        "{{direction}} {{reason}}",
                    ),
                ),
                "docs/reference/conditions.md explains each reason.",
            ),
        ),
    )
    last_resize = GaugeMetric(
        "edl_job_last_resize_timestamp_seconds",
        "When the last resize of a job was decided, with its direction and reason, as its status says.",
        (*JOB_LABELS, "direction", "reason"),
        _DIRECTION,
        panels=(
            Panel(
                Dashboard.JOB,
                "Time since the last resize, by reason",
                (
                    (
                        "time() - max by (direction, reason)"
                        f" (edl_job_last_resize_timestamp_seconds{{{SELECTED_JOB}}})",
                        "{{direction}} {{reason}}",
                    ),
                ),
                "A line that starts at 0 is a resize.",
                "s",
            ),
        ),
        describing=("direction", "reason"),
    )
    victims = CounterMetric("edl_victims_total", "Trainers deleted by a plan, by reason.", ("reason",), _REASON)
    moved = CounterMetric(
        "edl_moved_pservers_total",
        "Pservers deleted so that they start on another node (--consolidate-after-s).",
        panels=(
            Panel(
                Dashboard.SCALING,
                "Pods deleted by plans, per minute",
                (
                    ("60 * sum by (reason) (rate(edl_victims_total[5m])) > 0", "trainers: {{reason}}"),
                    ("60 * sum(rate(edl_moved_pservers_total[5m]))", "pservers moved"),
                ),
                "Without the pods that kube-scheduler preempts by itself.",
            ),
        ),
    )

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        self._known: set[JobKey] = set()
        self._counted: dict[JobKey, Job] = {}
        self._resized: dict[JobKey, tuple[str, str]] = {}  # direction and reason of the last resize

    def observing(self, snapshot: ClusterSnapshot, *, leader: bool) -> Iterator[None]:  # noqa: ARG002 - as in the base
        """Set phases and counts of jobs that have changed; remove the series of jobs that are gone."""
        present = {job.key for job in snapshot.jobs}
        for key in self._known - present:
            self._remove(key)
        self._known = present
        phases = [job.status.phase if job.status else JobPhase.PENDING for job in snapshot.jobs]
        for phase in JobPhase:
            self.jobs.labels(phase.value).set(phases.count(phase))
        before, self._counted = self._counted, {job.key: job for job in snapshot.jobs}
        changed = [job for job in snapshot.jobs if before.get(job.key) is not job]
        yield
        for some in parts(changed, PART_OF_JOBS):
            for job in some:
                self._set_counts(job)
                self._set_last_resize(job)
            yield

    def planning(self, snapshot: ClusterSnapshot, plan: ScalePlan) -> Iterator[None]:  # noqa: ARG002 - as in the base
        """Set what the plan decides for each job."""
        for some in parts(plan.decisions, PART_OF_JOBS):
            for decision in some:
                self._known.add(decision.job)
                self.trainers.labels(*decision.job, "target").set(decision.target)
                self.admitted.labels(*decision.job).set(decision.admitted)
            yield

    def decided(self, decision: ScaleDecision) -> None:
        """Count a resize, and the pods that the decision deletes or moves."""
        self._known.add(decision.job)  # a snapshot since its plan may have shown that the job is gone
        reason = decision.shrink_reason or decision.reason.value
        if decision.target != decision.current:
            direction = "up" if decision.target > decision.current else "down"
            self.resizes.labels(*decision.job, direction).inc()
            self.decided_resizes.labels(direction, reason).inc()
        if decision.victims:
            self.victims.labels(reason).inc(len(decision.victims))
        self.moved.inc(len(decision.moves))

    def _set_counts(self, job: Job) -> None:
        counts = {"current": len(job.live_trainers), "min": job.min_trainers, "max": job.max_trainers}
        for state, count in counts.items():
            self.trainers.labels(*job.key, state).set(count)
        for direction in _DIRECTION["direction"]:
            self.resizes.labels(*job.key, direction)

    def _set_last_resize(self, job: Job) -> None:
        resize = job.status.last_resize if job.status is not None else None
        before, now = self._resized.get(job.key), None
        if resize is not None:
            now = ("up" if resize.to_count > resize.from_count else "down", resize.reason)
            self.last_resize.labels(*job.key, *now).set(resize.time_s)
            self._resized[job.key] = now
        if before is not None and before != now:
            remove_series(self.last_resize, *job.key, *before)
        if now is None:
            self._resized.pop(job.key, None)

    def _remove(self, key: JobKey) -> None:
        remove_series(self.admitted, *key)
        for state in _STATES:
            remove_series(self.trainers, *key, state)
        for direction in _DIRECTION["direction"]:
            remove_series(self.resizes, *key, direction)
        if (last := self._resized.pop(key, None)) is not None:
            remove_series(self.last_resize, *key, *last)
