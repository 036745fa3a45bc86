"""Whether everybody who acts may act for ever although nothing happens: circles among the states of a search."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

S = TypeVar("S")


def loops(
    found: Mapping[S, object], steps: Callable[[S], Iterable[tuple[str, S]]], without: Collection[str] = ()
) -> list[tuple[str, S]]:
    """Return the steps that lie on a circle, each with the state from which it is taken.

    Args:
        found: the states of a search.
        steps: returns what may happen next in a state.
        without: the last words of steps that end a pause; a circle through one of them takes its time.
    """
    number = {state: index for index, state in enumerate(found)}
    edges = [
        (number[state], number[following], name, state)
        for state in found
        for name, following in steps(state)
        if following in number and following != state and not name.endswith(tuple(without))
    ]
    heads, tails = (np.array([edge[side] for edge in edges], dtype=np.int64) for side in (0, 1))
    graph = coo_array((np.ones(len(edges), dtype=np.int8), (heads, tails)), shape=(len(number), len(number)))
    _, part = connected_components(graph, directed=True, connection="strong")
    return [(name, state) for head, tail, name, state in edges if part[head] == part[tail]]
