"""The order in which domains are filled: few of each level, best fit, and those with pods of the job first."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl.planner.topology.fill_order import count_domains, fill_order, used_domains
from tests.worlds.effort import examples

TREE: dict[tuple[str, ...], int] = {("b1", "r1"): 4, ("b1", "r2"): 6, ("b2", "r1"): 5, ("b2", "r2"): 16}


@pytest.mark.parametrize(
    ("need", "first"),
    [
        (4, [("b1", "r1")]),  # both blocks hold it, and the smaller one has a rack with nothing to spare
        (5, [("b1", "r2")]),
        (10, [("b2", "r2")]),  # one rack rather than two that have nothing to spare
        (12, [("b2", "r2")]),
        (20, [("b2", "r2"), ("b2", "r1")]),
        (24, [("b2", "r2"), ("b2", "r1"), ("b1", "r1")]),  # the rest goes where least is to spare
        (31, [("b2", "r2"), ("b2", "r1"), ("b1", "r2"), ("b1", "r1")]),
    ],
)
def test_the_smallest_that_holds_the_rest_comes_first(need: int, first: list[tuple[str, ...]]) -> None:
    order = fill_order(TREE, need)
    assert order[: len(first)] == first
    assert sorted(order) == sorted(TREE)
    assert used_domains(order, TREE, need) == first


def test_domains_with_pods_of_the_job_come_before_all_others() -> None:
    assert fill_order(TREE, 3, {("b2", "r1"): 2})[0] == ("b2", "r1")
    assert fill_order(TREE, 3, {("b2", "r1"): 2, ("b1", "r1"): 3})[:2] == [("b1", "r1"), ("b1", "r2")]


def test_a_rack_without_capacity_is_not_used() -> None:
    slots: dict[tuple[str, ...], int] = {("r1",): 0, ("r2",): 3}
    assert used_domains(fill_order(slots, 3), slots, 3) == [("r2",)]
    assert used_domains(fill_order(slots, 9), slots, 9) == [("r2",)]


def test_domains_are_counted_by_level() -> None:
    assert count_domains([("b1", "r1"), ("b1", "r2"), ("b2", "r1")]) == (2, 3)
    assert count_domains([]) == ()


PATHS: st.SearchStrategy[tuple[str, ...]] = st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"))


@given(st.dictionaries(PATHS, st.integers(0, 6), min_size=1), st.integers(0, 20))
@examples(200)
def test_no_fewer_domains_of_the_widest_level_hold_the_need(slots: Mapping[tuple[str, ...], int], need: int) -> None:
    used = used_domains(fill_order(slots, need), slots, need)
    blocks = {path[0]: sum(slots[other] for other in slots if other[0] == path[0]) for path in slots}
    enough = sum(slots.values()) >= need
    fewest = next(
        (n for n in range(len(blocks) + 1) if sum(sorted(blocks.values(), reverse=True)[:n]) >= need), len(blocks)
    )
    assert sum(slots[path] for path in used) >= need or not enough
    if enough:
        assert len({path[0] for path in used}) == fewest
