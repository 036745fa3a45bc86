"""Sparse matrices as solvers take them: column by column, in three arrays.

A decision builds several small ones, and `scipy.sparse` spends ten times as long on its checks as on the numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix by its entries, sorted by column, then by row.

    Attributes:
        values: (entries,) the entries.
        rows: (entries,) the row of each entry.
        starts: (columns + 1,) where the entries of each column begin; the last number is the count of entries.
        shape: rows and columns.
    """

    values: FloatArray
    rows: NDArray[np.int32]
    starts: NDArray[np.int32]
    shape: tuple[int, int]

    @classmethod
    def from_entries(cls, values: ArrayLike, rows: ArrayLike, columns: ArrayLike, shape: tuple[int, int]) -> Matrix:
        """Sort entries into a matrix; no two of them may have the same place.

        Args:
            values: (entries,) the entries.
            rows: (entries,) the row of each, in [0, rows).
            columns: (entries,) the column of each, in [0, columns).
            shape: rows and columns.
        """
        at, row = np.asarray(columns, dtype=np.int64), np.asarray(rows, dtype=np.int64)
        order = np.argsort(at * max(shape[0], 1) + row, kind="stable")
        starts = np.zeros(shape[1] + 1, dtype=np.int32)
        np.cumsum(np.bincount(at, minlength=shape[1]), out=starts[1:])
        return cls(np.asarray(values, dtype=np.float64)[order], row[order].astype(np.int32), starts, shape)

    @classmethod
    def from_dense(cls, dense: FloatArray) -> Matrix:
        """The entries of a (rows, columns) array that are not zero."""
        rows, columns = dense.nonzero()
        return cls.from_entries(dense[rows, columns], rows, columns, (dense.shape[0], dense.shape[1]))

    def beside(self, right: Matrix) -> Matrix:
        """Append the columns of another matrix with the same number of rows on the right."""
        return Matrix(
            np.concatenate([self.values, right.values]),
            np.concatenate([self.rows, right.rows]),
            np.concatenate([self.starts, right.starts[1:] + self.starts[-1]]),
            (self.shape[0], self.shape[1] + right.shape[1]),
        )

    def dense(self) -> FloatArray:
        """The matrix as a (rows, columns) array."""
        found = np.zeros(self.shape)
        found[self.rows, np.repeat(np.arange(self.shape[1]), np.diff(self.starts))] = self.values
        return found
