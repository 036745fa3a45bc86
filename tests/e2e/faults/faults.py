"""What the proxy can do to requests and to watches: a fault gets one exchange, an edit one line of a watch."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

from aiohttp import web


@dataclass(slots=True, eq=False)
class Asked:
    """One request of the client.

    Attributes:
        at_s: monotonic time at which it came.
        query: as it came, without the question mark.
        name: of the object that is to be created; empty if the server names it, and for other requests.
        status: the HTTP status of the response; 0 if there was none, or none yet.
    """

    at_s: float
    method: str
    path: str
    query: str
    name: str = ""
    status: int = 0

    @property
    def is_write(self) -> bool:
        """True for what may change something."""
        return self.method != "GET"

    @property
    def is_dry_run(self) -> bool:
        return "dryRun=" in self.query

    @property
    def is_watch(self) -> bool:
        """True for a watch."""
        return "watch=" in self.query

    @property
    def is_list(self) -> bool:
        """True for a page of a collection."""
        return self.method == "GET" and "limit=" in self.query and not self.is_watch

    @property
    def chosen(self) -> str:
        """Which part of a collection is meant; empty for all of it."""
        return ",".join(word for word in self.query.split("&") if "Selector=" in word)

    @property
    def is_of_lease(self) -> bool:
        """True for what the elector asks."""
        return "/leases" in self.path


@dataclass(slots=True)
class Exchange:
    """A request that waits for its answer; a fault decides what that is."""

    asked: Asked
    request: web.Request
    forward: Callable[[], Awaitable[web.StreamResponse]]

    def cut(self) -> web.StreamResponse:
        """End the connection as a reset does."""
        if self.request.transport is not None:
            self.request.transport.abort()
        return web.Response()


Fault = Callable[[Exchange], Awaitable[web.StreamResponse]]
Match = Callable[[Asked], bool]
Tell = Callable[[bytes], Awaitable[None]]

Edit = Callable[[bytes, Tell], Awaitable[None]]
"""What becomes of one line of a watch: it is passed on any number of times, at any time."""


def refuse(code: int, reason: str, message: str = "injected by a test", *, retry_after_s: int | None = None) -> Fault:
    """Answer as the API server says no; the request does not reach it."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}

    async def fault(_: Exchange) -> web.StreamResponse:
        return web.json_response({**body, "message": message}, status=code, headers=headers)

    return fault


async def reset(exchange: Exchange) -> web.StreamResponse:
    """Cut the connection; the request does not reach the server."""
    return exchange.cut()


async def hang(exchange: Exchange) -> web.StreamResponse:
    """Say nothing; the client's giving up ends it."""
    await asyncio.Event().wait()
    return exchange.cut()


async def lose_reply(exchange: Exchange) -> web.StreamResponse:
    """Let the server do as it is asked, and cut the connection instead of passing the answer on."""
    await exchange.forward()
    return exchange.cut()


def late_reply(seconds: float) -> Fault:
    """Let the server do as it is asked at once, and pass the answer on later."""

    async def fault(exchange: Exchange) -> web.StreamResponse:
        answer = await exchange.forward()
        await asyncio.sleep(seconds)
        return answer

    return fault


def after(passed: int, then: Fault) -> Fault:
    """Pass the first requests on, and do harm to those that follow."""
    numbers = count()

    async def fault(exchange: Exchange) -> web.StreamResponse:
        return await (exchange.forward() if next(numbers) < passed else then(exchange))

    return fault


def slow(seconds: float) -> Fault:
    """Let every request wait."""

    async def fault(exchange: Exchange) -> web.StreamResponse:
        await asyncio.sleep(seconds)
        return await exchange.forward()

    return fault


def held(until: threading.Event) -> Fault:
    """Let every request wait until a test sets the event."""

    async def fault(exchange: Exchange) -> web.StreamResponse:
        while not until.is_set():  # noqa: ASYNC110 - it is the test's thread that sets it
            await asyncio.sleep(0.01)
        return await exchange.forward()

    return fault


async def silent(_: bytes, tell: Tell) -> None:
    """Pass no line of a watch on."""


async def twice(line: bytes, tell: Tell) -> None:
    """Tell every event two times."""
    await tell(line)
    await tell(line)


async def without_additions(line: bytes, tell: Tell) -> None:
    """Lose every event that tells of a new object."""
    if b'"type":"ADDED"' not in line[:40]:
        await tell(line)


def late(seconds: float) -> Edit:
    """Tell every event later, in order."""
    return _held_back(seconds, lambda _: True)


def shuffled(seconds: float) -> Edit:
    """Tell the events of every second object later, so that those of others overtake them."""
    return _held_back(seconds, lambda name: zlib.crc32(name.encode()) % 2 == 0)


def _held_back(seconds: float, chosen: Callable[[str], bool]) -> Edit:
    telling: set[asyncio.Task[None]] = set()

    async def tell_later(line: bytes, tell: Tell) -> None:
        await asyncio.sleep(seconds)
        with contextlib.suppress(OSError):
            await tell(line)

    async def edit(line: bytes, tell: Tell) -> None:
        if not chosen(str(json.loads(line)["object"].get("metadata", {}).get("name", ""))):
            await tell(line)
            return
        task = asyncio.get_running_loop().create_task(tell_later(line, tell))
        telling.add(task)
        task.add_done_callback(telling.discard)

    return edit


def with_objects(change: Callable[[dict[str, Any]], None]) -> tuple[Fault, Edit]:
    """Change objects on their way to the client, in lists and in watches."""

    async def fault(exchange: Exchange) -> web.StreamResponse:
        answer = await exchange.forward()
        if isinstance(answer, web.Response) and answer.status == 200 and answer.body:
            document = json.loads(answer.text or "{}")
            for item in document.get("items") or ():
                change(item)
            answer.text = json.dumps(document)
        return answer

    async def edit(line: bytes, tell: Tell) -> None:
        document = json.loads(line)
        change(document["object"])
        await tell(json.dumps(document).encode() + b"\n")

    return fault, edit
