"""Calls to masters: what they send, and what is made of answers, which may come from anybody's image."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from edl.controller.ports import MasterAddress
from edl.errors import ConflictError, EdlError, PermanentError, TemporaryError
from edl.kube import master_client as master_wire
from edl.kube.master_client import ANSWER_BYTES, HttpMasterClient
from edl.lifecycle.data_progress import MasterReport, MasterState, RosterEntry
from edl.model.names import JobKey
from tests.worlds.linked_masters import controller_token, sharded, wired
from tests.worlds.master_server import serving

JOB = sharded()
AT = MasterAddress(JOB.key, JOB.uid, "pod-1", "127.0.0.1")
RolePolicy = Callable[[web.Request], Awaitable[web.StreamResponse]]
GOOD = {
    "state": "running",
    "epoch": 0,
    "total": 9,
    "todo": 1,
    "done": 2,
    "consumed": 3,
    "quarantined": 0,
    "holders": [],
}


@asynccontextmanager
async def answering(tmp_path: Path, answer: RolePolicy) -> AsyncIterator[HttpMasterClient]:
    """The wire to something that is no master."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with wired(tmp_path, runner.addresses[0][1]) as wire:
            yield wire
    finally:
        await runner.cleanup()


def saying(body: Any, status: int = 200) -> RolePolicy:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=body, status=status) if isinstance(body, bytes) else web.json_response(body)

    return answer


async def test_a_real_master_is_understood(tmp_path: Path) -> None:
    token = controller_token(JOB)
    async with (
        serving(tmp_path / "j", "index:100", controller=token, shard_size=10) as served,
        wired(tmp_path, served.port) as wire,
    ):
        assert (await wire.report(AT)) == MasterReport(MasterState.RUNNING, 0, 0, 100, 0, 100)
        await wire.publish(AT, 7, [RosterEntry("uid-a", "a", 0)])
        _, answer = await served.sync("a", 1, want=1)
        (lease,) = answer["leases"]
        item = {k: lease[k] for k in ("epoch", "start", "end", "fence")}
        await asyncio.sleep(0.6)
        await served.sync("a", 2, progress=[{**item, "cursor": 4}])
        found = await wire.report(AT)
        assert (found.consumed, found.done, found.waiting, found.roster) == (4, 0, 90, (7, 1))
        assert found.working == {"uid-a"}
        with pytest.raises(ConflictError, match="generation 6 is older than 7"):
            await wire.publish(AT, 6, [])
        assert await wire.restore(AT) == 0


@pytest.mark.parametrize(
    ("body", "status", "error", "said"),
    [
        (b"<html>", 200, PermanentError, "not from an edl master"),
        (b"", 200, PermanentError, "not from an edl master"),
        (b"[" * 100_000, 200, PermanentError, "not from an edl master"),
        ({**GOOD, "done": -1}, 200, PermanentError, "not from an edl master"),
        ({**GOOD, "done": 2**60}, 200, PermanentError, "not from an edl master"),
        ({**GOOD, "state": "odd"}, 200, PermanentError, "not from an edl master"),
        ({**GOOD, "holders": [{"pod_uid": 7}]}, 200, PermanentError, "not from an edl master"),
        ({"state": "running"}, 200, PermanentError, "not from an edl master"),
        (b"x" * (ANSWER_BYTES + 10), 200, PermanentError, "not from an edl master"),
        (b"not you", 403, PermanentError, "answered 403: not you"),
        (b"later", 503, TemporaryError, "answered 503"),
        (b"slow", 429, TemporaryError, "answered 429"),
    ],
)
async def test_what_is_no_answer_is_an_error_with_a_name(
    tmp_path: Path, body: Any, status: int, error: type[EdlError], said: str
) -> None:
    async with answering(tmp_path, saying(body, status)) as wire:
        with pytest.raises(error, match=said) as caught:
            await wire.report(AT)
    assert "default/a" in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(("state", "count"), [("running", 3 + 2), ("finished", 3)])
async def test_what_was_left_out_is_counted_over_all_epochs(tmp_path: Path, state: str, count: int) -> None:
    closed = [{"epoch": 0, "quarantined": [[5, 6], [9, 11]]}, {"epoch": 1, "quarantined": []}]
    async with answering(tmp_path, saying({**GOOD, "state": state, "quarantined": 2, "closed": closed})) as wire:
        assert (await wire.report(AT)).left_out == count


async def test_a_token_is_never_carried_elsewhere(tmp_path: Path) -> None:
    seen: list[str] = []

    async def elsewhere(request: web.Request) -> web.StreamResponse:
        seen.append(request.path)
        return web.Response(status=307, headers={"Location": "/stolen"})

    async with answering(tmp_path, elsewhere) as wire:
        with pytest.raises(PermanentError, match="307"):
            await wire.report(AT)
    assert seen == ["/v1/status"]


async def test_a_master_that_never_ends_its_answer_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(master_wire, "CALL_TIMEOUT_S", 0.3)

    async def trickle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.05)

    async with answering(tmp_path, trickle) as wire:
        with pytest.raises(TemporaryError, match="did not answer in time"):
            await wire.report(AT)


async def test_nobody_there_is_worth_trying_again(tmp_path: Path) -> None:
    async with wired(tmp_path, 1) as wire:
        with pytest.raises(TemporaryError, match="default/a"):
            await wire.report(AT)
        with pytest.raises(TemporaryError):
            await wire.report(AT._replace(ip="::1"))


async def test_each_job_is_spoken_to_with_its_own_token(tmp_path: Path) -> None:
    shown: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        shown.append(request.headers["Authorization"])
        return web.json_response(GOOD)

    async with answering(tmp_path, answer) as wire:
        await wire.report(AT)
        await wire.report(AT._replace(job_uid="another"))
        await wire.report(AT._replace(job=JobKey("default", "b")))
    assert shown[0] == f"Bearer {controller_token(JOB)}"
    assert len(set(shown)) == 3
