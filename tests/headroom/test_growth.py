"""Growth within a window, from counts that are seen now and then."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edl.headroom.growth import GAP_S, MOST_TICKS, TICK_S, Growth

WINDOW = 4


def growths(counts: list[int], step_s: float = TICK_S) -> list[int]:
    growth = Growth()
    return [g for i, n in enumerate(counts) for _, g in growth.observe(i * step_s, n, WINDOW)]


def test_a_step_is_seen_from_each_tick_of_the_window_before_it() -> None:
    assert growths([1] * 10 + [4] * 10).count(3) == WINDOW
    assert sum(growths([1] * 10 + [4] * 10)) == 3 * WINDOW


def test_less_is_no_growth() -> None:
    assert set(growths([9] * 10 + [1] * 10)) == {0}


def test_a_peak_between_two_ticks_counts() -> None:
    growth = Growth()
    found = []
    for second, count in ((0.0, 1), (20.0, 1), (20.1, 6), (20.2, 1), (60.0, 1)):
        found += [g for _, g in growth.observe(second, count, WINDOW)]
    assert max(found) == 5


def test_a_count_holds_until_the_next_one() -> None:
    assert growths([2, 2, 5, 5], step_s=20.0).count(3) == WINDOW


def test_after_a_gap_nobody_knows_what_grew() -> None:
    growth = Growth()
    list(growth.observe(0.0, 1, WINDOW))
    assert list(growth.observe(GAP_S + 1.0, 50, WINDOW)) == []
    assert {g for _, g in growth.observe(GAP_S + 100.0, 50, WINDOW)} == {0}


@given(st.lists(st.integers(0, 500), min_size=1, max_size=80), st.floats(0.1, 30.0))
def test_growth_is_never_negative_nor_more_than_the_largest_rise(counts: list[int], step_s: float) -> None:
    found = growths(counts, step_s)
    rise = max((late - early for i, early in enumerate(counts) for late in counts[i:]), default=0)
    assert all(0 <= growth <= rise for growth in found)


@given(st.lists(st.tuples(st.floats(0, 1e5), st.integers(0, 50), st.integers(1, MOST_TICKS)), max_size=60))
def test_memory_is_bounded_whatever_the_times(seen: list[tuple[float, int, int]]) -> None:
    growth = Growth()
    for at_s, count, window in seen:
        list(growth.observe(at_s, count, window))
        assert len(growth) <= MOST_TICKS
