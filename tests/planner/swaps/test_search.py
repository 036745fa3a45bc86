"""The search over swaps fills a packing of any number of jobs."""

from __future__ import annotations

import pytest

from benchmarks.worst_worlds import many_sizes
from edl.model.limits import Limits
from edl.planner.minimums.batches import Served
from edl.planner.minimums.required import place_in_free_capacity
from edl.planner.problem_reader import read_problem
from edl.planner.swaps.search import Wanted, fill_by_swaps
from edl.planner.trial_packing import TrialPacking
from tests.worlds.builders import make_job, make_nodes, make_snapshot


def test_a_packing_without_jobs_stays_as_it_is() -> None:
    problem = read_problem(make_snapshot(make_nodes(2), (make_job("a"),)), Limits())

    filled = fill_by_swaps(TrialPacking(problem, ()), {}, {}, Wanted({}, {}, {}))

    assert (filled.count, filled.placed) == ({}, [])


def test_free_room_is_filled_up_to_the_ceiling() -> None:
    problem = read_problem(make_snapshot(make_nodes(2), (make_job("a", cpu=3), make_job("b", cpu=2))), Limits())
    both = {0: 2, 1: 2}

    filled = fill_by_swaps(
        TrialPacking(problem, (0, 1)),
        both,
        {0: 1, 1: 1},
        Wanted({0: 2.0, 1: 2.0}, {0: 0.3, 1: 0.2}, {0: 0.1, 1: 0.1}),
    )

    assert filled.count == both
    assert (filled.free >= 0).all()


def test_very_many_jobs_keep_their_minimums_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edl.planner.swaps.search.MOST_COMPARED", 5)
    problem = read_problem(many_sizes(12, 18, 3).snapshot, Limits())
    placed = place_in_free_capacity(TrialPacking(problem, range(18)), Served({}, {}, 0))
    assert placed is not None
    few = dict.fromkeys(range(18), 0)
    none = dict.fromkeys(range(18), 0.0)

    filled = fill_by_swaps(placed, few, few, Wanted(none, none, none))

    assert sorted(filled.placed) == sorted(placed.placed)
