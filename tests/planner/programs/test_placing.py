"""Whole pods are placed where placing one after the other leaves some out, and never beyond what a node has."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import numpy as np
import pytest

from edl.model.limits import Limits
from edl.planner.problem_reader import read_problem
from edl.planner.programs import placing
from edl.planner.programs.placing import place_whole
from edl.planner.trial_packing import TrialPacking
from tests.worlds.builders import make_job, make_node, make_snapshot

LIMIT_S, TRIES = 60.0, 600


def filled(nodes: int, seed: int) -> tuple[TrialPacking, dict[int, int]]:
    """Nodes of 20 cores that some pods of odd sizes fill to the last millicore; what is wanted by shape."""
    random, sizes = Random(seed), Counter[float]()  # noqa: S311 - sizes, no secrets
    for _ in range(nodes):
        cuts = sorted(random.sample(range(5, 195), 4))
        sizes.update((b - a) / 10 for a, b in zip((0, *cuts), (*cuts, 200), strict=True))
    jobs = tuple(
        make_job(f"j{cpu:04.1f}", cpu=cpu, memory_gib=1, min_trainers=count, max_trainers=count)
        for cpu, count in sorted(sizes.items())
    )
    rows = tuple(make_node(f"n{i}", 20, 64) for i in range(nodes))
    problem = read_problem(make_snapshot(rows, jobs), Limits())
    return TrialPacking(problem, ()), {d.shape: d.min_trainers for d in problem.demands}


def left_over(packing: TrialPacking, places: list[tuple[int, int, int]]) -> np.ndarray:
    free = packing.free.copy()
    for node, shape, pods in places:
        free[node] -= pods * packing.problem.request[shape]
    return free


def counted(places: list[tuple[int, int, int]]) -> dict[int, int]:
    counts = Counter[int]()
    for _, shape, pods in places:
        counts[shape] += pods
    return dict(counts)


@pytest.mark.parametrize("seed", range(4))
def test_every_pod_has_a_place_although_nothing_is_left_free(seed: int) -> None:
    packing, wanted = filled(3, seed)

    places = place_whole(packing, wanted, 0, LIMIT_S)

    assert places is not None
    assert counted(places) == wanted
    assert (left_over(packing, places) >= 0).all()


def test_one_pod_too_many_has_no_place() -> None:
    packing, wanted = filled(3, 0)
    wanted[min(wanted)] += 1

    assert place_whole(packing, wanted, 30, LIMIT_S) is None


def test_nothing_wanted_needs_no_place() -> None:
    packing, wanted = filled(2, 0)

    assert place_whole(packing, dict.fromkeys(wanted, 0), 0, LIMIT_S) == []


def leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first search ends with the pods of two nodes left out, as one that ends too early would."""
    search = placing._packed
    calls: list[int] = []

    def first_is_cut(*arguments: Any) -> Any:
        found = search(*arguments)
        calls.append(1)
        if len(calls) == 1 and found is not None:
            found[:, :2] = 0
        return found

    monkeypatch.setattr(placing, "_packed", first_is_cut)


def test_pods_that_the_first_search_leaves_out_are_placed_by_exchanges_between_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leaves_out(monkeypatch)
    packing, wanted = filled(5, 1)

    places = place_whole(packing, wanted, TRIES, LIMIT_S)

    assert places is not None
    assert counted(places) == wanted
    assert (left_over(packing, places) >= 0).all()


def test_without_exchanges_they_stay_without_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    leaves_out(monkeypatch)
    packing, wanted = filled(5, 1)

    assert place_whole(packing, wanted, 0, LIMIT_S) is None


def test_equal_questions_have_equal_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    packing, wanted = filled(4, 2)

    leaves_out(monkeypatch)
    first = place_whole(packing, wanted, TRIES, LIMIT_S)
    monkeypatch.undo()
    leaves_out(monkeypatch)

    assert place_whole(packing, wanted, TRIES, LIMIT_S) == first
