"""Solves integer programs with HiGHS, by `scipy.optimize.milp`: least cost over whole numbers.

`scipy.optimize` takes a third of a second to load, and most commands and most decisions solve no integer program. So
the first program loads it.

Source: https://docs.scipy.org/doc/scipy/reference/generated/scipy.optimize.milp.html
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array


_OPTIMAL, _INFEASIBLE = 0, 2  # statuses of milp
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
class SolvedPrograms:
    """The programs that one decision has solved: its further plans ask half of them again.

    Attributes:
        counts: by program, its solution; None if it has none.
    """

    counts: dict[bytes, list[int] | None] = field(default_factory=dict)


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

    def solve(self, limit_s: float, solved: SolvedPrograms | None = None) -> list[int] | None:
        """The best solution that was found, rounded; None if none was found.

        Args:
            limit_s: seconds that the search may take.
            solved: programs that were solved before; this one is added if no time limit ended its search.
        """
        key = self._key() if solved is not None else b""
        if solved is not None and key in solved.counts:
            return solved.counts[key]
        options: dict[str, float] = {"time_limit": limit_s, "node_limit": self.nodes}
        if self.gap is not None:
            options["mip_rel_gap"] = self.gap
        found, is_final = self._solved(self.whole, options)
        counts = None if found is None else [int(value) for value in found.round().tolist()]
        if solved is not None and is_final:
            solved.counts[key] = counts
        return counts

    def relaxed(self, limit_s: float) -> NDArray[np.float64] | None:
        """(columns,) the solution without the condition that numbers are whole; None if there is none in time.

        No solution costs less, and it is found in a small part of the time of a search.

        Args:
            limit_s: seconds that it may take.
        """
        found, is_optimal = self._solved(np.zeros_like(self.whole), {"time_limit": limit_s})
        return found.clip(self.low, self.high) if found is not None and is_optimal else None

    def _key(self) -> bytes:
        """A key that only equal programs have in common."""
        digest = hashlib.sha256(repr((self.nodes, self.gap)).encode())
        for values in (self.cost, self.whole, self.low, self.high):
            digest.update(values.tobytes())
        for matrix, low, high in self.rows:
            parts = (matrix,) if isinstance(matrix, np.ndarray) else (matrix.data, matrix.indices, matrix.indptr)
            for values in (*parts, np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)):
                digest.update(repr(values.shape).encode() + values.tobytes())
        return digest.digest()

    def _solved(self, whole: NDArray[np.int64], options: dict[str, float]) -> tuple[NDArray[np.float64] | None, bool]:
        """The solution, and True if it is the best one or if there is none: no limit ended the search."""
        from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415 - slow to load, see above

        untyped: Any = options  # the stubs lack them
        result = milp(
            self.cost,
            integrality=whole,
            bounds=Bounds(self.low, self.high),
            constraints=[LinearConstraint(matrix, low, high) for matrix, low, high in self.rows],
            options=untyped,
        )
        found = None if result.x is None else np.asarray(result.x, dtype=np.float64)
        return found, result.status in {_OPTIMAL, _INFEASIBLE}
