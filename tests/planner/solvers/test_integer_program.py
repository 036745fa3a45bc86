"""Integer programs: the best whole numbers, none if there are none, and no solver is loaded before the first."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

from edl.planner.solvers.integer_program import IntegerProgram, Rows


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


def test_the_controller_does_not_load_a_solver_that_it_may_never_need() -> None:
    code = "import sys, edl.processes.controller; print('scipy.optimize' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "False\n"
