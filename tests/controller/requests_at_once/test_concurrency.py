"""How many writes are under way: what the API server says and how long it takes."""

from __future__ import annotations

import asyncio

from edl.controller.loop import Controller
from edl.controller.pace import Pace
from edl.controller.requests_at_once.concurrency import FIRST, FLOOR, LONGEST_PAUSE_S, TOO_LONG_S, USUAL, Concurrency
from edl.model.actions import Action, CreatePod, MarkPod, Outcome, Result
from edl.model.names import JobKey, Role
from tests.controller.loop_stage import A, Stage, at_work, play, rounds
from tests.worlds.builders import make_job

CREATE = CreatePod(JobKey("default", "a"), "uid", Role.TRAINER, 0)
MARK = MarkPod(JobKey("default", "a"), "uid", "a-trainer-0", "uid-0", "PodFailed/1")


def busy(retry_s: float = 1.0) -> Outcome:
    return Outcome(CREATE, Result.FAILED, "Unavailable", "429", retry_after_s=retry_s, seconds=0.01)


def done(seconds: float = 0.02, action: Action = CREATE) -> Outcome:
    return Outcome(action, Result.DONE, seconds=seconds)


def after_successes(concurrency: Concurrency, count: int, now_s: float, *, was_full: bool = True) -> int:
    for number in range(count):
        concurrency.record(done(), now_s=now_s + number * 0.001, was_full=was_full)
    return concurrency.allowed


def test_it_grows_by_one_for_each_request_until_the_first_sign_of_load() -> None:
    concurrency = Concurrency(64)
    assert concurrency.allowed == FIRST
    assert after_successes(concurrency, 8, 0.0) == FIRST + 8
    assert after_successes(concurrency, 1000, 1.0) == 64


