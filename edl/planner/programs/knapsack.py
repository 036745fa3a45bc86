"""Pricing: the most valuable pattern of every class at once, by one integer knapsack for all of them.

Requests are multiples of a step (a core, a GiB), and so are the rooms of classes once what nobody can use is cut off.
The knapsack over all rooms up to the largest is one table; each class reads its own cell. That is exact. Where a
table would be too large, classes are searched one by one (`patterns.price`), and what the search leaves out is
bounded from above.

Source: dynamic programming for the unbounded knapsack, Kellerer, Pferschy, Pisinger: Knapsack Problems (2004), ch. 8.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edl.planner.problem import IntArray, count_slots
from edl.planner.programs.patterns import ROUNDING, NodeClass, price

FloatArray = NDArray[np.float64]

CELLS_LIMIT = 400_000  # of one table
STEPS_LIMIT = 8_000  # rows times shapes of one table


@dataclass(frozen=True, slots=True)
class _Table:
    """The knapsack of the classes that are open to the same shapes.

    Attributes:
        members: (members,) indices of the classes.
        shapes: which shapes are open; asks: (len(shapes), dimensions) in steps.
        room: (members, dimensions) in steps; size: (dimensions,) cells along each.
    """

    members: IntArray
    shapes: IntArray
    quota_uses: IntArray
    room: IntArray
    size: tuple[int, ...]


class Pricer:
    """Prices the classes of one set of columns."""

    def __init__(self, classes: Sequence[NodeClass], request: IntArray) -> None:
        self._classes, self._request = classes, request
        shapes, resources = request.shape
        self._room = np.array([g.room for g in classes], dtype=np.int64).reshape(len(classes), resources)
        self._most = np.array([g.most for g in classes], dtype=np.int64).reshape(len(classes), shapes)
        self._tables, self._searched = self._plan()

    def best(self, worth: FloatArray) -> tuple[IntArray, FloatArray]:
        """The best pattern of each class at these prices, and a value that no pattern of the class exceeds.

        Args:
            worth: (shapes,) value of one pod of each shape, >= 0.

        Returns:
            (classes, shapes) patterns; (classes,) values from above.
        """
        patterns = np.zeros(self._most.shape, dtype=np.int64)
        at_most = np.zeros(len(patterns))
        for table in self._tables:
            found, value = _solve(table, worth[table.shapes])
            patterns[np.ix_(table.members, table.shapes)] = found
            at_most[table.members] = value
        for g in self._searched:
            priced = price(self._classes[g], self._request, worth.tolist())
            patterns[g], at_most[g] = priced.pattern, priced.at_most
        return self.fill(patterns, np.argsort(-worth, kind="stable").tolist()), at_most + ROUNDING

    def fill(self, patterns: IntArray, order: Iterable[int]) -> IntArray:
        """(classes, shapes) the patterns, topped up with as many as fit of one shape after the other."""
        left = self._room - patterns @ self._request
        for s in order:
            more = np.minimum(count_slots(left, self._request[s]), self._most[:, s])
            patterns[:, s] += more
            left -= more[:, None] * self._request[s]
        return patterns

    def _plan(self) -> tuple[list[_Table], list[int]]:
        if not len(self._classes):
            return [], []
        fits = np.stack([count_slots(self._room, row) > 0 for row in self._request], axis=1)
        closed = fits & (self._most == 0)
        kinds: dict[bytes, list[int]] = {}
        for g, row in enumerate(closed):
            kinds.setdefault(row.tobytes(), []).append(g)
        tables, searched = [], []
        for members in kinds.values():
            table = self._table(np.array(members, dtype=np.int64))
            if table is None:
                searched += members
            else:
                tables.append(table)
        return tables, sorted(searched)

    def _table(self, members: IntArray) -> _Table | None:
        """The table of some classes; None where it would be too large."""
        shapes = np.flatnonzero(self._most[members].any(axis=0))
        request, room = self._request[shapes], self._room[members]
        binding = _binding(request, room)
        full = [r for r in binding if (request[:, r] > 0).all()]
        if not full:
            return None
        steps = {r: int(np.gcd.reduce(request[:, r])) for r in binding}
        cells = {r: int(room[:, r].max()) // steps[r] + 1 for r in binding}
        leading = min(full, key=lambda r: cells[r])
        order = [leading, *(r for r in binding if r != leading)]
        size = tuple(cells[r] for r in order)
        if float(np.prod([float(n) for n in size])) > CELLS_LIMIT or size[0] * len(shapes) > STEPS_LIMIT:
            return None
        step = np.array([steps[r] for r in order], dtype=np.int64)
        quota_uses, left = request[:, order] // step, room[:, order] // step
        if len(order) == 1:  # a table has two dimensions at least
            return _Table(
                members, shapes, np.pad(quota_uses, ((0, 0), (0, 1))), np.pad(left, ((0, 0), (0, 1))), (*size, 1)
            )
        return _Table(members, shapes, quota_uses, left, size)


def _binding(request: IntArray, room: IntArray) -> list[int]:
    """Resources that can run out before all others do, whatever is placed."""
    kept = [r for r in range(request.shape[1]) if (request[:, r] > 0).any()]
    for r in sorted(kept, key=lambda r: -int(room[:, r].max() // max(1, int(request[:, r].max())))):
        others = [o for o in kept if o != r and (request[:, o] > 0).all()]
        if any((room[:, o] * float((request[:, r] / request[:, o]).max()) <= room[:, r]).all() for o in others):
            kept.remove(r)
    return kept


def _solve(table: _Table, worth: FloatArray) -> tuple[IntArray, FloatArray]:
    """(members, shapes) the best patterns; (members,) their values."""
    value = np.zeros(table.size)
    items = [(a, w) for a, w in zip(table.quota_uses.tolist(), worth.tolist(), strict=True) if w > ROUNDING]
    moves = [
        (a[0], w, tuple(slice(n, None) for n in a[1:]), tuple(slice(None, -n if n else None) for n in a[1:]))
        for a, w in items
        if all(n < size for n, size in zip(a, table.size, strict=True))
    ]
    for level in range(1, table.size[0]):
        row = value[level]
        row[...] = value[level - 1]
        for quota_use, w, into, out_of in moves:
            if quota_use <= level:
                np.maximum(row[into], value[level - quota_use][out_of] + w, out=row[into])
    best = value[tuple(table.room.T)]
    return _trace(table, worth, value), best


def _trace(table: _Table, worth: FloatArray, value: FloatArray) -> IntArray:
    """Take out one pod after the other, of all members at once."""
    patterns = np.zeros((len(table.members), len(table.shapes)), dtype=np.int64)
    room = table.room.copy()
    priced = np.flatnonzero(worth > ROUNDING)
    active = np.flatnonzero(value[tuple(room.T)] > ROUNDING)
    while len(active) and len(priced):
        left = room[active][:, None, :] - table.quota_uses[priced][None]  # (active, priced, dimensions)
        fits = (left >= 0).all(axis=2)
        after = value[tuple(np.moveaxis(left.clip(min=0), 2, 0))] + worth[priced]
        pick = np.where(fits, after, -1.0).argmax(axis=1)
        patterns[active, priced[pick]] += 1
        room[active] -= table.quota_uses[priced[pick]]
        active = active[value[tuple(room[active].T)] > ROUNDING]
    return patterns
