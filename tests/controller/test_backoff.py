"""Requests that the API server refuses are repeated after growing pauses, for each job and kind of action."""

from __future__ import annotations

from edl.controller.backoff import BUSY_S, Backoff
from edl.model.actions import (
    CreatePod,
    DeletePod,
    EmitEvent,
    EnsureService,
    EventKind,
    Outcome,
    ProbePod,
    ResizeWorkload,
    Result,
)
from edl.model.names import JobKey, Role
from edl.model.status import Resize

KEY = JobKey("default", "a")


def outcome(result: Result, *, uid: str = "u", retry_after_s: float | None = None) -> Outcome:
    return Outcome(CreatePod(KEY, uid, Role.TRAINER, 0), result, "Forbidden", "quota", retry_after_s)


def test_a_refused_request_is_repeated_after_growing_pauses() -> None:
    backoff, now_s, pauses = Backoff(), 0.0, []
    for _ in range(9):
        backoff.record(outcome(Result.REFUSED), now_s)
        pause_s = 0.0
        while not backoff.allows("u", CreatePod, now_s + pause_s):
            pause_s += 1.0
        pauses.append(pause_s)
        now_s += pause_s
    assert pauses == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    assert backoff.refusal("u", now_s) == ("Forbidden", "quota")


def test_a_refusal_delays_one_job_and_one_kind_of_action_only() -> None:
    backoff = Backoff()
    backoff.record(outcome(Result.REFUSED), 0.0)
    assert not backoff.allows("u", EnsureService, 1.0), "creating what a pod needs is one kind with creating the pod"
    assert backoff.allows("u", DeletePod, 1.0)
    assert backoff.allows("other", CreatePod, 1.0)
    backoff.forget("u")
    assert backoff.allows("u", CreatePod, 1.0)


def test_a_success_ends_the_refusal_and_a_busy_server_is_not_a_refusal() -> None:
    backoff = Backoff()
    backoff.record(outcome(Result.FAILED, retry_after_s=7.0), 0.0)
    assert not backoff.allows("u", CreatePod, 6.9)
    assert backoff.allows("u", CreatePod, 7.0)
    assert backoff.refusal("u", 20.0) is None
    backoff.record(Outcome(DeletePod(KEY, "u", "p", "pu", "x"), Result.REFUSED, "Forbidden", "no"), 10.0)
    backoff.record(Outcome(DeletePod(KEY, "u", "p", "pu", "x"), Result.UNCHANGED), 20.0)
    assert backoff.refusal("u", 20.0) is None


def test_a_server_that_stays_busy_for_one_job_alone_refuses_it() -> None:
    backoff = Backoff()
    for now_s in (0.0, 5.0, BUSY_S - 1):
        backoff.record(outcome(Result.FAILED, retry_after_s=1.0), now_s)
        assert backoff.refused_creation("u", now_s) is None
    backoff.record(outcome(Result.DONE, uid="other"), BUSY_S)
    pauses_s, now_s = [], BUSY_S + 1
    for _ in range(4):
        backoff.record(outcome(Result.FAILED, retry_after_s=1.0), now_s)
        refused = backoff.refused_creation("u", now_s)
        assert refused is not None
        pauses_s.append(refused.pause_s)
        now_s = refused.until_s
    assert pauses_s == [2.0, 4.0, 8.0, 16.0]
    assert backoff.refusal("u", now_s) == ("Forbidden", "quota")


def test_a_server_that_is_busy_for_all_refuses_nobody() -> None:
    backoff = Backoff()
    for now_s in range(0, 600, 30):
        for uid in ("u", "other"):
            backoff.record(outcome(Result.FAILED, uid=uid, retry_after_s=1.0), float(now_s))
    assert backoff.refused_creation("u", 600.0) is None


def probe(result: Result) -> Outcome:
    return Outcome(ProbePod(KEY, "u", Role.TRAINER, 0), result, "Forbidden", "quota")


