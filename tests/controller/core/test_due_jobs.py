"""When a job is looked at again although nothing about it changes."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl.controller.due_jobs import LEAST_SWEPT, LOOK_AFTER_S, TROUBLE_S, DueJobs, next_end_s, spread
from edl.lifecycle.node_pinning import REFUSED_AFTER_S
from edl.lifecycle.pod_events import FAILED, STEADY_AFTER_S
from edl.model.jobs import Job
from edl.model.pods import OVERDUE_S
from edl.model.status import Condition, JobPhase, JobStatus, NodeTrouble, Reason, Resize
from tests.worlds.builders import make_job
from tests.worlds.effort import examples

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


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 9), st.booleans(), st.booleans()), max_size=40))
@examples(200)
def test_jobs_are_taken_once_their_last_time_has_come_and_the_next_time_is_known(
    steps: list[tuple[str, int, bool, bool]],
) -> None:
    due, plain, now_s = DueJobs(1.0, 8.0), dict[str, float](), 0.0
    for uid, wait_s, or_sooner, forgets in steps:
        at_s = now_s + wait_s
        plain[uid] = min(at_s, plain.get(uid, inf)) if or_sooner else at_s
        due.later(uid, at_s, or_sooner=or_sooner)
        if forgets:
            due.forget(uid)
            del plain[uid]
        now_s += 1.0
        taken = sorted(one for one, end_s in plain.items() if end_s <= now_s)
        assert sorted(due.take_later(now_s)) == taken
        for one in taken:
            del plain[one]
        assert min(due.next_s(), default=inf) <= min(plain.values(), default=inf)
        assert all(end_s > now_s for end_s in due.next_s())


def test_a_job_that_is_looked_at_a_thousand_times_is_noted_a_few_times() -> None:
    """Of thousands of jobs each is looked at once a moment while it grows; no turn goes through all of them."""
    due = DueJobs(1.0, 8.0)
    for number in range(10_000):
        due.later(f"uid-{number % 3}", 100.0 + number)
    assert len(due._ends) <= 2 * 3 + LEAST_SWEPT
    assert sorted(due.take_later(inf)) == ["uid-0", "uid-1", "uid-2"]
