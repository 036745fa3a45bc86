"""A workload that has ended: whether it succeeded or failed, and why, as its controller says."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from edl.controller.planning import report_snapshot
from edl.explain.job_text import print_job_report
from edl.model.limits import Limits
from edl.model.status import JobPhase
from tests.worlds.raw_objects import Object, batch_job, elastic_pytorch_job, take, volcano_job

SUCCEEDED, FAILED = JobPhase.SUCCEEDED, JobPhase.FAILED
ITEMS = {"paddlepaddle.org/indexes": "items"}
EIGHT = {"completionMode": "Indexed", "completions": 8, "parallelism": 3, "backoffLimitPerIndex": 0}


def condition(kind: str, reason: str = "", status: str = "True") -> Object:
    return {"type": kind, "status": status, **({"reason": reason} if reason else {})}


def batch(*conditions: Object, **status: object) -> Object:
    return batch_job(status={"conditions": list(conditions), **status})


def torch(*conditions: Object) -> Object:
    return elastic_pytorch_job(status={"conditions": list(conditions)})


def volcano(phase: str) -> Object:
    return volcano_job(status={"state": {"phase": phase}, "version": 4})


@pytest.mark.parametrize(
    ("obj", "phase", "reason"),
    [
        (batch(condition("Complete", "CompletionsReached")), SUCCEEDED, "CompletionsReached"),
        (batch(condition("SuccessCriteriaMet", "SuccessPolicy")), SUCCEEDED, "SuccessPolicy"),
        (batch(condition("Failed", "BackoffLimitExceeded"), failed=7), FAILED, "BackoffLimitExceeded"),
        (batch(condition("FailureTarget", "PodFailurePolicy")), FAILED, "PodFailurePolicy"),
        (batch(condition("Failed")), FAILED, "Failed"),
        (
            batch(condition("Suspended", "JobSuspended", "False"), condition("Failed", "DeadlineExceeded")),
            FAILED,
            "DeadlineExceeded",
        ),
        (batch_job(annotations=ITEMS, spec=EIGHT, status={"succeeded": 8}), SUCCEEDED, "CompletionsReached"),
        (
            batch_job(annotations=ITEMS, spec=EIGHT, status={"succeeded": 6, "failedIndexes": "1,3"}),
            FAILED,
            "FailedIndexes",
        ),
        (volcano("Completed"), SUCCEEDED, "Completed"),
        (volcano("Failed"), FAILED, "Failed"),
        (volcano("Terminated"), FAILED, "Terminated"),
        (
            torch(condition("Running", "", "False"), condition("Succeeded", "PyTorchJobSucceeded")),
            SUCCEEDED,
            "PyTorchJobSucceeded",
        ),
        (torch(condition("Failed", "PyTorchJobFailed")), FAILED, "PyTorchJobFailed"),
    ],
)
def test_a_failed_workload_is_not_said_to_have_succeeded(obj: Object, phase: JobPhase, reason: str) -> None:
    snapshot = take(obj)
    (job,) = snapshot.jobs
    assert job.status is not None
    assert (job.finished, job.problem, job.status.phase, job.status.reason) == (True, "", phase, reason)
    out = io.StringIO()
    print_job_report(report_snapshot(snapshot, job.key, "", Limits()), snapshot, Console(file=out, width=200))
    assert out.getvalue().splitlines()[0].endswith(f": {phase.value}, {reason}")


@pytest.mark.parametrize(
    "obj", [batch(condition("Failed", "", "False")), torch(condition("Failed", "", "Unknown")), volcano("Running")]
)
def test_one_whose_condition_is_not_true_has_not_ended(obj: Object) -> None:
    (job,) = take(obj).jobs
    assert not job.finished
