"""Jobs about whose pods a plan need not judge anything."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from edl.controller.pauses.calm import CalmJobs, is_calm
from edl.controller.pauses.unscheduled import UnscheduledTrainers
from edl.controller.pauses.unstarted_growth import UnstartedGrowth
from edl.lifecycle.pod_events import FAILED
from edl.lifecycle.trials.unstarted import NOT_STARTED_AFTER_S, as_started
from edl.model.jobs import Job
from edl.model.pods import PodPhase
from edl.model.status import Condition, JobPhase, JobStatus
from tests.worlds.builders import make_job, make_nodes, make_snapshot

AGE_S = 10 * NOT_STARTED_AFTER_S
CALM = make_job("a", trainers=2, max_trainers=4, on=("n000",))


def last(job: Job, **fields: Any) -> Job:
    """The job with a change of its last pod."""
    return replace(job, pods=(*job.pods[:-1], replace(job.pods[-1], **fields)))


RESTLESS = {
    "a pod without a node": last(CALM, node="", phase=PodPhase.PENDING),
    "a pod that has not begun": last(CALM, phase=PodPhase.PENDING, begun=False),
    "a pod that ends": last(CALM, terminating=True),
    "a failure": replace(
        CALM, status=JobStatus(JobPhase.RUNNING, conditions=(Condition("Degraded", "True", FAILED, "why", 0.0),))
    ),
}


def test_a_job_whose_pods_run_is_calm() -> None:
    assert is_calm(CALM)


@pytest.mark.parametrize("what", RESTLESS)
def test_a_job_is_not_calm_with(what: str) -> None:
    assert not is_calm(RESTLESS[what])


@pytest.mark.parametrize("job", [CALM, make_job("b"), make_job("c", trainers=4, max_trainers=4, on=("n000",))])
def test_nothing_is_held_back_of_a_calm_job_however_much_later(job: Job) -> None:
    """So a plan may pass over it."""
    assert is_calm(job)
    view = make_snapshot(make_nodes(1), (job,))
    growth, unscheduled = UnstartedGrowth(), UnscheduledTrainers()
    for now_s in (0.0, AGE_S, 100 * AGE_S):
        assert as_started(job, now_s) is job
        assert growth.apply(view, now_s, lambda _: False) is view
        assert unscheduled.apply(view, now_s) is view
    assert growth.next_end_s(0.0) == unscheduled.next_end_s(0.0) == float("inf")


def test_a_job_is_judged_once_until_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[str] = []

    def noted(job: Job) -> bool:
        judged.append(job.uid)
        return is_calm(job)

    monkeypatch.setattr("edl.controller.pauses.calm.is_calm", noted)
    jobs, calm = [replace(CALM, uid=f"uid-{number}") for number in range(5)], CalmJobs()
    for _ in range(3):
        assert calm.among(jobs) == {job.uid for job in jobs}
    assert len(judged) == 5
    jobs[2] = last(jobs[2], terminating=True)
    assert calm.among(jobs) == {job.uid for job in jobs} - {"uid-2"}
    assert judged[5:] == ["uid-2"]
    assert calm.among(jobs[:1]) == {"uid-0"}
    assert len(calm._known) == 1
