"""The master's HTTP API: tokens, limits and bodies. `edl.master.master` decides what a request does.

The token is checked before the body is read, in constant time. The body of every error is
`{"error": {"code", "message"}}`.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import msgspec
from aiohttp import web

from edl.errors import ConfigError, ConflictError, TemporaryError
from edl.ledger.errors import UnknownCheckpointError
from edl.ledger.group_values import EnterRequest
from edl.ledger.request import JOB_END, RUN, WAIT
from edl.master.answers import JSON, HttpError, answer, code_of, error_response
from edl.master.bodies import (
    AliveBody,
    BeginBody,
    CommitBody,
    DatasetBody,
    ElectionAnswer,
    ElectionBody,
    EnterAnswer,
    EnterBody,
    IdAnswer,
    LeaveAnswer,
    LeaveBody,
    MalformedError,
    MemberAnswer,
    PieceAnswer,
    RestoreBody,
    RosterBody,
    StopBody,
    SyncBody,
    WatchAnswer,
    WatchBody,
    read_body,
    sync_answer,
)
from edl.master.datasets import Catalog, dataset_event
from edl.master.group_calls import Watch
from edl.master.master import Master
from edl.master.metrics import MasterMetrics
from edl.master.mixture_progress import sources_answer
from edl.master.openapi import openapi
from edl.observability.logs import log_event
from edl.observability.own_hosts import foreign

BODY_BYTES, ROSTER_BYTES = 64 * 1024, 4 * 1024 * 1024
MAX_CONNECTIONS = 20_000
"""With more connections, only probes of the kubelet and callers with a token of the job are served."""

IDLE_S = 75.0
"""A connection without a whole request header for this time is closed."""

_CALLS_PER_S, _BURST = 5000.0, 10_000.0
_log = logging.getLogger("edl.master.master")
_Body = TypeVar("_Body")
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens that the master accepts.

    Attributes:
        trainer: on every route that needs a token, except the roster.
        controller: on every route that needs a token; None disables the roster route.
    """

    trainer: bytes
    controller: bytes | None


