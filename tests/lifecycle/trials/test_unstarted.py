"""What a job keeps whose trainers do not start or fail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from edl.controller.assumed import as_if_done
from edl.lifecycle.trials.unstarted import as_started, unstarted_problem
from edl.model.actions import CreatePod
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.pods import PodPhase
from edl.model.status import Condition, JobStatus, Reason
from tests.worlds.builders import make_job

NOW_S = 1000.0
WAITING: dict[str, Any] = {"phase": PodPhase.PENDING, "ready": False, "started_s": None, "created_s": NOW_S - 10}


def job_of(trainers: int = 6, low: int = 2, high: int = 8, *, degraded: str = "", **pod: Any) -> Job:
    job = make_job("a", trainers=trainers, min_trainers=low, max_trainers=high, on=("n0",))
    admitted = Condition("Admitted", "True", "AtMax", "", 0.0)
    trouble = (Condition("Degraded", "True", degraded, "", 0.0),) if degraded else ()
    status = JobStatus(conditions=(admitted, *trouble))
    return replace(job, status=status, pods=tuple(replace(p, **pod) for p in job.pods))


def allowed(job: Job) -> int | None:
    refusal = as_started(job, NOW_S).refusal
    assert refusal is None or refusal.reason is Reason.PODS_NOT_STARTED
    return None if refusal is None else refusal.allowed


HEALTHY = {
    "they run": job_of(),
    "they are about to start": job_of(**WAITING),
    "they say for a moment that they cannot, and another one runs": job_of(degraded="PodCannotStart"),
    "one has run for a minute since a failure": job_of(degraded="PodFailed", started_s=NOW_S - 60),
    "it has its minimum alone": job_of(2, 2, 2, degraded="PodCannotStart", **WAITING),
}
SUFFERS = {
    "an image cannot be pulled": (job_of(container_message="image x", **WAITING), 2),
    "that was so a moment ago": (job_of(degraded="PodCannotStart", **WAITING), 2),
    "none has started for two minutes": (job_of(**{**WAITING, "created_s": NOW_S - 120}), 2),
    "that was so, and the pods are new": (job_of(degraded="PodsNotStarted", **WAITING), 2),
    "they fail": (job_of(degraded="PodFailed", started_s=NOW_S - 59), 6),
    "they fail, and none is left": (job_of(0, degraded="PodFailed"), 2),
}


@pytest.mark.parametrize("case", HEALTHY)
def test_a_healthy_job_grows(case: str) -> None:
    assert allowed(HEALTHY[case]) is None


@pytest.mark.parametrize("case", SUFFERS)
def test_a_job_that_suffers_keeps_its_minimum_and_what_runs(case: str) -> None:
    job, most = SUFFERS[case]
    assert allowed(job) == most


def test_trainers_that_are_only_being_created_are_not_late() -> None:
    job = job_of(0)
    new = [CreatePod(job.key, job.uid, Role.TRAINER, index, "n0") for index in range(4)]
    assert allowed(as_if_done(job, new)) is None
    assert unstarted_problem(as_if_done(job, new), NOW_S) is None


def test_a_few_late_pods_of_a_job_that_runs_are_named_and_cost_it_nothing() -> None:
    job = job_of()
    late = tuple(replace(p, **{**WAITING, "created_s": 1.0}) if p.index == 3 else p for p in job.pods)
    job = replace(job, pods=late)
    assert allowed(job) is None
    reason, message = unstarted_problem(job, NOW_S) or ("", "")
    assert reason == "PodsNotStarted"
    assert message.startswith("a-trainer-3 has not started for 2 minutes (a-trainer-3 is on node n0)")


def test_scheduling_gates_that_hold_a_pod_are_named() -> None:
    job = job_of()
    gated = {**WAITING, "created_s": 1.0, "node": "", "gated": True}
    job = replace(job, pods=tuple(replace(p, **gated) if p.index == 3 else p for p in job.pods))
    _, message = unstarted_problem(job, NOW_S) or ("", "")
    assert "(a-trainer-3 is held by its scheduling gates until their owner removes them)" in message
