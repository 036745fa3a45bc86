"""How the learning rate follows the batch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl.worker.goodput.rates import efficiency, rate_factor
from edl.worker.step_settings import RATE_RULES

NOISES = st.floats(0, 1e12)


@pytest.mark.parametrize(
    ("rule", "noise", "factor"),
    [("none", 100.0, 1.0), ("linear", None, 4.0), ("sqrt", None, 2.0), ("adascale", None, 1.0), ("", 100.0, 1.0)],
)
def test_the_rules(rule: str, noise: float | None, factor: float) -> None:
    assert rate_factor(rule, noise, 64, 256) == factor


def test_the_gain_of_adascale_is_that_of_its_paper() -> None:
    variance, square, scale = 6.0, 2.0, 4  # of the gradient of a base batch; that many batches
    gain = (variance + square) / (variance / scale + square)
    assert rate_factor("adascale", 64 * variance / square, 64, 64 * scale) == pytest.approx(gain)


@given(NOISES, st.integers(1, 1000), st.integers(1, 64))
def test_adascale_is_between_none_and_linear_and_follows_the_noise(noise: float, base: int, times: int) -> None:
    batch = base * times
    factor = rate_factor("adascale", noise, base, batch)
    assert 1.0 - 1e-9 <= factor <= rate_factor("linear", noise, base, batch) * (1 + 1e-9)
    assert factor <= rate_factor("adascale", noise * 2 + 1, base, batch) * (1 + 1e-9)


@given(NOISES, st.integers(1, 1000), st.integers(1, 100_000))
def test_efficiency_falls_with_the_batch_and_is_one_at_the_base(noise: float, base: int, batch: int) -> None:
    assert efficiency(noise, base, base) == 1.0
    assert efficiency(noise, base, batch + 1) <= efficiency(noise, base, batch)


@pytest.mark.parametrize("rule", RATE_RULES)
def test_the_base_batch_has_the_base_rate(rule: str) -> None:
    assert rate_factor(rule, 30.0, 64, 64) == 1.0
