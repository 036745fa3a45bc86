"""Jobs that are too large to be read: their statuses are sent one after the other, and hold up nobody else's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edl.controller.pending_writes import Lane, Write
from edl.model.actions import Outcome, PatchStatus, Result
from tests.controller.core.core_stage import CoreStage, of_type

MANY = 20
TOOK_S = 1.5


def with_oversized(many: int = MANY) -> CoreStage:
    """So many of them beside one that is only invalid."""
    stage = CoreStage()
    for number in range(many):
        job = stage.add(f"large-{number}")
        stage.alter(job.key, problem="its JSON has 2000000 bytes", is_oversized=True)
    stage.alter(stage.add("invalid").key, problem="spec.trainer is missing")
    return stage


def taken(stage: CoreStage) -> list[Write]:
    """What is sent once all jobs were looked at, the first ones first."""
    found = stage.take()
    while stage.core.has_more:
        found += stage.take()
    return found


def test_one_status_at_a_time_is_under_way_and_the_api_server_rests_as_long_as_it_took() -> None:
    stage = with_oversized()
    second, first = taken(stage)
    assert (first.lane, second.lane) == (Lane.REPORT, Lane.OVERSIZED)
    stage.end(first)
    stage.wait(TOOK_S)
    stage.see()
    stage.core.ended(second, [replace(stage.world.apply(one), seconds=TOOK_S) for one in second.actions[:1]])
    assert not taken(stage)
    assert stage.core.next_look_s() == stage.clock.at_s + TOOK_S
    stage.wait(TOOK_S - 0.01)
    assert not taken(stage)
    stage.wait(0.01)
    (third,) = taken(stage)
    assert third.lane is Lane.OVERSIZED
    assert third.job_uid != second.job_uid


def test_each_gets_its_status_in_the_end_and_then_there_is_nothing_more_to_send() -> None:
    stage = with_oversized()
    told = []
    for _ in range(MANY + 2):
        told += [action.job.name for action in of_type(PatchStatus, stage.send())]
        stage.wait(1.0)
    assert sorted(told) == sorted(["invalid", *(f"large-{number}" for number in range(MANY))])
    assert not taken(stage)


def test_a_status_without_an_answer_lets_the_others_rest_as_well() -> None:
    stage = with_oversized(2)
    large = next(write for write in taken(stage) if write.lane is Lane.OVERSIZED)
    (status,) = of_type(PatchStatus, [large])
    stage.core.ended(large, [Outcome(status, Result.FAILED, "Timeout", "no answer", seconds=4.5)])
    stage.wait(4.4)
    assert not taken(stage)
    stage.wait(0.2)
    assert [write.lane for write in taken(stage)] == [Lane.OVERSIZED]


def test_one_that_may_be_sent_already_and_has_no_place_is_no_time_to_look() -> None:
    stage = with_oversized(1)
    stage.core.take(background=False)
    assert stage.core.take(background=False) is None
    assert stage.core.next_look_s() > stage.clock.at_s


@pytest.mark.parametrize("at_once", [False, True])
def test_who_runs_one_round_has_no_pauses(*, at_once: bool) -> None:
    stage = with_oversized(3)
    stage.core.at_once = at_once
    large = next(write for write in taken(stage) if write.lane is Lane.OVERSIZED)
    stage.core.ended(large, [replace(stage.world.apply(one), seconds=TOOK_S) for one in large.actions[:1]])
    assert len(taken(stage)) == at_once
