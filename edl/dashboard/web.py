"""The page over HTTP, below `/page/`: its files for everyone, its data for those whom the gate lets pass.

| route | what it gives |
|---|---|
| `GET /page/`, `/page/static/...` | the page itself; nothing of the cluster |
| `GET /page/login` | what the page has to ask for |
| `GET /page/events` | the state, then every change, as server-sent events |
| `GET /page/node?name=` | the pods of a node |
| `GET /page/explain?namespace=&name=` | the report of `edl explain` |
| `POST /page/what-if` | `{"text": YAML}` -> what it would change |
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from aiohttp import web

from edl.clock import Clock
from edl.dashboard.access import DeniedError, Gate
from edl.dashboard.calculator import Calculator
from edl.dashboard.feed import Client, Feed, encoded
from edl.dashboard.live import Live
from edl.dashboard.pasted import MAX_BYTES
from edl.dashboard.view import pods_of_node
from edl.errors import ConfigError, EdlError, TemporaryError
from edl.model.cluster import ClusterSnapshot
from edl.observability.bounded_connections import kept
from edl.observability.own_hosts import foreign

PREFIX = "/page/"
STATIC = Path(__file__).parent / "static"
HEARTBEAT_S = 15.0
WRITE_S = 30.0
"""A page that reads nothing for this time is disconnected."""

CHECK_AGAIN_S = 60.0
"""How often the token of a stream is checked; the stream ends if the token is not accepted any more."""

_SECURITY = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
        " require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_HEARTBEAT = b": alive\n\n"
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_CHUNK = 16 * 1024
_DOUBLED = 2 * MAX_BYTES + 1024  # JSON writes a line break of the text as two characters

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Page:
    """The routes of the page.

    Args:
        live: what it shows.
        feed: the open pages.
        calculator: computes what a page asks for.
        gate: lets requests pass.
        clock: for checking tokens again.
    """

    def __init__(self, live: Live, feed: Feed, calculator: Calculator, gate: Gate, clock: Clock) -> None:
        self._live, self._feed, self._calculator = live, feed, calculator
        self._gate, self._clock = gate, clock

    def application(self) -> web.Application:
        """Make the application for `add_subapp(PREFIX, ...)`."""
        app = web.Application(middlewares=[_errors_as_json, self._guard])
        app.on_response_prepare.append(_add_headers)
        app.on_shutdown.append(self._end_streams)
        app.router.add_get("/", _file("index.html"))
        for path in sorted(STATIC.iterdir()):
            app.router.add_get(f"/static/{path.name}", _file(path.name))
        app.router.add_get("/login", self._login)
        app.router.add_get("/events", self._events)
        app.router.add_get("/node", self._node)
        app.router.add_get("/explain", self._explain)
        app.router.add_post("/what-if", self._what_if)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Reject requests from other sites, and requests for data without permission; files are open to all."""
        path = request.path.removeprefix(PREFIX)
        if path in {"", "login"} or path.startswith("static/"):
            return await handler(request)
        _refuse_other_sites(request)
        await self._gate.check(request.headers)
        return await handler(request)

    async def _end_streams(self, _: web.Application) -> None:
        self._feed.close()

    async def _login(self, _: web.Request) -> web.Response:
        return web.json_response({"login": self._gate.login})

    async def _events(self, request: web.Request) -> web.StreamResponse:
        with self._feed.opened() as client, kept(request.transport):
            await self._live.refresh()
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            with suppress(ConnectionError, TimeoutError):  # the page was closed, or takes nothing any more
                await response.prepare(request)
                await self._stream(request, response, client)
            return response

    async def _stream(self, request: web.Request, response: web.StreamResponse, client: Client) -> None:
        """Send the state, then every message, until the server stops or the token is refused."""
        message: bytes | None = None
        checked_s = self._clock.monotonic_s()
        while not client.is_closed:
            if message is None:
                client.clear()
                message = encoded("state", self._live.state())
            async with asyncio.timeout(WRITE_S):
                await response.write(message or _HEARTBEAT)
            message = await client.next(HEARTBEAT_S)
            if self._clock.monotonic_s() - checked_s >= CHECK_AGAIN_S:
                if not await self._is_admitted(request):
                    return
                checked_s = self._clock.monotonic_s()

    async def _is_admitted(self, request: web.Request) -> bool:
        """False if the token is rejected now; True if that cannot be checked."""
        try:
            await self._gate.check(request.headers)
        except DeniedError:
            return False
        except TemporaryError:
            return True
        return True

    async def _node(self, request: web.Request) -> web.Response:
        return web.json_response({"pods": pods_of_node(self._snapshot(), request.query.get("name", ""))})

    async def _explain(self, request: web.Request) -> web.Response:
        namespace, name = request.query.get("namespace", ""), request.query.get("name", "")
        return web.json_response(await self._calculator.report(self._snapshot(), namespace, name))

    async def _what_if(self, request: web.Request) -> web.Response:
        if request.content_type != "application/json":
            raise ConfigError(f"the content type is {request.content_type}; send application/json")
        try:
            body = json.loads(await _bounded_body(request))
        except (ValueError, RecursionError) as error:
            raise ConfigError(f'the body is not JSON: {error}; send {{"text": YAML}}') from error
        text = body.get("text") if isinstance(body, dict) else None
        if not isinstance(text, str):
            raise ConfigError('the body has no text; send {"text": YAML}')
        return web.json_response(await self._calculator.what_if(self._snapshot(), text))

    def _snapshot(self) -> ClusterSnapshot:
        snapshot = self._live.snapshot
        if snapshot is None:
            raise TemporaryError("the cluster is still being listed; try again in a few seconds", retry_after_s=3.0)
        return snapshot


