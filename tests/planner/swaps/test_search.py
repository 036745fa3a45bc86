"""The search over swaps fills a packing of any number of jobs."""

from __future__ import annotations

from edl.model.plan import Limits
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
