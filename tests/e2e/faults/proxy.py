"""A proxy between one client and the real API server: it records requests and injects the faults of `faults`.

What is behind it is real, so what comes of a fault is what would come of it in a cluster; only the harm is ours. It
runs in a thread with a loop of its own, because the tests that use it wait and look as a person does. It listens
without TLS on loopback and speaks TLS to the server, with the client's own token.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp
import yaml
from aiohttp import AddrInfoType, web
from yarl import URL

from tests.e2e.control_plane.kubeconfig import Access, read_kubeconfig
from tests.e2e.faults.faults import Asked, Edit, Exchange, Fault, Match, Tell, silent

START_S = 60.0
CLOSED_S = 60.0
LINE_BYTES = 16 * 1024 * 1024
_GIVEN = ("Authorization", "Accept", "Content-Type")
_PASSED_ON = ("Content-Type", "Retry-After")


def _opened(sockets: list[socket.socket], address: AddrInfoType) -> socket.socket:
    """A new socket, which is added to a list."""
    family, kind, protocol, *_ = address
    sockets.append(socket.socket(family, kind, protocol))
    return sockets[-1]


@dataclass(slots=True, eq=False)
class _Rule:
    """One fault that is in force, and whom it has hit."""

    match: Match
    fault: Fault
    times: int | None
    hit: list[Asked] = field(default_factory=list)

    def takes(self, asked: Asked) -> bool:
        return (self.times is None or len(self.hit) < self.times) and self.match(asked)


class FaultProxy:
    """A proxy for one client; use as a context manager.

    Attributes:
        asked: every request so far, in the order in which they came.
    """

    def __init__(self, kubeconfig: Path) -> None:
        self.asked: list[Asked] = []
        self.kubeconfig = kubeconfig.with_name(f"{kubeconfig.name}-through-{id(self):x}")
        self._source = kubeconfig
        self._server: Access = read_kubeconfig(kubeconfig)
        self._rules: tuple[_Rule, ...] = ()
        self._edits: tuple[tuple[Match, Edit], ...] = ()
        self._streams: dict[Asked, web.Request] = {}
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._end = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), name="proxy")

    # What a test says

    @contextmanager
    def fault(
        self, fault: Fault, method: str = "", path: str = "", *, match: Match | None = None, times: int | None = None
    ) -> Iterator[list[Asked]]:
        """Do harm while the block runs; the value is the list of requests that were hit.

        Args:
            fault: what happens.
            method: to requests of that method, dry runs aside; empty takes all.
            path: whose path that regular expression finds.
            match: which this is true of besides.
            times: to so many of them at most.
        """

        def hits(asked: Asked) -> bool:
            is_named = method == asked.method and not asked.is_dry_run
            fits = re.search(path, asked.path) is not None and (is_named or not method)
            return fits and (match is None or match(asked))

        rule = _Rule(hits, fault, times)
        self._rules = (*self._rules, rule)
        try:
            yield rule.hit
        finally:
            self._rules = tuple(r for r in self._rules if r is not rule)

    @contextmanager
    def edited(self, edit: Edit, path: str = "", *, match: Match | None = None) -> Iterator[None]:
        """Change what watches tell while the block runs, those that are open included."""

        def hits(asked: Asked) -> bool:
            return re.search(path, asked.path) is not None and (match is None or match(asked))

        entry = (hits, edit)
        self._edits = (*self._edits, entry)
        try:
            yield
        finally:
            self._edits = tuple(e for e in self._edits if e is not entry)

    def cut_watches(self, path: str = "") -> None:
        """Cut the watches that are open now."""

        def cut() -> None:
            for asked, request in list(self._streams.items()):
                if re.search(path, asked.path) and request.transport is not None:
                    request.transport.abort()

        self._loop.call_soon_threadsafe(cut)

    def since(self, at_s: float) -> list[Asked]:
        """What was asked from that monotonic time on."""
        return [asked for asked in self.asked if asked.at_s >= at_s]

    def writes(self, since_s: float = 0.0, method: str = "", path: str = "") -> list[Asked]:
        """What may have changed something: neither the elector's requests nor dry runs."""
        return [
            asked
            for asked in self.since(since_s)
            if asked.is_write and not asked.is_of_lease and not asked.is_dry_run
            if method in {"", asked.method} and re.search(path, asked.path)
        ]

    # Life

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._ready.wait(START_S):
            raise TimeoutError(f"the proxy did not start in {START_S:g} s")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()
        self._loop.close()

    async def _serve(self) -> None:
        app = web.Application(client_max_size=LINE_BYTES)
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True, access_log=None)  # 0 has no end
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        document = yaml.safe_load(self._source.read_text())
        for cluster in document["clusters"]:
            cluster["cluster"] = {"server": f"http://127.0.0.1:{runner.addresses[0][1]}"}
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_text(yaml.safe_dump(document))
        sockets: list[socket.socket] = []
        opened = partial(_opened, sockets)
        connector = aiohttp.TCPConnector(limit=0, ssl=self._server.context or False, socket_factory=opened)
        async with aiohttp.ClientSession(connector=connector, read_bufsize=LINE_BYTES) as self._client:
            self._ready.set()
            await self._end.wait()
            await runner.cleanup()
        async with asyncio.timeout(CLOSED_S):  # the end of TLS takes a message to the server and one back
            while any(one.fileno() >= 0 for one in sockets):  # noqa: ASYNC110 - a socket has no event for its end
                await asyncio.sleep(0.01)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        asked = Asked(time.monotonic(), request.method, request.path, request.query_string)
        self.asked.append(asked)
        body = await request.read()
        if request.method == "POST":
            asked.name = str(json.loads(body).get("metadata", {}).get("name", ""))
        rule = next((r for r in self._rules if r.takes(asked)), None)
        exchange = Exchange(asked, request, lambda: self._forward(asked, request, body))
        if rule is None:
            answer = await exchange.forward()
        else:
            rule.hit.append(asked)
            answer = await rule.fault(exchange)
        if not asked.status:  # of a watch that was opened it is known
            is_open = request.transport is not None and not request.transport.is_closing()
            asked.status = answer.status if is_open else 0
        return answer

    async def _forward(self, asked: Asked, request: web.Request, body: bytes) -> web.StreamResponse:
        """Forward the request to the server; if the server is down, close the connection to the client."""
        scheme = "https" if self._server.context else "http"
        url = f"{scheme}://{self._server.host}:{self._server.port}{self._server.base_path}{request.raw_path}"
        headers = {name: request.headers[name] for name in _GIVEN if name in request.headers}
        headers["Accept-Encoding"] = "identity"
        try:
            async with self._client.request(
                request.method,
                URL(url, encoded=True),
                data=body or None,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=None),
            ) as answer:
                passed_on = {name: answer.headers[name] for name in _PASSED_ON if name in answer.headers}
                if asked.is_watch and answer.status == 200:
                    return await self._stream(asked, request, answer, passed_on)
                return web.Response(status=answer.status, body=await answer.read(), headers=passed_on)
        except (aiohttp.ClientError, OSError):
            if request.transport is not None:
                request.transport.abort()
            return web.Response()

    async def _stream(
        self, asked: Asked, request: web.Request, answer: aiohttp.ClientResponse, headers: dict[str, str]
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        asked.status = response.status
        self._streams[asked] = request
        try:
            async for line in answer.content:
                asked.status = _code_of(line) or asked.status
                await self._tell(asked, line, response)
            # Who has fallen silent does not say goodbye either.
            while any(edit is silent and match(asked) for match, edit in self._edits):  # noqa: ASYNC110
                await asyncio.sleep(0.05)  # it is the test's thread that ends the silence
        finally:
            del self._streams[asked]
        return response

    async def _tell(self, asked: Asked, line: bytes, response: web.StreamResponse) -> None:
        """Pass a line on as the edits want it, the first of them first."""
        tell: Tell = response.write
        for match, edit in reversed(self._edits):
            if match(asked):
                tell = _before(edit, tell)
        await tell(line)


def _before(edit: Edit, tell: Tell) -> Tell:
    async def edited(line: bytes) -> None:
        await edit(line, tell)

    return edited


def _code_of(line: bytes) -> int:
    """The code of an error that a watch tells; 0 for any other event."""
    return int(json.loads(line)["object"].get("code") or 0) if line.startswith(b'{"type":"ERROR"') else 0
