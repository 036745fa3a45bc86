"""The HTTP pages of a controller: /metrics for Prometheus, /healthz and /readyz for the probes of the kubelet."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Never

from aiohttp import web

from edl.errors import ConfigError
from edl.observability.bounded_connections import IDLE_S, end_unread, entrance
from edl.observability.own_hosts import foreign

SHUTDOWN_S = 2.0
"""How long a stop of the server waits for a response that is being sent."""

REST = 10.0
"""A page is served again for so many times as long as making it took, so that it costs a tenth of a core."""

KEPT_PER_S = 1024 * 1024
"""A page is made again at the earliest after one second for so many bytes, because readers keep it in memory."""

PIECE = 64 * 1024
"""Bytes of a long page that are written at once."""

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class StatusServer:
    """Serves the pages on one address.

    Args:
        listen: HOST:PORT; an IPv6 host in brackets; port 0 takes a free port.
        is_alive: True if the controller still takes turns, or its writes end (/healthz).
        is_ready: True if the caches are complete (/readyz).
        metrics: makes the page /metrics.
        more: (prefix, application) of what else is served here; each does its own authorisation.
    """

    def __init__(
        self,
        listen: str,
        *,
        is_alive: Callable[[], bool],
        is_ready: Callable[[], bool],
        metrics: Callable[[], Awaitable[bytes]],
        more: Mapping[str, web.Application] | None = None,
    ) -> None:
        self._listen, self._more = listen, more or {}
        self._is_alive, self._is_ready, self._metrics = is_alive, is_ready, SharedPage(metrics)
        self._runner: web.AppRunner | None = None

    async def start(self) -> tuple[str, int]:
        """Start to serve; returns (host, port).

        Raises:
            ConfigError: the address cannot be used.
        """
        app = web.Application(middlewares=[refuse_foreign])
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._page)
        for prefix, other in self._more.items():
            app.add_subapp(prefix, other)
        self._runner, address = await listen_on(self._listen, app)
        return address

    async def stop(self) -> None:
        """Stop serving."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _healthz(self, _: web.Request) -> web.Response:
        problem = "the controller hangs: for too long it has begun no turn and ended no write"
        return _response(problem, is_ok=self._is_alive())

    async def _readyz(self, _: web.Request) -> web.Response:
        return _response("the caches are not complete yet", is_ok=self._is_ready())

    async def _page(self, request: web.Request) -> web.StreamResponse:
        """Serve the metrics piece by piece: a piece is written once the one before it is read."""
        page = memoryview(await self._metrics.get())
        response = web.StreamResponse(headers={"Content-Type": _METRICS_TYPE})
        response.content_length = len(page)
        await response.prepare(request)
        for start in range(0, len(page), PIECE):
            await response.write(page[start : start + PIECE])
        return response


class SharedPage:
    """A page that takes long to make: all who ask at about the same time get the same bytes.

    Args:
        make: makes the page.
        now_s: a clock that never runs backwards.
    """

    def __init__(self, make: Callable[[], Awaitable[bytes]], now_s: Callable[[], float] = time.monotonic) -> None:
        self._make, self._now_s = make, now_s
        self._making = asyncio.Lock()
        self._page, self._until_s = b"", float("-inf")

    async def get(self) -> bytes:
        """Return the page, computed now or a short while ago; see `REST` and `KEPT_PER_S`."""
        async with self._making:
            begun_s = self._now_s()
            if begun_s >= self._until_s:
                self._page = await self._make()
                now_s = self._now_s()
                self._until_s = now_s + max(REST * (now_s - begun_s), len(self._page) / KEPT_PER_S)
            return self._page


@web.middleware
async def refuse_foreign(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Answer 403 to a request that a web site sends in the name of its visitor."""
    if why := foreign(request):
        return web.Response(status=403, text=f"{why}\n")
    return await handler(request)


async def listen_on(listen: str, app: web.Application) -> tuple[web.AppRunner, tuple[str, int]]:
    """Serve an application; returns what stops it, and (host, port).

    Raises:
        ConfigError: the address cannot be used.
    """
    runner = web.AppRunner(
        app,
        access_log=None,
        handle_signals=False,
        handler_cancellation=True,  # a client that leaves frees its place at once
        shutdown_timeout=SHUTDOWN_S,
        keepalive_timeout=IDLE_S,
        auto_decompress=False,  # it would happen before a token is checked
    )
    await runner.setup()
    host, port = split_address(listen)
    try:
        await _Site(runner, host, port).start()
    except OSError as error:
        await runner.cleanup()
        raise ConfigError(
            f"--listen {listen}: cannot listen on this address: {error.strerror or error}; choose another address"
        ) from error
    address = runner.addresses[0]
    return runner, (str(address[0]), int(address[1]))


class _Site(web.TCPSite):
    """A site whose connections are bounded."""

    _watch: asyncio.Task[Never] | None = None

    async def start(self) -> None:
        """Begin to listen.

        Raises:
            OSError: the address cannot be used.
        """
        await web.BaseSite.start(self)
        server = self._runner.server
        assert server is not None  # noqa: S101 - the runner is set up
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(entrance(server), self._host, self._port, backlog=self._backlog)
        self._watch = loop.create_task(end_unread(server), name="end unread connections")

    async def stop(self) -> None:
        """Stop listening."""
        if self._watch is not None:
            self._watch.cancel()
        await super().stop()


def split_address(listen: str) -> tuple[str, int]:
    """Host and port of HOST:PORT; an empty host means all addresses.

    Raises:
        ValueError: the text has no port between 0 and 65535.
    """
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{listen!r} is not HOST:PORT")
    return host.removeprefix("[").removesuffix("]") or "0.0.0.0", int(port)  # noqa: S104 - documented


def _response(problem: str, *, is_ok: bool) -> web.Response:
    return web.Response(text="ok\n") if is_ok else web.Response(status=503, text=f"{problem}\n")
