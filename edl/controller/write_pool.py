"""Sends the writes of a round, the worthiest first, as many at once as the API server takes.

Before each write it asks whether a newer plan is due. From then on nothing more is sent: the writes that are under
way end, and the rest is dropped, for the next round to decide about. A lost lease ends the sending too. So no two
rounds ever have writes under way at the same time, and a round that was cut short looks like a controller that
crashed between two writes. A pause (`pauses`) interrupts the sending, and nothing is under way in it either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from edl.clock import Clock
from edl.controller.concurrency import Concurrency
from edl.controller.pauses import NO_PAUSES, Pauses
from edl.controller.write_queue import Lane, Taken, Turns, Write, WriteQueue
from edl.model.actions import Action, EmitEvent, Outcome, Result

LOOK_EVERY_S = 0.1
"""The pool asks at least this often whether a newer plan is due, however slow the writes are."""


class WritePool:
    """Carries out lanes of writes.

    Args:
        apply: carries out one action.
        clock: for pauses.
        concurrency: how many writes may be under way; it learns from each outcome.
    """

    def __init__(self, apply: Callable[[Action], Awaitable[Outcome]], clock: Clock, concurrency: Concurrency) -> None:
        self._apply, self._clock, self._concurrency = apply, clock, concurrency
        self._under_way: dict[asyncio.Task[list[Outcome]], Taken] = {}
        self._is_full = self._is_held = False
        self.turns = Turns()

    async def run(
        self, lanes: Iterable[Lane], is_due: Callable[[], bool], pauses: Pauses = NO_PAUSES
    ) -> tuple[list[Outcome], int]:
        """Carry out the lanes.

        Args:
            lanes: of all jobs.
            is_due: asked before each write; once it is True nothing more is sent.
            pauses: if one is due, the writes under way end first, and the others follow after it.

        Returns:
            The outcomes of what was tried, and how many writes were dropped because a newer plan is due.
        """
        queue = WriteQueue(lanes, self.turns)
        outcomes: list[Outcome] = []
        is_stopped, silent_s = False, self._clock.monotonic_s()
        try:
            while True:
                if is_stopped or not queue.left or not pauses.is_due():
                    is_stopped, silent_s = is_stopped or self._send(queue, is_due), self._clock.monotonic_s()
                elif not self._under_way and not (is_stopped := is_due()):
                    await pauses.answer(silent_s)
                    queue.drop(pauses.left_alone)
                if self._under_way:
                    for done in await self._ended(queue):
                        outcomes += done
                        is_stopped |= any(outcome.result is Result.NOT_LEADER for outcome in done)
                elif is_stopped or not queue.left:
                    return outcomes, queue.left
                else:
                    await self._clock.sleep(min(LOOK_EVERY_S, self._concurrency.rest_s(self._clock.monotonic_s())))
        finally:
            await self._abandon()

    def _send(self, queue: WriteQueue, is_due: Callable[[], bool]) -> bool:
        """Send as much as there are places for; True if a newer plan is due."""
        places = self._concurrency.places(self._clock.monotonic_s())
        self._is_full = self._is_held = False
        while not (is_due_now := is_due()) and queue.left:
            self._is_full = len(self._under_way) >= places
            self._is_held = len(self._under_way) >= self._concurrency.patient and queue.is_patient
            taken = None if self._is_full or self._is_held else queue.take()
            if taken is None:
                break
            self._under_way[asyncio.ensure_future(self._carry_out(taken.write))] = taken
        return is_due_now

    async def _ended(self, queue: WriteQueue) -> list[list[Outcome]]:
        """Wait a little until at least one write has ended; returns the outcomes of those that have."""
        done, _ = await asyncio.wait(self._under_way, timeout=LOOK_EVERY_S, return_when=asyncio.FIRST_COMPLETED)
        found = []
        for task in [task for task in self._under_way if task in done]:  # in the order in which they were sent
            taken = self._under_way.pop(task)
            outcomes = task.result()
            queue.end(
                taken, is_ok=all(outcome.is_ok or isinstance(outcome.action, EmitEvent) for outcome in outcomes)
            )
            found.append(outcomes)
        return found

    async def _carry_out(self, write: Write) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for action in write.actions:
            outcome = await self._apply(action)
            outcomes.append(outcome)
            now_s = self._clock.monotonic_s()
            self._concurrency.record(outcome, now_s=now_s, was_full=self._is_full, was_held=self._is_held)
            if not outcome.is_ok and not isinstance(outcome.action, EmitEvent):
                break
        return outcomes

    async def _abandon(self) -> None:
        """End what is under way, if this round is cancelled or a write broke off."""
        tasks = list(self._under_way)
        self._under_way.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
