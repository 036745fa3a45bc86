"""Runs a pure function beside the event loop, under a deadline.

A decision may take seconds of a solver's time; the loop goes on meanwhile, renews its lease and answers its probes.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from edl.errors import PlanError, PlanFailure

T = TypeVar("T")


class PlannerThread:
    """Runs one function at a time in a thread, and stops waiting for it at a deadline.

    A thread cannot be ended; one that is late goes on, and until it ends no other is started, so that a solver that
    hangs costs one core and not all of them. It does not keep the process alive.
    """

    def __init__(self) -> None:
        self._is_thinking = False  # a thread that has answered may take a while yet to be no more

    async def run(self, call: Callable[[], T], deadline_s: float) -> T:
        """The function's answer.

        Raises:
            PlanError: it was late, or the one before has not ended yet; what the function raises passes through.
        """
        if self._is_thinking:
            raise PlanError("the decision before this one is still being computed", PlanFailure.BUSY)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def settle(tell: Callable[[], None]) -> None:
            if not answer.done():
                tell()

        def work() -> None:
            tell: Callable[[], None]
            try:
                tell = partial(answer.set_result, call())
            except BaseException as error:  # it is handed to whoever waits
                tell = partial(answer.set_exception, error)
            self._is_thinking = False
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, tell)

        self._is_thinking = True
        threading.Thread(target=work, name="edl-decide", daemon=True).start()
        try:
            return await asyncio.wait_for(answer, deadline_s)
        except TimeoutError as error:
            raise PlanError(f"no decision within {deadline_s:g} s", PlanFailure.LATE_THREAD) from error
