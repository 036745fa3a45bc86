"""Solves integer programs with HiGHS, by `scipy.optimize.milp`: least cost over whole numbers.

`scipy.optimize` takes a third of a second to load, and most commands and most decisions solve no integer program. So
the first program loads it.

Source: https://docs.scipy.org/doc/scipy/reference/generated/scipy.optimize.milp.html
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array


Amounts = NDArray[np.float64] | Sequence[float] | float


class Rows(NamedTuple):
    """Rows of a program: low <= matrix @ x <= high.

    Attributes:
        matrix: (rows, columns), dense or sparse.
        low: (rows,), or one number for all rows.
        high: (rows,), or one number for all rows.
    """

    matrix: NDArray[np.float64] | csr_array
    low: Amounts = -np.inf
    high: Amounts = np.inf


@dataclass(frozen=True, slots=True)
class IntegerProgram:
    """Minimise cost @ x over the rows.

    Attributes:
        cost: (columns,).
        whole: (columns,), 1 where x must be a whole number, else 0.
        low: (columns,), the least x.
        high: (columns,), the largest x.
        rows: further conditions.
        nodes: the most nodes of the search. With a limit of time alone, equal programs could have unlike solutions.
        gap: the search stops so near to the best value, as a part of it; None is the default of HiGHS.
    """

    cost: NDArray[np.float64]
    whole: NDArray[np.int64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    rows: Sequence[Rows]
    nodes: int
    gap: float | None = None

    def solve(self, limit_s: float) -> list[int] | None:
        """The best solution that was found, rounded; None if none was found.

        Args:
            limit_s: seconds that the search may take.
        """
        options: dict[str, float] = {"time_limit": limit_s, "node_limit": self.nodes}
        if self.gap is not None:
            options["mip_rel_gap"] = self.gap
        found = self._solved(self.whole, options)
        return None if found is None else [int(value) for value in found.round().tolist()]

    def relaxed(self, limit_s: float) -> NDArray[np.float64] | None:
        """(columns,) the solution without the condition that numbers are whole; None if there is none in time.

        No solution costs less, and it is found in a small part of the time of a search.

        Args:
            limit_s: seconds that it may take.
        """
        found = self._solved(np.zeros_like(self.whole), {"time_limit": limit_s}, is_optimal=True)
        return None if found is None else found.clip(self.low, self.high)

    def _solved(
        self, whole: NDArray[np.int64], options: dict[str, float], *, is_optimal: bool = False
    ) -> NDArray[np.float64] | None:
        from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415 - slow to load, see above

        untyped: Any = options  # the stubs lack them
        result = milp(
            self.cost,
            integrality=whole,
            bounds=Bounds(self.low, self.high),
            constraints=[LinearConstraint(matrix, low, high) for matrix, low, high in self.rows],
            options=untyped,
        )
        if result.x is None or (is_optimal and result.status != 0):
            return None
        return np.asarray(result.x, dtype=np.float64)