def test_a_created_pod_ends_no_refusal_but_a_probe_that_is_accepted_does() -> None:
    """The pod may have been under way when another one was refused."""
    backoff = Backoff()
    backoff.record(outcome(Result.REFUSED), 0.0)
    backoff.record(outcome(Result.DONE), 0.1)
    backoff.accept_questions("u", 4.0)
    assert backoff.refusal("u", 20.0) == ("Forbidden", "quota"), "it may have been asked before the refusal"
    backoff.record(probe(Result.UNCHANGED), 5.0)
    assert backoff.refusal("u", 65.0) == ("Forbidden", "quota"), "there may be a question about pods of another role"
    backoff.accept_questions("u", 5.0)
    assert backoff.refusal("u", 20.0) == ("Forbidden", "quota"), "the pod may be refused all the same"
    assert backoff.refusal("u", 65.0) is None
    backoff.record(outcome(Result.DONE), 21.0)
    assert backoff.refusal("u", 22.0) is None


def test_after_a_refusal_the_job_tries_for_twice_as_many_each_time() -> None:
    backoff, steps = Backoff(), []
    backoff.record(outcome(Result.REFUSED), 0.0)
    backoff.accept_questions("u", 5.0)
    for now_s in (6.0, 7.0, 8.0, 9.0):
        refused = backoff.refused_creation("u", 20.0)
        assert refused is not None
        steps.append(refused.step)
        for _ in range(refused.step):
            backoff.record(outcome(Result.DONE), now_s)
    assert steps == [1, 2, 4, 8]
    later = backoff.refused_creation("u", 5.0 + 120)
    assert later is not None
    assert later.step == 64, "and each minute, because a fair share may wait for more"
    assert backoff.refused_creation("u", 5.0 + 14 * 60) is None
    backoff.record(outcome(Result.REFUSED), 900.0)
    assert not backoff.allows("u", CreatePod, 904.0)


def test_a_success_of_another_role_says_nothing_of_these_pods() -> None:
    master = CreatePod(KEY, "u", Role.MASTER, 0)
    backoff = Backoff()
    for now_s in (0.0, 1.0, 2.0):
        backoff.record(Outcome(master, Result.DONE), now_s)
        backoff.record(outcome(Result.FAILED), now_s + 0.1)
    assert backoff.refusal("u", 3.0) == ("Forbidden", "quota"), "it fails at trainers, again and again"
    backoff.record(Outcome(master, Result.DONE), 50.0)
    assert backoff.refusal("u", 200.0) == ("Forbidden", "quota")
    backoff.accept_questions("u", 200.0)
    backoff.record(Outcome(master, Result.DONE), 201.0)
    refused = backoff.refused_creation("u", 202.0)
    assert refused is not None
    assert refused.step == 1, "a master is no trainer for which the job may try"


def test_failures_of_a_job_that_succeeds_or_is_gone_are_forgotten() -> None:
    backoff = Backoff()
    for uid in ("u", "v", "w"):
        backoff.record(outcome(Result.FAILED, uid=uid), 0.0)
    backoff.record(outcome(Result.DONE, uid="u"), 1.0)
    backoff.forget("v")
    assert list(backoff._failed_s) == list(backoff._failures) == ["w"]


def test_refusals_of_what_the_job_needs_no_more_are_dropped() -> None:
    backoff = Backoff()
    deletion, event = DeletePod(KEY, "u", "p", "pu", "x"), EmitEvent(KEY, "u", EventKind.NORMAL, "ScaledUp", "m")
    backoff.record(Outcome(deletion, Result.REFUSED, "Forbidden", "pods"), 0.0)
    backoff.record(Outcome(event, Result.REFUSED, "Forbidden", "events"), 0.0)
    backoff.forget_unwanted("u", [deletion], 1.0)
    assert backoff.refusal("u", 20.0) == ("Forbidden", "pods")
    backoff.forget_unwanted("u", [], 2.0)
    assert backoff.refusal("u", 20.0) == ("Forbidden", "events"), "for its pause, so that somebody can see it"
    backoff.forget_unwanted("u", [], 5.0)
    assert backoff.refusal("u", 20.0) is None


