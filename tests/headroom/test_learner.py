"""What is kept for one shape: a newsvendor's answer, cold starts, days and changes of regime."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from edl.headroom.growth import TICK_S
from edl.headroom.histogram import MOST_VALUES
from edl.headroom.learner import COLD_WINDOWS, DAY_S, HOUR_S, Answer, Learner
from edl.headroom.moments import MOST_PARTS
from tests.worlds.effort import examples

WINDOW, CORES = 4, 3.0


def taught(counts: list[int], slo: float, step_s: float = TICK_S, learner: Learner | None = None) -> Learner:
    learner = learner or Learner(CORES, slo)
    for i, count in enumerate(counts):
        learner.observe(i * step_s, count, WINDOW)
    return learner


def answer(counts: list[int], slo: float, step_s: float = TICK_S) -> Answer:
    return taught(counts, slo, step_s).observe(len(counts) * step_s, counts[-1], WINDOW)


def waves(every: int, times: int = 40) -> list[int]:
    """A rise of ten once in so many ticks."""
    return ([0] * (every // 2) + [10] * (every - every // 2)) * times


def test_cold_it_keeps_nothing_and_says_so() -> None:
    found = answer(waves(8, 2), 1000.0)
    assert found.pods == 0
    assert "cold start" in found.reason
    assert COLD_WINDOWS * WINDOW > 16


def test_room_is_kept_as_soon_as_it_costs_less_than_waiting() -> None:
    """Of 40 ticks, four come before a rise of ten: room pays once slo / (slo + 3) exceeds 90 %, which is slo 27.

    Fourteen waves are too few to know the moments.
    """
    assert answer(waves(40, 14), 20.0).pods == 0
    kept = answer(waves(40, 14), 40.0)
    assert kept.pods == 10
    assert "93.0%" in kept.reason


def test_a_cost_too_low_for_the_load_keeps_nothing_without_being_cold() -> None:
    found = answer(waves(40), 5.0)
    assert (found.pods, "cold" in found.reason) == (0, False)


def test_an_hour_that_rises_each_day_keeps_room_in_that_hour_only() -> None:
    """Bursts of ten in the hour from 9 to 10 of each day."""
    learner, step_s = Learner(CORES, 40.0), 10.0
    kept: dict[int, set[int]] = {}
    for tick in range(int(5 * DAY_S / step_s)):
        at_s = tick * step_s
        hour = int(at_s % DAY_S // HOUR_S)
        count = 10 if hour == 9 and at_s % 60 >= 30 else 0
        found = learner.observe(at_s, count, WINDOW)
        if at_s >= 4 * DAY_S:
            kept.setdefault(hour, set()).add(found.pods)
    assert 10 in kept[9]
    assert kept[15] == {0}
    assert kept[8] == {0}


def test_after_a_change_of_regime_room_is_kept_for_the_new_rises() -> None:
    """Nothing grew for two days; then ten pods come once in 100 s. After twelve calm hours nothing is kept again."""
    calm = [0] * int(2 * DAY_S / 20.0)
    learner = taught(calm, 40.0, 20.0)
    found = Answer(0, "")
    kept: dict[int, int] = {}
    for i in range(int(6 * HOUR_S / 10.0)):
        kept[i % 10] = learner.observe(2 * DAY_S + i * 10.0, 10 if i % 10 >= 5 else 0, WINDOW).pods
    assert kept[4] == 10
    for i in range(int(12 * HOUR_S / 10.0)):
        found = learner.observe(2 * DAY_S + 6 * HOUR_S + i * 10.0, 0, WINDOW)
    assert found.pods == 0


def test_rises_at_known_moments_keep_room_only_then() -> None:
    """An autoscaler adds ten pods 540 s after it took them away, and takes them away 180 s later."""
    learner, kept = Learner(CORES, 40.0), dict[int, int]()
    for tick in range(288 * 60):
        second = tick % 288 * TICK_S
        kept[int(second)] = learner.observe(tick * TICK_S, 10 if second >= 540 else 0, WINDOW).pods
    assert {pods for second, pods in kept.items() if second < 500} == {0}
    assert {pods for second, pods in kept.items() if 512 <= second < 540} == {10}
    assert {pods for second, pods in kept.items() if second >= 545} == {0}


def test_while_the_moments_are_not_known_room_is_kept_always() -> None:
    """Rises each 180 s, as in case 2 of 2017: after the first one there is room for the next, whenever it comes."""
    learner, kept = Learner(CORES, 200.0), dict[int, int]()
    for tick in range(72 * 3):
        kept[tick] = learner.observe(tick * TICK_S, 10 * (1 + tick // 72), WINDOW).pods
    assert {pods for tick, pods in kept.items() if tick < 72} == {0}
    assert {pods for tick, pods in kept.items() if tick >= 72 + COLD_WINDOWS * WINDOW} == {10}


def test_the_reason_names_the_quantile_that_was_kept_for_a_moment() -> None:
    learner, found = Learner(CORES, 40.0), Answer(0, "")
    for tick in range(288 * 60 + 210):
        found = learner.observe(tick * TICK_S, 10 if tick % 288 >= 216 else 0, WINDOW)
    assert found.pods == 10
    assert found.reason.startswith("82.6% of the growths within 10 s are no larger, by the moments so long after")


def test_small_changes_do_not_change_the_answer() -> None:
    counts = [n for wave in range(60) for n in [0] * 20 + [100 + wave % 2] * 20]
    learner = Learner(CORES, 60.0)
    answers = {learner.observe(i * TICK_S, n, WINDOW) for i, n in enumerate(counts) if i > 200 or n >= 0}
    assert len({found.pods for found in answers if "cold" not in found.reason}) <= 2


HISTORY = st.lists(st.integers(0, 300), min_size=1, max_size=60)


@settings(max_examples=60)
@given(HISTORY, st.floats(0.1, 1e5), st.floats(1.0, 100.0))
def test_room_is_never_negative_and_never_more_than_the_peak(counts: list[int], slo: float, step_s: float) -> None:
    learner = Learner(CORES, slo)
    for i, count in enumerate(counts * 4):
        found = learner.observe(i * step_s, count, WINDOW)
        assert 0 <= found.pods <= learner.peak
    assert learner.peak <= max(counts) - min(counts)


@settings(max_examples=60)
@given(HISTORY, st.floats(0.1, 1e4), st.floats(1.01, 100.0))
def test_a_higher_cost_of_waiting_never_keeps_less_in_any_account(
    counts: list[int], slo: float, factor: float
) -> None:
    low, high = taught(counts * 4, slo, 10.0), taught(counts * 4, slo * factor, 10.0)
    assert all(few <= many for few, many in zip(low.guesses(), high.guesses(), strict=True))


@examples(50)
@given(st.lists(st.integers(0, 10**6), min_size=50, max_size=400))
def test_memory_is_bounded(counts: list[int]) -> None:
    learner = taught(counts, 50.0, 600.0)
    kinds_of_moments = 2 * (MOST_PARTS + 1)
    assert learner.memory() <= (26 + kinds_of_moments) * MOST_VALUES + 300