def test_after_a_sign_of_load_it_grows_by_one_for_each_full_set_that_went_well() -> None:
    concurrency = Concurrency(20)
    concurrency.record(busy(), now_s=0.0, was_full=True)
    assert concurrency.allowed == FIRST // 2
    assert after_successes(concurrency, FIRST // 2 + 1, 10.0) == FIRST // 2 + 1
    assert after_successes(concurrency, 1000, 11.0) == 20


def test_it_does_not_grow_while_places_are_empty() -> None:
    assert after_successes(Concurrency(64), 1000, 0.0, was_full=False) == FIRST


def test_a_server_that_is_too_busy_halves_it_once_for_all_that_was_under_way() -> None:
    concurrency = Concurrency(64)
    for number in range(FIRST):
        concurrency.record(busy(), now_s=10.0 + number * 0.0001, was_full=True)
    assert concurrency.allowed == FIRST // 2
    for number in range(10):
        concurrency.record(busy(), now_s=12.0 + number, was_full=True)
    assert concurrency.allowed == 1, "never fewer than one"


def test_places_that_must_wait_rest_and_come_back() -> None:
    concurrency = Concurrency(64)
    for number in range(FIRST):
        concurrency.record(busy(2.0), now_s=10.0 + number * 0.0001, was_full=True)
    assert concurrency.places(10.1) == 0
    assert 1.85 <= concurrency.pause_s(10.1) <= 1.95
    assert concurrency.places(12.1) == FIRST // 2
    assert concurrency.pause_s(12.1) == 0.0


def test_a_place_rests_for_some_seconds_at_most() -> None:
    concurrency = Concurrency(1)
    concurrency.record(busy(600.0), now_s=10.0, was_full=True)
    assert concurrency.places(10.0 + LONGEST_PAUSE_S - 0.1) == 0
    assert concurrency.places(10.0 + LONGEST_PAUSE_S + 0.1) == 1


def test_one_job_that_must_wait_costs_one_place() -> None:
    concurrency = Concurrency(64)
    concurrency.record(busy(), now_s=10.0, was_full=True)
    assert concurrency.places(10.5) == FIRST // 2 - 1


def test_a_refusal_or_a_lost_answer_changes_nothing() -> None:
    concurrency = Concurrency(64)
    for number, result in enumerate([Result.REFUSED, Result.FAILED, Result.CONFLICT] * 20):
        concurrency.record(Outcome(CREATE, result), now_s=float(number), was_full=True)
    assert concurrency.places(100.0) == FIRST


def slow_set(concurrency: Concurrency, at_s: float, seconds: float = 0.5, *, count: int = 64) -> int:
    """A set of requests that were under way together, and took long."""
    for number in range(count):
        concurrency.record(done(seconds), now_s=at_s + number * 0.001, was_full=True)
    return concurrency.allowed


def test_requests_that_become_slow_take_places_back_but_not_the_last_ones() -> None:
    concurrency = Concurrency(64)
    after_successes(concurrency, 64, 0.0)
    most = concurrency.allowed
    after_successes(concurrency, USUAL, 1.0)
    assert slow_set(concurrency, 10.0) < most, "each of them takes 25 times the usual time"
    for number in range(50):
        assert slow_set(concurrency, 20.0 + number, 0.5 * 1.1**number) >= FLOOR
    for number in range(100):
        concurrency.record(done(TOO_LONG_S), now_s=100.0 + 10 * number, was_full=False)
    assert concurrency.allowed == FLOOR, "latency alone never takes the last places"


def test_a_slow_request_among_others_takes_no_place_back() -> None:
    concurrency = Concurrency(64)
    after_successes(concurrency, USUAL, 0.0, was_full=False)
    for number in range(200):
        concurrency.record(done(2.0 if number % 8 == 0 else 0.02), now_s=10.0 + number, was_full=True)
    assert concurrency.allowed == 64


def test_requests_that_are_slow_while_places_are_empty_take_no_place_back() -> None:
    """At rest a busy machine answers slowly, and no other write would ever give the place back."""
    concurrency = Concurrency(64)
    after_successes(concurrency, USUAL, 0.0, was_full=False)
    for number in range(USUAL):
        concurrency.record(done(0.5), now_s=10.0 + number, was_full=False)
    assert concurrency.allowed == FIRST


def test_times_below_a_quarter_of_a_second_are_never_slow() -> None:
    concurrency = Concurrency(64)
    after_successes(concurrency, USUAL, 0.0, was_full=False)
    assert slow_set(concurrency, 10.0, 0.1, count=2000) == 64


def test_a_request_that_takes_so_long_that_others_will_fail_takes_places_back() -> None:
    concurrency = Concurrency(64)
    concurrency.record(done(TOO_LONG_S), now_s=10.0, was_full=False)
    assert FLOOR <= concurrency.allowed < FIRST


def test_a_kind_that_always_takes_long_is_not_slow() -> None:
    concurrency = Concurrency(64)
    after_successes(concurrency, USUAL, 0.0, was_full=False)
    for number in range(100):
        concurrency.record(done(0.9, MARK), now_s=10.0 + number, was_full=True)
    assert concurrency.allowed == 64


def test_a_server_that_has_become_slower_for_good_is_not_slow_for_ever() -> None:
    concurrency = Concurrency(64)
    after_successes(concurrency, 100 * USUAL, 0.0)
    assert slow_set(concurrency, 100.0) < 64
    for number in range(20 * USUAL):
        concurrency.record(done(0.5), now_s=110.0 + number * 0.5, was_full=True)
    assert concurrency.allowed == 64


def test_a_set_whose_answers_all_come_at_the_same_time_was_full() -> None:
    stage = Stage(targets={"a": 400})
    stage.world.add(make_job("a", min_trainers=400, max_trainers=400))
    rounds(stage)
    assert stage.cluster.most_under_way == 64


def test_a_growth_through_a_busy_time_of_the_server_slows_down_and_recovers() -> None:
    stage = Stage(targets={"a": 1500}, pace=Pace(writes=64))
    stage.world.add(make_job("a", min_trainers=1500, max_trainers=1500))
    under_way: dict[str, int] = {}

    async def script(controller: Controller) -> None:
        stage.cluster.delay_s = 0.5
        loop = asyncio.get_running_loop()
        phase = "before"

        def answer(action: Action) -> Outcome | None:
            under_way[phase] = max(under_way.get(phase, 0), stage.cluster.under_way + 1)
            if phase != "busy" or not isinstance(action, CreatePod):
                return None
            return Outcome(action, Result.FAILED, "Unavailable", "429", retry_after_s=1.0)

        stage.cluster.policies = answer
        async with at_work(controller):
            await asyncio.sleep(15)
            phase = "busy"
            began_s, wrote = loop.time(), len(stage.recorder.outcomes)
            await asyncio.sleep(20)
            assert len(stage.recorder.outcomes) - wrote < 200, "64 requests each 0.5 s would be 2,560"
            phase = "after"
            await asyncio.sleep(120)
            assert loop.time() > began_s

    play(stage, script)
    assert under_way["before"] >= FIRST + 12
    assert stage.count(A) == 1500
