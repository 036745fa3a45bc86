"""When the API server is asked about the pods of a job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edl.controller.backoff import Backoff
from edl.controller.probes import Probes
from edl.model.actions import EnsurePodGroup, EnsureSecret, Outcome, ProbePod, Result
from edl.model.cluster import ResourceQuota
from edl.model.jobs import FixedPods, Job
from edl.model.names import Role
from edl.model.status import JobPhase, JobStatus
from edl.planner.quota import QuotaNow
from tests.worlds.builders import make_job, make_node, make_shape, make_snapshot

NEW = make_job("a", max_trainers=3)
ANSWER = ProbePod(NEW.key, NEW.uid, Role.TRAINER, 0)


def is_due(probes: Probes, job: Job = NEW, now_s: float = 100.0, *, pods: int | None = None) -> bool:
    quotas = () if pods is None else (ResourceQuota("default", "q", (("pods", pods),)),)
    snapshot = replace(make_snapshot((make_node("n000"),), (job,)), resource_quotas=quotas)
    return probes.is_due(job, lambda: QuotaNow(snapshot), now_s)


@pytest.mark.parametrize(
    ("result", "again"),
    [
        (Result.DONE, False),
        (Result.UNCHANGED, False),
        (Result.FAILED, True),
        (Result.CONFLICT, True),
        (Result.NOT_LEADER, True),
    ],
)
def test_a_new_job_is_asked_about_until_there_is_an_answer(result: Result, again: bool) -> None:
    probes = Probes(Backoff())
    assert is_due(probes)
    probes.ended(NEW, [Outcome(ANSWER, result)])
    assert is_due(probes) is again


def test_an_edited_job_is_asked_about_again() -> None:
    probes = Probes(Backoff())
    probes.ended(NEW, [Outcome(ANSWER, Result.DONE)])
    edited = replace(NEW, generation=2)
    assert is_due(probes, edited)
    assert probes.is_new(edited)
    assert not probes.is_new(NEW)


def test_a_job_that_wants_no_pods_is_not_asked_about() -> None:
    probes = Probes(Backoff())
    full = make_job("a", trainers=3, max_trainers=3, on=("n000",))
    for job in (full, replace(NEW, suspended=True), replace(NEW, problem="no"), replace(NEW, owner_count=2)):
        assert not is_due(probes, job)


def test_a_full_quota_is_not_asked() -> None:
    assert not is_due(Probes(Backoff()), pods=0)
    assert is_due(Probes(Backoff()), pods=5)


def test_while_pods_are_rejected_it_is_asked_after_each_pause() -> None:
    backoff = Backoff()
    probes = Probes(backoff)
    refused = Outcome(ANSWER, Result.REFUSED, "Forbidden", "no")
    backoff.record(refused, 100.0)
    probes.ended(NEW, [refused])
    assert not is_due(probes, now_s=104.0)
    assert is_due(probes, now_s=105.0)
    backoff.accept_questions(NEW.uid, 105.0)
    assert not is_due(probes, now_s=106.0)


def test_a_question_without_an_answer_is_asked_again_and_makes_no_spec_new() -> None:
    probes = Probes(Backoff())
    probes.ended(NEW, [Outcome(ANSWER, Result.FAILED)])
    assert not probes.is_new(NEW)
    probes.ended(NEW, [Outcome(ANSWER, Result.UNCHANGED)])
    assert not is_due(probes)
    probes.ended(NEW, [Outcome(ANSWER, Result.FAILED)])
    probes.forget(NEW.uid)
    assert NEW.uid not in probes._unanswered


def test_there_is_a_question_for_each_kind_of_pod_after_what_was_rejected() -> None:
    backoff = Backoff()
    job = replace(NEW, fixed=(FixedPods(Role.MASTER, make_shape(0.25), 1),), gang=True)
    secret = EnsureSecret(job.key, job.uid)
    backoff.record(Outcome(secret, Result.REFUSED, "Forbidden", "no"), 100.0)
    first, group, *pods = Probes(backoff).questions(job)
    assert first == secret
    assert group == EnsurePodGroup(job.key, job.uid)
    assert [pod.role for pod in pods if isinstance(pod, ProbePod)] == [Role.MASTER, Role.TRAINER]


def test_a_job_that_runs_under_its_present_spec_was_accepted() -> None:
    running = replace(
        make_job("a", trainers=1, max_trainers=3, on=("n000",)),
        status=JobStatus(JobPhase.RUNNING, observed_generation=1),
        generation=1,
    )
    probes = Probes(Backoff())
    probes.first_seen(running)
    assert not is_due(probes, running)
    assert is_due(probes, replace(running, generation=2))
    edited = Probes(Backoff())
    edited.first_seen(replace(running, generation=2))
    assert is_due(edited, replace(running, generation=2))
