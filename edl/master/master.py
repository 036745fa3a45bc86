"""The data master: a ledger whose every change is on a disk before anybody hears of it.

It knows no HTTP and no files. A command changes the ledger at once, its events are queued for the journal, and the
answer waits until they, and all before them, are durable: what one trainer is told never rests on what another
trainer's lost report has changed. Requests for work that find none are held and woken when there is some.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from edl.clock import Clock
from edl.errors import EdlError, PermanentError, TemporaryError
from edl.ledger.dispatch import LedgerSettings
from edl.ledger.events import DatasetSet, JournalError, Replied, decode_events, encode_events
from edl.ledger.ledger import Ledger
from edl.ledger.request import WAIT, SessionKey, SyncRequest
from edl.ledger.snapshot import state_from_json, state_to_json
from edl.ledger.state import LedgerState
from edl.ledger.status import ledger_status
from edl.master.ledger_store import LedgerStore, StoreBlockedError

SNAPSHOT_EVENTS = 100_000
"""So many events a restart replays at most."""
LONGEST_WAIT_S = 25.0
_TICK_S = 1.0
_T = TypeVar("_T")


class LedgerLostError(PermanentError):
    """The journal is empty although the job has made progress."""


class ExpectedProgress(NamedTuple):
    """How far the job was, by its status."""

    epoch: int
    done: int


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a journal tells.

    Attributes:
        first_epoch: what a data set begins with.
        replayed: events since the last snapshot.
    """

    ledger: Ledger
    first_epoch: int
    replayed: int


class StoppingError(TemporaryError):
    """The master is about to end."""


def recover(
    store: LedgerStore,
    settings: LedgerSettings,
    now_s: float,
    *,
    expected: ExpectedProgress | None,
    restarts_epoch: bool,
) -> Recovered:
    """The ledger that a journal tells of.

    Args:
        store: opened, not started.
        settings: the times to keep to.
        now_s: monotonic; everybody who held a lease has one TTL from now.
        expected: how far the job was, where that is known.
        restarts_epoch: a lost ledger begins that epoch again.

    Raises:
        LedgerLostError: the journal is empty and was not.
        EdlError: the journal is damaged.
    """
    snapshot, records = store.load()
    state = state_from_json(json.loads(snapshot)) if snapshot is not None else LedgerState()
    before = state.serial
    for record in records:
        for event in decode_events(record):
            state.apply(event)
    first_epoch = 0
    if state.dataset is None and expected is not None and (expected.epoch or expected.done):
        if not restarts_epoch:
            raise LedgerLostError(
                f"LedgerLost: the journal is empty, but {expected.done} positions of epoch {expected.epoch} were"
                " done; put the journal back, or begin that epoch again with --on-ledger-lost RestartEpoch"
            )
        first_epoch = expected.epoch
    ledger = Ledger(state, settings)
    ledger.resume(now_s)
    return Recovered(ledger, first_epoch, state.serial - before)