def test_what_is_asked_again_in_vain_pauses_longer_and_keeps_its_words_while_everything_fails() -> None:
    """All creations fail, and nothing else is written: that may be an outage, which says nothing of the quota."""
    backoff, now_s, pauses = Backoff(), 0.0, []
    for uid in ("u", "other"):
        backoff.record(outcome(Result.REFUSED, uid=uid), now_s)
    for _ in range(8):
        now_s += 400.0
        for moment_s in (now_s, now_s + 1.0):
            for uid in ("u", "other"):
                failure = Outcome(ProbePod(KEY, uid, Role.TRAINER, 0), Result.FAILED, "Unavailable", "down")
                backoff.record(failure, moment_s)
        refused = backoff.refused_creation("u", now_s)
        assert refused is not None
        pauses.append(refused.pause_s)
    assert pauses == [10, 20, 40, 80, 160, 300, 300, 300]
    assert backoff.refusal("u", now_s) == ("Forbidden", "quota")


def test_another_cause_is_told_once_it_has_failed_twice_while_other_writes_succeed() -> None:
    backoff = Backoff()
    backoff.record(outcome(Result.REFUSED), 0.0)
    failure = Outcome(ProbePod(KEY, "u", Role.TRAINER, 0), Result.FAILED, "Unavailable", "Internal error (500)")
    backoff.record(failure, 5.0)
    assert backoff.refusal("u", 5.0) == ("Forbidden", "quota")
    backoff.record(outcome(Result.DONE, uid="other"), 5.5)
    backoff.record(failure, 6.0)
    assert backoff.refusal("u", 6.0) == ("Unavailable", "Internal error (500)")
    assert not backoff.allows("u", ProbePod, 15.9)
    assert backoff.allows("u", ProbePod, 16.0)


def test_what_may_have_failed_in_an_outage_is_asked_again_once_something_is_written() -> None:
    backoff = Backoff()
    failure = Outcome(ProbePod(KEY, "u", Role.TRAINER, 0), Result.FAILED, "Unavailable", "down")
    for now_s in (0.0, 1.0, 6.0, 16.0):
        backoff.record(failure, now_s)
    assert not backoff.allows("u", ProbePod, 35.9)
    backoff.record(outcome(Result.DONE, uid="other"), 20.0)
    assert backoff.allows("u", ProbePod, 20.0)
    backoff.record(failure, 20.0)
    assert backoff.refusal("u", 20.0) == ("Unavailable", "down")
    backoff.record(outcome(Result.DONE, uid="other"), 21.0)
    assert not backoff.allows("u", ProbePod, 59.9), "only its creations fail, so the pauses go on to double"


def test_an_outage_keeps_no_workload_from_being_resized_afterwards() -> None:
    backoff = Backoff()

    def resize(result: Result) -> Outcome:
        action = ResizeWorkload(KEY, "w", 2, 3, Resize(0.0, 2, 3, "AtMax"))
        return Outcome(action, result, "Unavailable", "down")

    for down_s in range(0, 3600, 30):
        backoff.record(resize(Result.FAILED), float(down_s))
    assert backoff.refused_resize("w") is None, "nothing else was written either"
    backoff.record(outcome(Result.DONE, uid="other"), 3590.0)
    backoff.record(resize(Result.FAILED), 3600.0)
    assert backoff.refused_resize("w") is not None
    now_s = 3600.0
    for _ in range(10):
        while not backoff.allows("w", ResizeWorkload, now_s):
            now_s += 1.0
        backoff.record(resize(Result.FAILED), now_s)
    assert not backoff.allows("w", ResizeWorkload, now_s + 100.0)
    backoff.record(outcome(Result.DONE, uid="other"), now_s + 1.0)
    assert backoff.allows("w", ResizeWorkload, now_s + 1.0)
