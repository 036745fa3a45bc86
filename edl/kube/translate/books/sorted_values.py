"""Values in the order of their keys, of which few change at a time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import ItemsView
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Any)
V = TypeVar("V")

MOST_PLACED_ONE_BY_ONE = 1000
"""If more values than this have changed, all are sorted again."""


class SortedValues(Generic[K, V]):
    """Values by key, and all of them as a tuple in the order of the keys.

    After a change the tuple is made anew from a list, which copies one pointer a value; the rest of the work is in
    proportion to the changes.
    """

    def __init__(self) -> None:
        self._values: dict[K, V] = {}
        self._keys: list[K] = []
        self._rows: list[V] = []
        self._changed: dict[K, None] = {}
        self._all: tuple[V, ...] | None = ()

    def __contains__(self, key: K) -> bool:
        return key in self._values

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        """Return the value of a key; None if there is none."""
        return self._values.get(key)

    def items(self) -> ItemsView[K, V]:
        """Return keys and values, in any order."""
        return self._values.items()

    def put(self, key: K, value: V) -> None:
        """Add a value, or replace it."""
        if self._values.get(key) is not value:
            self._values[key] = value
            self._changed[key], self._all = None, None

    def drop(self, key: K) -> bool:
        """Remove a value; return True if there was one."""
        if self._values.pop(key, None) is None:
            return False
        self._changed[key], self._all = None, None
        return True

    def order(self) -> bool:
        """Bring the keys in order; True if so many had changed that all were sorted again, which takes long."""
        if are_many := len(self._changed) > MOST_PLACED_ONE_BY_ONE:
            self._keys = sorted(self._values)
            self._rows = list(map(self._values.__getitem__, self._keys))
        else:
            for key in self._changed:
                self._place(key)
        self._changed.clear()
        return are_many

    def all(self) -> tuple[V, ...]:
        """Return every value, sorted by key; the same tuple as before if nothing has changed."""
        self.order()
        if self._all is None:
            self._all = tuple(self._rows)
        return self._all

    def between(self, first: K, end: K) -> list[V]:
        """Return the values of the keys from the first one to before the end, in order."""
        self.order()
        return self._rows[bisect_left(self._keys, first) : bisect_left(self._keys, end)]

    def _place(self, key: K) -> None:
        where = bisect_left(self._keys, key)
        was_there = where < len(self._keys) and self._keys[where] == key
        if key not in self._values:
            if was_there:
                del self._keys[where], self._rows[where]
        elif was_there:
            self._rows[where] = self._values[key]
        else:
            self._keys.insert(where, key)
            self._rows.insert(where, self._values[key])
