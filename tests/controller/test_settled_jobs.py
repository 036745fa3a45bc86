"""A job that lacks nothing is not looked at again while the facts and the time say the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from edl.controller.settled_jobs import LOOK_AFTER_S, Given, SettledJobs, turn_of
from edl.lifecycle.desired_state import JobContext
from edl.lifecycle.node_pinning import REFUSED_AFTER_S
from edl.lifecycle.pod_events import FAILED, STEADY_AFTER_S
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.status import Condition, JobPhase, JobStatus, Reason, Resize
from tests.worlds.builders import make_job

NOW_S = 5000.0


def given(job: Job) -> Given:
    return Given(job, None, (), JobContext())


def settled(facts: Given) -> SettledJobs:
    jobs = SettledJobs()
    jobs.note(facts, NOW_S, lacks=False)
    return jobs


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
    "its turn": (A_JOB, LOOK_AFTER_S * (0.5 + 0.5 * turn_of(A_JOB.uid))),
    "its deadline": (replace(A_JOB, active_deadline_s=107), 7.0),
    "its time to live": (
        replace(A_JOB, ttl_s=50, status=JobStatus(JobPhase.SUCCEEDED, completion_s=NOW_S - 42.0)),
        8.0,
    ),
    "a pod without its node": (waiting_for_its_node(A_JOB), REFUSED_AFTER_S - 1.0),
    "a resize": (replace(A_JOB, status=JobStatus(JobPhase.RUNNING, last_resize=resized(None))), 50.0),
    "a failure": (whose_pods_failed(A_JOB, NOW_S - 20.0), STEADY_AFTER_S - 20.0),
    "a cooldown": (replace(A_JOB, status=JobStatus(JobPhase.RUNNING, last_resize=resized(NOW_S - 30.0))), 30.0),
}


@pytest.mark.parametrize("what", ENDS)
def test_a_job_is_settled_until_a_time_ends(what: str) -> None:
    job, left_s = ENDS[what]
    jobs = settled(given(job))
    assert jobs.has(given(job), NOW_S + left_s - 0.01)
    assert not jobs.has(given(job), NOW_S + left_s)
    assert not jobs.has(given(job), NOW_S - 0.01), "the clock went back"


def test_jobs_are_looked_at_again_in_turn() -> None:
    some = [replace(A_JOB, uid=f"uid-{number}") for number in range(100)]
    jobs = SettledJobs()
    for job in some:
        jobs.note(given(job), NOW_S, lacks=False)

    def due(share: float) -> int:
        return sum(not jobs.has(given(job), NOW_S + share * LOOK_AFTER_S) for job in some)

    assert due(0.49) == 0
    assert 30 < due(0.75) < 70
    assert due(1.0) == 100


CHANGES: dict[str, Callable[[Given], Given]] = {
    "the job": lambda g: replace(g, job=replace(g.job, max_trainers=3)),
    "a pod": lambda g: replace(g, job=replace(g.job, pods=g.job.pods[:1])),
    "what may start": lambda g: replace(g, places=((Role.TRAINER, "n000"),)),
    "what is known of its surroundings": lambda g: replace(g, context=JobContext(frozenset({"uid"}))),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_job_whose_facts_change_is_looked_at(what: str) -> None:
    facts = given(A_JOB)
    assert not settled(facts).has(CHANGES[what](facts), NOW_S + 1.0)


def test_a_job_that_lacks_something_is_looked_at_again_and_so_is_a_forgotten_one() -> None:
    jobs = settled(given(A_JOB))
    jobs.note(given(A_JOB), NOW_S, lacks=True)
    assert not jobs.has(given(A_JOB), NOW_S)
    jobs = settled(given(A_JOB))
    jobs.keep_only({"another"})
    assert not jobs.has(given(A_JOB), NOW_S)
