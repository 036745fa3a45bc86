"""Waiting for the first of several events, and pauses between attempts."""

from __future__ import annotations

import asyncio
import random

from edl.waiting import PauseLengths, RetryPauses, is_set_within, wait_for_first
from tests.worlds.fake_api import FakeClock


def pauses(clock: FakeClock) -> RetryPauses:
    return RetryPauses(clock, first_s=1.0, longest_s=8.0, rng=random.Random(1))  # noqa: S311 - jitter


async def test_waiting_ends_with_the_first_event_and_cancels_the_others() -> None:
    event = asyncio.Event()
    never = asyncio.ensure_future(asyncio.Event().wait())
    event.set()
    await wait_for_first(event.wait(), never)
    await asyncio.sleep(0)
    assert never.cancelled()


async def test_an_event_is_waited_for_until_the_time_is_over() -> None:
    event = asyncio.Event()
    assert not await is_set_within(event, 0.01)
    asyncio.get_running_loop().call_later(0.01, event.set)
    assert await is_set_within(event, 10.0)


async def test_pauses_double_up_to_the_longest_and_start_again_after_a_reset() -> None:
    clock = FakeClock()
    retries = pauses(clock)
    for _ in range(30):
        await retries.after_failure()
    bounds = [min(8.0, 2.0**failures) for failures in range(30)]
    assert all(bound / 2 <= slept <= bound for slept, bound in zip(clock.slept, bounds, strict=True))
    retries.reset()
    await retries.after_failure()
    assert 0.5 <= clock.slept[-1] <= 1.0


async def test_a_pause_lasts_as_long_as_the_server_asks_even_if_an_immediate_retry_is_wanted() -> None:
    clock = FakeClock()
    retries = pauses(clock)
    await retries.after_failure(at_once=True)
    assert clock.slept == []
    await retries.after_failure(retry_after_s=20.0, at_once=True)
    assert 20.0 <= clock.slept[-1] <= 22.0
    assert retries.failures == 2


def test_each_pause_is_twice_the_one_before_up_to_the_limit() -> None:
    pauses = PauseLengths(0.5, 4.0)
    assert [pauses.next_s() for _ in range(5)] == [0.5, 1.0, 2.0, 4.0, 4.0]


def test_a_pause_that_the_other_side_asks_for_replaces_one_pause() -> None:
    pauses = PauseLengths(1.0, 60.0)
    assert [pauses.next_s(7.0), pauses.next_s(), pauses.next_s()] == [7.0, 2.0, 4.0]


def test_jitter_spreads_the_pauses_around_their_length() -> None:
    drawn = [PauseLengths(1.0, 1.0, jitter=0.5).next_s() for _ in range(200)]
    assert all(0.5 <= pause_s <= 1.5 for pause_s in drawn)
    assert max(drawn) - min(drawn) > 0.5
