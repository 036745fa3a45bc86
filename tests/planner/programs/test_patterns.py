"""Node classes hold what their nodes hold, pattern lists are maximal, and pricing bounds every pattern."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl.planner.programs import patterns
from edl.planner.programs.patterns import NodeClass, Pattern, classify, list_patterns, price
from tests.worlds.effort import examples

requests = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4)), min_size=1, max_size=3)
capacities = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=4)
quick = examples(150)


def all_patterns(capacity: tuple[int, ...], rows: list[tuple[int, int]]) -> set[Pattern]:
    """Brute force: every multiset of pods that fits."""
    return {
        way
        for way in product(range(10), repeat=len(rows))
        if all(sum(n * row[r] for n, row in zip(way, rows, strict=True)) <= capacity[r] for r in range(2))
    }


def classes_of(capacity: list[tuple[int, int]], rows: list[tuple[int, int]]) -> tuple[NodeClass, ...]:
    opened = np.ones((len(rows), len(capacity)), dtype=np.bool_)
    return classify(np.array(capacity), np.array(rows), opened)


@given(capacities, requests)
@quick
def test_a_class_can_hold_what_each_of_its_nodes_can_hold(
    capacity: list[tuple[int, int]], rows: list[tuple[int, int]]
) -> None:
    groups = classes_of(capacity, rows)
    for group in groups:
        for node in group.nodes:
            assert all_patterns(group.capacity, rows) == all_patterns(capacity[node], rows)
    grouped = [node for group in groups for node in group.nodes]
    assert sorted(grouped) == [n for n, r in enumerate(capacity) if len(all_patterns(r, rows)) > 1]


def test_nodes_that_differ_only_in_capacity_that_no_pod_can_use_are_one_class() -> None:
    assert len(classes_of([(9, 9), (8, 8), (11, 8)], [(4, 4)])) == 1


def test_a_node_that_is_closed_to_a_shape_is_a_class_of_its_own() -> None:
    opened = np.array([[True, False], [True, True]])
    groups = classify(np.array([(8, 8), (8, 8)]), np.array([(4, 4), (2, 2)]), opened)
    assert [group.most for group in groups] == [(2, 4), (0, 4)]


@given(capacities, requests)
@quick
def test_a_complete_list_holds_exactly_the_maximal_patterns(
    capacity: list[tuple[int, int]], rows: list[tuple[int, int]]
) -> None:
    for group in classes_of(capacity, rows):
        (menu,) = list_patterns([group], np.array(rows), limit=100)  # three shapes of one core have 55 on nine cores
        fits = all_patterns(group.capacity, rows)
        maximal = {
            way for way in fits if not any((*way[:s], way[s] + 1, *way[s + 1 :]) in fits for s in range(len(rows)))
        }
        assert menu.is_complete
        assert set(menu.patterns) == maximal


def test_a_long_list_of_patterns_is_replaced_by_one_for_each_shape_filled_first() -> None:
    rows = np.array([(1, 0), (2, 0), (3, 0), (4, 0)])
    (group,) = classify(np.array([(60, 0)]), rows, np.ones((4, 1), dtype=np.bool_))
    (menu,) = list_patterns([group], rows)
    assert not menu.is_complete
    assert (60, 0, 0, 0) in menu.patterns
    assert (0, 0, 0, 15) in menu.patterns


def test_many_classes_have_the_lists_that_each_has_alone() -> None:
    rows = np.array([(1, 1), (2, 1), (3, 2), (5, 1), (0, 0)])
    opened = np.array([[True] * 4, [True, False] * 2, [True] * 4, [True] * 4, [True] * 4])
    groups = classify(np.array([(60, 40), (60, 40), (7, 9), (31, 80)]), rows, opened)
    together = list_patterns(groups, rows)
    assert together == [menu for group in groups for menu in list_patterns([group], rows)]
    assert {menu.is_complete for menu in together} == {True, False}
    for group, menu in zip(groups, together, strict=True):
        for pattern in menu.patterns:
            assert (np.array(pattern) @ rows <= group.capacity).all()
            assert menu.is_complete or pattern[-1] == 0


@given(capacities, requests, st.lists(st.floats(0, 5), min_size=3, max_size=3))
@quick
def test_pricing_finds_the_most_valuable_pattern(
    capacity: list[tuple[int, int]], rows: list[tuple[int, int]], worth: list[float]
) -> None:
    worth = worth[: len(rows)]
    for group in classes_of(capacity, rows):
        best = max(sum(w * n for w, n in zip(worth, way, strict=True)) for way in all_patterns(group.capacity, rows))
        priced = price(group, np.array(rows), worth)
        value = sum(w * n for w, n in zip(worth, priced.pattern, strict=True))
        assert value <= best + 1e-6
        assert best - 1e-6 <= priced.bound <= best + 1e-6


def test_a_pricing_search_that_is_cut_short_gives_a_valid_bound() -> None:
    rng = np.random.default_rng(7)
    rows = np.column_stack([rng.integers(11, 40, 12), rng.integers(11, 40, 12)])
    (group,) = classify(np.array([(997, 991)]), rows, np.ones((12, 1), dtype=np.bool_))
    worth = (rows.sum(axis=1) + rng.random(12)).tolist()
    priced = price(group, rows, worth)
    value = float(np.dot(priced.pattern, worth))
    fractional = 997 * max(w / row[0] for w, row in zip(worth, rows.tolist(), strict=True))
    assert value <= priced.bound <= fractional + 1e-6


@given(capacities, requests, st.lists(st.floats(0.1, 5), min_size=3, max_size=3))
@quick
def test_the_bound_of_a_pricing_search_holds_however_short_the_search_is(
    capacity: list[tuple[int, int]], rows: list[tuple[int, int]], worth: list[float]
) -> None:
    worth = worth[: len(rows)]
    for group in classes_of(capacity, rows):
        best = max(sum(w * n for w, n in zip(worth, way, strict=True)) for way in all_patterns(group.capacity, rows))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(patterns, "BEAM", 1)
            assert price(group, np.array(rows), worth).bound >= best - 1e-6


def test_a_search_keeps_beginnings_that_are_not_all_alike() -> None:
    """Fifteen odd shapes are nearly equally good; the best 200 beginnings lack the pods that fill the node."""
    random = np.random.default_rng(16)
    rows = np.column_stack([random.integers(11, 60, 15) * 100, random.integers(20, 140, 15) * 256])
    capacity = (64_000 + int(random.integers(0, 50)) * 10, 262_144)
    worth = rows @ (0.5 / np.array(capacity)) * (1 - 0.002 * random.random(15))  # of a full node: nearly 1
    most = tuple((np.array(capacity) // rows).min(axis=1).tolist())
    found = price(NodeClass(nodes=(0,), capacity=capacity, most=most), rows, worth.tolist())
    assert float(np.dot(found.pattern, worth)) > 0.98


def test_a_search_looks_for_better_patterns_than_those_known_and_keeps_the_best_of_them() -> None:
    random = np.random.default_rng(3)
    rows = np.column_stack([random.integers(50, 900, 40), random.integers(8, 240, 40)])
    capacity = (4_800, 1_536)
    worth = rows @ (0.5 / np.array(capacity)) * (1 - 0.05 * random.random(40))
    most = tuple((np.array(capacity) // rows).min(axis=1).tolist())
    group = NodeClass(nodes=(0,), capacity=capacity, most=most)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(patterns, "BEAM", 40_000)
        good = np.array([price(group, rows, worth.tolist()).pattern])

    short = price(group, rows, worth.tolist())
    again = price(group, rows, worth.tolist(), np.vstack([np.eye(40, dtype=np.int64), good]))

    assert float(np.dot(again.pattern, worth)) >= float((good @ worth)[0]) - 1e-9 > 0
    assert again.bound <= short.bound + 1e-9
    assert (np.dot(again.pattern, rows) <= capacity).all()


@pytest.mark.parametrize("collide", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_equal_rows_are_found_even_if_their_numbers_collide(
    seed: int, collide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(seed)
    drawn = random.integers(-2, 3, size=(random.integers(0, 60), random.integers(0, 4)))
    rows = drawn > 0 if seed % 3 == 0 else drawn * 2**40
    if collide:
        monkeypatch.setattr(patterns, "_factors", lambda count: np.zeros(count, dtype=np.uint64))
    first, kind = patterns.distinct(rows)
    known: dict[tuple[int, ...], int] = {}
    numbers = [known.setdefault(tuple(row), len(known)) for row in rows.tolist()]
    assert kind.tolist() == numbers
    assert first.tolist() == [numbers.index(k) for k in range(len(known))]
