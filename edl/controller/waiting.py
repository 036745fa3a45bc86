"""Waiting for the first of several events."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any


async def wait_for_first(*awaitables: Awaitable[Any]) -> tuple[asyncio.Future[Any], ...]:
    """Wait until one of them is done, then cancel the others and wait until they have ended.

    Returns:
        One future for each awaitable, in the same order; each is done, and cancelled unless it came first.
    """
    tasks = tuple(asyncio.ensure_future(awaitable) for awaitable in awaitables)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return tasks
