from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path

import pytest
import trustme
from aiohttp import AddrInfoType, web
from kubernetes.aio.client import Configuration

from edl.kube.client import session as session_module
from edl.kube.client.calls import FencedError
from edl.kube.client.connections import Sockets
from edl.kube.client.session import ApiSession
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


async def test_a_session_that_only_reads_sends_no_write_whatever_asks_for_it() -> None:
    api = FakeApi()
    async with api.serve(), ApiSession(Configuration(host=api.url)) as session:
        session.only_read()
        session.fence(lambda: True, exempt="/apis/coordination")
        await session.get(PODS)
        with pytest.raises(FencedError, match="only reads the cluster"):
            await session.post(PODS, {})
        with pytest.raises(FencedError, match="only reads the cluster"):
            await session.patch("/apis/coordination.k8s.io/v1/namespaces/a/leases/b", {})
        with pytest.raises(FencedError, match="only reads the cluster"):
            await session.delete(PODS, uid="u")
    assert [method for method, *_ in api.requests] == ["GET"]


async def test_a_closed_session_leaves_no_socket_open_if_a_request_with_tls_was_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.cert_pem.write_to_path(str(tmp_path / "authority"))
    authority.issue_cert("127.0.0.1").configure_cert(context)
    asked, opened, open_socket = asyncio.Event(), [], Sockets.open

    def remembered(self: Sockets, address: AddrInfoType) -> socket.socket:
        opened.append(open_socket(self, address))
        return opened[-1]

    async def hang(_: web.Request) -> web.Response:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(Sockets, "open", remembered)
    app = web.Application()
    app.router.add_get("/{path:.*}", hang)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    configuration = Configuration(host=f"https://127.0.0.1:{runner.addresses[0][1]}")
    configuration.ssl_ca_cert = str(tmp_path / "authority")
    configuration.disable_strict_ssl_verification = True
    try:
        async with ApiSession(configuration) as session:
            reading = asyncio.ensure_future(session.get(PODS))
            await asked.wait()
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
        assert [one.fileno() for one in opened] == [-1]
    finally:
        await runner.cleanup()
