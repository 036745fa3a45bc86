from __future__ import annotations

import asyncio

import pytest
from aiohttp import web
from kubernetes.aio.client import Configuration

from edl.kube.client import session as session_module
from edl.kube.client.session import ApiSession, FencedError
from tests.worlds.fake_api import FakeApi, eventually

PODS = "/api/v1/namespaces/n/pods"


async def test_a_write_that_waited_for_a_connection_is_not_sent_once_the_lease_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session_module, "CONNECTIONS", 1)
    api, held, asked, go_on = FakeApi(), True, 0, asyncio.Event()

    def may_write() -> bool:
        nonlocal asked
        asked += 1
        return held

    async def slow(_: object) -> web.Response:
        await go_on.wait()
        return web.json_response({"items": []})

    async with api.serve(), ApiSession(Configuration(host=api.url)) as session:
        session.fence(may_write, exempt="/apis/coordination")
        api.faults.append(slow)
        reading = asyncio.ensure_future(session.get(PODS))
        await eventually(lambda: len(api.requests) == 1)
        writing = asyncio.ensure_future(session.post(PODS, {"metadata": {"name": "p"}}))
        await eventually(lambda: asked == 1)
        held = False
        go_on.set()
        await reading
        with pytest.raises(FencedError, match=f"POST {PODS} was not sent"):
            await writing
        held = True
        await session.post(PODS, {"metadata": {"name": "q"}})
    assert [(method, path) for method, path, *_ in api.requests] == [("GET", PODS), ("POST", PODS)]
