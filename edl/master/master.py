"""The data master: a ledger whose every change is on disk before anybody sees it.

This module knows neither HTTP nor files. A command changes the ledger at once, and its events are queued for the
journal. The answer waits until these events and all events before them are durable. An answer to one trainer
therefore never depends on a change that a crash could still undo. A request for work that finds none is held until
there is work.
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
from edl.ledger.events import DatasetSet, JournalError, Replied, decode_events, encode_events, understood
from edl.ledger.group_values import EnterRequest, FormedWorld, GroupSettings
from edl.ledger.intervals import IntervalSet
from edl.ledger.ledger import Ledger
from edl.ledger.request import WAIT, SessionKey, SyncRequest
from edl.ledger.snapshot import state_from_json, state_to_json
from edl.ledger.state import LedgerState
from edl.ledger.status import ledger_status
from edl.master.group_calls import GroupCalls, Watch
from edl.master.ledger_store import LedgerStore, StoreBlockedError

SNAPSHOT_EVENTS = 100_000
"""The master writes a snapshot after this many events, so a restart replays no more."""
MAX_WAIT_S = 25.0
"""The longest time for which the master holds a request, in seconds."""
_TICK_S = 1.0
_T = TypeVar("_T")


class LedgerLostError(PermanentError):
    """The journal is empty although the status of the job shows progress."""


class StoppingError(TemporaryError):
    """A call comes while the master is stopping."""


class ExpectedProgress(NamedTuple):
    """The progress that the job's status shows.

    Attributes:
        epoch: the open epoch, from 0.
        done: positions of it that are done.
    """

    epoch: int
    done: int


@dataclass(frozen=True, slots=True)
class Recovered:
    """A ledger that was rebuilt from its journal.

    Attributes:
        ledger: ready to serve.
        first_epoch: the epoch with which a new data set begins.
        replayed: how many events were replayed after the last snapshot.
    """

    ledger: Ledger
    first_epoch: int
    replayed: int


def recover(
    store: LedgerStore,
    settings: LedgerSettings,
    now_s: float,
    *,
    expected: ExpectedProgress | None,
    restarts_epoch: bool,
) -> Recovered:
    """Rebuild the ledger from its journal.

    Args:
        store: opened and not started.
        settings: the time limits of the ledger.
        now_s: monotonic seconds; every session gets one TTL from now.
        expected: the progress that the journal must show; None if unknown.
        restarts_epoch: if the journal is empty although it should not be, begin the expected epoch again.

    Raises:
        LedgerLostError: the journal is empty although the job has made progress.
        EdlError: the journal is damaged.
    """
    state, before = _stored(store)
    first_epoch = 0
    if state.dataset is None and expected is not None and (expected.epoch or expected.done):
        if not restarts_epoch:
            raise LedgerLostError(
                f"LedgerLost: the journal is empty, but {expected.done} positions of epoch {expected.epoch} were"
                " done; put the journal back, or begin that epoch again with --on-ledger-lost RestartEpoch"
            )
        first_epoch = expected.epoch
    ledger = Ledger(state, settings)
    with understood("the state that its records describe"):
        ledger.resume(now_s)
    return Recovered(ledger, first_epoch, state.serial - before)


def _stored(store: LedgerStore) -> tuple[LedgerState, int]:
    """The state that a store holds, and how many records its snapshot replaces."""
    snapshot, records = store.load()
    with understood("the snapshot"):
        state = state_from_json(json.loads(snapshot)) if snapshot is not None else LedgerState()
    before = state.serial
    for record in records:
        with understood(f"the record {record[:80]!r}"):
            for event in decode_events(record):
                state.apply(event)
    return state, before


class Master:
    """Serves one ledger.

    Args:
        recovered: from `recover`.
        store: its journal, started.
        clock: for deadlines.
        group: the time limits of trainers that train in step.
    """

    def __init__(
        self, recovered: Recovered, store: LedgerStore, clock: Clock, group: GroupSettings | None = None
    ) -> None:
        self._ledger, self._store, self._clock = recovered.ledger, store, clock
        self._first_epoch, self._events_since_snapshot = recovered.first_epoch, recovered.replayed
        self._held: dict[tuple[SessionKey, int], asyncio.Future[Replied]] = {}  # (session, seq) -> its reply
        self._waiters: dict[asyncio.Future[None], None] = {}  # held requests, the oldest first
        self._broken: JournalError | None = None
        self._last_phase = self._phase()
        self._was_blocked = False
        self._is_stopping = False
        self._group = GroupCalls(self._ledger, group or GroupSettings(), clock, self._execute)

    @property
    def dataset(self) -> DatasetSet | None:
        """The data set of the job; None until it is set."""
        return self._ledger.state.dataset

    @property
    def done_ranges(self) -> list[tuple[int, int]]:
        """The positions of the open epoch that are done; of the last epoch if the job is finished."""
        state = self._ledger.state
        if state.is_finished and state.closed and not state.is_stopped:
            return IntervalSet(state.closed[-1].quarantined).gaps(state.closed[-1].total)
        return [*state.reported, *state.committed]

    @property
    def blocked(self) -> str | None:
        """Why the journal cannot be written now; None if writing works."""
        return self._store.blocked

    async def run(self) -> None:
        """Apply the time limits of the ledger once a second, until cancelled.

        Raises:
            EdlError: the journal can no longer be written.
        """
        while True:
            await self._clock.sleep(_TICK_S)
            if self._store.blocked is None:
                self._execute(lambda: self._ledger.tick(self._clock.monotonic_s()))
                self._group.tick()
            if self._broken is not None:
                raise self._broken
            try:
                await self._store.durable(self._store.appended)
            except StoreBlockedError:
                continue

    async def drain(self) -> None:
        """Reject new requests, and answer every request that waits."""
        self._is_stopping = True
        self._wake(len(self._waiters))
        self._group.close()
        while self._held:
            await asyncio.wait(self._held.values())
            await asyncio.sleep(0)

    def status(self) -> dict[str, Any]:
        """The body of `GET /v1/status`; it is served while the disk is full, too."""
        return {
            **ledger_status(self._ledger),
            "group": self._group.status(),
            "blocked": self._store.blocked,
            "records": self._store.appended,
        }

    async def sync(self, key: SessionKey, request: SyncRequest, wait_s: float) -> tuple[Replied, float]:
        """Handle one sync call of a trainer.

        Args:
            key: the session.
            request: its reports and how many leases it wants.
            wait_s: how long to hold the request if there is no work, in seconds.

        Returns:
            The reply, and how long its leases last in seconds, counted from when the request was first sent.

        Raises:
            ConflictError: see `Ledger.sync`.
            StoreBlockedError: the disk is full; the caller should send the same request again.
        """
        self._refuse_while_blocked()
        arrived_s, call = self._clock.monotonic_s(), (key, request.seq)
        is_repeat, held_s = self._ledger.is_repeat(key, request.seq), 0.0
        reply = self._execute(lambda: self._ledger.sync(key, request, arrived_s))
        if is_repeat and call in self._held:
            reply = await asyncio.shield(self._held[call])
        elif not is_repeat and wait_s > 0 and request.want and _has_no_content(reply):
            reply = await self._hold(key, request, min(wait_s, MAX_WAIT_S, self._ledger.settings.ttl_s / 2))
            held_s = self._clock.monotonic_s() - arrived_s
        await self._store.durable(self._store.appended)
        return reply, self._ledger.settings.ttl_s + held_s

    async def set_dataset(self, dataset: DatasetSet) -> bool:
        """Set the data set of the job, and return once the journal has it on disk; see `Ledger.set_dataset`."""
        first_epoch = self._first_epoch
        return await self._execute_durably(
            lambda: self._ledger.set_dataset(dataset._replace(first_epoch=first_epoch))
        )

    async def begin_checkpoint(self, key: SessionKey, step: int) -> int:
        """Begin a checkpoint of the ledger, and return once the journal has it on disk."""
        return await self._execute_durably(lambda: self._ledger.begin_checkpoint(key, step))

    async def commit_checkpoint(self, number: int) -> None:
        """Record that the checkpoint of that number is complete, and return once the journal has it on disk."""
        await self._execute_durably(lambda: self._ledger.commit_checkpoint(number))

    async def restore(self, number: int | None) -> int:
        """Continue training from a committed checkpoint, and return once the journal has that.

        See `Ledger.restore`.
        """
        return await self._execute_durably(lambda: self._ledger.restore(number))

    async def elect(self, key: SessionKey, step: int, ttl_s: float) -> bool:
        """Elect the one session that saves the model of a step; see `Ledger.elect`."""
        return await self._execute_durably(lambda: self._ledger.elect(key, step, ttl_s, self._clock.monotonic_s()))

    async def enter(self, key: SessionKey, request: EnterRequest, wait_s: float) -> tuple[FormedWorld | None, bool]:
        """Handle the request of a trainer to be in the next world.

        Returns the world, and whether the job has ended.
        """
        self._refuse_while_blocked()
        found = await self._group.enter(key, request, wait_s)
        await self._store.durable(self._store.appended)
        return found, self._group.has_ended

    async def watch(self, key: SessionKey, call: Watch) -> tuple[bool, int, bool]:
        """Note that a trainer is alive, and answer once its world should end or `call` has waited long enough.

        Returns:
            True if the world should end with the next step; the position up to which steps are done; and True if the
            world has lost a trainer.
        """
        self._refuse_while_blocked()
        must_change = await self._group.watch(key, call)
        done, is_broken = self._group.position, self._group.is_broken(call.generation)
        await self._store.durable(self._store.appended)
        return must_change, done, is_broken

    async def leave(self, key: SessionKey, generation: int, position: int | None, wait_s: float) -> bool:
        """Answer a trainer that wants to leave once no other trainer needs it; see `GroupCalls.leave`."""
        self._refuse_while_blocked()
        is_free = await self._group.leave(key, generation, position, wait_s)
        await self._store.durable(self._store.appended)
        return is_free

    def keep_alive(self, key: SessionKey) -> None:
        """Note that the process of a trainer lives, although its loop may be too busy to watch; nothing is stored."""
        self._group.keep_alive(key)

    @property
    def stop_error(self) -> str:
        """Why trainers in step have stopped a job that has failed; else empty."""
        return self._ledger.state.stop_error

    async def stop(self, key: SessionKey, generation: int, position: int, error: str) -> None:
        """End the training of a world with the step that ends at a position; with an error the job has failed."""
        self._refuse_while_blocked()
        self._group.stop(key, generation, position, error)
        await self._store.durable(self._store.appended)

    async def set_roster(self, generation: int, pod_uids: Iterable[str]) -> None:
        """Set the pods that may hold leases, and return once the journal has them on disk.

        See `Ledger.set_roster`.
        """
        await self._execute_durably(lambda: self._ledger.set_roster(generation, pod_uids))
        self._group.tick()

    async def _execute_durably(self, command: Callable[[], _T]) -> _T:
        """Run a command, and return its result once its events are on disk."""
        self._refuse_while_blocked()
        result = self._execute(command)
        await self._store.durable(self._store.appended)
        return result

    def _execute(self, command: Callable[[], _T]) -> _T:
        """Run a command and queue its events, also if it raises an error."""
        if self._was_blocked:
            self._was_blocked = False
            self._ledger.renew_all(self._clock.monotonic_s())
        try:
            return command()
        except JournalError as error:
            self._broken = error
            raise
        finally:
            events = self._ledger.take_events()
            if events:
                self._store.append(encode_events(events))
                self._events_since_snapshot += len(events)
                if self._events_since_snapshot >= SNAPSHOT_EVENTS:
                    self._events_since_snapshot = 0
                    self._store.snapshot(json.dumps(state_to_json(self._ledger.state)).encode())
                self._wake_some()

    def _refuse_while_blocked(self) -> None:
        if self._is_stopping:
            raise StoppingError("the master is stopping; send the request again in a second", retry_after_s=1.0)
        if self._store.blocked is not None:
            self._was_blocked = True
            raise StoreBlockedError(self._store.blocked, retry_after_s=5.0)

    async def _hold(self, key: SessionKey, request: SyncRequest, wait_s: float) -> Replied:
        """Hold a request until there is work for it, or until its time is over."""
        held: asyncio.Future[Replied] = asyncio.get_running_loop().create_future()
        call, until_s = (key, request.seq), self._clock.monotonic_s() + wait_s
        self._held[call] = held
        try:
            while True:
                await self._wait_for_wake(until_s - self._clock.monotonic_s())
                now_s = self._clock.monotonic_s()
                reply = self._execute(partial(self._ledger.poll, key, request.seq, request.want, now_s))
                if reply.status != WAIT or now_s >= until_s or self._is_stopping:
                    held.set_result(reply)
                    return reply
        except EdlError as error:
            held.set_exception(error)
            held.exception()  # retrieve it: asyncio warns about an exception that nobody retrieves
            raise
        finally:
            del self._held[call]
            held.cancel()

    async def _wait_for_wake(self, timeout_s: float) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = None
        try:
            await asyncio.wait({waiter}, timeout=max(0.0, timeout_s))
        finally:
            self._waiters.pop(waiter, None)

    def _wake_some(self) -> None:
        """Wake every held request if the phase has changed; else at most one for each position to be leased."""
        phase = self._phase()
        has_changed, self._last_phase = phase != self._last_phase, phase
        if self._waiters:
            self._wake(len(self._waiters) if has_changed else self._ledger.state.available)

    def _wake(self, count: int) -> None:
        for waiter in list(islice(self._waiters, count)):
            del self._waiters[waiter]
            waiter.set_result(None)

    def _phase(self) -> tuple[object, ...]:
        """The state on which the answers to all waiting requests depend."""
        state = self._ledger.state
        return state.epoch, state.is_open, state.roster


def _has_no_content(reply: Replied) -> bool:
    return reply.status == WAIT and not (reply.results or reply.truncate or reply.revoked)
