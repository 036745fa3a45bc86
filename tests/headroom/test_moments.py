"""Growths by the time since the last change: which moments are distinguished, and what is kept at each."""

from __future__ import annotations

from edl.headroom.growth import TICK_S
from edl.headroom.moments import COLD_S, DEARER, MOST_PARTS, PART_S, Moments, level_for_a_moment

HALF_LIFE_S, LEVEL = 86_400.0, 0.95


def taught(times: int, *, every_s: float = 300.0, held_s: float = 100.0) -> Moments:
    """Ten pods come every `every_s` and stay for `held_s`; freeing takes two ticks."""
    moments, rise_s = Moments(HALF_LIFE_S), every_s - held_s
    for tick in range(int(times * every_s / TICK_S)):
        at_s = tick * TICK_S
        moments.count(at_s, 10 if at_s % every_s >= rise_s else 0)
        second = at_s % every_s
        moments.add(at_s, 10 if rise_s - 2 * TICK_S <= second + TICK_S - 1e-9 < rise_s else 0)
    return moments


def test_before_the_first_change_nothing_is_known() -> None:
    moments = Moments(HALF_LIFE_S)
    moments.count(0.0, 5)
    moments.add(0.0, 3)
    assert (moments.kind(10.0), moments.quantile(10.0, LEVEL)) == (None, None)


def test_room_is_kept_in_the_part_that_ends_with_a_rise() -> None:
    moments = taught(60)
    fallen_s = 60 * 300.0
    moments.count(fallen_s, 0)
    kept = [moments.quantile(fallen_s + since_s, LEVEL) for since_s in range(0, 200, 10)]
    assert kept == [0] * 18 + [10] * 2


def test_a_rise_and_a_fall_begin_different_moments() -> None:
    moments = Moments(HALF_LIFE_S)
    moments.count(0.0, 5)
    moments.count(10.0, 9)
    assert moments.kind(75.0) == (2, True)
    moments.count(80.0, 4)
    assert moments.kind(75.0 + 70.0) == (2, False)
    assert moments.kind(1e6) == (MOST_PARTS, False)


def test_a_moment_that_was_seen_too_briefly_is_not_known() -> None:
    """Each part after a fall is seen for 30 s in each wave, but for the last, which is seen for 20 s."""
    known = int(COLD_S / 20.0) + 2
    few, many = taught(known // 2), taught(known)
    for moments, waves in ((few, known // 2), (many, known)):
        moments.count(waves * 300.0, 0)
    assert few.quantile(known // 2 * 300.0 + 190.0, LEVEL) is None
    assert many.quantile(known * 300.0 + 190.0, LEVEL) == 10


def test_room_for_a_moment_must_pay_for_the_return_of_trainers() -> None:
    assert level_for_a_moment(LEVEL) == 1.0 - DEARER * (1.0 - LEVEL)
    assert level_for_a_moment(0.1) == 0.0


def test_memory_is_bounded() -> None:
    moments = taught(200, every_s=PART_S * 90, held_s=PART_S * 45)
    assert moments.memory() <= 2 * (MOST_PARTS + 1) * 3 + 150