class Master:
    """Serves one ledger.

    Args:
        recovered: from `recover`.
        store: its journal, started.
        clock: for deadlines.
    """

    def __init__(self, recovered: Recovered, store: LedgerStore, clock: Clock) -> None:
        self._ledger, self._store, self._clock = recovered.ledger, store, clock
        self._first_epoch, self._replayable = recovered.first_epoch, recovered.replayed
        self._parked: dict[tuple[SessionKey, int], asyncio.Future[Replied]] = {}
        self._waiters: dict[asyncio.Future[None], None] = {}  # first come, first served
        self._broken: JournalError | None = None
        self._last_phase = self._phase()
        self._was_blocked = False
        self._is_stopping = False

    @property
    def dataset(self) -> DatasetSet | None:
        """What is sharded; None until somebody has said it."""
        return self._ledger.state.dataset

    @property
    def blocked(self) -> str | None:
        """Why nothing can be acknowledged now; None where it can."""
        return self._store.blocked

    async def run(self) -> None:
        """Let time pass, until cancelled.

        Raises:
            EdlError: the journal can no longer be written.
        """
        while True:
            await self._clock.sleep(_TICK_S)
            if self._store.blocked is None:
                self._do(lambda: self._ledger.tick(self._clock.monotonic_s()))
            if self._broken is not None:
                raise self._broken
            try:
                await self._store.durable(self._store.appended)
            except StoreBlockedError:
                continue

    async def drain(self) -> None:
        """Take no more commands, and answer the requests that are held."""
        self._is_stopping = True
        self._wake(len(self._waiters))
        while self._parked:
            await asyncio.wait(self._parked.values())
            await asyncio.sleep(0)

    def status(self) -> dict[str, Any]:
        """What it holds; also while the disk is full."""
        return {**ledger_status(self._ledger), "blocked": self._store.blocked, "records": self._store.appended}

    async def sync(self, who: SessionKey, request: SyncRequest, wait_s: float) -> tuple[Replied, float]:
        """One call of a trainer.

        Args:
            who: the session.
            request: what it says.
            wait_s: how long to hold the request where there is no work for it.

        Returns:
            The answer, and for how long its leases last, counted from when the request was first sent.

        Raises:
            ConflictError: see `Ledger.sync`.
            StoreBlockedError: the disk is full; the same request is to be tried again.
        """
        self._refuse_while_blocked()
        arrived_s, key = self._clock.monotonic_s(), (who, request.seq)
        is_repeat, held_s = self._ledger.is_repeat(who, request.seq), 0.0
        reply = self._do(lambda: self._ledger.sync(who, request, arrived_s))
        if is_repeat and key in self._parked:
            reply = await asyncio.shield(self._parked[key])
        elif not is_repeat and wait_s > 0 and request.want and _says_nothing(reply):
            reply = await self._park(who, request, min(wait_s, LONGEST_WAIT_S, self._ledger.settings.ttl_s / 2))
            held_s = self._clock.monotonic_s() - arrived_s
        await self._store.durable(self._store.appended)
        return reply, self._ledger.settings.ttl_s + held_s

    async def set_dataset(self, dataset: DatasetSet) -> bool:
        """See `Ledger.set_dataset`."""
        return await self._settled(lambda: self._ledger.set_dataset(dataset._replace(first_epoch=self._first_epoch)))

    async def begin_checkpoint(self, who: SessionKey, step: int) -> int:
        """See `Ledger.begin_checkpoint`."""
        return await self._settled(lambda: self._ledger.begin_checkpoint(who, step))

    async def commit_checkpoint(self, number: int) -> None:
        """See `Ledger.commit_checkpoint`."""
        await self._settled(lambda: self._ledger.commit_checkpoint(number))

    async def restore(self, number: int | None) -> int:
        """See `Ledger.restore`."""
        return await self._settled(lambda: self._ledger.restore(number))

    async def elect(self, who: SessionKey, step: int, ttl_s: float) -> bool:
        """See `Ledger.elect`."""
        return await self._settled(lambda: self._ledger.elect(who, step, ttl_s, self._clock.monotonic_s()))

    async def set_roster(self, generation: int, pod_uids: Iterable[str]) -> None:
        """See `Ledger.set_roster`."""
        await self._settled(lambda: self._ledger.set_roster(generation, pod_uids))

    async def _settled(self, command: Callable[[], _T]) -> _T:
        self._refuse_while_blocked()
        answer = self._do(command)
        await self._store.durable(self._store.appended)
        return answer

    def _do(self, command: Callable[[], _T]) -> _T:
        """Run a command and queue its events, whatever it answers."""
        if self._was_blocked:
            self._was_blocked = False
            self._ledger.grace(self._clock.monotonic_s())
        try:
            return command()
        except JournalError as error:
            self._broken = error
            raise
        finally:
            events = self._ledger.take_events()
            if events:
                self._store.append(encode_events(events))
                self._replayable += len(events)
                if self._replayable >= SNAPSHOT_EVENTS:
                    self._replayable = 0
                    self._store.snapshot(json.dumps(state_to_json(self._ledger.state)).encode())
                self._wake_some()

    def _refuse_while_blocked(self) -> None:
        if self._is_stopping:
            raise StoppingError("the master is stopping; ask again", retry_after_s=1.0)
        if self._store.blocked is not None:
            self._was_blocked = True
            raise StoreBlockedError(self._store.blocked, retry_after_s=5.0)

    async def _park(self, who: SessionKey, request: SyncRequest, wait_s: float) -> Replied:
        """Hold a request until there is work for it, or its time is up."""
        held: asyncio.Future[Replied] = asyncio.get_running_loop().create_future()
        key, until_s = (who, request.seq), self._clock.monotonic_s() + wait_s
        self._parked[key] = held
        try:
            while True:
                await self._woken(until_s - self._clock.monotonic_s())
                now_s = self._clock.monotonic_s()
                reply = self._do(partial(self._ledger.poll, who, request.seq, request.want, now_s))
                if reply.status != WAIT or now_s >= until_s or self._is_stopping:
                    held.set_result(reply)
                    return reply
        except EdlError as error:
            held.set_exception(error)
            held.exception()  # known, whether or not anybody else waits for it
            raise
        finally:
            del self._parked[key]
            held.cancel()

    async def _woken(self, timeout_s: float) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = None
        try:
            await asyncio.wait({waiter}, timeout=max(0.0, timeout_s))
        finally:
            self._waiters.pop(waiter, None)

    def _wake_some(self) -> None:
        """As many as there may be work for; all where something is new for all."""
        phase = self._phase()
        everybody, self._last_phase = phase != self._last_phase, phase
        if self._waiters:
            self._wake(len(self._waiters) if everybody else self._ledger.state.waiting)

    def _wake(self, count: int) -> None:
        for waiter in list(islice(self._waiters, count)):
            del self._waiters[waiter]
            waiter.set_result(None)

    def _phase(self) -> tuple[object, ...]:
        state = self._ledger.state
        return state.epoch, state.is_open, state.roster


def _says_nothing(reply: Replied) -> bool:
    return reply.status == WAIT and not (reply.results or reply.truncate or reply.revoked)
