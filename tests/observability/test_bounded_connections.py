"""Strangers who open connections without number end their own, and everybody else is served."""

from __future__ import annotations

import asyncio
import io
import logging
import socket
import tracemalloc
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from edl.observability import bounded_connections
from edl.observability.logs import RepeatedLines, configure
from edl.observability.status_server import StatusServer, listen_on
from tests.worlds.fake_api import eventually

MEBIBYTE = 1 << 20


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


async def reader(port: int, path: str) -> socket.socket:
    """A connection that asks for a page and reads none of it."""
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one.setblocking(False)
    await asyncio.get_running_loop().sock_connect(one, ("127.0.0.1", port))
    await asyncio.get_running_loop().sock_sendall(one, f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    return one


async def test_whoever_does_not_read_a_page_makes_nobody_keep_it() -> None:
    """What one connection keeps in memory, besides what the kernel holds for it, is a piece of the page."""
    made = 0

    async def metrics() -> bytes:
        nonlocal made
        made += 1
        return bytes(32 * MEBIBYTE)

    server = StatusServer("127.0.0.1:0", is_alive=lambda: True, is_ready=lambda: True, metrics=metrics)
    _, port = await server.start()
    tracemalloc.start()
    held = [await reader(port, "/metrics") for _ in range(20)]
    assert await is_served(port)
    await asyncio.sleep(0.3)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    for one in held:
        one.close()
    await server.stop()
    assert kept < 2 * 32 * MEBIBYTE
    assert made == 1


async def test_an_answer_that_nobody_reads_ends_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_connections, "UNREAD_S", 0.2)
    monkeypatch.setattr(bounded_connections, "LOOK_EVERY_S", 0.02)

    async def large(_: web.Request) -> web.Response:
        return web.Response(body=bytes(32 * MEBIBYTE))

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(20):
            await response.write(b"x" * 100)
            await asyncio.sleep(0.03)
        return response

    app = web.Application()
    app.router.add_get("/large", large)
    app.router.add_get("/stream", stream)
    runner, (_, port) = await listen_on("127.0.0.1:0", app)
    assert runner.server is not None
    held = await reader(port, "/large")
    await eventually(lambda: runner.server and runner.server.connections)
    async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{port}/stream") as answer:
        assert len(await answer.read()) == 2000
        await eventually(lambda: runner.server and len(runner.server.connections) == 1)
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
