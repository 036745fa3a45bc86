"""Sends the writes that the state machine offers, as many at once as the API server takes.

The lease is checked before each action of a write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import Protocol

from edl.clock import Clock
from edl.controller.pending_writes import Write
from edl.controller.ports import Cluster, LeaderLease, Recorder
from edl.controller.requests_at_once.concurrency import Concurrency
from edl.model.actions import Action, EmitEvent, Outcome, Result

JOBS_IN_A_SLICE = 30
"""Once so many jobs were looked at for the next writes, anything else may be done: each takes up to a millisecond.

Jobs are counted, as a slice of so many milliseconds would send one write at a time on a machine that is overloaded.
"""


class Source(Protocol):
    """Offers writes, and is told how they ended; see `core.Core`."""

    looked_at: int

    def take(self, *, background: bool) -> Write | None:
        """Return the next write to send now; None if there is none."""

    def ended(self, write: Write, outcomes: Sequence[Outcome]) -> None:
        """Note how a write ended."""

    def has_urgent(self) -> bool:
        """True if a write can be sent for which a pod or a user waits."""


class Sender:
    """Carries out writes, each in a task of its own.

    Args:
        core: offers writes, and is told how they ended.
        cluster: carries out single actions.
        clock: for how long an action took.
        lease: without it nothing is sent.
        recorder: is told of each outcome.
        writes: the most requests that may be under way at once.
        wake: called once a write has ended.

    Attributes:
        last_write_s: the monotonic time at which the last action ended.
        failures: how many actions have failed so far.
        is_cut: there may be more to send at once.
    """

    def __init__(
        self,
        core: Source,
        cluster: Cluster,
        clock: Clock,
        lease: LeaderLease,
        recorder: Recorder,
        *,
        writes: int,
        wake: Callable[[], None],
    ) -> None:
        self._core, self._cluster, self._clock, self._lease, self._recorder = core, cluster, clock, lease, recorder
        self._concurrency, self._wake = Concurrency(writes), wake
        self._tasks: dict[asyncio.Task[list[Outcome]], Write] = {}
        self._was_full = self._was_background_full = False  # when writes were sent last
        self.last_write_s, self.failures, self.is_cut = -inf, 0, False

    def send(self) -> None:
        """Send as many writes as the limit allows, if this replica holds the lease; a part if that takes long."""
        self.is_cut = False
        if not self._lease.is_held():
            return
        concurrency, looked_at = self._concurrency, self._core.looked_at
        places = concurrency.places(self._clock.monotonic_s())
        while len(self._tasks) < places and not self.is_cut:
            write = self._core.take(background=len(self._tasks) < concurrency.background)
            if write is None:
                break
            task = asyncio.ensure_future(self._carry_out(write))
            self._tasks[task] = write
            task.add_done_callback(lambda _: self._wake())
            self.is_cut = self._core.looked_at - looked_at >= JOBS_IN_A_SLICE
        if self.is_cut and len(self._tasks) < places:
            return
        self._was_full = len(self._tasks) >= places
        self._was_background_full = len(self._tasks) >= concurrency.background and not self._core.has_urgent()

    def end(self) -> None:
        """Report the writes that have ended to the state machine, in the order in which they were sent.

        Raises:
            BaseException: whatever ended a write that is no `Exception`.
        """
        for task in [task for task in self._tasks if task.done()]:
            write = self._tasks.pop(task)
            self._core.ended(write, task.result())

    @property
    def has_ended(self) -> bool:
        """True if a write has ended that was not reported to the state machine."""
        return any(task.done() for task in self._tasks)

    async def wait(self) -> None:
        """Wait until a write has ended or a paused place may be used again."""
        if self._tasks:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        else:
            await self._clock.sleep(self._concurrency.pause_s(self._clock.monotonic_s()))

    def next_place_s(self) -> float:
        """The monotonic time from which on a write may be sent; infinity if another one has to end first."""
        now_s = self._clock.monotonic_s()
        return now_s + (self._concurrency.pause_s(now_s) or inf) if self.is_full else -inf

    @property
    def is_idle(self) -> bool:
        """True if no write is under way, and none waits for a place."""
        return not self._tasks and not self.is_full

    @property
    def allowed(self) -> int:
        """How many requests may be under way at once, 1 to `writes`."""
        return self._concurrency.allowed

    @property
    def is_full(self) -> bool:
        """True if no further write may be sent now."""
        return len(self._tasks) >= self._concurrency.places(self._clock.monotonic_s())

    async def close(self) -> None:
        """Wait until the writes under way have ended."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cancel(self) -> None:
        """Cancel the writes under way."""
        for task in self._tasks:
            task.cancel()

    async def _carry_out(self, write: Write) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for action in write.actions:
            outcome = await self._try(action)
            outcomes.append(outcome)
            self.failures += not outcome.is_ok and outcome.result in {Result.FAILED, Result.NOT_LEADER}
            full, held = self._was_full, self._was_background_full
            self._concurrency.record(outcome, now_s=self._clock.monotonic_s(), was_full=full, was_held=held)
            try:
                self._recorder.acted(outcome)
            except Exception as error:  # what follows is sent all the same
                self._recorder.failed(f"{type(action).__name__} for job {action.job} cannot be recorded", error)
            if not outcome.is_ok and not isinstance(action, EmitEvent):
                break
        return outcomes

    async def _try(self, action: Action) -> Outcome:
        if not self._lease.is_held():
            return Outcome(action, Result.NOT_LEADER, "NotLeader", "the lease was lost before this write")
        began_s = self._clock.monotonic_s()
        try:
            outcome = await self._cluster.apply(action)
        except Exception as error:  # a bug in the adapter must not stop the other writes
            self._recorder.failed(f"{type(action).__name__} for job {action.job}", error)
            outcome = Outcome(action, Result.FAILED, type(error).__name__, str(error))
        self.last_write_s = self._clock.monotonic_s()
        return replace(outcome, seconds=self.last_write_s - began_s)
