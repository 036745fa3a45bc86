"""The measured speed of a job and the measured cost of its resizes, with noise, outliers and changes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl.lifecycle.measurement import (
    MAX_SPEEDS,
    MAX_WEIGHT_S,
    MIN_WEIGHT_S,
    OUTLIER,
    SETTLE_S,
    ProgressReading,
    SpeedMeter,
    add_speed,
    is_close_to,
    observe,
    rounded,
    with_measured,
)
from edl.model.progress import NOTHING_MEASURED, Goodput, Measured, Progress, Speed
from edl.model.status import JobStatus
from tests.worlds.builders import make_job

STEP_S = 5.0


class Training:
    """A training with a reading every five seconds; the trainers report their progress late, as with heartbeats."""

    def __init__(self, speed: Callable[[int], float], *, noise: float = 0.0, seed: int = 1) -> None:
        self.speed, self.noise, self.random = speed, noise, random.Random(seed)  # noqa: S311 no secret
        self.at_s, self.truth, self.reported = 100.0, 0.0, 0
        self.meter = SpeedMeter()
        self.epoch = 0

    def run(self, trainers: int, seconds: float, *, working: int | None = None, is_steady: bool = True) -> None:
        working = trainers if working is None else working
        for _ in range(round(seconds / STEP_S)):
            self.at_s += STEP_S
            done = self.speed(working) * STEP_S * self.random.uniform(1 - self.noise, 1 + self.noise)
            self.truth += done
            late = done * self.random.random() * bool(self.noise)
            self.reported = max(self.reported, int(self.truth - late))
            self.read(trainers, working, is_steady=is_steady)

    def read(self, trainers: int, working: int, *, is_steady: bool = True) -> None:
        reading = ProgressReading(self.at_s, self.epoch, self.reported, trainers, working, is_steady)
        self.meter = observe(self.meter, reading)

    def per_s(self, trainers: int) -> float:
        return {s.trainers: s.per_s for s in self.meter.measured.speeds}[trainers]


def linear(trainers: int) -> float:
    return 100.0 * trainers


@given(st.integers(0, 10**6), st.floats(0.0, 0.4))
def test_speed_is_measured_despite_noise(seed: int, noise: float) -> None:
    training = Training(linear, noise=noise, seed=seed)
    training.run(4, 600)
    assert training.per_s(4) == pytest.approx(400.0, rel=0.02 + noise / 3)


def test_speed_is_stored_by_number_of_trainers() -> None:
    training = Training(lambda n: 300.0 * n**0.5)
    for count in (1, 4, 9):
        training.run(count, 120)
    assert [training.per_s(n) for n in (1, 4, 9)] == pytest.approx([300.0, 600.0, 900.0], rel=0.01)


@given(st.floats(1.0, 1e6), st.floats(1e-3, 1e9), st.floats(MAX_WEIGHT_S / 2, MAX_WEIGHT_S))
def test_one_window_that_is_far_off_moves_a_known_speed_by_a_bounded_part(
    known: float, odd: float, weight_s: float
) -> None:
    (after,) = add_speed((Speed(3, known, weight_s),), 3, odd, 30.0)
    most = 30.0 / min(weight_s + 30.0, MAX_WEIGHT_S)
    assert known * (1 - most / 2) - 1e-6 <= after.per_s <= known * (1 + most * (OUTLIER - 1)) + 1e-6


def test_a_lasting_change_is_followed() -> None:
    pace = [1.0]
    training = Training(lambda n: 100.0 * n * pace[0])
    training.run(4, 1200)
    pace[0] = 0.25
    training.run(4, 1500)
    assert training.per_s(4) == pytest.approx(100.0, rel=0.1)


def test_old_measurements_lose_weight_and_are_dropped() -> None:
    training = Training(linear)
    training.run(2, 300)
    first = training.meter.measured.speeds[0].weight_s
    training.run(8, 3600)
    halved = {s.trainers: s.weight_s for s in training.meter.measured.speeds}[2]
    assert halved == pytest.approx(first / 2, rel=0.1)
    training.run(8, 10 * 3600)
    assert [s.trainers for s in training.meter.measured.speeds] == [8]


@given(st.lists(st.tuples(st.integers(1, 99), st.floats(1e-3, 1e6), st.floats(1.0, 1e4)), max_size=80))
def test_speeds_stay_few_positive_and_sorted(windows: list[tuple[int, float, float]]) -> None:
    speeds: tuple[Speed, ...] = ()
    for trainers, per_s, seconds in windows:
        before = speeds
        speeds = add_speed(speeds, trainers, per_s, seconds)
        assert speeds == add_speed(before, trainers, per_s, seconds)
    counts = [s.trainers for s in speeds]
    assert counts == sorted(set(counts))
    assert len(counts) <= MAX_SPEEDS
    assert all(s.per_s > 0 and 0 < s.weight_s <= MAX_WEIGHT_S + 1e-6 for s in speeds)
    if windows:
        assert windows[-1][0] in counts
        assert all(s.weight_s >= MIN_WEIGHT_S for s in speeds if s.trainers != windows[-1][0])


def test_trainers_that_join_while_others_work_cost_what_they_do_not_do_yet() -> None:
    training = Training(linear)
    training.run(4, 120)
    training.run(8, 20, working=4)
    training.run(8, 120)
    assert training.meter.lost_s == pytest.approx(20 * (1 - 4 / 8), abs=STEP_S)
    assert training.meter.measured.resize_s == training.meter.lost_s
    assert training.per_s(8) == pytest.approx(800.0, rel=0.01)


def test_a_job_that_stops_for_its_resize_loses_all_of_that_time() -> None:
    training = Training(linear)
    training.run(4, 120)
    training.run(8, 40, working=0)
    training.run(8, 120)
    assert training.meter.lost_s == pytest.approx(40, abs=STEP_S)


def test_a_shrink_that_loses_nothing_costs_nothing() -> None:
    training = Training(linear)
    training.run(8, 120)
    training.run(4, 120)
    assert training.meter.lost_s == pytest.approx(0, abs=STEP_S)


def test_the_cost_of_a_resize_is_smoothed_over_the_last_ones() -> None:
    training = Training(linear)
    training.run(4, 60)
    for count, pause_s in ((8, 40), (4, 0), (8, 40)):
        training.run(count, pause_s, working=0)
        training.run(count, 60)
    assert training.meter.lost_s == pytest.approx(40, abs=STEP_S)
    assert 20 <= (training.meter.measured.resize_s or 0) <= 40


def test_another_resize_before_the_first_has_settled_is_measured_alone() -> None:
    training = Training(linear)
    training.run(2, 60)
    training.run(4, 100, working=2)
    training.run(6, 10, working=2)
    training.run(6, 60)
    assert training.meter.lost_s == pytest.approx(10 * (1 - 2 / 6), abs=STEP_S)


def test_a_trainer_that_never_takes_work_does_not_block_measurement_forever() -> None:
    training = Training(linear)
    training.run(4, 60)
    training.run(5, SETTLE_S + 60, working=4)
    assert training.per_s(5) == pytest.approx(400.0, rel=0.01)
    assert training.meter.lost_s is None


@pytest.mark.parametrize("disturbed", ["epoch", "restore", "end of the epoch"])
def test_disturbed_windows_are_not_counted(disturbed: str) -> None:
    training = Training(linear)
    training.run(4, 130)
    known = training.meter.measured
    training.run(4, 20)
    if disturbed == "epoch":
        training.epoch, training.reported, training.truth = 1, 0, 0.0
    elif disturbed == "restore":
        training.reported, training.truth = 10, 10.0
    else:
        training.run(4, 200, working=1, is_steady=False)
    training.run(4, 20)
    assert training.meter.measured == known
    training.run(4, 60)
    assert training.per_s(4) == pytest.approx(400.0, rel=0.01)


def test_the_first_start_is_not_a_resize() -> None:
    training = Training(linear)
    training.run(0, 30)
    training.run(4, 30, working=0)
    training.run(4, 60)
    assert training.meter.measured.resize_s is None
    assert training.per_s(4) == pytest.approx(400.0, rel=0.01)


def test_a_clock_that_stops_or_runs_back_measures_nothing() -> None:
    meter = SpeedMeter()
    for at_s, consumed in ((10.0, 0), (10.0, 500), (5.0, 900), (50.0, 1000), (40.0, 2000)):
        meter = observe(meter, ProgressReading(at_s, 0, consumed, 2, 2))
    assert meter.measured == NOTHING_MEASURED


def readings() -> Iterator[st.SearchStrategy[ProgressReading]]:
    yield st.builds(
        ProgressReading,
        st.floats(0, 1e6),
        st.integers(0, 2),
        st.integers(0, 10**6),
        st.integers(0, 5),
        st.integers(0, 5),
        st.booleans(),
    )


@given(st.lists(next(readings()), max_size=60))
def test_odd_readings_never_give_impossible_measurements(seen: list[ProgressReading]) -> None:
    meter = SpeedMeter()
    for reading in seen:
        meter = observe(meter, reading)
        assert all(s.per_s > 0 and s.trainers > 0 for s in meter.measured.speeds)
        assert meter.measured.resize_s is None or meter.measured.resize_s >= 0


def test_the_planner_uses_what_was_measured_only_where_nothing_is_declared() -> None:
    measured = Measured((Speed(1, 100.0, 60.0), Speed(4, 250.0, 60.0)), 12.0)
    job = replace(make_job("a"), status=JobStatus(measured=measured))
    seen = with_measured(job)
    assert (seen.throughput, seen.resize_cost_s) == (((1, 100.0), (4, 250.0)), 12.0)
    declared = replace(job, throughput=((2, 9.0),), resize_cost_s=0.0)
    assert with_measured(declared) == declared


@pytest.mark.parametrize(("unsaved", "seconds"), [(0, 0.0), (100, 1.0), (250, 1.0), (251, 2.0), (100_000, 512.0)])
def test_what_is_not_saved_is_charged_at_the_speed_of_the_job(unsaved: int, seconds: float) -> None:
    measured = Measured((Speed(1, 100.0, 60.0), Speed(4, 250.0, 60.0)))
    job = replace(make_job("a", trainers=3), status=JobStatus(measured=measured, dataset=Progress(unsaved=unsaved)))
    assert with_measured(job).unsaved_s == seconds
    assert with_measured(replace(job, throughput=((2, 50.0),))).unsaved_s >= seconds
    unknown = replace(job, status=JobStatus(dataset=Progress(unsaved=unsaved)))
    assert with_measured(unknown).unsaved_s == 0.0


def test_goodput_is_what_the_job_reports() -> None:
    goodputs = (Goodput(1, 12.3456, 64, 0.98765), Goodput(4, 40.0, 128, 0.5, is_measured=True))
    job = replace(make_job("a"), status=JobStatus(measured=Measured(goodputs=goodputs)))
    assert with_measured(job).goodput == ((1, 12.3456), (4, 40.0))
    assert rounded(Measured(goodputs=goodputs)).goodputs == (Goodput(1, 12.3, 64, 0.988), goodputs[1])

    def is_close(first: Goodput, *others: Goodput, batch: int = 0) -> bool:
        return is_close_to(Measured(goodputs=goodputs), Measured(goodputs=(first, *others), batch=batch))

    first, second = replace(goodputs[0], per_s=12.5), goodputs[1]
    assert is_close(first, replace(second, per_s=41.0))
    assert not is_close(first, replace(second, per_s=44.0))
    assert not is_close(first)
    assert not is_close(first, replace(second, batch=256))
    assert not is_close(first, replace(second, is_measured=False))
    assert not is_close(first, second, batch=64)


def test_one_measured_speed_is_not_used_as_throughput() -> None:
    job = replace(make_job("a"), status=JobStatus(measured=Measured((Speed(4, 250.0, 60.0),))))
    assert with_measured(job).throughput == ()


def test_small_changes_are_not_worth_a_write() -> None:
    stored = Measured((Speed(4, 250.0, 60.0),), 12.0)
    assert is_close_to(stored, Measured((Speed(4, 255.0, 300.0),), 12.5))
    assert not is_close_to(stored, Measured((Speed(4, 270.0, 60.0),), 12.0))
    assert not is_close_to(stored, Measured((Speed(4, 250.0, 60.0),), 15.0))
    assert not is_close_to(stored, Measured((Speed(4, 250.0, 60.0), Speed(5, 1.0, 60.0)), 12.0))
    assert rounded(Measured((Speed(4, 1234.56, 59.6),), 12.345)) == Measured((Speed(4, 1230.0, 60.0),), 12.3)
