"""Numbers as ranges in a short text, as in `0-3,7`, the way a status stores which trainers have completed."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

MAX_INDEX = 10_000
MAX_TEXT = 1024
"""A longer text is not stored; every second one of a thousand trainers would have to complete for that."""


def text_of_indexes(indexes: Iterable[int]) -> str:
    """The ranges in ascending order; empty for none, and for more ranges than a status holds."""
    parts = []
    for _, group in groupby(enumerate(sorted(set(indexes))), key=lambda pair: pair[1] - pair[0]):
        numbers = [number for _, number in group]
        parts.append(str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}")
    text = ",".join(parts)
    return text if len(text) <= MAX_TEXT else ""


def indexes_of(text: str) -> tuple[int, ...]:
    """Parse ranges of numbers, and return the numbers sorted; parts that are no range are left out."""
    found: set[int] = set()
    for part in text[:MAX_TEXT].split(","):
        first, _, last = part.partition("-")
        last = last or first
        if first.isdecimal() and last.isdecimal() and len(first) <= 5 and len(last) <= 5 and int(last) < MAX_INDEX:
            found.update(range(int(first), int(last) + 1))
    return tuple(sorted(found))
