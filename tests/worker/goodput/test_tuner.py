"""What the trainers of a job agree on: the next batch, the rate, the schedule and what the master hears."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl.errors import ConfigError, PermanentError
from edl.worker.goodput.noise import ENOUGH as ENOUGH_NOISE
from edl.worker.goodput.noise import Spread
from edl.worker.goodput.step_times import ENOUGH
from edl.worker.goodput.tuner import BatchTuner
from edl.worker.step_settings import Division, StepSettings, batch_range


def tuner(**settings: Any) -> BatchTuner:
    found = BatchTuner()
    found.begin(
        StepSettings(1000, 2, **{"global_batch": 64, "largest_batch": 512, "rate_rule": "linear", **settings})
    )
    return found


def learn(one: BatchTuner, trainers: int, batch: int, seconds: float = 0.1) -> None:
    for _ in range(ENOUGH):
        one.times.add(one.kind(trainers, batch), seconds)
    for _ in range(ENOUGH_NOISE):
        one.noise.add(Spread(3.0, 2, 64), 2.0)  # a scale of 64


def test_the_batch_grows_only_once_its_time_and_the_noise_are_known() -> None:
    one = tuner()
    assert (one.batch, one.propose(2)) == (64, 64)
    for _ in range(ENOUGH):
        one.times.add(one.kind(2, 64), 0.1)
    assert one.propose(2) == 64
    learn(one, 2, 64)
    assert one.propose(2) == 128
    assert one.propose(3) == 64, "of three trainers no time is known"
    one.agree(128)
    assert (one.batch, one.propose(2)) == (128, 128)
    assert one.rate_factor(128) == 2.0


def test_a_job_of_one_batch_proposes_none_and_reports_nothing() -> None:
    one = tuner(largest_batch=None)
    learn(one, 2, 64)
    one.agree(0)
    assert (one.batch, one.propose(2), one.report()) == (None, 0, None)
    assert one.rate_factor(64) == 1.0
    assert tuner(largest_batch=64).batch is None


def test_without_a_global_batch_the_rate_is_that_of_one_trainer() -> None:
    one = tuner(global_batch=None, largest_batch=None, micro_batch=8, within=Division(0, 2))
    assert one.rate_factor(48) == 3.0


def test_the_report_has_the_speeds_by_count() -> None:
    one = tuner()
    assert one.report() == {"batch": 64, "noise_scale": None, "speeds": []}
    learn(one, 1, 64, 0.1)
    learn(one, 2, 64, 0.05)
    report = json.loads(json.dumps(one.report()))
    assert report["noise_scale"] == pytest.approx(64.0)
    measured = {speed["trainers"]: speed["per_s"] for speed in report["speeds"] if speed["is_measured"]}
    assert set(measured) == {1, 2}
    assert measured[2] == pytest.approx(128 / 0.05 * (64 + 64) / (64 + 128)), "as the next batch is expected to be"
    assert {speed["trainers"] for speed in report["speeds"]} == {1, 2, 3, 4}


def test_a_copy_goes_on_alike_and_a_batch_of_another_range_is_brought_into_this_one() -> None:
    one, other = tuner(), tuner()
    learn(one, 2, 64)
    one.agree(256)
    state = json.loads(json.dumps(one.state_dict()))
    other.load_state_dict(state)
    assert other.state_dict() == state
    assert (other.batch, other.propose(2)) == (256, 256)
    narrow = tuner(largest_batch=100)
    narrow.load_state_dict(state)
    assert narrow.batch == 100


@given(st.integers(1, 400), st.integers(1, 70), st.lists(st.integers(1, 300), min_size=1, max_size=30))
def test_a_schedule_is_at_each_record_as_far_as_with_the_base_batch(
    total: int, base: int, batches: list[int]
) -> None:
    settings = StepSettings(total, 2, base, None, largest_batch=base + 300, rate_rule="none")
    one = BatchTuner()
    one.begin(settings)
    position, steps, turn = 0, 0, 0
    while position < settings.end:
        plan = settings.plan(position, 1, batches[turn % len(batches)])
        steps += one.schedule_steps(plan)
        position, turn = plan.end, turn + 1
        within = position % total
        assert steps == (position // total) * -(-total // base) + -(-within // base)
    fixed, count = 0, 0
    while fixed < settings.end:
        fixed, count = settings.plan(fixed, 1).end, count + 1
    assert steps == count


def test_a_job_of_one_batch_has_a_schedule_step_for_each_step() -> None:
    growing = tuner(global_batch=None, largest_batch=None, micro_batch=8)
    settings = StepSettings(1000, 1, None, 8)
    assert growing.schedule_steps(settings.plan(0, 5)) == 1


def test_a_tuner_that_knows_no_job_says_so() -> None:
    with pytest.raises(PermanentError, match="call begin first"):
        BatchTuner().rate_factor(64)


@pytest.mark.parametrize(
    ("given_", "by_spec", "found"),
    [
        (None, (64, 512), (64, 512)),
        (None, (64, None), (64, None)),
        (32, (64, 512), (32, None)),
        ((16, 48), (64, None), (16, 48)),
    ],
)
def test_the_script_goes_before_the_spec(given_: Any, by_spec: Any, found: Any) -> None:
    assert batch_range(given_, by_spec) == found


def test_three_numbers_are_no_range() -> None:
    three: Any = (1, 2, 3)
    with pytest.raises(ConfigError, match=r"global_batch=\(1, 2, 3\) cannot be used; give one number, or"):
        batch_range(three, (None, None))
