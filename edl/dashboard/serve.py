"""Assembles the page: for `edl dashboard` and the sandbox on a live cluster, and for a controller's server."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from edl.clock import Clock, SystemClock
from edl.dashboard.access import Gate, ReviewGate, TokenGate
from edl.dashboard.calculator import Calculator
from edl.dashboard.feed import Feed
from edl.dashboard.live import PACE_S, Live
from edl.dashboard.web import PREFIX, Page
from edl.errors import NotSyncedError, TemporaryError
from edl.kube.client.session import ApiSession
from edl.kube.mirror.cache import ClusterCache
from edl.model.limits import Limits
from edl.observability.status_server import listen_on

DEFAULT_LISTEN = "127.0.0.1:8400"
PATIENCE_S = 5.0
"""How long an error of the API server must last before the first snapshot fails."""

_INTERVAL_S = 5.0
_ALL_ADDRESSES = {"0.0.0.0", "::"}  # noqa: S104 - the two names of all addresses


@dataclass(frozen=True, slots=True)
class PageSettings:
    """The settings of the process that serves the page.

    Attributes:
        listen: HOST:PORT.
        policy: its name; empty for the default.
        limits: what the operator allows a plan to do now.
    """

    listen: str = DEFAULT_LISTEN
    policy: str = ""
    limits: Callable[[], Limits] = Limits


@dataclass(frozen=True, slots=True)
class PageParts:
    """The page without an HTTP server: the caller feeds `live` and runs `live.run`."""

    live: Live
    application: web.Application
    calculator: Calculator

    def close(self) -> None:
        """Start no further calculation."""
        self.calculator.close()


@dataclass(frozen=True, slots=True)
class Address:
    """The address on which the page is served.

    Attributes:
        url: what a browser opens; it contains the token after a `#`, which no server sees.
        token: what the page asks for.
    """

    url: str
    token: str


def page_of_controller(session: ApiSession, clock: Clock, settings: PageSettings) -> PageParts:
    """Assemble the page of a controller; it asks for a Kubernetes token whose owner may list what the page shows."""
    return _parts(settings, clock, ReviewGate(session, clock))


async def serve_page(session: ApiSession, settings: PageSettings, started: Callable[[Address], None]) -> None:
    """Watch a cluster and serve its page until cancelled.

    Args:
        session: the cluster; only read.
        settings: the address, and how plans are made.
        started: is called once the page can be opened.

    Raises:
        ConfigError: the address cannot be used.
        TemporaryError: the cluster cannot be read at the start; later errors are shown on the page.
    """
    clock, token = SystemClock(), secrets.token_urlsafe(24)
    parts = _parts(settings, clock, TokenGate(token))
    root = web.Application()
    root.router.add_get("/", _to_page)
    root.add_subapp(PREFIX, parts.application)
    runner, (bound, port) = await listen_on(settings.listen, root)
    cache = ClusterCache(session, clock)
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(cache.run())
            await _first_snapshot(cache, parts.live, clock)
            tasks.create_task(parts.live.run())
            started(Address(_url(bound, port, token), token))
            await _watch(cache, parts.live, clock)
    except ExceptionGroup as group:
        # Before Python 3.11.4, what is raised in `except*` comes out in a group of its own.
        temporary, others = group.split(TemporaryError)
        if temporary is None or others is not None:
            raise
        raise temporary.exceptions[0] from group
    finally:
        parts.close()
        await runner.cleanup()


def _parts(settings: PageSettings, clock: Clock, gate: Gate) -> PageParts:
    feed, calculator = Feed(), Calculator(settings.policy, settings.limits)
    live = Live(clock, feed, calculator.plan)
    return PageParts(live, Page(live, feed, calculator, gate, clock).application(), calculator)


async def _first_snapshot(cache: ClusterCache, live: Live, clock: Clock) -> None:
    """Wait until the cluster is listed.

    Raises:
        TemporaryError: it cannot be read.
    """
    started_s = clock.monotonic_s()
    while not _observe(cache, live, clock):
        if cache.problems() and clock.monotonic_s() - started_s >= PATIENCE_S:
            raise TemporaryError(
                f"the cluster cannot be read: {cache.problems()[0]}; check the API server and your right to list and"
                " watch nodes, pods, trainingjobs, daemonsets and priorityclasses in all namespaces"
            )
        await clock.sleep(0.05)


async def _watch(cache: ClusterCache, live: Live, clock: Clock) -> None:
    while True:
        await cache.wait_for_change(_INTERVAL_S, debounce_s=0.2)
        _observe(cache, live, clock)
        await clock.sleep(PACE_S)


def _observe(cache: ClusterCache, live: Live, clock: Clock) -> bool:
    """Take a snapshot; if the cache is not complete now, the page says so."""
    try:
        snapshot = cache.snapshot(clock.now_s())
    except NotSyncedError as error:
        live.note_problem(str(error))
        return False
    live.observed(snapshot, leader=False, problem=cache.queues_problem())
    return True


async def _to_page(_: web.Request) -> web.Response:
    return web.Response(status=302, headers={"Location": PREFIX})


def _url(host: str, port: int, token: str) -> str:
    """The URL for the browser; with the name of this machine if the page listens on all of its addresses."""
    name = socket.gethostname() if host in _ALL_ADDRESSES else f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}{PREFIX}#token={token}"
