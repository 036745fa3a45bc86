"""A workload whose pods fail: the status that edl reads names what its controller has counted."""

from __future__ import annotations

import pytest

from edl.model.jobs import Job
from tests.worlds.raw_objects import Object, batch_job, batch_pod, the_job, volcano_job, volcano_pod

ONE_OF_THREE = (batch_pod("a", ready_at=1), batch_pod("b"))
READY = {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
VOLCANO_PODS = tuple(volcano_pod(f"ctr-trainer-{index}", status=READY if index else {}) for index in range(3))


def trouble_of(job: Job) -> tuple[str, str]:
    """Reason and message of condition Degraded; empty if there is none."""
    degraded = job.status.condition("Degraded") if job.status is not None else None
    return (degraded.reason, degraded.message) if degraded is not None else ("", "")


@pytest.mark.parametrize(
    ("spec", "message"),
    [({"backoffLimit": 6}, "2 pods of the Job failed, spec.backoffLimit is 6"), ({}, "2 pods of the Job failed")],
)
def test_a_job_names_its_failed_pods_while_not_all_of_its_pods_are_ready(spec: Object, message: str) -> None:
    job = the_job(batch_job(spec=spec, status={"failed": 2}), *ONE_OF_THREE)
    assert trouble_of(job) == ("PodFailed", message)


@pytest.mark.parametrize(
    "job",
    [
        the_job(batch_job(status={}), *ONE_OF_THREE),
        the_job(batch_job(status={"failed": 2}), *(batch_pod(name, ready_at=1) for name in "abc")),
        the_job(batch_job(spec={"suspend": True}, status={"failed": 2}), *ONE_OF_THREE),
        the_job(batch_job(status={"failed": 2, "conditions": [{"type": "Failed", "status": "True"}]})),
    ],
    ids=["none has failed", "all are ready", "suspended", "ended"],
)
def test_a_job_without_trouble_has_none(job: Job) -> None:
    assert trouble_of(job) == ("", "")


@pytest.mark.parametrize(
    ("status", "spec", "message"),
    [
        ({"retryCount": 1}, {}, "Volcano has restarted the job 1 time"),
        (
            {"retryCount": 2, "failed": 1},
            {"maxRetry": 3},
            "Volcano has restarted the job 2 times, spec.maxRetry is 3",
        ),
        ({"failed": 1}, {"maxRetry": 3}, "1 pod of the job failed"),
    ],
)
def test_a_volcano_job_names_its_restarts_or_its_failed_pods(status: Object, spec: Object, message: str) -> None:
    job = the_job(volcano_job(spec=spec, status={"state": {"phase": "Running"}, **status}), *VOLCANO_PODS)
    assert trouble_of(job) == ("PodFailed", message)
