"""The master's HTTP API: tokens, limits, bodies in and out; what it all means is decided in `edl.master.master`.

The token is judged before the body is read, in constant time. Every refusal is `{"error": {"code", "message"}}`.
"""

from __future__ import annotations

import hmac
import logging
import math
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import TypeVar

import msgspec
from aiohttp import web

from edl.errors import ConfigError, ConflictError, TemporaryError
from edl.ledger.errors import UnknownCheckpointError
from edl.master.bodies import (
    BeginBody,
    CommitBody,
    DatasetBody,
    ElectionAnswer,
    ElectionBody,
    ErrorAnswer,
    ErrorDetail,
    IdAnswer,
    MalformedError,
    PieceAnswer,
    RestoreBody,
    RosterBody,
    SyncBody,
    read_body,
    sync_answer,
)
from edl.master.datasets import Catalog, asked
from edl.master.master import Master
from edl.master.metrics import MasterMetrics
from edl.master.openapi import openapi
from edl.observability.logs import log_event

BODY_BYTES, ROSTER_BYTES = 64 * 1024, 4 * 1024 * 1024
MOST_CONNECTIONS = 20_000
_CALLS_PER_S, _BURST = 5000.0, 10_000.0
_JSON = "application/json"
_log = logging.getLogger("edl.master.master")
_Body = TypeVar("_Body")
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Tokens:
    """What callers must show.

    Attributes:
        trainer: on every route but the open ones.
        controller: on the roster, and wherever a trainer's is taken; None closes the roster.
    """

    trainer: bytes
    controller: bytes | None


