"""The server on its port: who may ask, what it says when it cannot start, and what it refuses to read."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import logging
import socket
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest
import yaml
from aiohttp import web

from edl.errors import ConfigError
from edl.kube.client.session import ApiSession
from edl.sandbox.apiserver.http.request import Request
from edl.sandbox.apiserver.server import MAX_BODY_BYTES, ApiServer


async def test_a_kubeconfig_is_enough_for_a_client(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "kubeconfig"
    async with ApiServer() as server:
        server.write_kubeconfig(path)
        assert path.stat().st_mode & 0o077 == 0
        async with await ApiSession.open(str(path)) as session:
            assert json.loads(await session.get("/version"))["gitVersion"].startswith("v1.36")
            names = [one["metadata"]["name"] for one in json.loads(await session.get("/api/v1/namespaces"))["items"]]
    assert names == ["default", "kube-node-lease", "kube-public", "kube-system", "paddlecloud"]


def test_a_kubeconfig_that_others_could_read_is_theirs_no_more(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.touch()
    path.chmod(0o644)
    ApiServer().write_kubeconfig(path)
    assert path.stat().st_mode & 0o077 == 0


async def test_nobody_without_a_token_is_served() -> None:
    async with ApiServer() as server, aiohttp.ClientSession(server.url) as http:
        for path, headers in (
            ("/api/v1/pods", {}),
            ("/api/v1/pods", {"Authorization": "Bearer wrong"}),
            ("/wrong/api/v1/pods", {}),
        ):
            async with http.get(path, headers=headers) as answer:
                assert (answer.status, (await answer.json())["reason"]) == (401, "Unauthorized")
        async with http.get("/healthz") as answer:
            assert (answer.status, await answer.text()) == (200, "ok")
        for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
            async with http.get("/healthz", headers=headers) as answer:
                assert answer.status == 401


async def test_a_service_account_is_recognised_by_its_token() -> None:
    path = "/api/v1/namespaces/default/serviceaccounts/default/token"
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    async with ApiServer() as server, aiohttp.ClientSession() as http:
        async with http.post(server.url_for() + path, json={}) as answer:
            token = (await answer.json())["status"]["token"]
        where = f"{server.url_for(token)}/apis/authentication.k8s.io/v1/selfsubjectreviews"
        async with http.post(where, json=review) as answer:
            user = (await answer.json())["status"]["userInfo"]
    assert user["username"] == "system:serviceaccount:default:default"
    assert "system:serviceaccounts:default" in user["groups"]


async def test_an_occupied_port_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port}: Address already in use; choose another --port"):
            await ApiServer(port=port).start()


def test_an_unwritable_kubeconfig_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        ConfigError,
        match=r"file/kubeconfig: the kubeconfig cannot be written: File exists; choose another --kubeconfig",
    ):
        ApiServer().write_kubeconfig(tmp_path / "file" / "kubeconfig")


async def test_a_huge_body_is_refused() -> None:
    async with ApiServer() as server, aiohttp.ClientSession() as http:
        where = f"{server.url_for()}/api/v1/namespaces/default/configmaps"
        async with http.post(where, data=io.BytesIO(b" " * (MAX_BODY_BYTES + 1))) as answer:
            assert (answer.status, (await answer.json())["reason"]) == (413, "RequestEntityTooLarge")


async def test_a_compressed_body_is_not_expanded() -> None:
    body = b'{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}' + b" " * 2_000_000
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    async with ApiServer() as server, aiohttp.ClientSession() as http:
        where = f"{server.url_for()}/api/v1/namespaces/default/configmaps"
        async with http.post(where, data=gzip.compress(body), headers=headers) as answer:
            assert (answer.status, (await answer.json())["reason"]) == (400, "BadRequest")


async def test_stopping_ends_open_watches() -> None:
    async with aiohttp.ClientSession() as http:
        async with ApiServer() as server:
            answer = await http.get(f"{server.url_for()}/api/v1/pods", params={"watch": "1"})
            assert answer.status == 200
        async with asyncio.timeout(60):
            with suppress(aiohttp.ClientError):
                assert await answer.content.read() == b""
        answer.close()


async def test_a_client_that_left_before_its_reply_is_no_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    read, served = ApiServer._read, asyncio.Event()

    async def read_and_lose(server: ApiServer, raw: web.BaseRequest) -> Request:
        request = await read(server, raw)
        if raw.transport is not None:
            raw.transport.abort()
        served.set()
        return request

    monkeypatch.setattr(ApiServer, "_read", read_and_lose)
    async with ApiServer() as server, aiohttp.ClientSession() as http:
        for query in ({"watch": "1"}, {}):
            served.clear()
            with pytest.raises(aiohttp.ClientError):
                await http.get(f"{server.url_for()}/api/v1/pods", params=query)
            await served.wait()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_forgotten_changes_are_expired() -> None:
    async with ApiServer() as server, aiohttp.ClientSession() as http:
        where = f"{server.url_for()}/api/v1/configmaps"
        async with http.get(where, params={"limit": "1"}) as answer:
            first = (await answer.json())["metadata"]
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
        for name in ("a", "b"):
            body["metadata"] = {"name": name}
            await (await http.post(f"{server.url_for()}/api/v1/namespaces/default/configmaps", json=body)).read()
        server.cluster.store.forget_changes()
        async with http.get(where, params={"limit": "1", "continue": first["continue"]}) as answer:
            assert (answer.status, (await answer.json())["reason"]) == (410, "Expired")
        query = {"watch": "1", "resourceVersion": first["resourceVersion"]}
        async with http.get(where, params=query) as answer:
            event = json.loads(await answer.content.readline())
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


def test_the_kubeconfig_holds_one_cluster() -> None:
    held = yaml.safe_load(ApiServer().kubeconfig("abc"))
    assert held["clusters"][0]["cluster"]["server"].endswith("/abc")
    assert held["users"][0]["user"]["token"] == "abc"
