"""Clicks like those of Criteo's data: 13 numbers and 26 categories for each shown advertisement, generated.

The data of Criteo need a download and a licence. These have the same form, and the truth behind them is known: each
category and each number adds to the log-odds of a click. So the AUC that a perfect model reaches is known as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NUMBERS, SLOTS, VALUES = 13, 26, 400
RECORDS, HELD_OUT = 180_000, 6_000
_SEED = 7


@dataclass(frozen=True)
class Clicks:
    """Shown advertisements; the first RECORDS are to train on, the last HELD_OUT are to test with.

    Attributes:
        numbers: (shown, NUMBERS).
        categories: (shown, SLOTS) in [0, SLOTS * VALUES); no two slots have one in common.
        clicked: (shown,) 0 or 1.
        chance: (shown,) the true probability of a click.
    """

    numbers: NDArray[np.float32]
    categories: NDArray[np.int64]
    clicked: NDArray[np.int64]
    chance: NDArray[np.float64]


def generate() -> Clicks:
    """The data; every call returns the same."""
    draw = np.random.default_rng(_SEED)
    effect = draw.normal(0.0, 0.35, (SLOTS, VALUES))
    slope = draw.normal(0.0, 0.2, NUMBERS)
    shown = RECORDS + HELD_OUT
    values = (VALUES * draw.random((shown, SLOTS)) ** 3).astype(np.int64)  # few categories are frequent
    numbers = draw.normal(size=(shown, NUMBERS)).astype(np.float32)
    odds = effect[np.arange(SLOTS), values].sum(axis=1) + numbers @ slope - 1.0
    chance = 1.0 / (1.0 + np.exp(-odds))
    clicked = (draw.random(shown) < chance).astype(np.int64)
    return Clicks(numbers, values + VALUES * np.arange(SLOTS), clicked, chance)
