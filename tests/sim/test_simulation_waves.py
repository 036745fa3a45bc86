"""The counts that the controller chooses beside the waves of `benchmarks.serving_waves`."""

from __future__ import annotations

import pytest

from benchmarks.serving_waves import CORES, FEWEST, LEVEL_S, LEVELS, MOST, counts

WAVES = 2
LATE_S = 10.0
"""A level of serving is in force within this time: pods take 3 s at most to end and to start."""


def at_rest(fewest: int, most: int) -> list[int]:
    """How many trainers run just before the end of each level of serving."""
    found = counts(fewest, most, WAVES)
    ends = ((number + 1) * LEVEL_S for number in range(len(LEVELS) * WAVES))
    return [next((one.trainers for one in reversed(found) if one.at_s < end_s), 0) for end_s in ends]


def test_an_elastic_job_has_what_serving_leaves() -> None:
    assert at_rest(FEWEST, MOST) == [min(MOST, CORES - pods) for pods in LEVELS] * WAVES


@pytest.mark.parametrize(("size", "expected"), [(FEWEST, [1, 1, 1, 1, 1]), (MOST, [4, 0, 0, 0, 4])])
def test_a_job_of_one_size_runs_where_it_fits(size: int, expected: list[int]) -> None:
    assert at_rest(size, size) == expected * WAVES


def test_a_change_follows_a_level_of_serving_soon() -> None:
    for fewest, most in ((FEWEST, MOST), (MOST, MOST)):
        assert all(one.at_s % LEVEL_S < LATE_S for one in counts(fewest, most, WAVES))
