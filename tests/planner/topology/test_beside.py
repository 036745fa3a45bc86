"""How many trainers fit beside pservers, against every way to place the pservers."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from edl.planner.problem import IntArray
from edl.planner.topology.beside import MOST_EXACT, Kind, count_beside
from tests.worlds.effort import examples

Amounts = list[list[int]]


def kind(request: list[int], is_open: list[bool]) -> Kind:
    return Kind(np.array(request, dtype=np.int64), np.array(is_open, dtype=np.bool_))


def rooms(most: int) -> st.SearchStrategy[Amounts]:
    return st.lists(st.lists(st.integers(0, most), min_size=2, max_size=2), min_size=1, max_size=4)


@st.composite
def cases(draw: st.DrawFn, most: int = 6) -> tuple[Amounts, Kind, Kind]:
    free = draw(rooms(most))
    opened = st.lists(st.booleans(), min_size=len(free), max_size=len(free))
    request = st.lists(st.integers(0, 3), min_size=2, max_size=2).filter(any)
    trainer, pserver = (kind(draw(request), draw(opened)) for _ in range(2))
    return free, trainer, pserver


def best_of(free: Amounts, trainer: Kind, pserver: Kind, count: int) -> int | None:
    """The most trainers over every way to place the pservers; None if there is none."""
    most = [min(count, int(n)) for n in pserver.slots(np.array(free, dtype=np.int64))]
    found = []
    for placed in product(*(range(n + 1) for n in most)):
        if sum(placed) == count:
            left: IntArray = np.subtract(free, np.outer(placed, pserver.request))
            found.append(int(trainer.slots(left).sum()))
    return max(found, default=None)


@given(cases(), st.integers(0, 5))
@examples(300)
def test_a_few_pservers_cost_as_few_trainers_as_possible(case: tuple[Amounts, Kind, Kind], count: int) -> None:
    free, trainer, pserver = case
    assert count_beside(np.array(free, dtype=np.int64), trainer, pserver, count) == best_of(
        free, trainer, pserver, count
    )


@given(cases(most=40), st.integers(MOST_EXACT + 1, 40))
@examples(60)
def test_many_pservers_are_never_said_to_cost_too_few(case: tuple[Amounts, Kind, Kind], count: int) -> None:
    free, trainer, pserver = case
    room = np.array(free, dtype=np.int64)
    found, fit = count_beside(room, trainer, pserver, count), int(pserver.slots(room).sum())
    assert (found is None) == (fit < count)
    if found is not None:
        assert 0 <= found <= int(trainer.slots(room).sum())
        left: IntArray = np.subtract(room, np.outer(np.minimum(pserver.slots(room), count), pserver.request))
        assert found >= int(trainer.slots(left).sum()) or fit > count


def test_pservers_use_corners_first() -> None:
    everywhere = [True, True]
    trainer, pserver = kind([4], everywhere), kind([1], everywhere)
    room = np.array([[9], [7]], dtype=np.int64)
    assert count_beside(room, trainer, pserver, 4) == 3
    assert count_beside(room, trainer, pserver, 5) == 2
    assert count_beside(room, trainer, pserver, 17) is None
