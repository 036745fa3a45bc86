"""Keeps track of the collections that edl must list again before it decides.

A new leader lists what its predecessor may have written until now. edl also lists what it has written itself, if the
API server's versions are no numbers, so that nobody can tell whether the watch shows the write or an older state.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar


class Listed(Protocol):
    """A collection that is listed from time to time.

    Attributes:
        lists_begun, lists_done: the numbers of the last list that began and of the last one that is complete.
    """

    lists_begun: int
    lists_done: int

    def request_list(self) -> None:
        """Request that the collection is listed again soon."""


L = TypeVar("L", bound=Listed)


class FreshLists(Generic[L]):
    """Waits for lists that began after a moment: a list shows every write that ended before the list began."""

    def __init__(self) -> None:
        self._begun: tuple[tuple[L, int], ...] = ()

    def require(self, collections: Iterable[L]) -> None:
        """Require a list that begins after this call."""
        new = tuple((one, one.lists_begun) for one in collections)
        required = [one for one, _ in new]
        self._begun = (*((one, begun) for one, begun in self._begun if one not in required), *new)
        for one in required:
            one.request_list()

    def missing(self) -> tuple[L, ...]:
        """The collections whose list has not come."""
        self._begun = tuple((one, begun) for one, begun in self._begun if one.lists_done <= begun)
        return tuple(one for one, _ in self._begun)
