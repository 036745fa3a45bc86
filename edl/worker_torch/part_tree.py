"""The order in which the parts of a step are added up, so that the sum has the same bits for any number of trainers.

The parts are the leaves of a binary tree. A trainer adds up the largest subtrees of its own parts while it computes
them. Then each trainer adds up one segment of the vector over the subtrees of all trainers, in the order of the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

_T = TypeVar("_T")
Node = tuple[int, int]
"""The parts from the first number up to, not including, the second one."""


def middle(low: int, high: int) -> int:
    """The part at which a node of at least two parts is divided; its left half has a power of two of parts."""
    return low + (1 << ((high - low - 1).bit_length() - 1))


def cover(parts: int, own: range) -> list[Node]:
    """The largest subtrees that hold only parts of a range, from left to right.

    Args:
        parts: the parts of the tree.
        own: neighbouring parts of it.
    """

    def found(low: int, high: int) -> Iterator[Node]:
        if high <= own.start or own.stop <= low:
            return
        if own.start <= low and high <= own.stop:
            yield low, high
            return
        half = middle(low, high)
        yield from found(low, half)
        yield from found(half, high)

    return list(found(0, parts)) if parts else []


def total(parts: int, values: dict[Node, _T], add: Callable[[_T, _T], _T]) -> _T:
    """Sum all parts in the order of the tree.

    Args:
        parts: the parts of the tree.
        values: the values of subtrees that together are the whole tree.
        add: adds the values of the left and the right half of a node.
    """

    def of(low: int, high: int) -> _T:
        if (low, high) in values:
            return values[low, high]
        half = middle(low, high)
        return add(of(low, half), of(half, high))

    return of(0, parts)


class RunningSum(Generic[_T]):
    """Adds up parts in the order of the tree, as they come from left to right.

    Args:
        parts: the parts of the tree.
        add: adds the second value to the first one, and returns the sum.
    """

    def __init__(self, parts: int, add: Callable[[_T, _T], _T]) -> None:
        self._parts, self._add = parts, add
        self._stack: list[tuple[Node, _T]] = []

    def push(self, part: int, value: _T) -> None:
        """Add the next part; parts come in the order of their numbers, without gaps."""
        node = (part, part + 1)
        while self._stack and self._is_node(self._stack[-1][0][0], node[0], node[1]):
            (low, _), left = self._stack.pop()
            node, value = (low, node[1]), self._add(left, value)
        self._stack.append((node, value))

    def take(self) -> dict[Node, _T]:
        """Return the sums of the complete subtrees, and begin a new sum."""
        found, self._stack = dict(self._stack), []
        return found

    def _is_node(self, low: int, half: int, high: int) -> bool:
        """True if two neighbouring subtrees are the halves of a node."""
        at, end = 0, self._parts
        while (at, end) != (low, high):
            if end - at < 2:
                return False
            split = middle(at, end)
            at, end = (at, split) if high <= split else (split, end)
            if at > low or end < high:
                return False
        return middle(low, high) == half
