"""Sets of whole numbers, stored as sorted, disjoint ranges: a million consecutive numbers are one range.

Ranges are half-open, `[start, end)`. It is an error to add a number that is in the set, or to remove one that is not.
The ledger relies on this: it guarantees that no position is lost and none is counted twice.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import NoReturn

Range = tuple[int, int]


class IntervalSet:
    """A mutable set of whole numbers.

    Args:
        ranges: disjoint ranges in any order.
    """

    __slots__ = ("_ends", "_starts", "size")

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self.size = 0
        """The number of whole numbers in the set."""
        for start, end in ranges:
            self.add(start, end)

    def __iter__(self) -> Iterator[Range]:
        """The ranges in ascending order; no two of them touch."""
        return zip(self._starts, self._ends, strict=True)

    def __len__(self) -> int:
        """The number of ranges, not of numbers."""
        return len(self._starts)

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IntervalSet) and self._starts == other._starts and self._ends == other._ends

    def __hash__(self) -> NoReturn:
        raise TypeError("an IntervalSet changes, so it cannot be a key of a dictionary")

    def __repr__(self) -> str:
        return f"IntervalSet({list(self)})"

    def copy(self) -> IntervalSet:
        """Return an independent set with the same numbers."""
        new = IntervalSet()
        new._starts, new._ends, new.size = self._starts.copy(), self._ends.copy(), self.size
        return new

    def first(self) -> Range:
        """The lowest range.

        Raises:
            IndexError: the set is empty.
        """
        return self._starts[0], self._ends[0]

    def covers(self, start: int, end: int) -> bool:
        """True if every number of `[start, end)` is in the set."""
        at = bisect_right(self._starts, start) - 1
        return start >= end or (at >= 0 and self._ends[at] >= end)

    def overlaps(self, start: int, end: int) -> bool:
        """True if some number of `[start, end)` is in the set."""
        at = bisect_left(self._starts, end) - 1
        return start < end and at >= 0 and self._ends[at] > start

    def add(self, start: int, end: int) -> None:
        """Add `[start, end)`; an empty range changes nothing.

        Raises:
            ValueError: part of the range is in the set already.
        """
        if start >= end:
            return
        if self.overlaps(start, end):
            raise ValueError(f"[{start}, {end}) is already in the set, in part or completely")
        starts, ends = self._starts, self._ends
        at = bisect_left(starts, start)
        joins_left = at > 0 and ends[at - 1] == start
        joins_right = at < len(starts) and starts[at] == end
        if joins_left and joins_right:
            ends[at - 1] = ends[at]
            del starts[at], ends[at]
        elif joins_left:
            ends[at - 1] = end
        elif joins_right:
            starts[at] = start
        else:
            starts.insert(at, start)
            ends.insert(at, end)
        self.size += end - start

    def remove(self, start: int, end: int) -> None:
        """Remove `[start, end)`; an empty range changes nothing.

        Raises:
            ValueError: part of the range is not in the set.
        """
        if start >= end:
            return
        if not self.covers(start, end):
            raise ValueError(f"[{start}, {end}) is not in the set, in part or completely")
        starts, ends = self._starts, self._ends
        at = bisect_right(starts, start) - 1
        old_start, old_end = starts[at], ends[at]
        if old_start == start and old_end == end:
            del starts[at], ends[at]
        elif old_start == start:
            starts[at] = end
        else:
            ends[at] = start
            if old_end > end:
                starts.insert(at + 1, end)
                ends.insert(at + 1, old_end)
        self.size -= end - start

    def within(self, start: int, end: int) -> list[Range]:
        """The parts of `[start, end)` that are in the set, in ascending order."""
        found: list[Range] = []
        at = max(0, bisect_right(self._starts, start) - 1)
        while at < len(self._starts) and self._starts[at] < end:
            low, high = max(start, self._starts[at]), min(end, self._ends[at])
            if low < high:
                found.append((low, high))
            at += 1
        return found

    def gaps(self, total: int) -> list[Range]:
        """The parts of `[0, total)` that are not in the set, in ascending order."""
        edges = [0, *(edge for pair in self for edge in pair), total]
        return [(low, high) for low, high in zip(edges[::2], edges[1::2], strict=True) if low < high]
