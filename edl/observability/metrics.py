"""What Prometheus scrapes: one registry of our own, labelled by namespace and job, never by pod, UID or free text.

Series of a job end with the job, so that a cluster that lives for years does not collect them.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from edl import __version__
from edl.controller.ports import RoundResult
from edl.errors import PlanFailure
from edl.model.actions import Outcome
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.names import JobKey
from edl.model.plan import ScaleDecision, ScalePlan
from edl.model.resources import HOST_PORT_PREFIX, Resources
from edl.model.status import JobPhase

_JOB = ("namespace", "job")
_DECISION_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_BASE_UNITS = {"cpu": 1000}


class Metrics:
    """Every metric of the controller."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._known: set[JobKey] = set()

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(name, text, labels, registry=registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=registry)

        self._decision = Histogram(
            "edl_decision_seconds", "Time that one decision took.", buckets=_DECISION_BUCKETS, registry=registry
        )
        self._round = Histogram("edl_round_seconds", "Time that one whole round took.", registry=registry)
        self._gap = gauge("edl_plan_gap_ratio", "Part of the certified bound that the last plan may have missed.")
        self._trainers = gauge("edl_job_trainers", "Trainers of a job: live, wanted, least, most.", *_JOB, "state")
        self._admitted = gauge("edl_job_admitted", "1 where the job runs or is being started.", *_JOB)
        self._phases = gauge("edl_jobs", "TrainingJobs by phase.", "phase")
        self._resizes = counter(
            "edl_resizes_total", "Changes of a job's trainer count.", *_JOB, "direction", "reason"
        )
        self._victims = counter("edl_victims_total", "Trainers deleted by a plan, by its reason.", "reason")
        self._moved = counter("edl_moved_pservers_total", "Pservers ended to start elsewhere: --consolidate-after-s.")
        self._waiting = gauge("edl_serving_waiting_pods", "Serving pods that wait for room.")
        self._short = gauge("edl_serving_short_pods", "Waiting serving pods that no plan can place.")
        self._unplaceable = gauge("edl_serving_unplaceable_pods", "Waiting serving pods that leave room unused.")
        self._rounds = counter("edl_rounds_total", "Rounds of the controller by how they ended.", "result")
        self._refused = counter("edl_plans_refused_total", "Plans that broke a rule and were dropped.")
        self._failures = counter(
            "edl_decision_failures_total",
            "Decisions that could not be made, came too late or were refused.",
            "failure",
        )
        for failure in PlanFailure:
            self._failures.labels(failure.value)
        self._actions = counter("edl_actions_total", "Writes to the API server.", "action", "result")
        self._allocatable = gauge("edl_cluster_allocatable", "What ready nodes offer, in base units.", "resource")
        self._requested = gauge("edl_cluster_requested", "What bound pods ask for, in base units.", "resource")
        self._leader = gauge("edl_leader", "1 while this replica leads.")
        self._quarantined = gauge("edl_quarantined_objects", "Objects of the cluster that cannot be read.")
        gauge("edl_build_info", "1, with the version.", "version").labels(__version__).set(1)

    def render(self) -> bytes:
        """The page that Prometheus scrapes."""
        return generate_latest(self.registry)

    def observed(self, snapshot: ClusterSnapshot, *, leader: bool) -> None:
        """Set what can be seen in a snapshot; forget jobs that are gone."""
        self._leader.set(leader)
        self._waiting.set(sum(pod.is_waiting_serving for pod in snapshot.pods))
        self._set_resources(snapshot)
        present = {job.key for job in snapshot.jobs}
        for key in self._known - present:
            self._forget(key)
        self._known = present
        phases = [job.status.phase if job.status else JobPhase.PENDING for job in snapshot.jobs]
        for phase in JobPhase:
            self._phases.labels(phase.value).set(phases.count(phase))
        for job in snapshot.jobs:
            self._set_counts(job)

    def planned(self, plan: ScalePlan) -> None:
        """Set what a plan says; a repeated decision is no resize, and the last plan proves nothing about this one."""
        if plan.fallback is None:
            self._decision.observe(plan.seconds)
            self._gap.set(plan.certificate.gap)
        self._short.set(plan.serving.short)
        self._known |= {decision.job for decision in plan.decisions}
        for decision in plan.decisions:
            self._trainers.labels(*decision.job, "target").set(decision.target)
            self._admitted.labels(*decision.job).set(decision.admitted)

    def passed_over(self, snapshot: ClusterSnapshot) -> None:
        """Set how many waiting serving pods a plan made no room for, because they leave room unused."""
        self._unplaceable.set(sum(pod.unplaceable for pod in snapshot.pods))

    def resized(self, decision: ScaleDecision) -> None:
        """Count one change of a job's target."""
        direction = "up" if decision.target > decision.current else "down"
        reason = decision.shrink_reason or decision.reason.value
        self._resizes.labels(*decision.job, direction, reason).inc()

    def count_victims(self, decision: ScaleDecision) -> None:
        """Count the trainers that a decision ends, also where others take their place elsewhere."""
        if decision.victims:
            self._victims.labels(decision.shrink_reason or decision.reason.value).inc(len(decision.victims))
        self._moved.inc(len(decision.moves))

    def refused(self) -> None:
        """Count a plan that broke a rule."""
        self._refused.inc()

    def undecided(self, failure: PlanFailure) -> None:
        """Count a decision that could not be made."""
        self._failures.labels(failure.value).inc()

    def acted(self, outcome: Outcome) -> None:
        """Count a write."""
        self._actions.labels(type(outcome.action).__name__, outcome.result.value).inc()

    def ended(self, result: RoundResult, seconds: float) -> None:
        """Count a round."""
        self._rounds.labels(result.value).inc()
        self._round.observe(seconds)

    def quarantined(self, count: int) -> None:
        """Set how many objects cannot be read."""
        self._quarantined.set(count)

    def led(self, *, leads: bool) -> None:
        """Set whether this replica leads."""
        self._leader.set(leads)

    def _set_counts(self, job: Job) -> None:
        for state, count in (
            ("current", len(job.live_trainers)),
            ("min", job.min_trainers),
            ("max", job.max_trainers),
        ):
            self._trainers.labels(*job.key, state).set(count)

    def _set_resources(self, snapshot: ClusterSnapshot) -> None:
        offered = [node.allocatable for node in snapshot.nodes if node.ready and not node.cordoned]
        ours = (pod for job in snapshot.jobs for pod in job.pods)
        asked = [pod.shape.request for pod in (*snapshot.pods, *ours) if pod.node and not pod.is_finished]
        for metric, vectors in ((self._allocatable, offered), (self._requested, asked)):
            metric.clear()
            for name, amount in _total(vectors).items():
                if not name.startswith(HOST_PORT_PREFIX):
                    metric.labels(name).set(amount / _BASE_UNITS.get(name, 1))

    def _forget(self, key: JobKey) -> None:
        mine = {"namespace": key.namespace, "job": key.name}
        for metric in (self._trainers, self._admitted, self._resizes):
            metric.remove_by_labels(mine)


def _total(vectors: list[Resources]) -> dict[str, int]:
    total: dict[str, int] = {}
    for vector in vectors:
        for name, amount in vector.amounts:
            total[name] = total.get(name, 0) + amount
    return total
