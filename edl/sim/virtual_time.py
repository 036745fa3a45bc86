"""Time that jumps: an event loop that advances to its next timer at once, and the clock that reads it.

Whatever is written for `asyncio` and a `Clock` runs on it unchanged: the controller's loop in a simulation and in
tests. Two runs with the same events see the same times in the same order.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from edl.model.plan import ScalePlan

T = TypeVar("T")
START_S = 1000.0
"""The time at which a new loop starts, in seconds; not 0, because 0 means "never" in some stored times."""


class _JumpingSelector(selectors.DefaultSelector):
    """Advances the virtual time instead of waiting."""

    def __init__(self, jump: Callable[[float], None]) -> None:
        super().__init__()
        self._jump = jump
        self.watches_threads = True

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if not self.watches_threads:
            if timeout is None:
                raise RuntimeError("the simulation waits, and no timer will wake it")
            self._jump(timeout)
            return []
        ready = super().select(0)
        if ready or timeout is None or self._is_planning():
            return ready or super().select(timeout and 0.05)
        self._jump(timeout)
        return []

    @staticmethod
    def _is_planning() -> bool:
        """True while the planner's thread works, which takes real time."""
        return any(thread.name == "edl-decide" for thread in threading.enumerate())


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time, which stops while the planner's thread works."""

    def __init__(self) -> None:
        self._now_s = START_S
        self._selector_of_time = _JumpingSelector(self._jump)
        super().__init__(self._selector_of_time)

    def time(self) -> float:
        """The virtual time, in seconds."""
        return self._now_s

    def ignore_threads(self) -> None:
        """Never look for events of other threads or sockets: nothing but timers drives this loop, so it is faster."""
        self._selector_of_time.watches_threads = False

    def watch_threads(self) -> None:
        """Look for them again, as closing a loop needs."""
        self._selector_of_time.watches_threads = True

    def _jump(self, duration_s: float) -> None:
        self._now_s += duration_s


class LoopClock:
    """The time of the running loop as a Clock."""

    def now_s(self) -> float:
        """Seconds since the start of the virtual time."""
        return asyncio.get_running_loop().time()

    def monotonic_s(self) -> float:
        """The virtual time in seconds; it never runs backwards."""
        return asyncio.get_running_loop().time()

    async def sleep(self, duration_s: float) -> None:
        """Wait for that many virtual seconds."""
        await asyncio.sleep(duration_s)


class InlineRunner:
    """Runs the planner's functions in this thread, so that each run is the same; a `FunctionRunner`.

    Args:
        plan_s: draws how much virtual time making a plan takes; by default none.
    """

    def __init__(self, plan_s: Callable[[], float] = lambda: 0.0) -> None:
        self._plan_s = plan_s

    async def run(self, call: Callable[[], T], _: float) -> T:
        """Call the function; its deadline is its own.

        A plan says the virtual time that it took, because the controller asks: a slow machine must change no figure.
        """
        result = call()
        if not isinstance(result, ScalePlan):
            return result
        if took_s := self._plan_s():
            await asyncio.sleep(took_s)
        return replace(result, seconds=took_s)


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


class Timeline:
    """Events of a scenario; those of the same second happen in the order in which they were added."""

    def __init__(self) -> None:
        self._events: dict[float, list[Callable[[], None]]] = {}

    def add(self, at_s: float, event: Callable[[], None]) -> None:
        """Schedule a call for a time after the start, in seconds."""
        self._events.setdefault(at_s, []).append(event)

    def start(self, later: Callable[[float, Callable[[], None]], object]) -> None:
        """Let the time begin; one timer for each second."""
        for at_s, events in self._events.items():
            later(at_s, partial(_all, events))


def _all(events: list[Callable[[], None]]) -> None:
    for event in events:
        event()
