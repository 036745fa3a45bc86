"""Surplus waits while somebody wants capacity that no plan takes into account yet, and never for long."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edl.controller.allotments import FREE_S, HELD_S
from edl.controller.pending_writes import Lane
from edl.model.actions import CreatePod
from edl.model.names import JobKey
from edl.model.status import Reason
from tests.controller.core.core_stage import B, CoreStage, of_type
from tests.worlds.builders import make_serving

WEB = replace(make_serving("web"), tried=True)


def growing(least: int = 1) -> CoreStage:
    """A job of one trainer that is to get 19 more."""
    stage = CoreStage()
    stage.add("a", 1, min_trainers=least, max_trainers=20)
    stage.settle({"a": 1})
    stage.make_needs()
    stage.plan({"a": 20})
    return stage


def created(stage: CoreStage) -> int:
    """How many trainers are created now, at most one of each of three jobs."""
    return len(of_type(CreatePod, stage.take(3)))


def a_job_comes(stage: CoreStage, name: str = "b") -> None:
    stage.add(name, min_trainers=2, max_trainers=2)
    stage.see()


def test_surplus_waits_for_a_new_job_until_a_plan_takes_it_into_account() -> None:
    stage = growing()
    a_job_comes(stage)
    assert not of_type(CreatePod, stage.take())
    stage.plan({"a": 20, "b": 2})
    assert created(stage)


def test_surplus_waits_for_a_serving_pod_until_a_plan_takes_it_into_account() -> None:
    stage = growing()
    view = stage.begin()
    stage.serving = (WEB,)
    stage.see()
    assert not of_type(CreatePod, stage.take())
    stage.publish(view, {"a": 20})
    assert not of_type(CreatePod, stage.take()), "that plan did not know it"
    stage.plan({"a": 20})
    assert created(stage)


def test_surplus_waits_no_more_once_the_serving_pod_has_a_node_or_the_job_is_gone() -> None:
    stage = growing()
    stage.serving = (WEB,)
    stage.see()
    a_job_comes(stage)
    assert not of_type(CreatePod, stage.take())
    stage.serving = ()
    stage.see()
    assert not of_type(CreatePod, stage.take())
    del stage.world.jobs[B]
    stage.see()
    assert created(stage)


def test_trainers_of_a_minimum_wait_for_nobody() -> None:
    stage = growing(least=3)
    a_job_comes(stage)
    assert len(of_type(CreatePod, stage.take())) == 2


def test_an_edited_job_is_one_that_no_plan_takes_into_account() -> None:
    stage = growing()
    stage.add("c", 1, max_trainers=2)
    stage.settle({"a": 1, "c": 1})
    stage.plan({"a": 20, "c": 1})
    stage.make_needs()
    stage.alter(JobKey("default", "c"), generation=2, max_trainers=5)
    assert not of_type(CreatePod, stage.take())


def test_after_two_seconds_surplus_is_sent_for_one() -> None:
    stage = growing()
    a_job_comes(stage)
    began_s, found = stage.clock.at_s, []
    for _ in range(60):
        found.append((round(stage.clock.at_s - began_s, 1), created(stage)))
        stage.wait(0.1)
    free = [at_s for at_s, count in found if count]
    assert free[0] == HELD_S
    assert all(at_s % (HELD_S + FREE_S) >= HELD_S for at_s in free)
    assert len(free) > 5


@pytest.mark.parametrize("each_s", [0.3, 0.7, 1.1, 1.5, 2.5])
@pytest.mark.parametrize("plan_s", [0.2, 1.0, 3.0])
def test_changes_without_end_hold_surplus_for_two_thirds_of_the_time_at_most(each_s: float, plan_s: float) -> None:
    """Jobs come without end, so each plan is out of date when it is published."""
    stage = growing()
    view, due_s, comes_s, number, free = stage.begin(), stage.clock.at_s + plan_s, stage.clock.at_s, 0, 0
    for _ in range(600):
        now_s = stage.clock.at_s
        if now_s >= comes_s:
            number, comes_s = number + 1, comes_s + each_s
            a_job_comes(stage, f"new-{number:03}")
        if now_s >= due_s:
            stage.publish(view, {"a": 20})
            view, due_s = stage.begin(), now_s + plan_s
        while (write := stage.core.take()) is not None and write.lane is not Lane.SURPLUS:
            stage.end(write)
        free += not stage.core.is_held(now_s)
        if write is not None:
            stage.core.ended(write, [])
        stage.wait(0.05)
    assert free >= 0.3 * 600, "a third, but for the steps of this test"


def test_surplus_waits_for_jobs_that_were_not_looked_at_yet() -> None:
    stage = growing()
    for number in range(20):
        stage.add(f"c{number:02}", min_trainers=1, max_trainers=1)
    targets = {"a": 20, **{f"c{number:02}": 1 for number in range(20)}}
    stage.plan(targets)
    stage.make_needs()
    lanes = [write.lane for write in stage.take()]
    assert lanes.index(Lane.SURPLUS) > max(number for number, lane in enumerate(lanes) if lane is Lane.BASE)


def test_without_patience_only_what_somebody_waits_for_is_taken() -> None:
    stage = growing()
    assert stage.core.take(background=False) is None
    assert stage.core.take() is not None


def test_when_the_holding_ends_is_known_beforehand() -> None:
    stage = growing()
    a_job_comes(stage)
    stage.take()
    assert stage.core.next_look_s() <= stage.clock.at_s + HELD_S
    stage.wait(HELD_S)
    stage.take(1)
    assert stage.core.next_look_s() <= stage.clock.at_s + FREE_S


def test_trainers_of_others_do_not_end_for_serving_pods_that_are_gone() -> None:
    stage = CoreStage(serving=(WEB,))
    stage.add("a", 4)
    stage.settle({"a": 4})
    stage.plan({"a": 2}, Reason.SERVING_NEEDS_ROOM)
    stage.serving = ()
    stage.see()
    assert stage.core.has_needless_evictions()
    assert not [write for write in stage.take() if write.lane is Lane.EVICT]
