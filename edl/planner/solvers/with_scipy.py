"""Solves linear programs with `scipy.optimize.linprog`, each one from the beginning.

It takes some milliseconds for each call and cannot start from the last basis, so it is the solver where `highspy`
cannot be installed, and the one that `highspy` is tested against.

Source: https://docs.scipy.org/doc/scipy/reference/optimize.linprog-highs.html
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import csc_array

from edl.planner.solvers.linear_program import REFUSED, Answer, LinearProgram, Model, Outcome, solved
from edl.planner.solvers.matrix import Matrix

_OUTCOMES = {0: Outcome.OPTIMAL, 1: Outcome.LATE, 2: Outcome.INFEASIBLE, 3: Outcome.UNBOUNDED}  # linprog's status


@dataclass(frozen=True, slots=True)
class Scipy:
    """The solver."""

    name: str = "scipy"

    def load(self, program: LinearProgram) -> Model:
        """Load a linear program into the solver."""
        return _ScipyModel(program)


@dataclass(slots=True)
class _ScipyModel:
    program: LinearProgram

    def add(self, columns: Matrix) -> None:
        """Append columns that cost nothing, with bounds 0 and infinity."""
        p, more = self.program, np.zeros(columns.shape[1])
        self.program = replace(
            p,
            cost=np.concatenate([p.cost, more]),
            left=p.left.beside(columns),
            low=np.concatenate([p.low, more]),
            high=np.concatenate([p.high, more + np.inf]),
        )

    def solve(self, limit_s: float) -> Answer:
        """Solve it from the beginning."""
        if not self.program.is_finite:
            return REFUSED
        if not len(self.program.cost):
            return self._without_columns()
        for presolve in (True, False):  # presolve sometimes calls a tight program infeasible
            answer = self._solve(limit_s, presolve=presolve)
            if answer.outcome in {Outcome.OPTIMAL, Outcome.LATE}:
                break
        return answer

    def _without_columns(self) -> Answer:
        """The answer of a program without columns, which `linprog` refuses: zeros, if they are allowed."""
        if (self.program.right < 0).any():
            return Answer(Outcome.INFEASIBLE, "there is no column, and a row needs one")
        return solved("there is no column", 0.0, np.zeros(0), np.zeros(len(self.program.right)))

    def _solve(self, limit_s: float, *, presolve: bool) -> Answer:
        from scipy.optimize import linprog  # noqa: PLC0415 - slow to load, and most processes solve with highspy

        matrix = self.program.left
        # The stubs of scipy lack sparse constraints and bounds in an array.
        left: Any = csc_array((matrix.values, matrix.rows, matrix.starts), shape=matrix.shape)
        bounds: Any = np.column_stack([self.program.low, self.program.high])
        result = linprog(
            self.program.cost,
            A_ub=left,
            b_ub=self.program.right,
            bounds=bounds,
            method="highs",
            options={"time_limit": limit_s, "presolve": presolve},
        )
        outcome = _OUTCOMES.get(result.status, Outcome.BROKEN)
        if outcome is not Outcome.OPTIMAL or result.x is None or result.fun is None:
            return Answer(outcome, result.message)
        x, price = np.asarray(result.x, dtype=np.float64), -np.asarray(result.ineqlin.marginals, dtype=np.float64)
        return solved(result.message, float(result.fun), x, price)
