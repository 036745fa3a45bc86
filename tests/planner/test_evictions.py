"""How many trainers must leave a node, against counting one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from edl.planner.evictions import IMPOSSIBLE, evictions_needed, first_enough, shortfall
from tests.worlds.effort import examples

MOST = 30
amounts = st.lists(st.integers(0, 6), min_size=2, max_size=2)


def counted(free: list[int], request: list[int], leaving: list[list[int]]) -> int:
    """How many of some trainers leave in their order until the pod fits, at least one; 0 if all are not enough."""
    for number in range(1, len(leaving) + 1):
        freed = [have + sum(each[r] for each in leaving[:number]) for r, have in enumerate(free)]
        if all(have >= wanted for have, wanted in zip(freed, request, strict=True) if wanted):
            return number
    return 0


@given(st.lists(st.integers(-3, 6), min_size=2, max_size=2), amounts, st.lists(amounts, max_size=5))
@examples(200)
def test_trainers_leave_in_their_order_until_the_pod_fits(
    free: list[int], request: list[int], leaving: list[list[int]]
) -> None:
    """What the pod does not request may be overcommitted."""
    lack = shortfall(np.array(free), np.array(request))
    assert first_enough(lack, np.array(leaving, dtype=np.int64).reshape(-1, 2)) == counted(free, request, leaving)


@given(st.lists(st.lists(st.integers(-3, 6), min_size=2, max_size=2), min_size=1, max_size=4), amounts, amounts)
@examples(200)
def test_equal_trainers_leave_each_node_until_the_pod_fits(
    free: list[list[int]], request: list[int], freed: list[int]
) -> None:
    needed = evictions_needed(shortfall(np.array(free), np.array(request)), np.array(freed))
    assert needed.tolist() == [counted(row, request, [freed] * MOST) or IMPOSSIBLE for row in free]


def test_a_pod_that_lacks_nothing_still_takes_the_place_of_one_trainer() -> None:
    assert shortfall(np.array([[4, 4], [1, -2]]), np.array([2, 0])).tolist() == [[0, 0], [1, 0]]
    assert evictions_needed(np.array([[0, 0]]), np.array([1, 1])).tolist() == [1]
