"""Pricing all classes at once, against the search of one class."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from edl.planner.programs.knapsack import Pricer
from edl.planner.programs.patterns import classify, price
from tests.worlds.effort import examples

requests = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 6), st.integers(0, 1)), min_size=1, max_size=4)
capacities = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 30), st.integers(0, 3)), min_size=1, max_size=6)
quick = examples(150)


@given(capacities, requests, st.lists(st.floats(0, 5), min_size=4, max_size=4), st.integers(0, 2**24 - 1))
@quick
def test_the_table_finds_what_the_search_finds(
    capacity: list[tuple[int, int, int]], rows: list[tuple[int, int, int]], worth: list[float], closed: int
) -> None:
    request = np.array(rows)
    bits = np.array([closed >> k & 1 for k in range(len(rows) * len(capacity))], dtype=np.bool_)
    classes = classify(np.array(capacity), request, ~bits.reshape(len(rows), len(capacity)))
    prices = np.array(worth[: len(rows)])
    patterns, bound = Pricer(classes, request).best(prices)
    for group, pattern, most in zip(classes, patterns, bound.tolist(), strict=True):
        best = price(group, request, prices.tolist()).bound
        assert best - 1e-6 <= most <= best + 1e-6
        assert abs(float(pattern @ prices) - best) <= 1e-6
        assert (pattern @ request <= np.array(group.capacity)).all()
        assert (pattern <= np.array(group.most)).all()
        fits = (pattern + np.eye(len(rows), dtype=np.int64)) @ request <= np.array(group.capacity)
        more = (pattern < np.array(group.most)) & fits.all(axis=1)
        assert not more.any(), "the pattern is not maximal"


def test_capacities_too_fine_for_a_table_are_searched_one_by_one() -> None:
    request = np.array([[999_983, 1_000_003], [1_500_007, 700_001]])
    classes = classify(
        np.array([[50_000_017, 40_000_003], [9_000_011, 9_000_011]]), request, np.ones((2, 2), np.bool_)
    )
    patterns, bound = Pricer(classes, request).best(np.array([1.0, 1.2]))
    for group, pattern, most in zip(classes, patterns, bound.tolist(), strict=True):
        assert abs(price(group, request, [1.0, 1.2]).bound - most) < 1e-6
        assert (pattern @ request <= np.array(group.capacity)).all()
