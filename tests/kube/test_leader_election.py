"""The lease in virtual time: one holder at most, whatever the server does to it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from edl.errors import ConflictError, TemporaryError
from edl.kube.leader_election import AlwaysHeld, ApiLeaseStore, Elector, LeaseLostError, LeaseRecord
from tests.worlds.fake_api import FakeApi, connected, eventually
from tests.worlds.fakes import LoopClock, run_virtual


@dataclass
class ObjectStore:
    """A lease in an API server that can hang, refuse, or lose its reply.

    Attributes:
        mood: called before each request with the caller's name; what it raises or awaits is what the caller sees.
    """

    record: LeaseRecord | None = None
    version: int = 0
    writes: int = 0


@dataclass
class Door:
    """One replica's way to the store."""

    store: ObjectStore
    hangs: bool = False
    refuses: bool = False
    loses_replies: bool = False
    delay_s: float = 0.0
    writes: list[float] = field(default_factory=list)

    async def _enter(self) -> None:
        if self.hangs:
            await asyncio.sleep(10_000)
        if self.refuses:
            raise TemporaryError("connection refused")
        await asyncio.sleep(self.delay_s)

    async def read(self) -> LeaseRecord | None:
        await self._enter()
        return self.store.record

    async def write(self, record: LeaseRecord) -> LeaseRecord:
        await self._enter()
        now = self.store.record
        if (now.version if now else "") != record.version:
            raise ConflictError("somebody else wrote first")
        self.store.version += 1
        self.store.record = replace(record, version=str(self.store.version))
        self.writes.append(asyncio.get_running_loop().time())
        if self.loses_replies:
            await asyncio.sleep(10_000)
        return self.store.record


def elector(door: Door, name: str, on_change: Callable[[bool, str], None] | None = None) -> Elector:
    return Elector(door, LoopClock(), name, on_change=on_change)


