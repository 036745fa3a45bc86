"""Minimums in free room: the tightest nodes first, all of them or nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl.model.limits import Limits
from edl.planner.problem_reader import read_problem
from edl.planner.swaps.tightest import place_minimums, tightest_first
from edl.planner.trial_packing import TrialPacking
from tests.worlds.builders import make_job, make_node, make_snapshot
from tests.worlds.effort import examples


@examples(200)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), max_size=12), st.integers(1, 12))
def test_pods_go_where_least_is_left(nodes: list[tuple[int, int]], number: int) -> None:
    slots, spare = np.array([s for s, _ in nodes], dtype=np.int64), np.array([9.0 + x for _, x in nodes])

    used, pods = tightest_first(slots, spare, 1.0, number)

    ranked = sorted((spare[i] - min(slots[i], number), i) for i in range(len(nodes)) if slots[i])
    left, expected = number, []
    for _, i in ranked:
        if left:
            expected.append((i, min(int(slots[i]), left)))
            left -= expected[-1][1]
    assert list(zip(used.tolist(), pods.tolist(), strict=True)) == expected


def packing_of(cpus: list[float], jobs: list[tuple[int, float]]) -> TrialPacking:
    """Nodes of so many cores, and jobs of so many trainers of so many cores."""
    nodes = tuple(make_node(f"n{i}", cpu, 64) for i, cpu in enumerate(cpus))
    made = tuple(make_job(f"j{i}", min_trainers=n, max_trainers=n + 1, cpu=c) for i, (n, c) in enumerate(jobs))
    return TrialPacking(read_problem(make_snapshot(nodes, made), Limits()), range(len(jobs)))


def minimums(packing: TrialPacking) -> list[tuple[int, list[int]]]:
    """A batch for each job."""
    demands = (packing.problem.demands[j] for j in packing.members)
    return [(d.shape, [d.index] * d.min_trainers) for d in demands]


def test_all_minimums_are_placed_without_overcommitting_a_node() -> None:
    packing = packing_of([8, 4, 6], [(2, 4), (2, 3), (1, 4)])

    assert place_minimums(packing, minimums(packing))

    assert packing.count == {0: 2, 1: 2, 2: 1}
    assert (packing.free >= 0).all()
    assert sorted((place.owner, place.node) for place in packing.placed) == [(0, 0), (0, 0), (1, 2), (1, 2), (2, 1)]


@pytest.mark.parametrize("cpus", [[8, 4, 5.9], [3.9] * 9])
def test_nothing_changes_if_not_all_of_them_fit(cpus: list[float]) -> None:
    packing = packing_of(cpus, [(2, 4), (2, 3), (1, 4)])
    free = packing.free.copy()

    assert not place_minimums(packing, minimums(packing))

    assert packing.placed == []
    assert packing.count == dict.fromkeys(range(3), 0)
    assert (packing.free == free).all()
