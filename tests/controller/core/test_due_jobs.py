"""When a job is looked at again although nothing about it changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edl.controller.due_jobs import LOOK_AFTER_S, TROUBLE_S, next_end_s, spread
from edl.lifecycle.node_pinning import REFUSED_AFTER_S
from edl.lifecycle.pod_events import FAILED, STEADY_AFTER_S
from edl.model.jobs import Job
from edl.model.pods import OVERDUE_S
from edl.model.status import Condition, JobPhase, JobStatus, NodeTrouble, Reason, Resize
from tests.worlds.builders import make_job

NOW_S = 5000.0


def waiting_for_its_node(job: Job) -> Job:
    first = replace(job.pods[0], node="", pinned=True, tried=True, answered_s=NOW_S - 1.0)
    return replace(job, pods=(first, *job.pods[1:]))


def resized(voluntary_s: float | None) -> Resize:
    return Resize(NOW_S - 10.0, 4, 2, Reason.SERVING_NEEDS_ROOM, voluntary_s)


def whose_pods_failed(job: Job, began_s: float) -> Job:
    """Its condition Degraded goes by itself, once its pods have run for a while."""
    failing = Condition("Degraded", "True", FAILED, "a pod failed", NOW_S - 100.0)
    pods = tuple(replace(pod, started_s=began_s - number) for number, pod in enumerate(job.pods))
    return replace(job, pods=pods, status=JobStatus(JobPhase.RUNNING, conditions=(failing,)))


A_JOB = replace(make_job("a", trainers=2, on=("n000",)), status=JobStatus(JobPhase.RUNNING, start_s=NOW_S - 100.0))
ENDS: dict[str, tuple[Job, float]] = {
    "its turn": (A_JOB, LOOK_AFTER_S * (0.5 + 0.5 * spread(A_JOB.uid))),
    "its deadline": (replace(A_JOB, active_deadline_s=107), 7.0),
    "its time to live": (
        replace(A_JOB, ttl_s=50, status=JobStatus(JobPhase.SUCCEEDED, completion_s=NOW_S - 42.0)),
        8.0,
    ),
    "a pod without its node": (waiting_for_its_node(A_JOB), REFUSED_AFTER_S - 1.0),
    "a pod that does not end": (
        replace(A_JOB, pods=(replace(A_JOB.pods[0], terminating=True, ends_by_s=NOW_S - 20.0), *A_JOB.pods[1:])),
        OVERDUE_S - 20.0,
    ),
    "a resize": (replace(A_JOB, status=JobStatus(JobPhase.RUNNING, last_resize=resized(None))), 50.0),
    "a failure": (whose_pods_failed(A_JOB, NOW_S - 20.0), STEADY_AFTER_S - 20.0),
    "a cooldown": (replace(A_JOB, status=JobStatus(JobPhase.RUNNING, last_resize=resized(NOW_S - 30.0))), 30.0),
}


@pytest.mark.parametrize("what", ENDS)
def test_a_job_is_looked_at_when_a_time_of_its_own_ends(what: str) -> None:
    job, left_s = ENDS[what]
    assert next_end_s(job, NOW_S) == pytest.approx(NOW_S + left_s)


@pytest.mark.parametrize("what", ENDS)
def test_a_time_that_has_ended_is_none(what: str) -> None:
    job, left_s = ENDS[what]
    assert next_end_s(job, NOW_S + left_s) > NOW_S + left_s


def test_jobs_are_looked_at_again_each_at_its_own_moment() -> None:
    ends = [next_end_s(replace(A_JOB, uid=f"uid-{number}"), NOW_S) - NOW_S for number in range(100)]
    assert min(ends) >= 0.5 * LOOK_AFTER_S
    assert max(ends) <= LOOK_AFTER_S
    assert 30 < sum(end < 0.75 * LOOK_AFTER_S for end in ends) < 70


def test_a_job_that_had_trouble_with_a_node_is_looked_at_each_second() -> None:
    assert A_JOB.status is not None
    troubled = replace(A_JOB, status=replace(A_JOB.status, troubles=(NodeTrouble("n1", NOW_S),)))
    assert next_end_s(troubled, NOW_S) == NOW_S + TROUBLE_S
