"""A small chart of numbers over time, one line high, of block characters."""

from __future__ import annotations

from collections.abc import Sequence

_LEVELS = " ▁▂▃▄▅▆▇█"
_WIDTH = 60


def chart(samples: Sequence[tuple[float, int]], until_s: float, largest: int, width: int = _WIDTH) -> str:
    """The values over time: each column shows the largest value of its span.

    Args:
        samples: (seconds, value) at each change, in order; the value holds until the next one.
        until_s: the end.
        largest: the value of a full block.
        width: columns.
    """
    columns = []
    for column in range(width):
        start, end = until_s * column / width, until_s * (column + 1) / width
        before = [value for at, value in samples if at <= start]
        within = [value for at, value in samples if start < at <= end]
        value = max([*before[-1:], *within], default=0)
        level = round(value * (len(_LEVELS) - 1) / largest) if largest else 0
        columns.append(_LEVELS[max(level, 1) if value > 0 else 0])
    return "".join(columns)
