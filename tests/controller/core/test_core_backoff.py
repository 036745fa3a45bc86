"""After a failed write a job backs off: how long, what ends the pause, and which jobs go on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from edl.controller.due_jobs import CONFLICT_S
from edl.model.actions import (
    Action,
    CreatePod,
    MarkPod,
    Outcome,
    PatchStatus,
    ProbePod,
    Result,
    WithdrawNodeRequest,
)
from edl.model.cluster import NodeRequest
from edl.model.pods import Pod
from tests.controller.core.core_stage import A, B, CoreStage, at_rest, failed, of_type
from tests.worlds.builders import make_shape


def refuse_statuses(stage: CoreStage, result: Result = Result.FAILED) -> Callable[[], int]:
    """Let the statuses of a job fail; returns what counts the tries."""
    tries = 0

    def answer(action: object) -> Outcome | None:
        nonlocal tries
        if not isinstance(action, PatchStatus):
            return None
        tries += 1
        return Outcome(action, result, "Why", "so")

    stage.answer = answer
    stage.alter(A, generation=2)
    stage.plan(dict.fromkeys(("a", "b"), 2))
    return lambda: tries


def test_a_job_rests_after_a_failure_and_twice_as_long_after_each_further_one() -> None:
    stage = at_rest()
    tries = refuse_statuses(stage)
    times = []
    for _ in range(1200):
        before = tries()
        stage.send()
        if tries() > before:
            times.append(round(stage.clock.at_s - 1000.0 - 6.0, 1))
        stage.wait(0.1)
    pauses = [round(after - before, 1) for before, after in pairwise(times)]
    assert pauses[:5] == pytest.approx([1.0, 2.0, 4.0, 8.0, 16.0], abs=0.21)
    assert max(pauses) <= 30.2


def test_a_job_that_was_refused_rests_as_well_when_asking_again_fails() -> None:
    """First a webhook refuses its pods; when it is asked again, the API server fails at them."""
    stage = at_rest()
    result = Result.REFUSED
    times: list[float] = []

    def answer(action: Action) -> Outcome | None:
        if not isinstance(action, CreatePod | ProbePod):
            return None
        times.append(stage.clock.at_s)
        return Outcome(action, result, "InternalError", "no")

    stage.answer = answer
    stage.plan({"a": 4})
    stage.send()
    result = Result.FAILED
    stage.wait(5.05)
    for _ in range(600):
        stage.see()
        for write in stage.take(1):
            stage.end(write)
        stage.wait(0.01)
    assert len(times) < 10, "in six seconds"


def test_failures_of_one_moment_let_a_job_rest_once() -> None:
    stage = at_rest(trainers=1)
    stage.plan({"a": 9})
    writes = stage.take()
    assert len(of_type(CreatePod, writes)) == 8
    stage.answer = failed
    for write in writes:
        stage.end(write)
    stage.answer = lambda _: None
    stage.wait(1.05)
    assert of_type(CreatePod, stage.send())


def test_a_write_that_was_sent_before_the_rest_does_not_end_it() -> None:
    stage = at_rest(trainers=1)
    stage.plan({"a": 9})
    first, second, *others = stage.take()
    for write in others:
        stage.end(write)
    stage.answer = failed
    stage.end(first)
    stage.answer = lambda _: None
    stage.end(second)
    assert not of_type(CreatePod, stage.take()), "its success says nothing about what has failed since"
    stage.wait(1.05)
    assert of_type(CreatePod, stage.take())


def test_after_a_success_the_rest_is_short_again() -> None:
    stage = at_rest(trainers=1)
    tries = refuse_statuses(stage)
    stage.send()
    stage.wait(1.05)
    stage.send()
    assert tries() == 2
    stage.answer = lambda _: None
    stage.wait(2.05)
    stage.send()
    tries = refuse_statuses(stage)
    stage.alter(A, generation=3)
    stage.wait(1.0)
    stage.send()
    before = tries()
    stage.wait(1.05)
    stage.send()
    assert tries() == before + 1


def test_another_job_does_not_rest() -> None:
    stage = at_rest("a", "b")
    refuse_statuses(stage)
    stage.send()
    stage.world.finish(B, "b-trainer-0", 1)
    assert of_type(MarkPod, stage.send())


def test_after_a_conflict_a_job_rests_for_a_moment() -> None:
    stage = at_rest()
    tries = refuse_statuses(stage, Result.CONFLICT)
    stage.send()
    before = tries()
    stage.wait(CONFLICT_S + 0.01)
    stage.send()
    assert tries() == before + 1


def test_after_a_conflict_a_write_that_an_owner_of_quota_awaits_is_soon_sent_again() -> None:
    """A status that another program writes makes a resize a conflict; Kueue then needs a second of its own."""
    stage = at_rest()
    tries = refuse_statuses(stage, Result.CONFLICT)
    stage.send()
    before = tries()
    stage.wait(0.15)
    stage.send()
    assert tries() == before + 1
    stage.wait(0.15)
    stage.send()
    assert tries() == before + 1, "after each further one in a row it rests twice as long"


ENDS: dict[str, Callable[[CoreStage], object]] = {
    "a new spec": lambda stage: stage.alter(A, generation=3),
    "a whole round": lambda stage: stage.core.try_again(),
}


@pytest.mark.parametrize("what", ENDS)
def test_a_rest_ends_before_its_time(what: str) -> None:
    stage = at_rest()
    tries = refuse_statuses(stage)
    stage.send()
    before = tries()
    ENDS[what](stage)
    stage.wait(0.5)
    stage.send()
    assert tries() > before


def test_a_job_that_is_suspended_rests_if_nobody_may_withdraw_its_node_request() -> None:
    stage = at_rest(trainers=0)
    stage.alter(A, suspended=True, generation=2)
    stage.send()
    pod = Pod("default", "a-node-0", "uid-of-request", make_shape(), created_s=900.0)
    snapshot = replace(stage.snapshot(), node_requests=(NodeRequest(A, "big", pod),))
    tries: list[float] = []
    for _ in range(700):
        stage.core.seen(replace(snapshot, observed_at_s=stage.clock.at_s), frozenset())
        for write in stage.take(20):
            if of_type(WithdrawNodeRequest, [write]):
                tries.append(stage.clock.at_s)
            stage.core.ended(write, [Outcome(write.actions[0], Result.REFUSED, "Forbidden", "no")])
        stage.wait(0.1)
    pauses = [after - before for before, after in pairwise(tries)]
    assert len(pauses) > 5
    assert min(pauses) >= 5.0


@pytest.mark.parametrize("result", [Result.REFUSED, Result.FAILED])
def test_nothing_is_kept_of_an_answer_about_a_job_that_is_gone(result: Result) -> None:
    stage = CoreStage()
    stage.add("a")
    stage.see()
    writes = stage.take()
    assert writes
    del stage.world.jobs[A]
    stage.see()
    for write in writes:
        stage.core.ended(write, [Outcome(write.actions[0], result, "Forbidden", "the namespace is terminating")])
    assert not any((stage.backoff._of_job, stage.backoff._failures, stage.backoff._failed_s))


def test_a_job_is_degraded_for_a_minute_after_its_pods_are_accepted_again() -> None:
    stage = at_rest()
    stage.answer = lambda action: (
        Outcome(action, Result.REFUSED, "Forbidden", "no") if isinstance(action, CreatePod | ProbePod) else None
    )
    stage.plan({"a": 4})
    stage.send()
    stage.plan({"a": 2})
    stage.answer = lambda _: None
    degraded = []
    for _ in range(80):
        stage.wait(1.0)
        stage.send()
        status = stage.world.jobs[A].status
        condition = None if status is None else status.condition("Degraded")
        degraded.append(condition is not None and condition.status == "True")
    assert degraded[:60] == [True] * 60
    assert not any(degraded[70:])
