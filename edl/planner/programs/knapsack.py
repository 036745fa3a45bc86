"""Pricing: the most valuable pattern of every node class at once, by one integer knapsack for all of them.

Requests are multiples of a step (a core, a GiB), and so are the capacities of classes once what no pod can use is cut
off. The knapsack over all capacities up to the largest is one table, and each class reads its own cell; that is
exact. If a table would be too large, classes are searched one by one (`patterns.price`), and a bound covers what the
search leaves out.

Source: dynamic programming for the unbounded knapsack, Kellerer, Pferschy, Pisinger: Knapsack Problems (2004), ch. 8.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from edl.planner.clock import Clock
from edl.planner.problem import IntArray, count_slots
from edl.planner.programs.patterns import ROUNDING, NodeClass, Pattern, fill, price

FloatArray = NDArray[np.float64]

CELLS_LIMIT = 400_000  # cells of one table
STEPS_LIMIT = 8_000  # rows times shapes of one table


@dataclass(frozen=True, slots=True)
class _Table:
    """The knapsack of the classes that are open to the same shapes.

    Attributes:
        members: (members,) indices of the classes.
        shapes: indices of the shapes that are open.
        request: (len(shapes), dimensions) requests in steps.
        capacity: (members, dimensions) capacities in steps.
        size: (dimensions,) cells along each dimension.
    """

    members: IntArray
    shapes: IntArray
    request: IntArray
    capacity: IntArray
    size: tuple[int, ...]


class Pricer:
    """Finds the most valuable pattern of each class at given prices."""

    def __init__(self, classes: Sequence[NodeClass], request: IntArray, clock: Clock | None = None) -> None:
        """Prepare the tables of the knapsacks.

        Args:
            classes: the node classes.
            request: (shapes, resources) what one pod of each shape requests.
            clock: the time that is left; without one there is no deadline.
        """
        self._clock = clock or Clock()
        self._classes, self._request = classes, request
        shapes, resources = request.shape
        self._capacity = np.array([g.capacity for g in classes], dtype=np.int64).reshape(len(classes), resources)
        self._most = np.array([g.most for g in classes], dtype=np.int64).reshape(len(classes), shapes)
        self._tables, self._searched = self._group_classes()
        self._known = {g: np.zeros((0, shapes), dtype=np.int64) for g in self._searched}
        self._scarce = {g: self._with_scarce_resources(g) for g in self._searched}

    def learn(self, g: int, pattern: Pattern) -> None:
        """Note a known pattern of class g.

        Where patterns are searched one by one, only better ones are found then.
        """
        if g in self._known:
            self._known[g] = np.vstack([self._known[g], pattern])

    @property
    def searches(self) -> int:
        """How many pairs of a class and a shape are searched one by one, because no table holds them."""
        return int((self._most[self._searched] > 0).sum())

    def best(self, worth: FloatArray) -> tuple[IntArray, FloatArray]:
        """The best pattern of each class at these prices, and a value that no pattern of the class exceeds.

        Args:
            worth: (shapes,) value of one pod of each shape, >= 0.

        Returns:
            (classes, shapes) patterns; (classes,) bounds on their values.
        """
        patterns = np.zeros(self._most.shape, dtype=np.int64)
        bound = np.zeros(len(patterns))
        for table in self._tables:
            self._clock.check("a knapsack")
            found, value = _solve(table, worth[table.shapes])
            patterns[np.ix_(table.members, table.shapes)] = found
            bound[table.members] = value
        for g in self._searched:
            self._clock.check("the search for patterns")
            priced = price(*self._scarce[g], worth.tolist(), self._known[g])
            patterns[g], bound[g] = priced.pattern, priced.bound
        return self.fill(patterns, np.argsort(-worth, kind="stable").tolist()), bound + ROUNDING

    def fill(self, patterns: IntArray, order: Iterable[int]) -> IntArray:
        """Add pods to patterns until no more fit.

        Args:
            patterns: (classes, shapes) pods of each shape that are there already; changed.
            order: the shapes, the first to add first.

        Returns:
            (classes, shapes) the filled patterns.
        """
        return fill(patterns, self._capacity, self._request, self._most, order)

    def _group_classes(self) -> tuple[list[_Table], list[int]]:
        """The tables, and the classes that are searched one by one because no table holds them."""
        if not len(self._classes):
            return [], []
        fits = np.stack([count_slots(self._capacity, row) > 0 for row in self._request], axis=1)
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

    def _with_scarce_resources(self, g: int) -> tuple[NodeClass, IntArray]:
        """Drop from a class and the requests the resources that never run out before others do."""
        scarce = _binding(self._request[self._most[g] > 0], self._capacity[g : g + 1])
        capacity = tuple(self._capacity[g, scarce].tolist())
        return replace(self._classes[g], capacity=capacity), self._request[:, scarce]

    def _table(self, members: IntArray) -> _Table | None:
        """The table of some classes; None if it would be too large."""
        shapes = np.flatnonzero(self._most[members].any(axis=0))
        request, capacity = self._request[shapes], self._capacity[members]
        binding = _binding(request, capacity)
        full = [r for r in binding if (request[:, r] > 0).all()]
        if not full:
            return None
        steps = {r: int(np.gcd.reduce(request[:, r])) for r in binding}
        cells = {r: int(capacity[:, r].max()) // steps[r] + 1 for r in binding}
        leading = min(full, key=lambda r: cells[r])
        order = [leading, *(r for r in binding if r != leading)]
        size = tuple(cells[r] for r in order)
        if prod(size) > CELLS_LIMIT or size[0] * len(shapes) > STEPS_LIMIT:
            return None
        step = np.array([steps[r] for r in order], dtype=np.int64)
        in_steps, left = request[:, order] // step, capacity[:, order] // step
        if len(order) == 1:  # a table has at least two dimensions
            return _Table(
                members, shapes, np.pad(in_steps, ((0, 0), (0, 1))), np.pad(left, ((0, 0), (0, 1))), (*size, 1)
            )
        return _Table(members, shapes, in_steps, left, size)


def _binding(request: IntArray, capacity: IntArray) -> list[int]:
    """The resources that can run out before all others do, whatever is placed."""
    kept = [r for r in range(request.shape[1]) if (request[:, r] > 0).any()]
    for r in sorted(kept, key=lambda r: -int(capacity[:, r].max() // max(1, int(request[:, r].max())))):
        others = [o for o in kept if o != r and (request[:, o] > 0).all()]
        if any(
            (capacity[:, o] * float((request[:, r] / request[:, o]).max()) <= capacity[:, r]).all() for o in others
        ):
            kept.remove(r)
    return kept


def _solve(table: _Table, worth: FloatArray) -> tuple[IntArray, FloatArray]:
    """Fill the knapsacks of several classes: (classes, shapes) the best patterns, and (classes,) their values."""
    value = np.zeros(table.size)
    items = [(a, w) for a, w in zip(table.request.tolist(), worth.tolist(), strict=True) if w > ROUNDING]
    steps = [
        (a[0], w, tuple(slice(n, None) for n in a[1:]), tuple(slice(None, -n if n else None) for n in a[1:]))
        for a, w in items
        if all(n < size for n, size in zip(a, table.size, strict=True))
    ]
    for level in range(1, table.size[0]):
        row = value[level]
        row[...] = value[level - 1]
        for amount, w, into, out_of in steps:
            if amount <= level:
                np.maximum(row[into], value[level - amount][out_of] + w, out=row[into])
    best = value[tuple(table.capacity.T)]
    return _trace(table, worth, value), best


def _trace(table: _Table, worth: FloatArray, value: FloatArray) -> IntArray:
    """(members, shapes) the patterns, read from the table by taking out one pod at a time for all members.

    If only one shape is worth anything, each member holds as many of it as fit.
    """
    patterns = np.zeros((len(table.members), len(table.shapes)), dtype=np.int64)
    capacity = table.capacity.copy()
    priced = np.flatnonzero(worth > ROUNDING)
    if len(priced) == 1:
        patterns[:, priced[0]] = count_slots(capacity, table.request[priced[0]])
        return patterns
    active = np.flatnonzero(value[tuple(capacity.T)] > ROUNDING)
    while len(active) and len(priced):
        left = capacity[active][:, None, :] - table.request[priced][None]  # (active, priced, dimensions)
        fits = (left >= 0).all(axis=2)
        after = value[tuple(np.moveaxis(left.clip(min=0), 2, 0))] + worth[priced]
        pick = np.where(fits, after, -1.0).argmax(axis=1)
        patterns[active, priced[pick]] += 1
        capacity[active] -= table.request[priced[pick]]
        active = active[value[tuple(capacity[active].T)] > ROUNDING]
    return patterns
