"""Times of steps, their fit, and the batch of the most goodput."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edl.worker.goodput.choice import BETTER, Choice
from edl.worker.goodput.rates import efficiency
from edl.worker.goodput.step_times import ENOUGH, MOST_KINDS, StepKind, StepTimes, TimeModel
from edl.worker.step_settings import StepSettings

RANGED = StepSettings(10_000, 1, 64, 64, largest_batch=512, rate_rule="adascale")
CHOICE = Choice(64, 512, RANGED.passes)
COEFFICIENTS = st.floats(0, 0.1).map(lambda value: value if value > 1e-4 else 0.0)


def true_s(kind: StepKind, coefficients: tuple[float, ...]) -> float:
    passes_s, record_s, exchange_s, more_s = coefficients
    share = kind.batch / kind.trainers
    together = exchange_s + more_s * (kind.trainers - 2) if kind.trainers > 1 else 0.0
    return passes_s * kind.passes + record_s * share + together


def model(coefficients: tuple[float, ...], seen: list[tuple[int, int]]) -> TimeModel:
    kinds = [CHOICE.kind(*pair) for pair in seen]
    return TimeModel({kind: true_s(kind, coefficients) for kind in kinds})


@settings(max_examples=50)
@given(st.tuples(COEFFICIENTS, COEFFICIENTS, COEFFICIENTS, COEFFICIENTS).filter(lambda found: found[1] > 0))
def test_the_fit_finds_the_times_between_those_that_were_seen(coefficients: tuple[float, ...]) -> None:
    pairs = [(1, 64), (1, 256), (2, 64), (2, 256), (4, 64), (4, 512)]
    found = model(coefficients, pairs)
    for pair in [(1, 128), (2, 128), (3, 256), (4, 256)]:
        kind = CHOICE.kind(*pair)
        assert found.seconds(kind) == pytest.approx(true_s(kind, coefficients), rel=1e-4)


def test_the_fit_is_near_noisy_times_and_no_coefficient_is_below_zero() -> None:
    draw, true = random.Random(4), (0.01, 0.001, 0.02, 0.005)  # noqa: S311 - repeatable
    pairs = [(trainers, batch) for trainers in (1, 2, 4, 6) for batch in (64, 128, 256, 512)]
    kinds = [CHOICE.kind(*pair) for pair in pairs]
    found = TimeModel({kind: true_s(kind, true) * draw.uniform(0.9, 1.1) for kind in kinds})
    for pair in [(3, 128), (5, 256), (8, 256)]:
        kind = CHOICE.kind(*pair)
        assert found.seconds(kind) == pytest.approx(true_s(kind, true), rel=0.15)
    falling = TimeModel({CHOICE.kind(4, 64): 0.2, CHOICE.kind(4, 128): 0.19})
    for batch in (91, 256):
        assert falling.seconds(CHOICE.kind(4, batch)) == pytest.approx(0.195, rel=0.02), "no record takes less than 0"


def test_nothing_is_predicted_beyond_twice_what_was_seen() -> None:
    found = model((0.01, 0.001, 0.0, 0.0), [(2, 64), (2, 128)])
    known = {(n, b) for n in range(1, 9) for b in CHOICE.batches if found.seconds(CHOICE.kind(n, b)) is not None}
    assert known, "something is"
    for trainers, batch in known:
        assert trainers <= 4
        assert batch <= 256
        assert 16 <= batch / trainers <= 128
    assert (4, 256) in known
    assert (1, 91) in known


def test_only_the_middle_of_the_last_times_counts_and_few_make_none() -> None:
    times, kind = StepTimes(), StepKind(2, 64, 1)
    for _ in range(ENOUGH - 1):
        times.add(kind, 0.1)
    assert times.known() == {}
    assert times.model() is None
    times.add(kind, 50.0)  # a test, or a checkpoint
    assert times.known() == {kind: 0.1}
    for batch in range(MOST_KINDS):
        times.add(StepKind(3, 100 + batch, 1), 0.1)
    assert times.known() == {}, "the oldest kind is dropped"
    other = StepTimes()
    other.load_state_dict(json.loads(json.dumps(times.state_dict())))
    assert other.state_dict() == times.state_dict()


def test_a_per_trainer_maximum_makes_passes() -> None:
    assert [RANGED.passes(2, batch) for batch in (64, 128, 129, 512)] == [1, 1, 2, 4]
    assert RANGED.passes(1, 64) == 2, "a trainer that is alone compares two passes"
    assert StepSettings(100, 1, 64, 16).passes(1, 64) == 4


def test_the_batches_are_from_the_base_to_the_largest() -> None:
    assert CHOICE.batches == [64, 91, 128, 181, 256, 362, 512]
    assert Choice(60, 100, RANGED.passes).batches == [60, 85, 100]
    assert Choice(1, 3, RANGED.passes).batches == [1, 2, 3]


FAST_NETWORK, SLOW_NETWORK = (0.001, 0.001, 0.0, 0.0), (0.001, 0.001, 0.2, 0.05)
EVERY = [(trainers, batch) for trainers in (1, 2, 4, 8) for batch in CHOICE.batches]


def test_noise_and_a_slow_exchange_make_the_batch_large() -> None:
    quiet, noisy = 1.0, 1e5
    slow, fast = model(SLOW_NETWORK, EVERY), model(FAST_NETWORK, EVERY)
    assert CHOICE.best(slow, noisy, 8, 64) == 512
    assert CHOICE.best(fast, quiet, 8, 512) == 64
    assert CHOICE.best(slow, quiet, 8, 64) == 64, "a larger batch wastes as much as it saves"
    assert 64 < CHOICE.best(slow, 300.0, 8, 64) <= 512


@given(st.floats(0, 1e6), st.sampled_from([1, 2, 4, 8]), st.sampled_from(CHOICE.batches))
def test_the_choice_is_better_than_the_batch_in_use_or_the_same(noise: float, trainers: int, current: int) -> None:
    known = model(SLOW_NETWORK, EVERY)
    best = CHOICE.best(known, noise, trainers, current)
    values = {batch: CHOICE.goodput(known, noise, trainers, batch) or 0.0 for batch in CHOICE.batches}
    assert best == current or values[best] > BETTER * values[current]
    assert values[best] * BETTER >= max(values.values())


def test_a_batch_is_tried_before_anything_is_known_of_its_time_and_left_if_it_was_no_better() -> None:
    first = model(FAST_NETWORK, [(4, 64)])
    assert CHOICE.best(first, 1000.0, 4, 64) == 128
    assert CHOICE.best(model(FAST_NETWORK, [(4, 64), (4, 128)]), 10.0, 4, 128) == 64
    assert CHOICE.best(first, 1000.0, 8, 128) == 128, "the batch in use has no time yet"


def test_the_curve_has_the_counts_that_were_seen_and_others_up_to_twice_the_largest() -> None:
    curve = CHOICE.curve(model(SLOW_NETWORK, [(2, 64), (2, 256), (3, 128)]), 1e4, {2, 3})
    assert [speed.trainers for speed in curve] == [1, 2, 3, 4, 5, 6]
    assert [speed.trainers for speed in curve if speed.is_measured] == [2, 3]
    for speed in curve:
        assert speed.batch in CHOICE.batches
        assert speed.efficiency == efficiency(1e4, CHOICE.batches[0], speed.batch)
    fast = CHOICE.curve(model(FAST_NETWORK, EVERY), 1e9, {1, 2, 4, 8})
    for one, two in [(0, 1), (1, 3)]:
        assert fast[two].per_s == pytest.approx(2 * fast[one].per_s, rel=0.1), "nothing is lost"
    lost = CHOICE.curve(model(FAST_NETWORK, EVERY), 1.0, {1, 2, 4, 8})
    assert lost[3].per_s < 4 * lost[0].per_s
