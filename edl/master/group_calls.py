"""Answers calls of trainers that train in step; a call for a world waits until a world has formed.

A trainer always has one `watch` under way. If its process ends, the operating system closes the connection, and the
master learns of the loss at once, long before a time limit. A process may also end between two of these calls; so the
connection is looked at after each of them, until the next one begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from edl.clock import Clock
from edl.ledger.group import Group
from edl.ledger.group_values import EnterRequest, FormedWorld, Goodput, GroupSettings
from edl.ledger.ledger import Ledger
from edl.ledger.request import SessionKey

MAX_HOLD_S = 10.0
"""The longest time for which a call is held, in seconds."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Watch:
    """One call of `watch`.

    Attributes:
        generation: the generation of the world of the trainer.
        position: how far its model is.
        wait_s: how long to hold the call while the answer would be `knows`, in seconds.
        knows: the answer that the trainer already has.
        is_connected: False once the connection of the call is closed, also after its answer.
        goodput: what the trainers of its world achieve; None if it does not say so.
    """

    generation: int
    position: int | None
    wait_s: float
    knows: bool
    is_connected: Callable[[], bool]
    goodput: Goodput | None = None


class Commands(Protocol):
    """Runs commands on the ledger, one at a time."""

    def __call__(self, command: Callable[[], _T], /) -> _T:
        """Run a command, and queue its events for the journal."""


class GroupCalls:
    """The calls of the trainers of one job.

    Args:
        ledger: the ledger of the master.
        settings: the time limits.
        clock: for deadlines.
        execute: runs a command on the ledger.
    """

    def __init__(self, ledger: Ledger, settings: GroupSettings, clock: Clock, execute: Commands) -> None:
        self._ledger, self._clock, self._execute, self._settings = ledger, clock, execute, settings
        self._group = Group(ledger, settings, clock.monotonic_s())
        self._changed = asyncio.Event()
        self._last_watch: dict[SessionKey, Watch] = {}
        self._watching: dict[SessionKey, int] = {}  # how many of its calls are under way
        self._timers: set[asyncio.Task[None]] = set()
        self._is_closing = False

    @property
    def has_ended(self) -> bool:
        """True if the job has ended."""
        return self._ledger.state.is_finished or self._ledger.state.is_failed

    @property
    def position(self) -> int:
        """The first position that is not done, counted through all epochs."""
        return self._ledger.position

    def is_broken(self, generation: int) -> bool:
        """Return True if that world has lost a trainer, so that its collectives fail."""
        return self._group.is_broken(generation)

    def status(self) -> dict[str, Any] | None:
        """The world, which trainers work, wait or hang, and the last losses; None if nobody trains in step."""
        return self._group.status(self._clock.monotonic_s())

    def tick(self) -> None:
        """Apply the time limits."""
        self._run(lambda: self._group.tick(self._clock.monotonic_s()))

    def close(self) -> None:
        """Answer every call that still waits."""
        self._is_closing = True
        self._changed.set()
        for timer in self._timers:
            timer.cancel()

    async def enter(self, key: SessionKey, request: EnterRequest, wait_s: float) -> FormedWorld | None:
        """Handle the request of a trainer to be in the next world.

        The answer waits until that forms or the job ends.
        """
        found = self._run(lambda: self._group.enter(key, request, self._clock.monotonic_s()))
        until_s = self._until_s(wait_s)
        while found is None and not self.has_ended and await self._wait_for_change(until_s):
            found = self._group.formed(key)
        return found

    async def watch(self, key: SessionKey, call: Watch) -> bool:
        """Note that a trainer is alive; returns whether its world should end with the next step."""
        self._last_watch[key] = call
        self._watching[key] = self._watching.get(key, 0) + 1
        place = key, call.generation, call.position
        self._run(lambda: self._group.watch(*place, self._clock.monotonic_s(), call.goodput))
        until_s, is_done = self._until_s(call.wait_s), False
        try:
            while self._group.must_change(key, call.generation) == call.knows and not self.has_ended:
                if not await self._wait_for_change(until_s):
                    break
            is_done = True
        finally:
            self._end_watch(key, call, is_done=is_done)
        return self._group.must_change(key, call.generation)

    def keep_alive(self, key: SessionKey) -> None:
        """Note that the process of a trainer lives, although its training loop may be too busy to watch."""
        self._group.keep_alive(key, self._clock.monotonic_s())

    def stop(self, key: SessionKey, generation: int, position: int, error: str) -> None:
        """End the training of a world with the step that ends at a position; see `Group.stop`."""
        self._run(lambda: self._group.stop(key, generation, position, error, self._clock.monotonic_s()))

    async def leave(self, key: SessionKey, generation: int, position: int | None, wait_s: float) -> bool:
        """Answer a trainer that wants to leave once no other trainer needs it; see `Group.leave`."""

        def leave() -> bool:
            return self._group.leave(key, generation, position, self._clock.monotonic_s())

        until_s = self._until_s(wait_s)
        is_free = self._run(leave)
        while not is_free and await self._wait_for_change(until_s):
            is_free = self._group.is_free(generation)
        return is_free

    def _run(self, command: Callable[[], _T]) -> _T:
        """Run a command of the group, and wake every call that waits if its answer may have changed."""
        before = self._group.phase()
        try:
            return self._execute(command)
        finally:
            if self._group.phase() != before:
                changed, self._changed = self._changed, asyncio.Event()
                changed.set()

    def _until_s(self, wait_s: float) -> float:
        return self._clock.monotonic_s() + min(wait_s, MAX_HOLD_S)

    async def _wait_for_change(self, until_s: float) -> bool:
        """Wait for the next change; False if the time is over."""
        left_s = until_s - self._clock.monotonic_s()
        if left_s <= 0 or self._is_closing:
            return False
        try:
            async with asyncio.timeout(left_s):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def _end_watch(self, key: SessionKey, call: Watch, *, is_done: bool) -> None:
        """Note that a call of `watch` has ended, unless the trainer already has another one under way."""
        self._watching[key] -= 1
        if not self._watching[key]:
            del self._watching[key]
            self._group.unwatch(key, self._clock.monotonic_s(), dropped=not is_done)
            if not is_done:
                self.tick()  # its peers may have lost it before
            self._look_after(key, call)

    def _look_after(self, key: SessionKey, call: Watch) -> None:
        """Look now and then whether a trainer that does not watch is still connected, until it watches or is lost."""

        async def look() -> None:
            while self._last_watch.get(key) is call and not self.has_ended:
                await self._clock.sleep(self._settings.reconnect_s)
                if self._last_watch.get(key) is not call or call.is_connected():
                    continue
                if self._group.disconnect(key):
                    self.tick()
                else:
                    del self._last_watch[key]

        timer = asyncio.get_running_loop().create_task(look())
        self._timers.add(timer)
        timer.add_done_callback(self._timers.discard)
