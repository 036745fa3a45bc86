"""What every solver takes and gives: a linear program in arrays, and its solution with duals.

A program is loaded once, solved, given more columns, and solved again; a solver may keep what it learned. This is the
only door to a library for linear programs, so another one needs a module beside `with_highspy` and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edl.planner.solvers.matrix import Matrix

FloatArray = NDArray[np.float64]


class Outcome(StrEnum):
    """How a solver ended."""

    OPTIMAL = "optimal"
    LATE = "late"
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"
    BROKEN = "broken"  # numerical trouble, or a value that is not a number


@dataclass(frozen=True, slots=True)
class LinearProgram:
    """Minimise `cost @ x` with `left @ x <= right` and `low <= x <= high`.

    Attributes:
        cost: (columns,) finite.
        left: (rows, columns) finite.
        right: (rows,) finite.
        low: (columns,) finite.
        high: (columns,) may be infinite.
        grows: columns will be added.
    """

    cost: FloatArray
    left: Matrix
    right: FloatArray
    low: FloatArray
    high: FloatArray
    grows: bool = False

    @property
    def is_finite(self) -> bool:
        """False if a number is infinite or none where a finite one is needed; solvers then answer `REFUSED`."""
        numbers = (self.cost, self.left.values, self.right, self.low)
        return all(bool(np.isfinite(array).all()) for array in numbers) and not np.isnan(self.high).any()


@dataclass(frozen=True, slots=True)
class Answer:
    """What a solver found.

    Attributes:
        outcome: how it ended; the numbers count only if that is `OPTIMAL`.
        message: the same in the solver's words.
        value: the objective.
        x: (columns,) the solution.
        price: (rows,) by how much the objective falls for one more unit on the right side; >= 0 up to rounding.
    """

    outcome: Outcome
    message: str
    value: float = np.nan
    x: FloatArray = field(default_factory=lambda: np.zeros(0))
    price: FloatArray = field(default_factory=lambda: np.zeros(0))


class Model(Protocol):
    """A program that a solver has loaded."""

    def add(self, columns: Matrix) -> None:
        """Append columns that cost nothing, with bounds 0 and infinity.

        Args:
            columns: (rows, new columns) their left sides.
        """

    def solve(self, limit_s: float) -> Answer:
        """Solve it as it stands.

        Args:
            limit_s: wall time that the solver may take, > 0.
        """


class Solver(Protocol):
    """A library for linear programs."""

    @property
    def name(self) -> str:
        """The library's name."""

    def load(self, program: LinearProgram) -> Model:
        """Load a linear program into the solver."""


REFUSED = Answer(Outcome.BROKEN, "the linear program has a value that is infinite or not a number")


def solved(message: str, value: float, x: FloatArray, price: FloatArray) -> Answer:
    """The answer of a solver that claims an optimum: broken if one of its numbers is not finite."""
    is_finite = bool(np.isfinite(value) and np.isfinite(x).all() and np.isfinite(price).all())
    return Answer(Outcome.OPTIMAL if is_finite else Outcome.BROKEN, message, value, x, price)
