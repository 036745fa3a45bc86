"""Leader election in virtual time: at most one replica holds the lease, whatever the server does."""

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
from edl.sim.virtual_time import LoopClock, run_virtual
from tests.worlds.fake_api import FakeApi, connected, eventually


@dataclass
class ObjectStore:
    """The stored lease and its version."""

    record: LeaseRecord | None = None
    version: int = 0
    writes: int = 0


@dataclass
class Replica:
    """The connection of one replica to the store: it can hang, fail, delay requests or lose responses."""

    store: ObjectStore
    hangs: bool = False
    fails: bool = False
    loses_responses: bool = False
    delay_s: float = 0.0
    writes: list[float] = field(default_factory=list)

    async def _enter(self) -> None:
        if self.hangs:
            await asyncio.sleep(10_000)
        if self.fails:
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
        if self.loses_responses:
            await asyncio.sleep(10_000)
        return self.store.record


def elector(replica: Replica, name: str, on_change: Callable[[bool, str], None] | None = None) -> Elector:
    return Elector(replica, LoopClock(), name, on_change=on_change)


async def until(condition: Callable[[], bool], limit_s: float = 120.0) -> float:
    """Wait until the condition holds; return how long it took."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    while not condition():
        assert loop.time() - started < limit_s, "the condition does not hold in time"
        await asyncio.sleep(0.1)
    return loop.time() - started


def test_the_first_replica_takes_the_lease_and_renews_it() -> None:
    async def main() -> None:
        replica = Replica(ObjectStore())
        first = elector(replica, "a")
        running = asyncio.ensure_future(first.run())
        assert await until(first.is_held) < 1
        await asyncio.sleep(100)
        assert first.is_held()
        assert 45 <= len(replica.writes) <= 55, "every two seconds"
        running.cancel()

    run_virtual(main())


def test_a_second_replica_waits_until_the_lease_expires() -> None:
    async def main() -> None:
        store = ObjectStore()
        first_replica = Replica(store)
        first, second = elector(first_replica, "a"), elector(Replica(store), "b")
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
        first, second = elector(Replica(store), "a"), elector(Replica(store), "b")
        running = [asyncio.ensure_future(e.run()) for e in (first, second)]
        await until(first.is_held)
        running[0].cancel()
        await first.release()
        assert not first.is_held()
        assert await until(second.is_held) <= 2.5
        running[1].cancel()

    run_virtual(main())


@pytest.mark.parametrize("fault", ["hangs", "fails"])
def test_a_holder_that_cannot_renew_stops_before_another_may_start(fault: str) -> None:
    async def main() -> None:
        store = ObjectStore()
        replica = Replica(store)
        first, second = elector(replica, "a"), elector(Replica(store), "b")
        running = asyncio.ensure_future(first.run())
        await until(first.is_held)
        other = asyncio.ensure_future(second.run())
        await asyncio.sleep(7)
        setattr(replica, fault, True)
        loop = asyncio.get_running_loop()
        since = loop.time()
        await until(lambda: not first.is_held())
        stopped = loop.time()
        assert stopped - since <= 10.1
        with pytest.raises(LeaseLostError):
            await running
        await until(second.is_held)
        assert loop.time() - stopped >= 2, "the old holder stopped before the new one started"
        other.cancel()

    run_virtual(main())


def test_the_lease_survives_a_short_outage() -> None:
    async def main() -> None:
        replica = Replica(ObjectStore())
        first = elector(replica, "a")
        running = asyncio.ensure_future(first.run())
        await until(first.is_held)
        for _ in range(5):
            replica.fails = True
            await asyncio.sleep(7)
            assert first.is_held()
            replica.fails = False
            await asyncio.sleep(5)
        assert first.is_held()
        running.cancel()

    run_virtual(main())


def test_a_write_whose_response_is_lost_is_recognised_as_own() -> None:
    async def main() -> None:
        replica = Replica(ObjectStore(), loses_responses=True)
        first = elector(replica, "a")
        running = asyncio.ensure_future(first.run())
        await asyncio.sleep(8)
        assert not first.is_held(), "without a response the lease is not certain"
        replica.loses_responses = False
        assert await until(first.is_held) <= 8
        running.cancel()

    run_virtual(main())


def test_a_holder_stops_at_once_if_another_replica_is_in_the_record() -> None:
    async def main() -> None:
        store = ObjectStore()
        first = elector(Replica(store), "a")
        running = asyncio.ensure_future(first.run())
        await until(first.is_held)
        assert store.record is not None
        store.record = replace(store.record, holder="b", version="99")
        with pytest.raises(LeaseLostError):
            await running
        assert not first.is_held()

    run_virtual(main())


def test_a_process_that_was_stopped_past_its_lease_does_not_renew_it() -> None:
    class StoppedClock(LoopClock):
        """Sleeps too long, like a process that was stopped."""

        oversleeps_s = 0.0

        async def sleep(self, duration_s: float) -> None:
            await super().sleep(duration_s + self.oversleeps_s)

    async def main() -> None:
        replica, clock = Replica(ObjectStore()), StoppedClock()
        first = Elector(replica, clock, "a")
        running = asyncio.ensure_future(first.run())
        await until(first.is_held)
        clock.oversleeps_s = 20.0
        async with asyncio.timeout(100):
            with pytest.raises(LeaseLostError):
                await running
        assert asyncio.get_running_loop().time() - replica.writes[-1] >= 15, "no renewal was sent"
        assert not first.is_held()

    run_virtual(main())


def test_a_manual_edit_of_the_lease_does_not_end_the_holder() -> None:
    async def main() -> None:
        store = ObjectStore()
        first = elector(Replica(store), "a")
        running = asyncio.ensure_future(first.run())
        await until(first.is_held)
        assert store.record is not None
        store.record = replace(store.record, version="99")
        store.version = 99
        await asyncio.sleep(30)
        assert first.is_held()
        running.cancel()

    run_virtual(main())


def test_a_holder_keeps_the_lease_if_renewals_are_slow_but_in_time() -> None:
    async def main() -> None:
        replica = Replica(ObjectStore())
        first = elector(replica, "a")
        running = asyncio.ensure_future(first.run())
        await until(first.is_held)
        replica.delay_s = 4.0
        await asyncio.sleep(60)
        assert first.is_held(), "four seconds per call are in time"
        running.cancel()

    run_virtual(main())


def test_a_change_of_the_leader_is_reported_once() -> None:
    async def main() -> None:
        store, reported = ObjectStore(), []
        first = elector(Replica(store), "a")
        running = asyncio.ensure_future(first.run())
        await until(first.is_held)
        second = elector(Replica(store), "b", lambda leads, holder: reported.append((leads, holder)))
        other = asyncio.ensure_future(second.run())
        await asyncio.sleep(20)
        running.cancel()
        await first.release()
        await asyncio.sleep(20)
        other.cancel()
        assert reported[0] == (False, "a")
        assert reported[-1] == (True, "b")
        assert len(reported) <= 3

    run_virtual(main())


FAULTS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]), st.sampled_from(["hangs", "fails", "loses_responses", "none"]), st.floats(0, 30)
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(FAULTS)
def test_two_replicas_never_hold_the_lease_at_the_same_time(faults: list[tuple[str, str, float]]) -> None:
    async def main() -> None:
        store = ObjectStore()
        replicas = {name: Replica(store) for name in "ab"}
        electors = {name: elector(replica, name) for name, replica in replicas.items()}

        async def run_again(name: str) -> None:
            while True:
                try:
                    await electors[name].run()
                except LeaseLostError:
                    electors[name] = elector(replicas[name], name)

        running = [asyncio.ensure_future(run_again(name)) for name in electors]

        async def watch() -> None:
            while True:
                assert not all(e.is_held() for e in electors.values())
                await asyncio.sleep(0.05)

        watching = asyncio.ensure_future(watch())
        for name, fault, lasts_s in faults:
            for kind in ("hangs", "fails", "loses_responses"):
                setattr(replicas[name], kind, kind == fault)
            await asyncio.sleep(lasts_s)
        for replica in replicas.values():
            replica.hangs = replica.fails = replica.loses_responses = False
        await until(lambda: any(e.is_held() for e in electors.values()), 60)
        assert not watching.done()
        for task in (*running, watching):
            task.cancel()

    run_virtual(main())


def test_without_leader_election_the_lease_is_always_held() -> None:
    assert AlwaysHeld().is_held()


class LeaseApi(FakeApi):
    """Stores one Lease, with the preconditions of the real server."""

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


async def test_the_record_is_stored_in_a_lease_with_utc_times() -> None:
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