class HttpRefusalError(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, code: str, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.retry_after_s = status, code, retry_after_s


class MasterApi:
    """The routes of one master.

    Args:
        master: answers.
        tokens: who may ask.
        metrics: counts.
        catalog: knows where records lie.
    """

    def __init__(self, master: Master, tokens: Tokens, metrics: MasterMetrics, catalog: Catalog) -> None:
        self._master, self._tokens, self._metrics, self._catalog = master, tokens, metrics, catalog
        self._budgets: dict[tuple[str, int | str], tuple[float, float]] = {}
        self._openapi = msgspec.json.encode(openapi())
        self._runner: web.AppRunner | None = None

    def application(self) -> web.Application:
        """The routes, for aiohttp."""
        app = web.Application(middlewares=[self._guard], client_max_size=ROSTER_BYTES)
        app.router.add_post("/v1/sync", self._sync)
        app.router.add_post("/v1/dataset", self._dataset)
        app.router.add_get("/v1/dataset/piece", self._piece)
        app.router.add_post("/v1/checkpoint/begin", self._begin)
        app.router.add_post("/v1/checkpoint/commit", self._commit)
        app.router.add_post("/v1/checkpoint/restore", self._restore)
        app.router.add_post("/v1/save-election", self._elect)
        app.router.add_put("/v1/roster", self._roster)
        app.router.add_get("/v1/status", self._status)
        for prefix in ("", "/v1"):
            app.router.add_get(f"{prefix}/openapi.json", self._document)
            app.router.add_get(f"{prefix}/metrics", self._page)
            app.router.add_get(f"{prefix}/healthz", self._healthz)
        return app

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None) -> tuple[str, int]:
        """Listen; returns the address that was taken.

        Raises:
            ConfigError: the address cannot be listened on.
        """
        self._runner = web.AppRunner(
            self.application(),
            access_log=None,
            handle_signals=False,
            handler_cancellation=True,
            keepalive_timeout=75.0,
            shutdown_timeout=5.0,
        )
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port, ssl_context=tls, backlog=4096).start()
        except OSError as error:
            await self.stop()
            raise ConfigError(
                f"--listen {host}:{port}: cannot listen there: {error.strerror or error}; choose another address"
            ) from error
        address = self._runner.addresses[0]
        return str(address[0]), int(address[1])

    async def stop(self) -> None:
        """Take no more requests and let go of the address."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @web.middleware
    async def _guard(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Every answer, whatever happens, is one of ours."""
        begun = time.perf_counter()
        route = request.match_info.route.resource
        name = route.canonical if route is not None else "other"
        try:
            self._check_connections()
            response = await handler(request)
        except web.HTTPException as error:
            response = _refusal(HttpRefusalError(error.status, _code(error.status), error.reason))
        except Exception as error:
            response = _refusal(self._translate(error, name))
        self._metrics.count_call(name, response.status, time.perf_counter() - begun)
        return response

    def _translate(self, error: Exception, route: str) -> HttpRefusalError:
        match error:
            case HttpRefusalError():
                return error
            case MalformedError() | ConfigError():
                return HttpRefusalError(400, "malformed", str(error))
            case UnknownCheckpointError():
                return HttpRefusalError(404, "unknown_checkpoint", str(error))
            case ConflictError():
                return HttpRefusalError(409, "conflict", str(error))
            case TemporaryError():
                return HttpRefusalError(503, "unavailable", str(error), error.retry_after_s or 1.0)
            case _:
                log_event(_log, logging.ERROR, "a request failed", route=route, err=repr(error))
                return HttpRefusalError(500, "internal", "the master has a fault; its log says more")

    def _check_connections(self) -> None:
        server = self._runner.server if self._runner is not None else None
        if server is not None and len(server.connections) > MOST_CONNECTIONS:
            raise HttpRefusalError(429, "too_many_connections", "too many connections; close some", 5.0)

    def _authorize(self, request: web.Request, *, is_controller: bool = False) -> None:
        scheme, _, shown = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not shown:
            raise HttpRefusalError(401, "no_token", "this route needs the job's token: Authorization: Bearer TOKEN")
        given = shown.strip().encode("utf-8", "surrogateescape")
        controller = self._tokens.controller
        by_controller = controller is not None and hmac.compare_digest(given, controller)
        by_trainer = hmac.compare_digest(given, self._tokens.trainer)
        if by_controller or (by_trainer and not is_controller):
            return
        if by_trainer:
            raise HttpRefusalError(
                403, "wrong_role", "only the controller publishes the roster, with a token of its own"
            )
        raise HttpRefusalError(403, "foreign_token", "the token is none of this job's; read EDL_TOKEN_FILE again")

    async def _body(self, request: web.Request, kind: type[_Body], limit: int = BODY_BYTES) -> _Body:
        """Judge the token, then read the body."""
        self._authorize(request, is_controller=kind is RosterBody)
        if request.content_type != _JSON:
            raise HttpRefusalError(400, "malformed", f"Content-Type {request.content_type!r} is not {_JSON}")
        data = b"" if (request.content_length or 0) > limit else await request.read()
        if len(data) > limit or (request.content_length or 0) > limit:
            raise HttpRefusalError(413, "too_large", f"the body is larger than {limit} bytes; send less at a time")
        return read_body(data, kind)

    def _spend(self, caller: tuple[str, int | str]) -> None:
        """A bucket of calls per session, so that a loop that went wild starves nobody else."""
        now = time.monotonic()
        left, since = self._budgets.get(caller, (_BURST, now))
        left = min(_BURST, left + (now - since) * _CALLS_PER_S)
        if left < 1:
            raise HttpRefusalError(
                429, "too_many_calls", f"more than {_CALLS_PER_S:g} calls per second; slow down", 1.0
            )
        if len(self._budgets) > MOST_CONNECTIONS:
            self._budgets.clear()
        self._budgets[caller] = (left - 1, now)

    async def _sync(self, request: web.Request) -> web.Response:
        body = await self._body(request, SyncBody)
        who = body.session.key
        self._spend((who.pod_uid, who.incarnation))
        reply, ttl_s = await self._master.sync(who, body, body.wait_s)
        self._metrics.count_reply(reply)
        return web.Response(body=sync_answer(reply, ttl_s), content_type=_JSON)

    async def _dataset(self, request: web.Request) -> web.Response:
        body = await self._body(request, DatasetBody)
        known = self._master.dataset
        if known is None:
            await self._master.set_dataset(await self._catalog.describe(body))
        else:  # it is bound to its files already, and is not read again for each trainer that asks
            await self._master.set_dataset(asked(body, known.version, known.total, known.block))
        return _answer(body)

    async def _piece(self, request: web.Request) -> web.Response:
        self._authorize(request)
        record = request.query.get("record", "")
        if not record.isascii() or not record.isdecimal() or len(record) > 19:
            raise MalformedError(f"record={record[:100]!r}: give the number of a record")
        piece = self._catalog.piece(self._master.dataset, int(record))
        return _answer(PieceAnswer(*piece.file, piece.first, piece.records, piece.place, piece.length))

    async def _begin(self, request: web.Request) -> web.Response:
        body = await self._body(request, BeginBody)
        return _answer(IdAnswer(await self._master.begin_checkpoint(body.session.key, body.step)))

    async def _commit(self, request: web.Request) -> web.Response:
        body = await self._body(request, CommitBody)
        await self._master.commit_checkpoint(body.id)
        return _answer(IdAnswer(body.id))

    async def _restore(self, request: web.Request) -> web.Response:
        body = await self._body(request, RestoreBody)
        return _answer(IdAnswer(await self._master.restore(body.id if isinstance(body.id, int) else None)))

    async def _elect(self, request: web.Request) -> web.Response:
        body = await self._body(request, ElectionBody)
        return _answer(ElectionAnswer(await self._master.elect(body.session.key, body.step, body.ttl_s)))

    async def _roster(self, request: web.Request) -> web.Response:
        body = await self._body(request, RosterBody, ROSTER_BYTES)
        await self._master.set_roster(body.generation, [pod.uid for pod in body.pods])
        return _answer({"generation": body.generation, "pods": len(body.pods)})

    async def _status(self, request: web.Request) -> web.Response:
        self._authorize(request)
        return _answer(self._master.status())

    async def _document(self, _: web.Request) -> web.Response:
        return web.Response(body=self._openapi, content_type=_JSON)

    async def _page(self, _: web.Request) -> web.Response:
        page = self._metrics.render(self._master.status())
        return web.Response(body=page, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def _healthz(self, _: web.Request) -> web.Response:
        blocked = self._master.blocked
        return web.Response(text="ok\n" if blocked is None else f"{blocked}\n")


def _answer(value: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type=_JSON)


def _refusal(error: HttpRefusalError) -> web.Response:
    body = msgspec.json.encode(ErrorAnswer(ErrorDetail(error.code, str(error))))
    headers = {"Retry-After": str(math.ceil(error.retry_after_s))} if error.retry_after_s is not None else None
    return web.Response(status=error.status, body=body, content_type=_JSON, headers=headers)


def _code(status: int) -> str:
    return HTTPStatus(status).phrase.lower().replace(" ", "_")
