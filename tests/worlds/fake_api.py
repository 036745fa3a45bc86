"""A small API server: lists, watches, and faults that a test scripts.

It speaks HTTP on loopback like the real one, so the tests run the real client code and replace no part of a library.
Revisions increase across all collections, as in etcd.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from edl.kube.client.session import ApiSession
from tests.worlds.waiting import PATIENCE

Object = dict[str, Any]


class FakeClock:
    """A clock that moves only by `sleep`, which records the duration and returns at once."""

    def __init__(self, now_s: float = 1000.0) -> None:
        self.time_s = now_s
        self.slept: list[float] = []

    def now_s(self) -> float:
        return self.time_s

    def monotonic_s(self) -> float:
        return self.time_s

    async def sleep(self, duration_s: float) -> None:
        self.slept.append(duration_s)
        self.time_s += duration_s
        await asyncio.sleep(0)


class FakeApi:
    """Collections by path, and the history that watches replay."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[tuple[str, str], Object]] = {}
        self.history: list[tuple[int, str, str, Object, Object | None]] = []
        self.revision = 100
        self.compacted = 0
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.headers: list[dict[str, str]] = []
        self.bodies: list[bytes] = []
        self.faults: deque[Callable[[web.Request], Any] | None] = deque()
        self.broken: dict[str, Callable[[web.Request], Any]] = {}  # by path, until it is taken away
        self.delayed: dict[str, asyncio.Event] = {}  # by path: a list is made at once, and sent when that is set
        self.mute = False
        self.extra_lines: list[bytes] = []
        self.duplicate_events = False
        self._changed = asyncio.Event()
        self._closing = asyncio.Event()
        self.url = ""

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[FakeApi]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            self._closing.set()
            self._wake()
            await runner.cleanup()

    def put(self, path: str, obj: Object) -> Object:
        """Create or replace an object; return it with its new resourceVersion."""
        self.revision += 1
        metadata = {"uid": f"uid-{obj['metadata']['name']}", **obj["metadata"], "resourceVersion": str(self.revision)}
        stored = {**obj, "metadata": metadata}
        collection = self.objects.setdefault(path, {})
        key = (metadata.get("namespace", ""), metadata["name"])
        before = collection.get(key)
        collection[key] = stored
        self.history.append((self.revision, path, "MODIFIED" if before else "ADDED", stored, before))
        self._wake()
        return stored

    def remove(self, path: str, name: str, namespace: str = "", *, silently: bool = False) -> None:
        """Delete an object. If `silently`, watches see no event, as if it were lost."""
        self.revision += 1
        gone = self.objects[path].pop((namespace, name))
        if not silently:
            last = {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self.revision)}}
            self.history.append((self.revision, path, "DELETED", last, gone))
        self._wake()

    def compact(self) -> None:
        """Drop the history, so that watches from an older revision get 410."""
        self.compacted = self.revision
        self._wake()

    def end_watches(self) -> None:
        """End every open watch, as the server does after its timeout."""
        self._closing.set()
        self._wake()
        self._closing = asyncio.Event()

    def count(self, kind: str) -> int:
        """The number of list or watch requests."""
        return sum(
            1 for method, _, query in self.requests if method == "GET" and ("watch" in query) == (kind == "watch")
        )

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        query = dict(request.query)
        self.requests.append((request.method, request.path, query))
        self.headers.append(dict(request.headers))
        self.bodies.append(await request.read())
        if self.faults and (fault := self.faults.popleft()) is not None:
            answer = fault(request)
            response: web.StreamResponse = await answer if asyncio.iscoroutine(answer) else answer
            return response
        if request.path in self.broken:
            refused: web.StreamResponse = self.broken[request.path](request)
            return refused
        if request.method != "GET":
            return web.json_response({"kind": "Status", "status": "Success"})
        if "watch" in query:
            return await self._watch(request, query)
        made = self._list(request, query)
        if request.path in self.delayed:
            await self.delayed[request.path].wait()
        return made

    def _list(self, request: web.Request, query: dict[str, str]) -> web.Response:
        items = [o for o in self.objects.get(request.path, {}).values() if _selects(query, o)]
        start = int(query.get("continue", "0"))
        limit = int(query.get("limit", "0")) or len(items)
        metadata = {"resourceVersion": str(self.revision)}
        if start + limit < len(items):
            metadata["continue"] = str(start + limit)
        return web.json_response({"kind": "List", "metadata": metadata, "items": items[start : start + limit]})

    async def _watch(self, request: web.Request, query: dict[str, str]) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        closing, after = self._closing, int(query["resourceVersion"])
        while not closing.is_set():
            self._changed.clear()
            if after < self.compacted:
                await _send(response, "ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "old"})
                return response
            while self.extra_lines:
                await response.write(self.extra_lines.pop(0) + b"\n")
            for revision, path, kind, obj, before in list(self.history):
                if path == request.path and revision > after and not self.mute:
                    await self._tell(response, query, kind, obj, before)
                    after = revision
            await self._changed.wait()
        return response

    async def _tell(
        self, response: web.StreamResponse, query: dict[str, str], kind: str, obj: Object, before: Object | None
    ) -> None:
        """Send an event as the selectors show it: a change can make an object appear or disappear."""
        was = before is not None and _selects(query, before)
        now = kind != "DELETED" and _selects(query, obj)
        if not was and not now:
            return
        kind = "MODIFIED" if was and now else "ADDED" if now else "DELETED"
        for _ in range(2 if self.duplicate_events else 1):
            await _send(response, kind, obj)

    def _wake(self) -> None:
        self._changed.set()


@asynccontextmanager
async def connected(api: FakeApi, *, timeout_s: float = 5.0) -> AsyncIterator[ApiSession]:
    """A session with the fake API server, without credentials."""
    from kubernetes.aio.client import Configuration  # noqa: PLC0415 - only tests with HTTP need it

    async with api.serve(), ApiSession(Configuration(host=api.url), timeout_s=timeout_s) as session:
        yield session


async def eventually(condition: Callable[[], object], *, timeout_s: float = 60.0) -> None:
    """Let the event loop run until the condition holds."""
    async with asyncio.timeout(timeout_s * PATIENCE):
        while not condition():  # noqa: ASYNC110 - the condition has no event to wait for
            await asyncio.sleep(0.001)


def refusal(
    code: int, reason: str = "", message: str = "no", **headers: str
) -> Callable[[web.Request], web.Response]:
    """A fault: respond with a metav1.Status."""
    body = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return lambda _: web.json_response(body, status=code, headers=headers)


def reset(request: web.Request) -> web.Response:
    """A fault: close the connection without a response."""
    transport = request.transport
    if transport is not None:
        transport.abort()
    return web.Response()


async def _send(response: web.StreamResponse, kind: str, obj: Object) -> None:
    await response.write(json.dumps({"type": kind, "object": obj}).encode() + b"\n")


def _selects(query: dict[str, str], obj: Object) -> bool:
    """The selectors that the cache uses: a label that exists or not, and phases that are excluded."""
    label = query.get("labelSelector", "")
    labels = obj["metadata"].get("labels") or {}
    if label and (label.lstrip("!") in labels) == label.startswith("!"):
        return False
    status = obj.get("status")
    phase = status.get("phase", "") if isinstance(status, dict) else ""
    return f"status.phase!={phase}" not in query.get("fieldSelector", "").split(",")
