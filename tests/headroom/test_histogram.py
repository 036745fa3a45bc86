"""A distribution that forgets: its quantiles were seen, and its memory is bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edl.headroom.histogram import MOST_VALUES, Histogram

VALUES = st.lists(st.integers(0, 5000), min_size=1, max_size=200)


def filled(values: list[int], half_life_s: float = 1e9) -> Histogram:
    histogram = Histogram(half_life_s)
    for second, value in enumerate(values):
        histogram.add(float(second), value, 1.0)
    return histogram


def test_a_quantile_is_the_smallest_value_that_enough_of_the_weight_does_not_exceed() -> None:
    histogram = filled([0] * 90 + [5] * 6 + [9] * 4)
    assert [histogram.quantile(level) for level in (0.5, 0.89, 0.91, 0.95, 0.97, 1.0)] == [0, 0, 5, 5, 9, 9]
    assert Histogram(1.0).quantile(0.9) == 0


def test_old_values_weigh_less() -> None:
    histogram = filled([9] * 10, half_life_s=100.0)
    histogram.add(1009.0, 1, 1.0)
    assert histogram.quantile(0.9) == 1
    assert histogram.quantile(1.0) == 9


def test_weights_stay_finite_over_years() -> None:
    histogram = Histogram(3600.0)
    for hour in range(0, 24 * 365 * 3, 20):
        histogram.add(hour * 3600.0, hour % 3, 1.0)
    assert histogram.quantile(0.5) in {0, 1, 2}


@given(VALUES, st.floats(0.01, 0.999))
def test_a_quantile_never_exceeds_what_was_seen_and_memory_is_bounded(values: list[int], level: float) -> None:
    histogram = filled(values)
    assert min(values) <= histogram.quantile(level) <= max(values)
    assert histogram.quantile(level) in values
    assert len(histogram) <= MOST_VALUES


@given(VALUES, st.floats(0.01, 0.999), st.floats(0.01, 0.999))
def test_a_higher_level_never_gives_less(values: list[int], one: float, other: float) -> None:
    histogram = filled(values)
    assert histogram.quantile(min(one, other)) <= histogram.quantile(max(one, other))
