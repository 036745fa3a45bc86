"""When all objects are searched for cycles. Virtual time."""

from __future__ import annotations

import asyncio
import gc
import weakref

from edl.processes.garbage import EVERY_S, NEW_OBJECTS, NEW_SEARCHES, rare_searches
from edl.sim.virtual_time import LoopClock, run_virtual


class Cycle:
    """An object that refers to itself."""

    def __init__(self) -> None:
        self.itself = self


def old_cycle() -> weakref.ref[Cycle]:
    """A cycle that outlived two searches and is unused now."""
    cycle = Cycle()
    gc.collect(0)
    gc.collect(1)
    return weakref.ref(cycle)


def test_old_objects_are_searched_at_long_intervals_only() -> None:
    async def main() -> None:
        async with rare_searches(LoopClock()):
            cycle = old_cycle()
            for _ in range(3 * NEW_SEARCHES):
                kept = [[number] for number in range(NEW_OBJECTS + 1)]
                assert kept
            await asyncio.sleep(EVERY_S - 1.0)
            assert cycle() is not None
            await asyncio.sleep(2.0)
            assert cycle() is None

    run_virtual(main())


def test_python_decides_again_afterwards() -> None:
    before = gc.get_threshold()

    async def main() -> None:
        async with rare_searches(LoopClock()):
            assert gc.get_threshold() != before

    run_virtual(main())
    assert gc.get_threshold() == before
