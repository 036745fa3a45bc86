"""How often Python searches for cycles of unused objects."""

from __future__ import annotations

import gc
import weakref

from edl.processes.garbage import RARELY, rare_searches


class Cycle:
    """An object that refers to itself."""

    def __init__(self) -> None:
        self.itself = self


def searches() -> int:
    return sum(generation["collections"] for generation in gc.get_stats())


def test_objects_that_come_and_go_cause_no_search() -> None:
    with rare_searches():
        gc.collect()
        before = searches()
        for _ in range(100):
            assert [[number] for number in range(RARELY[0] // 2)]
        assert searches() == before


def test_cycles_do_not_stay_for_ever() -> None:
    with rare_searches():
        cycle = Cycle()
        found = weakref.ref(cycle)
        del cycle
        assert [[number] for number in range(2 * RARELY[0])]
        assert found() is None


def test_python_searches_as_before_afterwards() -> None:
    before = gc.get_threshold()
    with rare_searches():
        assert gc.get_threshold() == RARELY
    assert gc.get_threshold() == before
