"""Counts are written together, and a job that a plan will soon know is written once."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from edl.controller.pending_writes import Lane, Write
from edl.controller.status_pace import BRIEF_S, DEBOUNCE_S, LONGEST_S, PLAN_WITHIN_S, StatusPace
from edl.model.actions import DeletePod, EmitEvent, EventKind, PatchStatus
from edl.model.jobs import Job
from edl.model.status import JobPhase, JobStatus, RoleCount
from tests.worlds.builders import make_job

STORED = JobStatus(JobPhase.RUNNING, trainer=RoleCount(desired=4, ready=1))
JOB = replace(make_job("a"), status=STORED)
MORE_READY = replace(STORED, trainer=RoleCount(desired=4, ready=2))


def patch(status: JobStatus, job: Job = JOB, lane: Lane = Lane.STATUS, *, event: bool = False) -> Write:
    told = (EmitEvent(job.key, job.uid, EventKind.NORMAL, "Why", "so"),) if event else ()
    return Write((PatchStatus(job.key, job.uid, status), *told), lane)


def due_s(pace: StatusPace, write: Write, now_s: float = 100.0, *, job: Job = JOB, is_planned: bool = True) -> float:
    return pace.due_s(job, write, now_s, is_planned=is_planned)


def test_counts_are_written_a_moment_after_the_last_change() -> None:
    pace = StatusPace()
    assert due_s(pace, patch(MORE_READY)) == 100.0 + DEBOUNCE_S
    assert pace.counted(JOB.uid, 100.1) == pytest.approx(100.1 + DEBOUNCE_S)
    assert due_s(pace, patch(MORE_READY), 100.1) == pytest.approx(100.1 + DEBOUNCE_S)


def test_counts_that_keep_changing_are_written_each_second() -> None:
    pace = StatusPace()
    for number in range(20):
        due = pace.counted(JOB.uid, 100.0 + number / 10)
    assert due == 100.0 + LONGEST_S
    assert pace.is_counted(JOB.uid)
    pace.sent(JOB.uid)
    assert not pace.is_counted(JOB.uid)
    assert pace.counted(JOB.uid, 105.0) == 105.0 + DEBOUNCE_S


def test_the_loss_of_ready_pods_is_not_delayed_by_pods_that_start_meanwhile() -> None:
    pace = StatusPace()
    pace.changed(JOB.uid, 100.0)
    fewer = replace(STORED, trainer=RoleCount(desired=4))
    for number in range(4):
        pace.counted(JOB.uid, 100.0 + number / 10)
    assert due_s(pace, patch(fewer, lane=Lane.LOSS), 100.4) == pytest.approx(100.0 + DEBOUNCE_S)


@pytest.mark.parametrize(
    "status",
    [
        replace(MORE_READY, phase=JobPhase.SCALING),
        replace(MORE_READY, explanation="another plan"),
        replace(STORED, trainer=RoleCount(desired=5, ready=1)),
        replace(MORE_READY, failures=1),
    ],
    ids=["the phase", "the sentence", "how many it wants", "a failure"],
)
def test_anything_but_counts_is_written_at_once(status: JobStatus) -> None:
    assert due_s(StatusPace(), patch(status)) == -inf


def test_an_event_a_first_status_and_whatever_is_no_status_do_not_wait() -> None:
    pace, new = StatusPace(), replace(JOB, status=None)
    assert due_s(pace, patch(MORE_READY, event=True)) == -inf
    assert due_s(pace, patch(STORED, new, Lane.REPORT), job=new) == -inf
    assert due_s(pace, Write((DeletePod(JOB.key, JOB.uid, "p", "u", "x"),), Lane.END), is_planned=False) == -inf


def test_a_job_that_came_waits_a_little_for_its_plan_if_plans_are_brief() -> None:
    pace, new = StatusPace(), replace(JOB, status=None)
    pace.changed(new.uid, 99.9)
    first = patch(replace(STORED, phase=JobPhase.PENDING), new, Lane.REPORT)
    assert due_s(pace, first, job=new, is_planned=False) == pytest.approx(99.9 + PLAN_WITHIN_S)
    assert due_s(pace, first, job=new, is_planned=True) == -inf
    pace.plan_s = BRIEF_S + 0.01
    assert due_s(pace, first, job=new, is_planned=False) == -inf


def test_the_end_of_a_job_and_another_phase_wait_for_no_plan() -> None:
    pace = StatusPace()
    pace.changed(JOB.uid, 100.0)
    for phase in (JobPhase.SUCCEEDED, JobPhase.FAILED, JobPhase.SCALING):
        assert due_s(pace, patch(replace(STORED, phase=phase)), is_planned=False) == -inf


def test_nothing_is_remembered_of_a_job_that_is_gone() -> None:
    pace = StatusPace()
    pace.counted(JOB.uid, 100.0)
    pace.changed(JOB.uid, 100.0)
    pace.forget(JOB.uid)
    assert not pace.is_counted(JOB.uid)
    assert due_s(pace, patch(MORE_READY), 101.0, is_planned=False) == -inf
