"""How many writes nobody waits for are under way: what more of them at once are worth on different servers."""

from __future__ import annotations

from collections.abc import Callable

from edl.controller.requests_at_once.background_writes import LEAST, STEP, TRY_AGAIN_S, BackgroundWrites
from edl.controller.requests_at_once.concurrency import Concurrency
from edl.model.actions import Action, CreatePod, EmitEvent, EventKind, Outcome, Result
from edl.model.names import JobKey, Role

JOB = JobKey("default", "a")
CREATE = CreatePod(JOB, "uid", Role.TRAINER, 0)
EVENT = EmitEvent(JOB, "uid", EventKind.NORMAL, "ScaledUp", "1 -> 2 trainers")
CEILING = 64


def numbers(
    limit: BackgroundWrites,
    seconds: Callable[[int], float],
    count: int,
    *,
    at_s: float = 0.0,
    action: Action = CREATE,
) -> list[int]:
    """The number before each of so many requests; `seconds` of one, by how many are under way."""
    found = []
    for _ in range(count):
        found.append(limit.allowed)
        took_s = seconds(limit.allowed)
        at_s += took_s / limit.allowed
        limit.record(Outcome(action, Result.DONE, seconds=took_s), at_s)
    return found


def test_a_server_whose_requests_take_long_gets_all_of_them() -> None:
    assert numbers(BackgroundWrites(CEILING), lambda _: 0.3, 1000)[-1] == CEILING


def test_a_server_that_takes_requests_in_turn_gets_few_and_one_try_a_minute() -> None:
    found = numbers(BackgroundWrites(CEILING), lambda under_way: 0.01 * under_way, 20_000)  # 200 s
    tried = [number for number in found if number > LEAST]
    assert set(found) == {LEAST, int(LEAST * STEP)}
    assert len(tried) <= 4 * 3 * LEAST * STEP


def test_a_number_between_is_kept_if_the_server_has_so_many_threads() -> None:
    found = numbers(BackgroundWrites(CEILING), lambda under_way: 0.1 * max(1.0, under_way / 36), 20_000)
    assert found[-1] == 36


def test_another_mix_of_requests_is_not_taken_for_a_faster_server() -> None:
    limit = BackgroundWrites(CEILING)
    numbers(limit, lambda under_way: 0.01 * under_way, 3 * LEAST)
    assert limit.allowed > LEAST
    numbers(limit, lambda under_way: 0.01 * under_way, 30)
    numbers(limit, lambda _: 0.002, 3 * limit.allowed - 30, action=EVENT)
    assert limit.allowed == LEAST


def test_a_server_that_is_too_busy_gets_few_again_and_no_try_for_a_minute() -> None:
    concurrency, now_s = Concurrency(CEILING), 0.0
    for _ in range(1000):
        now_s += 0.005
        done = Outcome(CREATE, Result.DONE, seconds=0.3)
        concurrency.record(done, now_s=now_s, was_full=True, was_held=True)
    assert concurrency.background == CEILING
    too_busy = Outcome(CREATE, Result.FAILED, "TooManyRequests", "429", retry_after_s=1.0)
    concurrency.record(too_busy, now_s=now_s, was_full=True, was_held=True)
    assert concurrency.background == LEAST
    for _ in range(1000):
        now_s += TRY_AGAIN_S / 1100
        concurrency.record(done, now_s=now_s, was_full=True, was_held=True)
    assert concurrency.background == LEAST


def test_requests_that_fail_or_leave_places_say_nothing() -> None:
    concurrency = Concurrency(CEILING)
    for result, was_held in ((Result.DONE, False), (Result.REFUSED, True)):
        for number in range(1000):
            outcome = Outcome(CREATE, result, seconds=0.3)
            concurrency.record(outcome, now_s=float(number), was_full=False, was_held=was_held)
    assert concurrency.background == LEAST


def test_a_controller_that_sends_few_at_once_sends_no_more_of_these() -> None:
    assert numbers(BackgroundWrites(4), lambda _: 0.3, 100)[-1] == 4
