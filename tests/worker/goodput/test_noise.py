"""The noise scale of gradients that are drawn with a known one."""

from __future__ import annotations

import json
import math
import random
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edl.worker.goodput.noise import ENOUGH, LARGEST, NoiseScale, Spread

WIDTH = 20


def step(draw: random.Random, signal: list[float], deviation: float, parts: list[int]) -> tuple[Spread, float]:
    """The spread of one step and the square of its gradient.

    Args:
        draw: for the noise.
        signal: the expected gradient.
        deviation: of each component of the gradient of one record.
        parts: records of each group.
    """
    records = sum(parts)
    groups = [[g + draw.gauss(0, deviation / math.sqrt(part)) for g in signal] for part in parts]
    squares = sum(part / records * sum(g * g for g in one) for part, one in zip(parts, groups, strict=True))
    whole = [
        sum(part * g for part, g in zip(parts, column, strict=True)) / records for column in zip(*groups, strict=True)
    ]
    return Spread(squares, len(parts), records), sum(g * g for g in whole)


@settings(max_examples=15)
@given(
    st.lists(st.integers(1, 40), min_size=2, max_size=6),
    st.floats(0.05, 2.0),
    st.floats(0.1, 3.0),
    st.integers(0, 1000),
)
def test_variance_and_signal_are_unbiased_for_groups_of_any_sizes(
    parts: list[int], norm: float, deviation: float, seed: int
) -> None:
    draw, signal = random.Random(seed), [norm / math.sqrt(WIDTH)] * WIDTH  # noqa: S311 - repeatable
    found = [step(draw, signal, deviation, parts) for _ in range(500)]
    for values, expected in (
        ([spread.variance(square) for spread, square in found], WIDTH * deviation**2),
        ([spread.signal(square) for spread, square in found], norm**2),
    ):
        error = statistics.stdev(values) / math.sqrt(len(values))
        assert abs(statistics.fmean(values) - expected) < 5 * error


@pytest.mark.parametrize("parts", [[32, 32], [5, 60, 31], [1] * 8])
def test_the_smoothed_scale_is_near_the_true_one(parts: list[int]) -> None:
    draw, noise, signal = random.Random(3), NoiseScale(), [0.1] * WIDTH  # noqa: S311 - repeatable
    found = []
    for _ in range(2500):
        noise.add(*step(draw, signal, 1.0, parts))
        found.append(noise.value)
    late = [value for value in found[200:] if value is not None]
    assert statistics.median(late) == pytest.approx(100.0, rel=0.25), "20 components of variance 1 over 20 of 0.01"


def test_the_first_measurements_count_in_full_and_a_few_of_them_are_no_scale() -> None:
    noise = NoiseScale()
    for count in range(1, ENOUGH + 1):
        assert noise.value is None
        noise.add(Spread(squares=3.0, groups=2, records=10), square=1.0)
        assert noise.variance == pytest.approx(20.0), f"after {count}"
    assert noise.value == LARGEST, "the signal is -1"


def test_a_signal_without_noise_has_the_scale_zero_and_what_is_not_finite_is_left_out() -> None:
    noise = NoiseScale()
    for _ in range(ENOUGH):
        noise.add(Spread(1.0, 4, 10), 1.0)
    for bad in (math.inf, math.nan):
        noise.add(Spread(bad, 4, 10), 1.0)
        noise.add(Spread(1.0, 4, 10), bad)
    assert noise.value == 0.0


def test_a_copy_of_the_state_goes_on_alike() -> None:
    draw = random.Random(1)  # noqa: S311 - repeatable
    noise, other = NoiseScale(), NoiseScale()
    for _ in range(20):
        noise.add(*step(draw, [0.3] * WIDTH, 1.0, [8, 8]))
    other.load_state_dict(json.loads(json.dumps(noise.state_dict())))
    for one in (noise, other):
        one.add(Spread(2.0, 2, 16), 1.5)
    assert other.state_dict() == noise.state_dict()
    assert other.value == noise.value is not None