async def until(condition: Callable[[], bool], limit_s: float = 120.0) -> float:
    """Wait; returns how long it took."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    while not condition():
        assert loop.time() - started < limit_s, "it never came"
        await asyncio.sleep(0.1)
    return loop.time() - started


def test_the_first_takes_the_lease_and_keeps_renewing_it() -> None:
    async def main() -> None:
        door = Door(ObjectStore())
        first = elector(door, "a")
        running = asyncio.ensure_future(first.run())
        assert await until(first.is_held) < 1
        await asyncio.sleep(100)
        assert first.is_held()
        assert 45 <= len(door.writes) <= 55, "every two seconds"
        running.cancel()

    run_virtual(main())


def test_a_second_waits_until_the_first_has_gone_silent_for_the_whole_lease() -> None:
    async def main() -> None:
        store = ObjectStore()
        first_door = Door(store)
        first, second = elector(first_door, "a"), elector(Door(store), "b")
        running = [asyncio.ensure_future(e.run()) for e in (first, second)]
        await until(first.is_held)
        await asyncio.sleep(30)
        assert not second.is_held()
        running[0].cancel()
        assert 13 <= await until(second.is_held) <= 19
        assert store.record is not None
        assert (store.record.holder, store.record.transitions) == ("b", 1)
        running[1].cancel()

    run_virtual(main())


def test_a_released_lease_is_taken_at_once() -> None:
    async def main() -> None:
        store = ObjectStore()
        first, second = elector(Door(store), "a"), elector(Door(store), "b")
        running = [asyncio.ensure_future(e.run()) for e in (first, second)]
        await until(first.is_held)
        running[0].cancel()
        await first.release()
        assert not first.is_held()
        assert await until(second.is_held) <= 2.5
        running[1].cancel()

    run_virtual(main())


@pytest.mark.parametrize("fault", ["hangs", "refuses"])
def test_a_holder_that_cannot_renew_stops_before_another_may_start(fault: str) -> None:
    async def main() -> None:
        store = ObjectStore()
        door = Door(store)
        first, second = elector(door, "a"), elector(Door(store), "b")
        running = asyncio.ensure_future(first.run())
        await until(first.is_held)
        other = asyncio.ensure_future(second.run())
        await asyncio.sleep(7)
        setattr(door, fault, True)
        loop = asyncio.get_running_loop()
        since = loop.time()
        await until(lambda: not first.is_held())
        stopped = loop.time()
        assert stopped - since <= 10.1
        with pytest.raises(LeaseLostError):
            await running
        await until(second.is_held)
        assert loop.time() - stopped >= 2, "the old one was silent before the new one spoke"
        other.cancel()

    run_virtual(main())


def test_a_short_outage_costs_nothing() -> None:
    async def main() -> None:
        door = Door(ObjectStore())
        first = elector(door, "a")
        running = asyncio.ensure_future(first.run())
        await until(first.is_held)
        for _ in range(5):
            door.refuses = True
            await asyncio.sleep(7)
            assert first.is_held()
            door.refuses = False
            await asyncio.sleep(5)
        assert first.is_held()
        running.cancel()

    run_virtual(main())


def test_a_write_whose_reply_is_lost_is_recognised_as_our_own() -> None:
    async def main() -> None:
        door = Door(ObjectStore(), loses_replies=True)
        first = elector(door, "a")
        running = asyncio.ensure_future(first.run())
        await asyncio.sleep(8)
        assert not first.is_held(), "without an answer nothing is sure"
        door.loses_replies = False
        assert await until(first.is_held) <= 8
        running.cancel()

    run_virtual(main())


def test_a_holder_whose_record_was_taken_over_stops_at_once() -> None:
    async def main() -> None:
        store = ObjectStore()
        first = elector(Door(store), "a")
        running = asyncio.ensure_future(first.run())
        await until(first.is_held)
        assert store.record is not None
        store.record = replace(store.record, holder="b", version="99")
        with pytest.raises(LeaseLostError):
            await running
        assert not first.is_held()

    run_virtual(main())


def test_a_holder_that_was_stopped_past_its_lease_says_nothing_more_when_it_wakes_up() -> None:
    class StoppedClock(LoopClock):
        """Sleeps far too long from some moment on, as a process does that was stopped."""

        oversleeps_s = 0.0

        async def sleep(self, duration_s: float) -> None:
            await super().sleep(duration_s + self.oversleeps_s)

    async def main() -> None:
        door, clock = Door(ObjectStore()), StoppedClock()
        first = Elector(door, clock, "a")
        running = asyncio.ensure_future(first.run())
        await until(first.is_held)
        clock.oversleeps_s = 20.0
        async with asyncio.timeout(100):
            with pytest.raises(LeaseLostError):
                await running
        assert asyncio.get_running_loop().time() - door.writes[-1] >= 15, "it did not even try"
        assert not first.is_held()

    run_virtual(main())


def test_an_edit_of_the_lease_by_a_person_does_not_end_the_holder() -> None:
    async def main() -> None:
        store = ObjectStore()
        first = elector(Door(store), "a")
        running = asyncio.ensure_future(first.run())
        await until(first.is_held)
        assert store.record is not None
        store.record = replace(store.record, version="99")
        store.version = 99
        await asyncio.sleep(30)
        assert first.is_held()
        running.cancel()

    run_virtual(main())


def test_a_slow_server_counts_against_the_holder_from_the_moment_it_asked() -> None:
    async def main() -> None:
        door = Door(ObjectStore())
        first = elector(door, "a")
        running = asyncio.ensure_future(first.run())
        await until(first.is_held)
        door.delay_s = 4.0
        await asyncio.sleep(60)
        assert first.is_held(), "four seconds a call are slow and still in time"
        running.cancel()

    run_virtual(main())


def test_changes_of_the_leader_are_told_once() -> None:
    async def main() -> None:
        store, told = ObjectStore(), []
        first = elector(Door(store), "a")
        running = asyncio.ensure_future(first.run())
        await until(first.is_held)
        second = elector(Door(store), "b", lambda leads, holder: told.append((leads, holder)))
        other = asyncio.ensure_future(second.run())
        await asyncio.sleep(20)
        running.cancel()
        await first.release()
        await asyncio.sleep(20)
        other.cancel()
        assert told[0] == (False, "a")
        assert told[-1] == (True, "b")
        assert len(told) <= 3

    run_virtual(main())


FAULTS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]), st.sampled_from(["hangs", "refuses", "loses_replies", "well"]), st.floats(0, 30)
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(FAULTS)
def test_two_never_hold_it_at_the_same_time(faults: list[tuple[str, str, float]]) -> None:
    async def main() -> None:
        store = ObjectStore()
        doors = {name: Door(store) for name in "ab"}
        electors = {name: elector(door, name) for name, door in doors.items()}

        async def live(name: str) -> None:
            while True:
                try:
                    await electors[name].run()
                except LeaseLostError:
                    electors[name] = elector(doors[name], name)

        lives = [asyncio.ensure_future(live(name)) for name in electors]

        async def watch() -> None:
            while True:
                assert not all(e.is_held() for e in electors.values())
                await asyncio.sleep(0.05)

        watching = asyncio.ensure_future(watch())
        for name, fault, lasts_s in faults:
            for kind in ("hangs", "refuses", "loses_replies"):
                setattr(doors[name], kind, kind == fault)
            await asyncio.sleep(lasts_s)
        for door in doors.values():
            door.hangs = door.refuses = door.loses_replies = False
        await until(lambda: any(e.is_held() for e in electors.values()), 60)
        assert not watching.done()
        for task in (*lives, watching):
            task.cancel()

    run_virtual(main())


def test_who_runs_alone_always_holds() -> None:
    assert AlwaysHeld().is_held()


class LeaseApi(FakeApi):
    """Keeps one Lease, with the conditions of the real server."""

    lease: dict[str, Any] | None = None

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        if request.method == "GET":
            return web.json_response(self.lease) if self.lease else self._no(404, "NotFound")
        body = json.loads(raw)
        has = self.lease["metadata"]["resourceVersion"] if self.lease else None
        if request.method == "POST" and has is not None:
            return self._no(409, "AlreadyExists")
        if request.method == "PUT" and body["metadata"]["resourceVersion"] != has:
            return self._no(409, "Conflict")
        self.revision += 1
        body["metadata"]["resourceVersion"] = str(self.revision)
        self.lease = body
        return web.json_response(body)

    @staticmethod
    def _no(code: int, reason: str) -> web.Response:
        return web.json_response({"kind": "Status", "code": code, "reason": reason}, status=code)


async def test_the_record_stands_in_a_lease_with_times_in_utc() -> None:
    api = LeaseApi()
    async with connected(api) as session:
        store = ApiLeaseStore(session, "paddlecloud", "edl-controller")
        assert await store.read() is None
        first = elector_on(store, "a")
        running = asyncio.ensure_future(first.run())
        await eventually(first.is_held)
        running.cancel()
        assert api.lease is not None
        spec = api.lease["spec"]
        assert isinstance(spec, dict)
        assert spec["holderIdentity"] == "a"
        assert spec["leaseDurationSeconds"] == 15
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", spec["renewTime"])
        await first.release()
        released = await store.read()
        assert released is not None
        assert released.holder == ""
        with pytest.raises(ConflictError):
            await store.write(replace(released, version="1"))


def elector_on(store: ApiLeaseStore, name: str) -> Elector:
    return Elector(store, LoopClock(), name)
