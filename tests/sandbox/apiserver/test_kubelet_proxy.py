"""Logs and exec are passed on to the kubelet that a node's status names."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from edl.sandbox.apiserver.server import ApiServer
from edl.sandbox.certificate import write_certificate

POD = "/api/v1/namespaces/default/pods/p"


class FakeKubelet:
    """Answers as a kubelet does, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked.append(str(request.rel_url))
        if request.path.startswith("/exec/default/p/refusing"):
            return web.Response(status=501, text="no exec here\n")
        if request.path.startswith("/exec/"):
            socket = web.WebSocketResponse(protocols=("v5.channel.k8s.io",))
            await socket.prepare(request)
            async for message in socket:
                await socket.send_bytes(message.data[::-1])
                break
            await socket.close()
            return socket
        if request.path.endswith("/refusing"):
            return web.Response(status=400, text="it has not started")
        return web.Response(text="line one\nline two\n", content_type="text/plain")


@pytest.fixture
def kubelet() -> FakeKubelet:
    return FakeKubelet()


@pytest.fixture
async def http(kubelet: FakeKubelet, tmp_path: Path) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of a server with one pod on the node of the kubelet, and one on no node."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(write_certificate(tmp_path / "kubelet.pem"))
    runner = web.ServerRunner(web.Server(kubelet.serve))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    async with ApiServer() as server:
        headers = {"Authorization": f"Bearer {server.token}"}
        async with aiohttp.ClientSession(server.url, headers=headers) as session:
            await _furnish(session, runner.addresses[0][1])
            yield session
    await runner.cleanup()


async def _furnish(session: aiohttp.ClientSession, port: int) -> None:
    async def post(path: str, body: dict[str, Any]) -> None:
        async with session.post(path, json=body) as answer:
            assert answer.status == 201, await answer.text()

    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": status}
    await post("/api/v1/nodes", node)
    containers = [{"name": name, "image": "i"} for name in ("main", "refusing")]
    for name, where in (("p", {"nodeName": "n"}), ("unbound", {})):
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
        await post("/api/v1/namespaces/default/pods", {**body, "spec": {"containers": containers, **where}})


async def test_a_log_comes_from_the_kubelet(http: aiohttp.ClientSession, kubelet: FakeKubelet) -> None:
    query = {"container": "main", "follow": "true", "tailLines": "5", "bogus": "x"}
    async with http.get(f"{POD}/log", params=query) as answer:
        assert (answer.status, await answer.text()) == (200, "line one\nline two\n")
    assert kubelet.asked == ["/containerLogs/default/p/main?follow=true&tailLines=5"]


@pytest.mark.parametrize(
    ("path", "container", "code", "words"),
    [
        (POD, "refusing", 400, "it has not started"),
        (POD, "none", 400, "container none is not valid for pod p"),
        (POD, "", 400, "a container name must be specified for pod p, choose one of: [main refusing]"),
        ("/api/v1/namespaces/default/pods/nope", "main", 404, 'pods "nope" not found'),
    ],
)
async def test_a_log_that_cannot_be_had_says_why(
    http: aiohttp.ClientSession, path: str, container: str, code: int, words: str
) -> None:
    async with http.get(f"{path}/log", params={"container": container}) as answer:
        assert (answer.status, (await answer.json())["message"]) == (code, words)


async def test_a_pod_without_a_node_has_an_empty_log(http: aiohttp.ClientSession) -> None:
    async with http.get("/api/v1/namespaces/default/pods/unbound/log", params={"container": "main"}) as answer:
        assert (answer.status, await answer.text()) == (200, "")


async def test_exec_is_a_socket_to_the_kubelet(http: aiohttp.ClientSession, kubelet: FakeKubelet) -> None:
    where = f"{POD}/exec?container=main&command=ls&command=-l"
    async with http.ws_connect(where, protocols=("v5.channel.k8s.io",)) as socket:
        await socket.send_bytes(b"\x00abc")
        assert (await socket.receive()).data == b"cba\x00"
    assert kubelet.asked == ["/exec/default/p/main?command=ls&command=-l"]


async def test_a_kubelet_that_refuses_exec_is_quoted(http: aiohttp.ClientSession) -> None:
    async with http.get(f"{POD}/exec", params={"container": "refusing", "command": "ls"}) as answer:
        assert (answer.status, (await answer.json())["message"]) == (501, "no exec here")
