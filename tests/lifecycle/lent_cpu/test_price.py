"""The price of lending: what a job loses for each core that its slowed trainers lend."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl.lifecycle.lent_cpu.price import MAX_PRICE, NEW_WINDOW, PriceMeter, SlowedReading, observe_price, reading_of
from edl.lifecycle.measurement import is_close_to, rounded
from edl.model.progress import Measured, Speed
from edl.model.status import JobStatus, LentCpu
from tests.worlds.builders import make_job

FULL = (Speed(4, 100.0, 60.0),)
"""Four trainers of 5 cores that nobody slows."""


def window(per_s: float, lent: float = 4.5, *, start_s: float = 0.0) -> list[SlowedReading]:
    """The readings of a window in which so many cores are lent."""
    return [
        SlowedReading(start_s + at_s, 0, int(1000 + per_s * (start_s + at_s)), 4, 20.0, lent) for at_s in (0, 5, 10)
    ]


def price_of(
    readings: list[SlowedReading], speeds: tuple[Speed, ...] = FULL, price: float | None = None
) -> float | None:
    meter = PriceMeter(price)
    for reading in readings:
        meter = observe_price(meter, reading, speeds)
    return meter.price


@pytest.mark.parametrize(
    ("per_s", "price"),
    [(77.5, 1.0), (100.0, 0.0), (110.0, 0.0), (55.0, 2.0)],
    ids=["all", "none", "faster", "others"],
)
def test_the_price_is_the_lost_speed_for_each_lent_core(per_s: float, price: float) -> None:
    assert price_of(window(per_s)) == pytest.approx(price)


def test_the_price_is_bounded() -> None:
    assert price_of(window(0.0, lent=0.01)) == MAX_PRICE


def test_a_window_moves_a_known_price_by_its_weight() -> None:
    assert price_of(window(77.5), price=0.2) == pytest.approx(0.2 + NEW_WINDOW * 0.8)
    assert price_of([*window(77.5), *window(77.5, start_s=15)], price=0.2) == pytest.approx(1 - 0.8 * 0.75**2)


@pytest.mark.parametrize(
    "change",
    [
        {"lent": 0.0},
        {"lent": 9.0},
        {"trainers": 3},
        {"epoch": 1},
        {"consumed": 0},
        {"is_steady": False},
        {"cores": 15.0},
    ],
    ids=str,
)
def test_a_window_in_which_anything_else_changes_says_nothing(change: dict[str, Any]) -> None:
    first, middle, last = window(77.5)
    assert price_of([first, middle, replace(last, **change)]) is None


@pytest.mark.parametrize(
    "speeds", [(), (Speed(3, 100.0, 60.0),), (Speed(4, 100.0, 1.0),)], ids=["none", "other", "short"]
)
def test_without_a_speed_of_as_many_trainers_there_is_no_price(speeds: tuple[Speed, ...]) -> None:
    assert price_of(window(77.5), speeds) is None


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e3)), max_size=20))
def test_any_readings_give_a_price_within_its_bounds(windows: list[tuple[float, float]]) -> None:
    meter = PriceMeter()
    for number, (per_s, lent) in enumerate(windows):
        for reading in window(per_s, lent, start_s=100.0 * number):
            meter = observe_price(meter, reading, FULL)
    assert meter.price is None or 0 <= meter.price <= MAX_PRICE


def test_the_slowed_trainers_lend_their_part() -> None:
    job = make_job("ctr", trainers=4, cpu=5, on=("n",))
    pods = tuple(replace(pod, lent_cpu_milli=4500 if pod.index else 0) for pod in job.pods)
    job = replace(job, pods=pods, status=JobStatus(lending=LentCpu(13_500, 2)))
    reading = reading_of(job, 1.0, 0, 10, is_steady=True)
    assert (reading.trainers, reading.cores, reading.lent) == (4, 20.0, 9.0)
    assert reading_of(replace(job, status=None), 1.0, 0, 10, is_steady=True).lent == 0


def test_a_price_is_written_once_it_has_changed_enough() -> None:
    stored = Measured(lending_price=0.5)
    assert is_close_to(stored, Measured(lending_price=0.55))
    assert not is_close_to(stored, Measured(lending_price=0.7))
    assert not is_close_to(Measured(), stored)
    assert rounded(Measured(lending_price=0.123456)).lending_price == 0.12
