"""The calls of trainers that train in step: what the master learns from their connections."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp

from edl.ledger.events import DatasetSet
from edl.ledger.group_values import EnterRequest, GroupSettings
from edl.ledger.ledger import Ledger
from edl.ledger.request import SessionKey
from edl.master.group_calls import GroupCalls, Watch
from edl.sim.virtual_time import LoopClock, run_virtual
from tests.worlds.master_server import TOKEN, serving
from tests.worlds.waiting import PATIENCE

A, B = (SessionKey(f"pod-{name}", 1, name) for name in "ab")
LONG = GroupSettings(unwatched_s=3600.0)


class Connection:
    """A connection of a trainer to its master."""

    def __init__(self) -> None:
        self.is_open = True

    def watch(self, wait_s: float = 0.0) -> Watch:
        return Watch(1, 0, wait_s, knows=False, is_connected=lambda: self.is_open)


async def two_trainers() -> GroupCalls:
    """A world of A and B."""
    ledger = Ledger()
    ledger.set_dataset(DatasetSet("index:100", "", 100, 1, 0, None, 1.0, 0))
    calls = GroupCalls(ledger, LONG, LoopClock(), lambda command: command())
    for key in (A, B):
        await calls.enter(key, EnterRequest(0, None, f"at-{key.name}", 2), 0.0)
    return calls


def losses(calls: GroupCalls) -> list[tuple[str, str]]:
    status = calls.status()
    assert status is not None
    return [(loss["name"], loss["reason"]) for loss in status["losses"]]


def test_a_process_that_ends_between_two_calls_is_lost_at_once() -> None:
    async def scene() -> list[tuple[str, str]]:
        calls, connection = await two_trainers(), Connection()
        await calls.watch(B, connection.watch())
        connection.is_open = False
        await asyncio.sleep(2 * LONG.reconnect_s)
        return losses(calls)

    assert run_virtual(scene()) == [("b", "connection lost")]


def test_a_process_that_ends_long_after_its_last_call_is_lost_at_once() -> None:
    async def scene() -> list[tuple[str, str]]:
        calls, connection = await two_trainers(), Connection()
        await calls.watch(B, connection.watch())
        await asyncio.sleep(100 * LONG.reconnect_s)
        assert losses(calls) == []
        connection.is_open = False
        await asyncio.sleep(2 * LONG.reconnect_s)
        return losses(calls)

    assert run_virtual(scene()) == [("b", "connection lost")]


def test_a_trainer_that_watches_on_another_connection_is_not_lost() -> None:
    async def scene() -> list[tuple[str, str]]:
        calls, before, after = await two_trainers(), Connection(), Connection()
        await calls.watch(B, before.watch())
        before.is_open = False
        await asyncio.sleep(LONG.reconnect_s / 2)
        await calls.watch(B, after.watch())
        await asyncio.sleep(100 * LONG.reconnect_s)
        return losses(calls)

    assert run_virtual(scene()) == []


def test_a_report_on_a_second_connection_that_closes_is_no_loss() -> None:
    async def scene() -> list[tuple[str, str]]:
        calls, thread, loop = await two_trainers(), Connection(), Connection()
        watching = asyncio.create_task(calls.watch(B, thread.watch(10.0)))
        await asyncio.sleep(0)
        await calls.watch(B, loop.watch())
        loop.is_open = False
        await asyncio.sleep(9.0)
        found = losses(calls)
        await watching
        return found

    assert run_virtual(scene()) == []


async def test_the_connection_of_a_process_is_looked_at_after_its_call(tmp_path: Path) -> None:
    async with serving(tmp_path / "j", group=LONG) as served:

        async def call(client: aiohttp.ClientSession, verb: str, name: str, **fields: Any) -> dict[str, Any]:
            identity = {"pod_uid": f"uid-{name}", "incarnation": 1, "name": name}
            body = {"session": identity, "generation": 0, "position": None, "wait_s": 0.0, **fields}
            headers = {"Authorization": f"Bearer {TOKEN}"}
            async with client.post(f"{served.url}/v1/group/{verb}", json=body, headers=headers) as answer:
                assert answer.status == 200
                found: dict[str, Any] = await answer.json()
                return found

        place = {"endpoint": "here", "min_size": 2, "settings": ""}
        async with aiohttp.ClientSession() as killed:
            await call(served.client, "enter", "a", **place)
            assert (await call(killed, "enter", "b", **place))["status"] == "run"
            assert not (await call(killed, "watch", "b", generation=1, position=0, knows=False))["is_broken"]
        again = {"generation": 1, "position": 0, **place, "min_size": 1}
        async with asyncio.timeout(30 * PATIENCE):
            while (world := await call(served.client, "enter", "a", **again, wait_s=5.0))["status"] != "run":
                pass
        assert [member["name"] for member in world["members"]] == ["a"]
        assert [loss["reason"] for loss in served.master.status()["group"]["losses"]] == ["connection lost"]
