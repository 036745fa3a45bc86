"""When Python searches for cycles of unused objects, in a process that holds a large cluster in memory.

By default Python decides by itself when it looks at all objects, and does so right after many were made. With a large
cluster that takes some tenths of a second, several times a minute, and nothing is answered meanwhile. edl's objects
hardly ever form cycles. So only new objects are searched as they are made, and all of them at long intervals.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from edl.clock import Clock

NEW_OBJECTS, NEW_SEARCHES = 10_000, 10
"""New objects before the newest are searched, and such searches before those are searched that outlived one."""
NEVER = 2**31 - 1
EVERY_S = 600.0
"""How often all objects are searched."""


@asynccontextmanager
async def rare_searches(clock: Clock) -> AsyncIterator[None]:
    """Search all objects at long intervals only, during a `with` block."""
    before = gc.get_threshold()
    gc.set_threshold(NEW_OBJECTS, NEW_SEARCHES, NEVER)
    task = asyncio.create_task(_search_at_intervals(clock))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        gc.set_threshold(*before)


async def _search_at_intervals(clock: Clock) -> None:
    while True:
        await clock.sleep(EVERY_S)
        gc.collect()
