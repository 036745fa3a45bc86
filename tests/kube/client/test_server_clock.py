"""The difference to the API server's clock, from the Date of its responses."""

from __future__ import annotations

from email.utils import formatdate

import pytest

from edl.clock import AdjustedClock
from edl.kube.client.server_clock import SAMPLES, ServerClock
from tests.worlds.fake_api import FakeApi, FakeClock, connected


def seen(ahead_s: float, *, responses: int = 20, latency_s: float = 0.05) -> ServerClock:
    clock = ServerClock()
    for i in range(responses):
        sent_s = 1_000_000.0 + 0.37 * i
        clock.saw(formatdate(int(sent_s + latency_s / 2 + ahead_s), usegmt=True), sent_s, sent_s + latency_s)
    return clock


@pytest.mark.parametrize("ahead_s", [-3.0, -2.0, 2.0, 3.0, 3600.0])
def test_a_clock_that_is_wrong_is_corrected_to_a_fifth_of_a_second(ahead_s: float) -> None:
    assert seen(ahead_s).ahead_s == pytest.approx(ahead_s, abs=0.2)


def test_a_clock_that_is_right_stays_untouched() -> None:
    assert seen(0.0).ahead_s == 0.0
    assert ServerClock().ahead_s == 0.0


def test_a_clock_that_is_set_is_noticed() -> None:
    clock = seen(3.0)
    for i in range(SAMPLES):
        sent_s = 1_000_100.0 + 0.37 * i
        clock.saw(formatdate(int(sent_s), usegmt=True), sent_s, sent_s)
    assert clock.ahead_s == 0.0


def test_what_is_no_date_is_ignored() -> None:
    clock = seen(3.0)
    clock.saw("", 0.0, 0.0)
    clock.saw("yesterday", 0.0, 0.0)
    assert clock.ahead_s == pytest.approx(3.0, abs=0.2)


def test_stamps_are_those_of_the_servers_clock_and_durations_are_not_changed() -> None:
    clock = AdjustedClock(FakeClock(1000.0), lambda: -2.5)
    assert (clock.now_s(), clock.monotonic_s()) == (997.5, 1000.0)


async def test_each_response_is_seen() -> None:
    api = FakeApi()
    async with connected(api) as session:
        await session.get("/api/v1/pods")
        assert abs(session.server_clock.ahead_s) < 2
        assert session.server_clock._bounds
