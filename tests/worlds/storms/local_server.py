"""The sandbox's API server in this process and in virtual time, and a client of it without a socket."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec
from kubernetes.aio.client import Configuration

from edl.api.crd import render_crd, render_queue_crd
from edl.install.objects import priority_classes
from edl.kube.client.api_errors import error_of
from edl.kube.client.calls import TooLongError
from edl.kube.client.session import ApiSession
from edl.sandbox.apiserver.api import Api
from edl.sandbox.apiserver.cluster import Cluster
from edl.sandbox.apiserver.http.request import Request
from edl.sandbox.apiserver.http.response import Response
from edl.sandbox.apiserver.system import furnish

Object = dict[str, Any]
Params = Mapping[str, str]

EPOCH_S = 1_767_225_600.0
"""2026-01-01 00:00:00 UTC: when the virtual time was 0."""
LATENCY_S = 0.005
"""How long each request takes, in seconds."""
WATCH_S = "900"
"""How long each watch lasts; the reflectors ask for random times, with which no two runs are the same."""
TRAINING_JOBS, JOBS, QUOTAS = "trainingjobs.paddlepaddle.org", "jobs.batch", "resourcequotas"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

Webhook = Callable[[Object], tuple[Object, Response | None]]
"""Gets a pod that is created; returns it as changed, or an answer instead of it."""


class StormClock:
    """The time of the running loop, as seconds of 2026."""

    def now_s(self) -> float:
        return EPOCH_S + self.monotonic_s()

    def monotonic_s(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, duration_s: float) -> None:
        await asyncio.sleep(duration_s)


def now() -> datetime:
    """The virtual time."""
    return datetime.fromtimestamp(StormClock().now_s(), UTC)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request of the controller that changes or tries something.

    Attributes:
        at_s: when, in seconds of the loop.
        method, path: of HTTP.
        body: as sent.
        code: of the answer.
        message: of the answer, if it is an error.
    """

    at_s: float
    method: str
    path: str
    body: Object
    code: int
    message: str = ""


@dataclass
class LocalServer:
    """A furnished API server; make it while a loop runs.

    Attributes:
        webhook: sees each pod that is created.
        asked: what the controller has asked for, in order; no reads.
        admitted: UID of a job -> the last trainer that was admitted for it, also without effect.
    """

    seed: int
    webhook: Webhook = lambda pod: (pod, None)
    asked: list[Asked] = field(default_factory=list)
    admitted: dict[str, Object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cluster = Cluster(now=now, chance=random.Random(self.seed))  # noqa: S311 - not a secret
        self.api = Api(self.cluster)
        furnish(self.cluster, ("red", "blue", "web"))
        for body in (render_crd(), render_queue_crd()):
            self.must("POST", DEFINITIONS, body)
        for body in priority_classes():
            self.must("POST", CLASSES, body)

    def must(self, method: str, path: str, body: Object | None = None, **query: str) -> Object:
        """Do something that has to succeed, as the administrator."""
        response = self.answer(method, path, body, query)
        assert response.code < 300, response.body
        value: Object = msgspec.json.decode(response.body)
        return value

    def answer(
        self, method: str, path: str, body: object, query: Params, content_type: str = "application/json"
    ) -> Response:
        """Execute a request; a pod passes the webhook first."""
        if method == "POST" and path.endswith("/pods") and isinstance(body, dict):
            body, instead = self.webhook(body)
            if instead is not None:
                return instead
        raw = b"" if body is None else msgspec.json.encode(body)
        response = self.api.handle(Request(method, path, query, {"content-type": content_type}, raw))
        if method == "POST" and path.endswith("/pods") and response.code < 300:
            pod = msgspec.json.decode(response.body)
            role = (pod["metadata"].get("labels") or {}).get("paddlepaddle.org/role", "trainer")
            for owner in pod["metadata"].get("ownerReferences") or () if role == "trainer" else ():
                self.admitted[owner["uid"]] = pod
        return response

    def objects(self, resource: str, namespace: str = "") -> list[Object]:
        """All objects of a collection, as they are stored."""
        return [entry.value for _, entry in self.cluster.store.entries(resource, namespace)]

    def put(self, resource: str, obj: Object) -> None:
        """Store a new state of an object, as those do whose writes always succeed."""
        metadata = obj["metadata"]
        self.cluster.store.put(resource, (metadata.get("namespace", ""), metadata["name"]), obj)


class LocalSession(ApiSession):
    """The controller's client."""

    def __init__(self, server: LocalServer) -> None:
        super().__init__(Configuration(host="http://127.0.0.1:1"))
        self._server = server

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: object = None,
        content_type: str = "application/json",
        accept: str = "",  # noqa: ARG002 - JSON alone
        timeout_s: float | None = None,  # noqa: ARG002 - no answer is late
        max_bytes: int | None = None,
    ) -> bytes:
        await asyncio.sleep(LATENCY_S)
        plain, _, extra = path.partition("?")
        query = {**(params or {}), **dict([pair.split("=", 1) for pair in extra.split("&") if pair])}
        response = self._server.answer(method, plain, body, query, content_type)
        error = (
            None
            if response.code < 300
            else error_of(response.code, response.body, f"{method} {plain}", response.headers.get("Retry-After"))
        )
        if method != "GET":
            shown = body if isinstance(body, dict) else {}
            at_s = asyncio.get_running_loop().time()
            self._server.asked.append(Asked(at_s, method, path, shown, response.code, str(error or "")))
        if error is not None:
            raise error
        if max_bytes is not None and len(response.body) > max_bytes:
            raise TooLongError(f"the response has more than {max_bytes} bytes")
        return response.body

    @asynccontextmanager
    async def watch(
        self,
        path: str,
        *,
        params: Params,
        timeout_s: int,  # noqa: ARG002 - see WATCH_S
        read_timeout_s: float,  # noqa: ARG002 - no watch is silent
        accept: str = "",  # noqa: ARG002 - JSON alone
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        query = {**params, "watch": "1", "timeoutSeconds": WATCH_S}
        response = self._server.answer("GET", path, None, query)
        if response.stream is None:
            raise error_of(response.code, response.body, f"watch of {path}")
        yield _lines(response)


async def _lines(response: Response) -> AsyncIterator[bytes]:
    assert response.stream is not None
    async for chunk in response.stream:
        for line in chunk.splitlines():
            if line:
                yield line
