"""The HTTP pages of a controller."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from edl.errors import ConfigError
from edl.observability.status_server import SharedPage, StatusServer, listen_on, split_address


async def page() -> bytes:
    return b"x 1\n"


@asynccontextmanager
async def serving(*, alive: bool = True, ready: bool = True) -> AsyncIterator[str]:
    server = StatusServer("127.0.0.1:0", is_alive=lambda: alive, is_ready=lambda: ready, metrics=page)
    _, port = await server.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await server.stop()


async def fetch(url: str) -> tuple[int, str, str]:
    async with aiohttp.ClientSession() as client, client.get(url) as answer:
        return answer.status, await answer.text(), answer.headers["Content-Type"]


@pytest.mark.parametrize(
    ("path", "alive", "ready", "code"),
    [
        ("/healthz", True, False, 200),
        ("/healthz", False, True, 503),
        ("/readyz", False, True, 200),
        ("/readyz", True, False, 503),
        ("/other", True, True, 404),
    ],
)
async def test_healthz_checks_the_loop_and_readyz_the_caches(path: str, alive: bool, ready: bool, code: int) -> None:
    async with serving(alive=alive, ready=ready) as url:
        assert (await fetch(url + path))[0] == code


async def test_healthz_says_what_the_controller_does_not_do_any_more() -> None:
    async with serving(alive=False) as url:
        assert (await fetch(f"{url}/healthz"))[1] == (
            "the controller hangs: for too long it has begun no turn and ended no write\n"
        )


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_a_web_site_reads_nothing_through_the_browser_of_its_visitor(path: str) -> None:
    async with serving() as url, aiohttp.ClientSession() as http:
        for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
            async with http.get(url + path, headers=headers) as answer:
                assert answer.status == 403


async def test_metrics_have_the_content_type_that_prometheus_expects() -> None:
    async with serving() as url:
        assert await fetch(url + "/metrics") == (200, "x 1\n", "text/plain; version=0.0.4; charset=utf-8")


async def test_metrics_that_are_asked_for_all_the_time_are_made_from_time_to_time() -> None:
    made, now_s = 0, 0.0

    async def slow() -> bytes:
        nonlocal made, now_s
        made, now_s = made + 1, now_s + 0.25
        await asyncio.sleep(0)
        return b"x %d\n" % made

    shared = SharedPage(slow, lambda: now_s)
    assert await asyncio.gather(*(shared.get() for _ in range(100))) == [b"x 1\n"] * 100
    now_s = 2.5
    assert await shared.get() == b"x 1\n"
    now_s = 3.0
    assert (await shared.get(), made) == (b"x 2\n", 2)


async def test_a_compressed_body_is_not_expanded() -> None:
    async def length(request: web.Request) -> web.Response:
        return web.Response(text=str(len(await request.read())))

    app, bomb = web.Application(), gzip.compress(b" " * 500_000)
    app.router.add_post("/", length)
    runner, (host, port) = await listen_on("127.0.0.1:0", app)
    try:
        async with (
            aiohttp.ClientSession() as client,
            client.post(f"http://{host}:{port}/", data=bomb, headers={"Content-Encoding": "gzip"}) as answer,
        ):
            assert await answer.text() == str(len(bomb))
    finally:
        await runner.cleanup()


async def test_an_address_in_use_is_refused_with_a_remedy() -> None:
    async with serving() as url:
        taken = url.removeprefix("http://")
        other = StatusServer(taken, is_alive=lambda: True, is_ready=lambda: True, metrics=page)
        with pytest.raises(ConfigError, match=f"--listen {taken}: .*choose another"):
            await other.start()


@pytest.mark.parametrize(
    ("listen", "parts"),
    [("127.0.0.1:8080", ("127.0.0.1", 8080)), ("[::1]:0", ("::1", 0)), ("h:1", ("h", 1))],
)
def test_addresses(listen: str, parts: tuple[str, int]) -> None:
    assert split_address(listen) == parts


@pytest.mark.parametrize("listen", ["", "8080", "h:", "h:x", "h:70000", "h:-1"])
def test_invalid_addresses(listen: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        split_address(listen)
