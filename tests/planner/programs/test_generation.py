"""The bound of a program: the smaller of what patterns and the fluid program prove, and never below a solution."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from edl.errors import PlanError, PlanFailure
from edl.model.limits import Limits
from edl.planner.clock import Clock, OutOfTimeError
from edl.planner.problem import IntArray, Problem
from edl.planner.problem_reader import read_problem
from edl.planner.programs.columns import FloatArray, make_columns
from edl.planner.programs.fluid import buckets_of, worth_of_buckets
from edl.planner.programs.generation import Engine, Program, Solution, solve
from edl.planner.programs.knapsack import Pricer
from edl.planner.solvers.linear_program import Answer, LinearProgram, Outcome
from edl.planner.solvers.matrix import Matrix
from tests.planner.programs.test_columns_feasible import problems
from tests.worlds.builders import make_job, make_node, make_snapshot
from tests.worlds.effort import examples

DEADLINE_S = 60.0
PATTERNS = 3.0  # what the priced patterns of `loosely` seem to be worth, in parts of what they are worth


def as_many_as_fit(problem: Problem, *, worth: float = 1.0) -> Solution:
    """As many pods of each shape as fit."""
    size = len(problem.shapes)
    program = Program(
        gain=np.full(size, worth),
        low=np.zeros(size),
        high=np.full(size, 1000.0),
        use=np.eye(size),
        need=np.zeros(size),
        rows=np.zeros((0, size)),
        limits=np.zeros(0),
    )
    return solve(program, make_columns(problem, problem.empty, range(size)), DEADLINE_S)


def loosely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patterns are priced as if the search for the best ones had been given up far from its end."""
    best = Pricer.best

    def given_up(self: Pricer, worth: FloatArray) -> tuple[IntArray, FloatArray]:
        patterns, values = best(self, worth)
        return patterns, PATTERNS * values

    monkeypatch.setattr(Pricer, "best", given_up)


def problem_of_odd_sizes() -> Problem:
    """Nodes whose patterns are too many to be listed."""
    nodes = tuple(make_node(f"n{i:02d}", 40 + i, 160) for i in range(70))
    return read_problem(make_snapshot(nodes, (make_job("a", cpu=3), make_job("b", cpu=5, memory_gib=7))), Limits())


def test_the_bound_of_patterns_counts_where_it_is_the_smaller_one() -> None:
    solution = as_many_as_fit(problem_of_odd_sizes())

    assert solution.engine is Engine.PATTERNS
    assert solution.bound == pytest.approx(solution.value, rel=1e-5)


def test_the_bound_of_the_fluid_program_counts_where_patterns_were_not_searched_to_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exact = as_many_as_fit(problem_of_odd_sizes())
    loosely(monkeypatch)

    solution = as_many_as_fit(problem_of_odd_sizes())

    assert solution.engine is Engine.FLUID
    assert exact.bound - 1e-3 <= solution.bound <= 1.1 * exact.bound


@examples(60)
@given(problems())
def test_the_fluid_program_over_classes_bounds_what_whole_pods_reach(problem: Problem) -> None:
    solution = as_many_as_fit(problem)
    columns = make_columns(problem, problem.empty, range(len(problem.shapes)))
    if not columns.classes:
        return
    buckets = buckets_of(columns.classes, columns.request)

    for prices in (np.zeros(buckets.free.shape), np.full(buckets.free.shape, 0.5)):
        assert worth_of_buckets(buckets, np.ones(len(problem.shapes)), prices) >= solution.value - 1e-6


class LateSolver:
    """A solver that finds nothing, after so many parts of the time that it is given."""

    name = "late"

    def __init__(self, part: float) -> None:
        self.part = part

    def load(self, program: LinearProgram) -> LateSolver:
        del program
        return self

    def add(self, columns: Matrix) -> None:
        del columns

    def solve(self, limit_s: float) -> Answer:
        until_s = time.perf_counter() + self.part * limit_s
        while time.perf_counter() < until_s:
            pass
        return Answer(Outcome.LATE, "time limit reached")


@pytest.mark.parametrize(("part", "is_late"), [(1.0, True), (0.0, False)])
def test_a_solver_that_used_all_of_its_time_is_late_by_any_clock(part: float, is_late: bool) -> None:
    """The clock of the decision may count CPU seconds, of which a waiting process uses none."""
    problem = replace(problem_of_odd_sizes(), clock=Clock(0.05, lambda: 0.0), solver=LateSolver(part))

    with pytest.raises(PlanError) as failed:
        as_many_as_fit(problem)

    assert isinstance(failed.value, OutOfTimeError) == is_late
    assert failed.value.failure is PlanFailure.LATE_SOLVER
