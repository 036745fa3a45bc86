from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl.ledger.intervals import IntervalSet

RANGES = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)).map(lambda p: (p[0], p[0] + p[1])), max_size=30)


@given(RANGES, RANGES)
def test_it_holds_what_a_plain_set_holds(adds: list[tuple[int, int]], removes: list[tuple[int, int]]) -> None:
    held, plain = IntervalSet(), set[int]()
    for turn, (start, end) in enumerate([*adds, *removes]):
        numbers = set(range(start, end))
        assert held.overlaps(start, end) == bool(numbers & plain)
        assert held.covers(start, end) == (numbers <= plain)
        assert [n for a, b in held.within(start, end) for n in range(a, b)] == sorted(numbers & plain)
        if turn < len(adds) and not numbers & plain:
            held.add(start, end)
            plain |= numbers
        elif turn >= len(adds) and numbers <= plain:
            held.remove(start, end)
            plain -= numbers
    assert [n for a, b in held for n in range(a, b)] == sorted(plain)
    assert held.size == len(plain)
    assert all(a_end < b_start for (_, a_end), (b_start, _) in zip(list(held), list(held)[1:], strict=False))
    assert [n for a, b in held.gaps(60) for n in range(a, b)] == sorted(set(range(60)) - plain)
    assert held.copy() == held


def test_counting_twice_and_losing_are_errors() -> None:
    held = IntervalSet([(0, 10)])
    with pytest.raises(ValueError, match="already"):
        held.add(9, 12)
    with pytest.raises(ValueError, match="not in the set"):
        held.remove(9, 12)
    assert list(held) == [(0, 10)]
