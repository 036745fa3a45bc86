"""Runs a pure function in a thread with a deadline, so that the event loop stays free.

A decision can take seconds of solver time. Meanwhile the event loop renews the lease and answers the probes.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from edl.errors import PlanError, PlanFailure
from edl.planner.clock import without_collections

T = TypeVar("T")

THREAD = "edl-decide"


class PlannerThread:
    """Runs one function at a time in a thread, and waits for it until a deadline.

    A thread cannot be stopped. A late function runs on, and until it ends `run` starts no other one: a solver that
    hangs uses one core and no more. The thread is a daemon, so it does not keep the process running; how a process
    ends beside it is in `edl.cli.endings`.
    """

    def __init__(self) -> None:
        self._is_busy = False  # not Thread.is_alive(): a thread lives a little longer than its function

    async def run(self, call: Callable[[], T], deadline_s: float) -> T:
        """Run the function and return its result; an exception of the function passes through.

        Raises:
            PlanError: the function missed the deadline, or an earlier one still runs.
        """
        if self._is_busy:
            raise PlanError("the planner thread is still busy with an earlier plan", PlanFailure.BUSY)
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()

        def deliver(set_result: Callable[[], None]) -> None:
            if not result.done():
                set_result()

        def work() -> None:
            set_result: Callable[[], None]
            try:
                with without_collections(excludes_new=True):
                    made = call()
                set_result = partial(result.set_result, made)
            except BaseException as error:  # the caller of `run` gets it
                set_result = partial(result.set_exception, error)
            self._is_busy = False
            if not loop.is_closed():
                loop.call_soon_threadsafe(deliver, set_result)

        self._is_busy = True
        threading.Thread(target=work, name=THREAD, daemon=True).start()
        try:
            return await asyncio.wait_for(result, deadline_s)
        except TimeoutError as error:
            raise PlanError(
                f"the planner thread did not finish within {deadline_s:g} s", PlanFailure.LATE_THREAD
            ) from error
