from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl.ledger.intervals import IntervalSet

RANGES = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)).map(lambda p: (p[0], p[0] + p[1])), max_size=30)


@given(RANGES, RANGES)
def test_it_agrees_with_a_plain_set(adds: list[tuple[int, int]], removes: list[tuple[int, int]]) -> None:
    intervals, plain = IntervalSet(), set[int]()
    for turn, (start, end) in enumerate([*adds, *removes]):
        numbers = set(range(start, end))
        assert intervals.overlaps(start, end) == bool(numbers & plain)
        assert intervals.covers(start, end) == (numbers <= plain)
        assert [n for a, b in intervals.within(start, end) for n in range(a, b)] == sorted(numbers & plain)
        if turn < len(adds) and not numbers & plain:
            intervals.add(start, end)
            plain |= numbers
        elif turn >= len(adds) and numbers <= plain:
            intervals.remove(start, end)
            plain -= numbers
    assert [n for a, b in intervals for n in range(a, b)] == sorted(plain)
    assert intervals.size == len(plain)
    assert all(
        a_end < b_start for (_, a_end), (b_start, _) in zip(list(intervals), list(intervals)[1:], strict=False)
    )
    assert [n for a, b in intervals.gaps(60) for n in range(a, b)] == sorted(set(range(60)) - plain)
    assert intervals.copy() == intervals


def test_adding_twice_and_removing_what_is_missing_are_errors() -> None:
    intervals = IntervalSet([(0, 10)])
    with pytest.raises(ValueError, match="already"):
        intervals.add(9, 12)
    with pytest.raises(ValueError, match="not in the set"):
        intervals.remove(9, 12)
    assert list(intervals) == [(0, 10)]
