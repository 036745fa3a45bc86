"""The pauses between tries."""

from __future__ import annotations

from edl.clock import RetryPauses


def test_each_pause_is_twice_the_one_before_up_to_the_limit() -> None:
    pauses = RetryPauses(0.5, 4.0)
    assert [pauses.next_s() for _ in range(5)] == [0.5, 1.0, 2.0, 4.0, 4.0]


def test_a_pause_that_the_other_side_asks_for_replaces_one_pause() -> None:
    pauses = RetryPauses(1.0, 60.0)
    assert [pauses.next_s(7.0), pauses.next_s(), pauses.next_s()] == [7.0, 2.0, 4.0]


def test_jitter_spreads_the_pauses_around_their_length() -> None:
    drawn = [RetryPauses(1.0, 1.0, jitter=0.5).next_s() for _ in range(200)]
    assert all(0.5 <= pause_s <= 1.5 for pause_s in drawn)
    assert max(drawn) - min(drawn) > 0.5
