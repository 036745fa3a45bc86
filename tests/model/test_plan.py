"""The gap of a certificate is what a plan may have missed, and not what a solver rounds."""

from __future__ import annotations

import pytest

from edl.model.plan import Certificate


@pytest.mark.parametrize(
    ("achieved", "bound", "gap"),
    [
        (4.5, 5.0, 0.1),
        (0.0, 5.0, 1.0),
        (0.0, 1e-7, 0.0),
        (3.0, 3.0000001, 0.0),
        (0.0, 0.0, 0.0),
        (2.0, 1.0, 0.0),
        (0.0, 1e-3, 1.0),
    ],
)
def test_the_gap_is_the_part_of_the_bound_that_is_missed(achieved: float, bound: float, gap: float) -> None:
    assert Certificate("fulfilment", achieved, bound).gap == pytest.approx(gap)
