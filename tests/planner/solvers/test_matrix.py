"""Sparse matrices by columns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl.planner.solvers.matrix import FloatArray, Matrix


@st.composite
def dense(draw: st.DrawFn, rows: int = 3) -> FloatArray:
    columns = draw(st.integers(0, 4))
    numbers = draw(st.lists(st.sampled_from([0.0, 1.0, -2.5]), min_size=rows * columns, max_size=rows * columns))
    return np.array(numbers, dtype=np.float64).reshape(rows, columns)


@given(dense(), dense())
def test_a_matrix_is_the_array_that_it_was_made_of_also_beside_another(left: FloatArray, right: FloatArray) -> None:
    assert Matrix.from_dense(left).dense().tolist() == left.tolist()
    both = Matrix.from_dense(left).beside(Matrix.from_dense(right))
    assert both.shape == (3, left.shape[1] + right.shape[1])
    assert both.dense().tolist() == np.hstack([left, right]).tolist()


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 1, 0, 2]])
def test_entries_are_sorted_by_column_and_row(order: list[int]) -> None:
    values, rows, columns = (np.array(part)[order] for part in ([1.0, 2.0, 3.0, 4.0], [2, 0, 1, 0], [0, 0, 2, 2]))
    found = Matrix.from_entries(values, rows, columns, (3, 4))
    assert found.starts.tolist() == [0, 2, 2, 4, 4]
    assert found.rows.tolist() == [0, 2, 0, 1]
    assert found.values.tolist() == [2.0, 1.0, 4.0, 3.0]
