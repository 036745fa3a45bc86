"""Integer programs: the best whole numbers, none if there are none, and no solver is loaded before the first."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
from scipy.sparse import csr_array

from edl.planner.solvers.integer_program import IntegerProgram, Rows, SolvedPrograms


def program(*rows: Rows, gap: float | None = None) -> IntegerProgram:
    """The most of x + 2 y with both in [0, 10]."""
    cost, whole = np.array([-1.0, -2.0]), np.ones(2, dtype=np.int64)
    return IntegerProgram(cost, whole, np.zeros(2), np.full(2, 10.0), rows, nodes=100, gap=gap)


def test_the_best_whole_numbers_are_found() -> None:
    weight = np.array([[2.0, 3.0]])
    assert program(Rows(weight, high=8.0), gap=0.0).solve(10.0) == [1, 2]
    assert program(Rows(weight, high=9.0), Rows(np.array([[0.0, 1.0]]), high=[1.0])).solve(10.0) == [3, 1]
    assert program(Rows(weight, low=[50.0])).solve(10.0) == [10, 10]


def test_no_solution_is_none() -> None:
    assert program(Rows(np.array([[1.0, 1.0]]), low=21.0)).solve(10.0) is None


def test_a_program_is_solved_once_and_another_one_for_itself() -> None:
    weight, none, solved = np.array([[2.0, 3.0]]), np.array([[1.0, 1.0]]), SolvedPrograms()
    different = [
        program(Rows(weight, high=8.0), gap=0.0),
        program(Rows(weight, high=8.0)),
        program(Rows(weight, high=9.0), gap=0.0),
        program(Rows(weight, low=8.0), gap=0.0),
        program(Rows(csr_array(weight), high=8.0), gap=0.0),
        program(Rows(none, low=21.0)),
        program(Rows(none, low=21.0), Rows(none, low=21.0)),
    ]
    found = [each.solve(10.0, solved) for each in different]
    assert found == [each.solve(10.0) for each in different]
    assert len(solved.counts) == len(different)
    again = program(Rows(weight.copy(), high=8.0), gap=0.0)
    solved.counts.update((key, [7, 7]) for key in solved.counts)
    assert again.solve(10.0, solved) == [7, 7]


def test_a_search_that_a_limit_ended_is_not_kept() -> None:
    random = np.random.default_rng(1)
    weights, solved = random.integers(20, 60, (20, 60)).astype(np.float64), SolvedPrograms()
    hard = IntegerProgram(
        -random.random(60), np.ones(60, dtype=np.int64), np.zeros(60), np.ones(60), [Rows(weights, high=700.0)], 1
    )
    hard.solve(10.0, solved)
    assert not solved.counts


def test_the_controller_does_not_load_a_solver_that_it_may_never_need() -> None:
    code = "import sys, edl.processes.controller; print('scipy.optimize' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "False\n"
