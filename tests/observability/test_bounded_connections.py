"""Strangers who open connections without number end their own, and everybody else is served."""

from __future__ import annotations

import asyncio
import io
import logging
import socket
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from edl.observability import bounded_connections
from edl.observability.logs import RepeatedLines, configure
from edl.observability.status_server import listen_on
from tests.worlds.fake_api import eventually


@pytest.fixture
async def port(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    monkeypatch.setattr("edl.observability.status_server.IDLE_S", 3600.0)  # no connection ends for its silence

    async def served(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_get("/healthz", served)
    runner, (_, port) = await listen_on("127.0.0.1:0", app)
    yield port
    await runner.cleanup()


async def half_open(port: int, source: str, count: int) -> list[socket.socket]:
    """Connections that send the beginning of a request and nothing more."""
    made = []
    for _ in range(count):
        one = socket.socket()
        one.setblocking(False)
        one.bind((source, 0))
        await asyncio.get_running_loop().sock_connect(one, ("127.0.0.1", port))
        await asyncio.get_running_loop().sock_sendall(one, b"GET /healthz HTTP/1.1\r\n")
        made.append(one)
    return made


def is_open(one: socket.socket) -> bool:
    try:
        return one.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


async def until_open(held: list[socket.socket], at_most: int) -> None:
    """Wait until the others are ended."""
    await eventually(lambda: sum(map(is_open, held)) <= at_most)


async def is_served(port: int) -> bool:
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as http,
        http.get(f"http://127.0.0.1:{port}/healthz") as answer,
    ):
        return answer.status == 200


async def test_a_probe_is_answered_while_one_stranger_holds_all_it_can(port: int) -> None:
    held = await half_open(port, "127.0.0.2", 300)
    assert await is_served(port)
    await until_open(held, bounded_connections.MAX_OF_ADDRESS)
    for one in held:
        one.close()


async def test_a_probe_is_answered_while_many_strangers_hold_all_they_can(port: int) -> None:
    held = [one for number in range(2, 22) for one in await half_open(port, f"127.0.0.{number}", 20)]
    assert await is_served(port)
    await until_open(held, bounded_connections.MAX_CONNECTIONS)
    assert await is_served(port)
    for one in held:
        one.close()


async def test_a_connection_without_a_whole_request_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edl.observability.status_server.IDLE_S", 0.1)
    runner, (_, port) = await listen_on("127.0.0.1:0", web.Application())
    (held,) = await half_open(port, "127.0.0.1", 1)
    async with asyncio.timeout(60):
        assert await asyncio.get_running_loop().sock_recv(held, 1) == b""
    held.close()
    await runner.cleanup()


def test_lines_of_a_library_that_repeat_are_left_out_and_counted() -> None:
    stream, now_s = io.StringIO(), [0.0]
    configure("info", "logfmt", stream)
    root = logging.getLogger()
    root.handlers[0].filters = [RepeatedLines(lambda: now_s[0])]
    for number in range(1000):
        logging.getLogger("asyncio").error("socket.accept() out of system resource %s", number)
        logging.getLogger("edl.test").error("a line of edl")
    lines = stream.getvalue().splitlines()
    assert [sum(text in line for line in lines) for text in ("out of system", "a line of edl")] == [10, 1000]
    now_s[0] = 61.0
    logging.getLogger("asyncio").error("socket.accept() out of system resource %s", 1)
    assert "left_out=990" in stream.getvalue().splitlines()[-1]