def _refuse_other_sites(request: web.Request) -> None:
    """Refuse a request that a page of another site has sent.

    Raises:
        DeniedError: the browser says that another site sends it, or that it addressed another site.
    """
    if why := foreign(request):
        raise DeniedError(why, 403)
    if request.headers.get("Sec-Fetch-Site", "same-origin") not in {"same-origin", "none"}:
        raise DeniedError("another site sent this request; open the page itself", 403)


async def _bounded_body(request: web.Request) -> bytes:
    """Read the body up to a limit; aiohttp's own limit would be that of the surrounding application.

    Raises:
        HTTPRequestEntityTooLarge: it is longer than a text may be.
    """
    body = bytearray()
    async for chunk in request.content.iter_chunked(_CHUNK):
        body += chunk
        if len(body) > _DOUBLED:
            raise web.HTTPRequestEntityTooLarge(max_size=_DOUBLED, actual_size=len(body))
    return bytes(body)


def _file(name: str) -> Handler:
    path = STATIC / name
    body, kind = path.read_bytes(), _TYPES[path.suffix]

    async def serve(_: web.Request) -> web.Response:
        headers = {"Content-Type": f"{kind}; charset=utf-8", "Cache-Control": "no-cache"}
        return web.Response(body=body, headers=headers)

    return serve


async def _add_headers(_: web.Request, response: web.StreamResponse) -> None:
    for name, value in _SECURITY.items():
        response.headers[name] = value
    response.headers.setdefault("Cache-Control", "no-store")


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer every error of the page as `{"error": {"code", "message"}}`."""
    try:
        return await handler(request)
    except web.HTTPRequestEntityTooLarge:
        return _error(413, f"the text is longer than {MAX_BYTES // 1024} KiB; paste only the job")
    except web.HTTPException as error:
        return _error(error.status, error.reason)
    except TemporaryError as error:
        retry = {"Retry-After": str(max(1, round(error.retry_after_s)))} if error.retry_after_s else {}
        return _error(429 if retry else 503, str(error), retry)
    except EdlError as error:
        return _error(_status_of(error), str(error))


def _status_of(error: EdlError) -> int:
    if isinstance(error, DeniedError):
        return error.status
    return 400 if isinstance(error, ConfigError) else 500


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> web.Response:
    body: dict[str, Any] = {"error": {"code": status, "message": message}}
    more = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    return web.json_response(body, status=status, headers={**(headers or {}), **more})
