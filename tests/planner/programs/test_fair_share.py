from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl.errors import PlanError
from edl.lifecycle.allowance import as_unasked
from edl.model.jobs import Refusal
from edl.model.limits import Limits
from edl.model.status import Reason
from edl.planner.packing import grow
from edl.planner.problem_reader import read_problem
from edl.planner.programs.columns import make_columns
from edl.planner.programs.fair_share import fair_shares, prove, read_share_problem
from edl.planner.programs.generation import Program, solve
from edl.planner.programs.integer import pack_most
from edl.planner.programs.most_pods import place_most
from edl.planner.trial_packing import TrialPacking
from tests.worlds.builders import make_job, make_serving
from tests.worlds.effort import examples
from tests.worlds.small_clusters import cluster_of, reachable, small_nodes, with_pods

DEADLINE_S = 10.0


def refusal_at(allowed: int) -> Refusal:
    """The job may have so many trainers, and no more."""
    return Refusal(allowed, is_tried=False, reason=Reason.PODS_REFUSED, message="it rejects more", details="")


quick = examples(80)


@given(small_nodes(), st.lists(st.integers(1, 4), min_size=1, max_size=6))
@quick
def test_no_packing_exceeds_the_bound_and_the_integer_program_reaches_the_best(
    cores: list[int], pods: list[int]
) -> None:
    serving = [make_serving(f"s{i}", cpu=cpu) for i, cpu in enumerate(pods)]
    world = read_problem(with_pods(cluster_of(cores), *serving), Limits())
    wanted = {group.shape: group.due for group in world.waiting}
    sizes = sorted(set(pods))
    best = max(sum(way) for way in reachable(cores, sizes, tuple(pods.count(size) for size in sizes)))
    assert place_most(world, world.empty, wanted, DEADLINE_S) >= best - 1e-6
    packed = pack_most(world, world.empty, wanted, {}, DEADLINE_S)
    assert best == sum(count for _, _, count in packed or [])


def test_the_fair_share_raises_all_jobs_alike_and_then_those_that_can_have_more() -> None:
    """Two jobs share 10 cores; a third has a node of its own and its maximum."""
    jobs = [
        make_job("a", max_trainers=11, min_trainers=1),
        make_job("b", max_trainers=11, min_trainers=1),
        make_job("c", max_trainers=3, cpu=2),
    ]
    world = read_problem(cluster_of([12], jobs), Limits())
    room = TrialPacking(world, range(3))
    for j in range(3):
        room.place_trainer(j, 0)
    shares = fair_shares(read_share_problem(room), DEADLINE_S)
    level = (shares[0] - 1) / 10
    assert shares[1] == pytest.approx(shares[0])
    assert (shares[2] - 1) / 2 == pytest.approx(level, abs=1e-3)
    assert shares[0] + shares[1] + 2 * shares[2] == pytest.approx(12, abs=1e-3)


def test_limits_of_many_jobs_that_are_reached_at_once_take_one_program() -> None:
    """A new controller has asked about no pod yet, so each of a thousand jobs may have just what it has."""
    jobs = [as_unasked(make_job(f"j{i:02}", trainers=3, max_trainers=9, on=(f"n{i:03}",))) for i in range(20)]
    jobs[7] = make_job("j07", trainers=3, max_trainers=9, on=("n007",))
    world = read_problem(cluster_of([8] * 20, jobs), Limits())
    problem = read_share_problem(TrialPacking(world, range(20)))
    with patch("edl.planner.programs.fair_share.solve", side_effect=solve) as solved:
        shares = fair_shares(problem, DEADLINE_S)
    assert solved.call_count == 2
    assert shares == pytest.approx({j: 9.0 if j == 7 else 3.0 for j in range(20)}, abs=1e-3)


@given(st.lists(st.tuples(st.integers(2, 9), st.integers(1, 12)), min_size=2, max_size=6), st.integers(4, 20))
@quick
def test_shares_do_not_depend_on_how_many_limits_a_program_prices(sizes: list[tuple[int, int]], cores: int) -> None:
    jobs = [
        replace(make_job(f"j{i}", trainers=1, max_trainers=most, on=("n000",)), refusal=refusal_at(allowed))
        for i, (most, allowed) in enumerate(sizes)
    ]
    world = read_problem(cluster_of([cores + len(jobs)], jobs), Limits())
    problem = read_share_problem(TrialPacking(world, range(len(jobs))))
    shares = fair_shares(problem, DEADLINE_S)
    with patch("edl.planner.programs.fair_share._held_down", lambda *_: np.zeros(len(jobs), dtype=np.bool_)):
        assert shares == pytest.approx(fair_shares(problem, DEADLINE_S), abs=1e-3)


def test_a_share_is_rounded_by_whole_pods_on_whole_nodes_and_not_by_totals() -> None:
    """9 cores in all, but each node of 3 holds one trainer of 2."""
    world = read_problem(cluster_of([3, 3, 3], [make_job("a", cpu=2, max_trainers=9)]), Limits())
    room = TrialPacking(world, (0,))
    room.place_trainer(0, 0)
    assert fair_shares(read_share_problem(room), DEADLINE_S)[0] == pytest.approx(3)


@given(small_nodes(), st.lists(st.integers(1, 3), min_size=1, max_size=3))
@quick
def test_the_bound_is_never_below_what_is_achieved(cores: list[int], sizes: list[int]) -> None:
    jobs = [make_job(f"j{i}", cpu=size, min_trainers=1, max_trainers=4) for i, size in enumerate(sizes)]
    world = read_problem(cluster_of(cores, jobs), Limits())
    room = TrialPacking(world, range(len(jobs)))
    grow(room, dict.fromkeys(room.members, 4), dict.fromkeys(room.members, 4))
    proof = prove(room, {j: float(room.count[j]) for j in room.members}, DEADLINE_S)
    assert proof.bound >= proof.achieved


def test_patterns_are_generated_by_price_where_they_cannot_be_listed() -> None:
    """Eight sizes of pods on nodes of 97 cores: what fits best is found without listing every pattern."""
    sizes = [11, 13, 17, 19, 23, 29, 31, 37]
    pods = [make_serving(f"s{i}-{k}", cpu=size) for i, size in enumerate(sizes) for k in range(9)]
    world = read_problem(with_pods(cluster_of([97] * 4), *pods), Limits())
    wanted = {group.shape: group.due for group in world.waiting}
    columns = make_columns(world, world.empty, wanted)
    assert not all(columns.complete)
    known = len(columns.flat()[0])
    size = len(columns.shapes)
    worth = world.request[list(columns.shapes), 0].astype(np.float64)
    program = Program(
        worth, np.zeros(size), np.full(size, 9.0), np.eye(size), np.zeros(size), np.zeros((0, size)), np.zeros(0)
    )
    solution = solve(program, columns, DEADLINE_S)
    assert len(columns.flat()[0]) > known
    assert solution.value == pytest.approx(4 * 97_000)
    assert solution.value <= solution.bound + 1e-6 <= 4 * 97_000 * 1.001


def test_a_program_without_an_answer_is_no_plan() -> None:
    world = read_problem(with_pods(cluster_of([4]), make_serving("s", cpu=3)), Limits())
    columns = make_columns(world, world.empty, [world.waiting[0].shape])
    two = np.array([2.0])
    impossible = Program(np.ones(1), two, two, np.eye(1), np.zeros(1), np.zeros((0, 1)), np.zeros(0))
    with pytest.raises(PlanError, match="last plan"):
        solve(impossible, columns, DEADLINE_S)
