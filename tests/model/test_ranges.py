"""Indexes as ranges in a short text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl.model.ranges import MAX_TEXT, indexes_of, text_of_indexes


@given(st.sets(st.integers(0, 9_999), max_size=100))
def test_what_is_written_is_read_again(indexes: set[int]) -> None:
    assert indexes_of(text_of_indexes(indexes)) == tuple(sorted(indexes))


def test_neighbours_are_one_range_and_too_many_ranges_are_not_stored() -> None:
    assert text_of_indexes([3, 1, 2, 7, 9, 10]) == "1-3,7,9-10"
    assert text_of_indexes(range(0, 10_000, 2)) == ""
    assert len(text_of_indexes(range(10_000))) < MAX_TEXT


@pytest.mark.parametrize("text", ["", "x", "-1", "1-x", "0-99999999", "99999", "1.5", "\u0663"])
def test_what_a_user_wrote_there_does_no_harm(text: str) -> None:
    assert all(0 <= index < 10_000 for index in indexes_of(text))
    assert len(indexes_of(text)) <= 10_000