class MasterApi:
    """The routes of one master.

    Args:
        master: handles the requests.
        tokens: the tokens that it accepts.
        metrics: the metrics of the master.
        catalog: finds the records of files.
    """

    def __init__(self, master: Master, tokens: Tokens, metrics: MasterMetrics, catalog: Catalog) -> None:
        self._master, self._tokens, self._metrics, self._catalog = master, tokens, metrics, catalog
        self._call_budgets: dict[tuple[str, int | str], tuple[float, float]] = {}
        self._openapi = msgspec.json.encode(openapi())
        self._runner: web.AppRunner | None = None

    def application(self) -> web.Application:
        """The aiohttp application with every route."""
        app = web.Application(middlewares=[self._middleware], client_max_size=ROSTER_BYTES)
        app.router.add_post("/v1/sync", self._sync)
        app.router.add_post("/v1/dataset", self._dataset)
        app.router.add_get("/v1/dataset/piece", self._piece)
        app.router.add_get("/v1/dataset/sources", self._sources)
        app.router.add_post("/v1/checkpoint/begin", self._begin)
        app.router.add_post("/v1/checkpoint/commit", self._commit)
        app.router.add_post("/v1/checkpoint/restore", self._restore)
        app.router.add_post("/v1/save-election", self._elect)
        app.router.add_post("/v1/group/enter", self._enter)
        app.router.add_post("/v1/group/watch", self._watch)
        app.router.add_post("/v1/group/leave", self._leave)
        app.router.add_post("/v1/group/alive", self._alive)
        app.router.add_post("/v1/group/stop", self._stop)
        app.router.add_put("/v1/roster", self._roster)
        app.router.add_get("/v1/status", self._status)
        for prefix in ("", "/v1"):
            app.router.add_get(f"{prefix}/openapi.json", self._openapi_document)
            app.router.add_get(f"{prefix}/metrics", self._metrics_page)
            app.router.add_get(f"{prefix}/healthz", self._healthz)
        return app

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None) -> tuple[str, int]:
        """Start to listen.

        Returns:
            The address and the port; the system chooses the port if it is 0.

        Raises:
            ConfigError: the address cannot be used.
        """
        self._runner = web.AppRunner(
            self.application(),
            access_log=None,
            handle_signals=False,
            handler_cancellation=True,
            keepalive_timeout=IDLE_S,
            auto_decompress=False,  # it would happen before the token is checked
            shutdown_timeout=5.0,
        )
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port, ssl_context=tls, backlog=4096).start()
        except OSError as error:
            await self.stop()
            raise ConfigError(
                f"--listen {host}:{port}: the master cannot listen there: {error.strerror or error}; give another"
                " address or port"
            ) from error
        address = self._runner.addresses[0]
        return str(address[0]), int(address[1])

    async def stop(self) -> None:
        """Stop listening, and finish the requests that are running."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @web.middleware
    async def _middleware(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Count the call, and turn every exception into an answer in the form of the API."""
        start_s = time.perf_counter()
        route = request.match_info.route.resource
        name = route.canonical if route is not None else "other"
        try:
            self._check_connections(request, name)
            self._check_host(request)
            response = await handler(request)
        except web.HTTPException as error:
            response = error_response(HttpError(error.status, code_of(error.status), error.reason))
        except Exception as error:
            response = error_response(self._translate(error, name))
        self._metrics.count_call(name, response.status, time.perf_counter() - start_s)
        if not self._is_authorized(request):
            response.force_close()  # else a few connections with all their requests at once keep a probe waiting
        return response

    def _translate(self, error: Exception, route: str) -> HttpError:
        match error:
            case HttpError():
                return error
            case MalformedError() | ConfigError():
                return HttpError(400, "malformed", str(error))
            case UnknownCheckpointError():
                return HttpError(404, "unknown_checkpoint", str(error))
            case ConflictError():
                return HttpError(409, "conflict", str(error))
            case TemporaryError():
                return HttpError(503, "unavailable", str(error), error.retry_after_s or 1.0)
            case _:
                log_event(_log, logging.ERROR, "a request failed", route=route, err=repr(error))
                return HttpError(500, "internal", "the master failed because of a bug; see its log")

    def _check_connections(self, request: web.Request, route: str) -> None:
        """Refuse strangers while there are too many connections: they may be theirs, and the job goes on."""
        server = self._runner.server if self._runner is not None else None
        if server is None or len(server.connections) <= MAX_CONNECTIONS or route.endswith("/healthz"):
            return
        if not self._is_authorized(request):
            raise HttpError(
                429, "too_many_connections", f"more than {MAX_CONNECTIONS} connections; close some of them", 5.0
            )

    def _check_host(self, request: web.Request) -> None:
        """Refuse what a web site sends in the name of its visitor; whoever shows a token of the job is none."""
        if (why := foreign(request)) and not self._is_authorized(request):
            raise HttpError(403, "foreign_host", f"{why}, or send the job's token")

    def _is_authorized(self, request: web.Request) -> bool:
        """True if the request shows a token of the job."""
        try:
            self._authorize(request)
        except HttpError:
            return False
        return True

    def _authorize(self, request: web.Request, *, is_controller: bool = False) -> None:
        scheme, _, shown = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not shown:
            raise HttpError(401, "no_token", "this route needs the job's token; send `Authorization: Bearer TOKEN`")
        given = shown.strip().encode("utf-8", "surrogateescape")
        controller = self._tokens.controller
        by_controller = controller is not None and hmac.compare_digest(given, controller)
        by_trainer = hmac.compare_digest(given, self._tokens.trainer)
        if by_controller or (by_trainer and not is_controller):
            return
        if by_trainer:
            raise HttpError(
                403,
                "wrong_role",
                "a trainer's token does not give access to the roster; only the controller publishes it, with its own"
                " token",
            )
        raise HttpError(
            403, "foreign_token", "the token does not belong to this job; read it again from the file EDL_TOKEN_FILE"
        )

    async def _body(self, request: web.Request, kind: type[_Body], limit: int = BODY_BYTES) -> _Body:
        """Check the token, then read the body."""
        self._authorize(request, is_controller=kind is RosterBody)
        if request.content_type != JSON:
            raise HttpError(400, "malformed", f"Content-Type is {request.content_type!r}; send {JSON}")
        data = b"" if (request.content_length or 0) > limit else await request.read()
        if len(data) > limit or (request.content_length or 0) > limit:
            raise HttpError(
                413, "too_large", f"the body is larger than {limit} bytes; send fewer items in one request"
            )
        return read_body(data, kind)

    def _limit_calls(self, caller: tuple[str, int | str]) -> None:
        """Limit the calls of each session by a token bucket, so that one faulty loop does not slow the others."""
        now = time.monotonic()
        left, since = self._call_budgets.get(caller, (_BURST, now))
        left = min(_BURST, left + (now - since) * _CALLS_PER_S)
        if left < 1:
            raise HttpError(
                429, "too_many_calls", f"this session sends more than {_CALLS_PER_S:g} calls per second; wait", 1.0
            )
        if len(self._call_budgets) > MAX_CONNECTIONS:
            self._call_budgets.clear()
        self._call_budgets[caller] = (left - 1, now)

    async def _sync(self, request: web.Request) -> web.Response:
        body = await self._body(request, SyncBody)
        key = body.session.key
        self._limit_calls((key.pod_uid, key.incarnation))
        reply, ttl_s = await self._master.sync(key, body, body.wait_s)
        self._metrics.count_reply(reply)
        return web.Response(body=sync_answer(reply, ttl_s), content_type=JSON)

    async def _dataset(self, request: web.Request) -> web.Response:
        body = await self._body(request, DatasetBody)
        known = self._master.dataset
        if known is None:
            await self._master.set_dataset(await self._catalog.describe(body))
        else:  # the master has counted its records already, and does not read the files again for each trainer
            await self._master.set_dataset(dataset_event(body, known.version, known.total, known.block))
        return answer(body)

    async def _piece(self, request: web.Request) -> web.Response:
        self._authorize(request)
        record = _whole(request, "record")
        if record is None:
            raise MalformedError("the query names no record; give record=NUMBER")
        piece = self._catalog.piece(self._master.dataset, record, _whole(request, "part"))
        return answer(PieceAnswer(*piece.file, piece.first, piece.records, piece.place, piece.length))

    async def _sources(self, request: web.Request) -> web.Response:
        self._authorize(request)
        dataset, mixture, totals = self._catalog.mixture(self._master.dataset)
        return answer(await asyncio.to_thread(sources_answer, mixture, totals, dataset, self._master.done_ranges))

    async def _begin(self, request: web.Request) -> web.Response:
        body = await self._body(request, BeginBody)
        return answer(IdAnswer(await self._master.begin_checkpoint(body.session.key, body.step)))

    async def _commit(self, request: web.Request) -> web.Response:
        body = await self._body(request, CommitBody)
        await self._master.commit_checkpoint(body.id)
        return answer(IdAnswer(body.id))

    async def _restore(self, request: web.Request) -> web.Response:
        body = await self._body(request, RestoreBody)
        return answer(IdAnswer(await self._master.restore(body.id if isinstance(body.id, int) else None)))

    async def _elect(self, request: web.Request) -> web.Response:
        body = await self._body(request, ElectionBody)
        return answer(ElectionAnswer(await self._master.elect(body.session.key, body.step, body.ttl_s)))

    async def _enter(self, request: web.Request) -> web.Response:
        body = await self._body(request, EnterBody)
        wanted = EnterRequest(body.generation, body.position, body.endpoint, body.min_size, body.settings)
        world, has_ended = await self._master.enter(body.session.key, wanted, body.wait_s)
        if world is None:
            return answer(EnterAnswer(JOB_END if has_ended else WAIT, error=self._master.stop_error))
        members = [MemberAnswer(*member) for member in world.members]
        place = world.generation, world.rank, world.position, world.checkpoint
        return answer(EnterAnswer(RUN, *place, members))

    async def _watch(self, request: web.Request) -> web.Response:
        body = await self._body(request, WatchBody)
        self._limit_calls((body.session.pod_uid, body.session.incarnation))

        def is_connected() -> bool:
            return request.transport is not None and not request.transport.is_closing()

        goodput = body.goodput.value if body.goodput is not None else None
        call = Watch(body.generation, body.position, body.wait_s, body.knows, is_connected, goodput)
        return answer(WatchAnswer(*await self._master.watch(body.session.key, call)))

    async def _leave(self, request: web.Request) -> web.Response:
        body = await self._body(request, LeaveBody)
        place = body.session.key, body.generation, body.position
        return answer(LeaveAnswer(await self._master.leave(*place, body.wait_s)))

    async def _alive(self, request: web.Request) -> web.Response:
        body = await self._body(request, AliveBody)
        self._limit_calls((body.session.pod_uid, body.session.incarnation))
        self._master.keep_alive(body.session.key)
        return answer({})

    async def _stop(self, request: web.Request) -> web.Response:
        body = await self._body(request, StopBody)
        await self._master.stop(body.session.key, body.generation, body.position, body.error)
        return answer({})

    async def _roster(self, request: web.Request) -> web.Response:
        body = await self._body(request, RosterBody, ROSTER_BYTES)
        await self._master.set_roster(body.generation, [pod.uid for pod in body.pods])
        return answer({"generation": body.generation, "pods": len(body.pods)})

    async def _status(self, request: web.Request) -> web.Response:
        self._authorize(request)
        return answer(self._master.status())

    async def _openapi_document(self, _: web.Request) -> web.Response:
        return web.Response(body=self._openapi, content_type=JSON)

    async def _metrics_page(self, _: web.Request) -> web.Response:
        page = self._metrics.render(self._master.status())
        return web.Response(body=page, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def _healthz(self, _: web.Request) -> web.Response:
        blocked = self._master.blocked
        return web.Response(text="ok\n" if blocked is None else f"{blocked}\n")


def _whole(request: web.Request, name: str) -> int | None:
    """Parse a whole number of the query; None if it is missing."""
    text = request.query.get(name)
    if text is not None and (not text.isascii() or not text.isdecimal() or len(text) > 19):
        raise MalformedError(f"{name}={text[:100]!r} is not the number of a {name}; give a whole number from 0")
    return int(text) if text is not None else None
