"""Solves linear programs with HiGHS by its own interface, `highspy`, which keeps a program between solves.

Columns are added to the program that the solver holds, and it goes on from the basis that it had: with more columns
that is still a solution, so the primal simplex method needs few steps. The solver has one thread, which releases the
interpreter, and writes nothing.

Source: Huangfu and Hall, Parallelizing the dual revised simplex method, Mathematical Programming Computation 10
(2018); https://ergo-code.github.io/HiGHS/stable/options/definitions/
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from highspy import Highs, HighsModelStatus, HighsStatus, MatrixFormat, ObjSense
from numpy.typing import NDArray

from edl.planner.solvers.linear_program import REFUSED, Answer, LinearProgram, Model, Outcome, solved
from edl.planner.solvers.matrix import Matrix

OPTIONS: dict[str, bool | int | str] = {
    "output_flag": False,
    "threads": 1,
}
GROWING: dict[str, bool | int | str] = {
    "presolve": "off",  # costs more than it saves: most of these programs are small
    "simplex_strategy": 4,  # primal: a basis stays feasible if columns are added
}
DUAL = 1
_OUTCOMES = {
    HighsModelStatus.kOptimal: Outcome.OPTIMAL,
    HighsModelStatus.kModelEmpty: Outcome.OPTIMAL,
    HighsModelStatus.kTimeLimit: Outcome.LATE,
    HighsModelStatus.kInfeasible: Outcome.INFEASIBLE,
    HighsModelStatus.kUnbounded: Outcome.UNBOUNDED,
}


@dataclass(frozen=True, slots=True)
class Highspy:
    """The solver."""

    name: str = "highspy"

    def load(self, program: LinearProgram) -> Model:
        """Load a linear program into the solver."""
        return _HighspyModel(program)


class _HighspyModel:
    def __init__(self, program: LinearProgram) -> None:
        self._highs, self._is_refused = Highs(), not program.is_finite
        self._grows, self._needs = program.grows, bool((program.right < 0).any())
        for option, value in (OPTIONS | (GROWING if program.grows else {})).items():
            self._highs.setOptionValue(option, value)
        rows, columns = program.left.shape
        if self._is_refused:
            return
        status = self._highs.passModel(
            columns,
            rows,
            len(program.left.values),
            int(MatrixFormat.kColwise),
            int(ObjSense.kMinimize),
            0.0,
            _floats(program.cost),
            _floats(program.low),
            _floats(program.high),
            np.full(rows, -np.inf),
            _floats(program.right),
            program.left.starts,
            program.left.rows,
            program.left.values,
            np.zeros(columns, dtype=np.int32),
        )
        self._is_refused = status is HighsStatus.kError

    def add(self, columns: Matrix) -> None:
        """Append columns that cost nothing, with bounds 0 and infinity."""
        count = columns.shape[1]
        status = self._highs.addCols(
            count,
            np.zeros(count),
            np.zeros(count),
            np.full(count, np.inf),
            len(columns.values),
            columns.starts[:-1],
            columns.rows,
            columns.values,
        )
        self._is_refused = self._is_refused or status is HighsStatus.kError

    def solve(self, limit_s: float) -> Answer:
        """Solve it from the last basis; if that fails, from the beginning, and at last by another method."""
        if self._is_refused:
            return REFUSED
        until_s = self._highs.getRunTime() + limit_s  # its clock goes on from run to run, and its limit is on that
        answer = self._run(until_s)
        if answer.outcome is Outcome.BROKEN or (answer.outcome is Outcome.INFEASIBLE and not self._grows):
            self._highs.clearSolver()
            self._highs.setOptionValue("presolve", "off")  # it sometimes calls a tight program infeasible
            answer = self._run(until_s)
        if answer.outcome is Outcome.BROKEN and self._grows:
            answer = self._run_dual(until_s)
        return answer

    def _run_dual(self, until_s: float) -> Answer:
        """Solve it by the dual simplex method: the primal one may end beside a row, with the status Unknown."""
        self._highs.clearSolver()
        self._highs.setOptionValue("simplex_strategy", DUAL)
        answer = self._run(until_s)
        self._highs.setOptionValue("simplex_strategy", GROWING["simplex_strategy"])
        return answer

    def _run(self, until_s: float) -> Answer:
        self._highs.setOptionValue("time_limit", until_s)
        self._highs.run()
        status = self._highs.getModelStatus()
        message, outcome = self._highs.modelStatusToString(status), _OUTCOMES.get(status, Outcome.BROKEN)
        if status == HighsModelStatus.kModelEmpty and self._needs:
            outcome = Outcome.INFEASIBLE  # without columns, HiGHS does not look at the rows
        if outcome is not Outcome.OPTIMAL:
            return Answer(outcome, message)
        solution = self._highs.getSolution()
        value = float(self._highs.getInfo().objective_function_value)
        return solved(message, value, np.array(solution.col_value), -np.array(solution.row_dual))


def _floats(array: NDArray[np.generic]) -> NDArray[np.float64]:
    return np.ascontiguousarray(array, dtype=np.float64)
