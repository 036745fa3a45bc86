"""Which requests a web site may have sent in the name of its visitor."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from edl.observability.own_hosts import is_loopback
from edl.observability.status_server import listen_on, refuse_foreign


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async def served(_: web.Request) -> web.Response:
        return web.Response(text="served")

    app = web.Application(middlewares=[refuse_foreign])
    app.router.add_get("/", served)
    runner, (_, port) = await listen_on("127.0.0.1:0", app)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        yield session
    await runner.cleanup()


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8400", "localhost", "LOCALHOST:1", "127.8.9.1", "[::1]:8400", "10.0.0.1"]
)
async def test_who_addressed_this_machine_is_served(http: aiohttp.ClientSession, host: str) -> None:
    async with http.get("/", headers={"Host": host}) as response:
        assert response.status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example:8400", "localhost.evil.example", "evil.example:80", "[::1.evil"]
)
async def test_a_site_that_calls_itself_127_0_0_1_is_refused(http: aiohttp.ClientSession, host: str) -> None:
    async with http.get("/", headers={"Host": host}) as response:
        assert response.status == 403
        assert "open this address at 127.0.0.1" in await response.text()


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1:1"])
async def test_what_another_site_sends_is_refused(http: aiohttp.ClientSession, origin: str) -> None:
    async with http.get("/", headers={"Origin": origin}) as response:
        assert (response.status, await response.text()) == (
            403,
            "another site sent this request; open this address itself\n",
        )


def test_loopback_is_not_every_address() -> None:
    answers = {host: is_loopback(host) for host in ("10.0.0.1", "::", "example.org", "::1", "::ffff:127.0.0.1")}
    assert answers == {
        "10.0.0.1": False,
        "::": False,
        "example.org": False,
        "::1": True,
        "::ffff:127.0.0.1": True,
    }
