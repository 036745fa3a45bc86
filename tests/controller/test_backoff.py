"""Requests that the API server refuses are repeated after growing pauses, for each job and kind of action."""

from __future__ import annotations

from edl.controller.backoff import Backoff
from edl.model.actions import CreatePod, DeletePod, EnsureService, Outcome, Result
from edl.model.names import JobKey, Role

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
    assert backoff.refusal("u") == ("Forbidden", "quota")


def test_a_refusal_delays_one_job_and_one_kind_of_action_only() -> None:
    backoff = Backoff()
    backoff.record(outcome(Result.REFUSED), 0.0)
    assert not backoff.allows("u", EnsureService, 1.0), "creating what a pod needs is one kind with creating the pod"
    assert backoff.allows("u", DeletePod, 1.0)
    assert backoff.allows("other", CreatePod, 1.0)
    backoff.keep_only({"other"})
    assert backoff.allows("u", CreatePod, 1.0)


def test_a_success_ends_the_refusal_and_a_busy_server_is_not_a_refusal() -> None:
    backoff = Backoff()
    backoff.record(outcome(Result.FAILED, retry_after_s=7.0), 0.0)
    assert not backoff.allows("u", CreatePod, 6.9)
    assert backoff.allows("u", CreatePod, 7.0)
    assert backoff.refusal("u") is None
    backoff.record(outcome(Result.REFUSED), 10.0)
    backoff.record(outcome(Result.DONE), 20.0)
    assert backoff.refusal("u") is None
