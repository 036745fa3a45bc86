"""Speeds and what they are worth."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl.planner.speedup import SLOWEST, curve_of, most_useful, worth_of
from tests.worlds.builders import make_job
from tests.worlds.effort import examples

quick = examples(200)
seen_points = st.lists(st.tuples(st.integers(1, 40), st.floats(0.0, 1e6)), max_size=6)


@pytest.mark.parametrize(
    ("seen", "count", "speed"),
    [
        ((), 1, 1.0),
        ((), 16, 8.0),
        (((4, 400.0),), 4, 400.0),
        (((4, 400.0),), 8, 400.0 * 2**0.75),
        (((4, 400.0),), 9, 400.0 * 2**0.75),
        (((4, 400.0),), 1, 400.0 * 4**-0.75),
        (((1, 100.0), (4, 400.0)), 2, 200.0),
        (((2, 200.0), (4, 400.0)), 1, 100.0),
        (((1, 100.0), (2, 120.0), (3, 200.0)), 2, 150.0),
        (((1, 100.0), (2, 180.0), (4, 180.0)), 8, 180.0),
        (((1, 100.0), (2, 180.0), (4, 90.0)), 3, 180.0),
        (((2, 100.0), (2, 200.0)), 2, 150.0),
        (((2, 100.0), (4, 0.0), (8, -5.0), (16, float("nan"))), 4, 100.0 * 2**0.75),
    ],
    ids=[
        "unknown is one", "unknown", "a point", "trusted up to twice", "flat beyond", "below the first", "between",
        "linear below too", "envelope", "flat stays flat", "a fall is no fall", "mean of one count", "no measurement",
    ],
)  # fmt: skip
def test_the_speed_of_a_count(seen: tuple[tuple[int, float], ...], count: int, speed: float) -> None:
    assert curve_of(seen).speed(count) == pytest.approx(speed)


@pytest.mark.parametrize(
    ("seen", "useful"),
    [
        ((), 0),
        (((1, 10.0), (4, 30.0)), 0),
        (((1, 10.0), (4, 30.0), (8, 29.0)), 0),
        (((1, 10.0), (4, 30.0), (8, 28.0)), 4),
        (((4, 30.0), (8, 20.0), (1, 10.0)), 4),
        (((4, 30.0), (6, 25.0), (8, 29.0), (16, 12.0)), 8),
        (((4, 10.0), (4, 50.0), (8, 28.6)), 0),
        (((1, 0.0), (2, 0.0)), 0),
    ],
    ids=["unknown", "rising", "as good", "slower", "any order", "a dip is no end", "a mean", "no speed"],
)
def test_the_count_beyond_which_more_trainers_slow_a_job(seen: tuple[tuple[int, float], ...], useful: int) -> None:
    assert most_useful(seen) == useful


@given(seen_points)
@quick
def test_a_curve_is_concave_never_falls_and_is_flat_beyond_twice_what_was_seen(seen: list[tuple[int, float]]) -> None:
    curve = curve_of(seen)
    speeds = [curve.speed(n) for n in range(1, 121)]
    gains = [b - a for a, b in pairwise(speeds)]
    scale = max(speeds) * 1e-9
    assert all(gain >= -scale for gain in gains)
    assert all(later <= earlier + scale for earlier, later in pairwise(gains))
    if curve.points:
        assert curve.speed(2 * curve.points[-1][0]) == curve.speed(10**6)


@given(seen_points)
@quick
def test_the_envelope_is_above_every_mean_and_touches_the_fastest(seen: list[tuple[int, float]]) -> None:
    curve = curve_of(seen)
    counts = {n for n, speed in seen if speed >= SLOWEST}
    means = {n: [speed for m, speed in seen if m == n and speed >= SLOWEST] for n in counts}
    for n, speeds in means.items():
        assert curve.speed(n) >= sum(speeds) / len(speeds) * (1 - 1e-9)
    if means:
        top = max(sum(speeds) / len(speeds) for speeds in means.values())
        assert max(curve.speed(n) for n in counts) == pytest.approx(top)


@given(seen_points, st.integers(1, 5), st.integers(0, 300))
@quick
def test_worth_is_the_logarithm_of_the_speed_with_falling_slopes(
    seen: list[tuple[int, float]], low: int, more: int
) -> None:
    job = replace(make_job("a", min_trainers=low, max_trainers=low + more), throughput=tuple(seen), weight=2.0)
    curve, worth = curve_of(seen), worth_of(job, low, low + more)
    for count in {low, low + min(more, 3), low + more}:
        assert worth.value(count) == pytest.approx(2 * log(curve.speed(count) / curve.speed(low)), abs=1e-6)
    slopes = [slope for _, slope in worth.segments]
    assert slopes == sorted(slopes, reverse=True)
    assert sum(length for length, _ in worth.segments) == more
    assert len(worth.segments) < 64
    for count in range(low, low + more):
        assert worth.value(count + 1) - worth.value(count) == pytest.approx(worth.next(count), abs=1e-9)
    middle = low + more // 2
    assert sum(n for n, _ in worth.split(middle)) == more
    assert middle in {low, low + more, *(low + sum(n for n, _ in worth.split(middle)[:k]) for k in range(64))}


def test_between_breakpoints_the_line_is_close_to_the_curve() -> None:
    job = make_job("a", min_trainers=2, max_trainers=10_000)
    worth = worth_of(job, 2, 10_000)
    assert len(worth.segments) < 90
    for count in (9, 11, 13, 100, 777, 9_999):
        assert worth.value(count) == pytest.approx(0.75 * log(count / 2), abs=0.004)
