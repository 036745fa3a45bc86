"""The embedded API server on a port of this machine.

Plain HTTP on a loopback address, with tokens that are made at start. kubectl sends no bearer token without TLS, so
the first segment of the path of a kubeconfig's URL is its token; a bearer token counts more where a client sends one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml
from aiohttp import web

from edl.errors import ConfigError
from edl.observability.own_hosts import foreign
from edl.sandbox.apiserver.api import Api
from edl.sandbox.apiserver.cluster import Cluster
from edl.sandbox.apiserver.errors import ApiError, internal, unauthorized
from edl.sandbox.apiserver.faults import Cut, Delay, Duplicate, Effect, Fail, Faults, Lose, Loss, Moment, Stale
from edl.sandbox.apiserver.http.request import Request
from edl.sandbox.apiserver.http.response import Response, answer_error
from edl.sandbox.apiserver.kubelet_proxy import KubeletProxy, is_proxied
from edl.sandbox.apiserver.rights import AUTHENTICATED, KUBELET_CLIENT, User, impersonated, require
from edl.sandbox.apiserver.system import furnish

_log = logging.getLogger(__name__)

MAX_BODY_BYTES = 3 * 1024 * 1024
"""The largest request body, as in kube-apiserver."""

_SILENCE_S = 3600.0
_ADMIN = ("admin", ("system:masters", "system:authenticated"))
_ANONYMOUS = ("system:anonymous", ("system:unauthenticated",))
_OPEN_PATHS = ("/healthz", "/livez", "/readyz", "/version")


class ApiServer:
    """A server and its cluster; use it as an async context manager or call `start` and `stop`."""

    def __init__(
        self,
        cluster: Cluster | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        namespaces: tuple[str, ...] = ("paddlecloud",),
    ) -> None:
        """Prepare a server with a furnished cluster; nothing listens yet.

        Args:
            cluster: an empty one; None for a new one.
            host: the address to listen on.
            port: 0 for a free one.
            namespaces: to create besides those of every cluster.
        """
        self.cluster = cluster or Cluster()
        self.api = Api(self.cluster)
        self.faults = Faults()
        self._open: set[asyncio.Task[Any]] = set()
        kubelet_token = secrets.token_urlsafe(24)
        self.cluster.tokens[kubelet_token] = (KUBELET_CLIENT, (AUTHENTICATED,))
        self._kubelets = KubeletProxy(self.cluster, kubelet_token)
        self.token = secrets.token_urlsafe(24)
        self.cluster.tokens[self.token] = _ADMIN
        furnish(self.cluster, namespaces)
        self._host, self._port = host, port
        self._runner: web.ServerRunner | None = None

    async def start(self) -> None:
        """Begin to listen.

        Raises:
            ConfigError: the port is in use, or the address is not one of this machine.
        """
        server = web.Server(self._serve, handler_cancellation=True, access_log=None, auto_decompress=False)
        self._runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port)
        try:
            await site.start()
        except OSError as error:
            await self.stop()
            why = os.strerror(error.errno or 0)
            raise ConfigError(
                f"the API server cannot listen on {self._host}:{self._port}: {why}; choose another --port"
            ) from error
        self._port = int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Stop listening and end all watches."""
        for task in (streams := tuple(self._open)):
            task.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        await self._kubelets.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        """The URL of the server, without credentials."""
        return f"http://{self._host}:{self._port}"

    def url_for(self, token: str = "") -> str:
        """The URL for a token, by default the administrator's; it is as secret as the token."""
        return f"{self.url}/{token or self.token}"

    def kubeconfig(self, token: str = "") -> str:
        """The text of a kubeconfig for the administrator, or for another token."""
        name = "edl-sandbox"
        return yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": name, "cluster": {"server": self.url_for(token)}}],
                "users": [{"name": name, "user": {"token": token or self.token}}],
                "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
                "current-context": name,
            }
        )

    def write_kubeconfig(self, path: Path, token: str = "") -> None:
        """Write a kubeconfig that only its owner may read.

        Raises:
            ConfigError: it cannot be written.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
            path.chmod(0o600)  # it may have been there, readable by others
            path.write_text(self.kubeconfig(token), encoding="utf-8")
        except OSError as error:
            raise ConfigError(
                f"{path}: the kubeconfig cannot be written: {error.strerror}; choose another --kubeconfig"
            ) from error

    async def _serve(self, raw: web.BaseRequest) -> web.StreamResponse:
        task = asyncio.current_task()
        if task is not None:
            self._open.add(task)
            task.add_done_callback(self._open.discard)
        try:
            request = await self._read(raw)
            effect = self.faults.next(request)
            if effect is not None:
                return await self._with_fault(raw, request, effect)
            return await self._execute(raw, request)
        except ApiError as error:
            return _plain(answer_error(error))
        except ConnectionError:  # the client has left, maybe before its reply began: no error of the server
            return await _no_reply(raw, silent=False)

    async def _execute(self, raw: web.BaseRequest, request: Request, *, behind: int = 0) -> web.StreamResponse:
        target = request.target
        if target is not None and is_proxied(target):
            require(self.cluster, request)
            if target.subresource == "exec":
                return await self._kubelets.exec(raw, request, target)
            return await _stream(raw, await self._kubelets.logs(request, target))
        if request.path.startswith("/openapi/"):
            # It may take half a second, and reads nothing that a request changes in place.
            return _plain(await asyncio.to_thread(self._handled, request))
        response = self._handled(request, behind=behind)
        return _plain(response) if response.stream is None else await _stream(raw, response)

    def _handled(self, request: Request, *, behind: int = 0) -> Response:
        try:
            return self.api.handle(request, behind=behind)
        except Exception as error:
            _log.exception("a request failed: %s %s", request.method, request.path)
            return answer_error(internal(f"{type(error).__name__}: {error}"))

    async def _with_fault(self, raw: web.BaseRequest, request: Request, effect: Effect) -> web.StreamResponse:
        match effect:
            case Delay(seconds):
                await asyncio.sleep(seconds)
            case Duplicate():
                self._handled(request)
            case Stale(versions):
                return await self._execute(raw, request, behind=versions)
            case Fail():
                if effect.moment is Moment.AFTER:
                    self._handled(request)
                raise effect.error()
            case Lose():
                if effect.moment is Moment.AFTER:
                    self._handled(request)
                return await _no_reply(raw, silent=effect.how is Loss.SILENCE)
            case Cut(chunks):
                response = self._handled(request)
                return _plain(response) if response.stream is None else await _stream(raw, response, cut=chunks)
        return await self._execute(raw, request)

    async def _read(self, raw: web.BaseRequest) -> Request:
        headers = {name.lower(): value for name, value in raw.headers.items()}
        path, (user, groups) = self._who(raw, headers.get("authorization", ""))
        body = await _body(raw) if raw.can_read_body else b""
        request = Request(raw.method, path, dict(raw.query), headers, body, user, groups)
        if name := headers.get("impersonate-user", ""):
            asked = raw.headers.getall("Impersonate-Group", [])
            other = impersonated(self.cluster, User(user, groups), request, name, asked)
            request = replace(request, user=other.name, groups=other.groups)
        return request

    def _who(self, raw: web.BaseRequest, authorization: str) -> tuple[str, tuple[str, tuple[str, ...]]]:
        """Split a path into its token and the rest; returns the rest, and the user of the request.

        Raises:
            ApiError: 401.
        """
        path = raw.path
        first, slash, rest = path[1:].partition("/")
        found = self.cluster.tokens.get(first)
        if found is not None:
            path = slash + rest or "/"
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() == "bearer":
            found = self.cluster.tokens.get(token.strip())
        if found is None and path in _OPEN_PATHS and not foreign(raw):
            found = _ANONYMOUS
        if found is None:
            raise unauthorized()
        return path, found


async def _body(raw: web.BaseRequest) -> bytes:
    parts, size = [], 0
    async for part in raw.content.iter_any():
        size += len(part)
        if size > MAX_BODY_BYTES:
            raise ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {MAX_BODY_BYTES}")
        parts.append(part)
    return b"".join(parts)


def _plain(response: Response) -> web.Response:
    headers = {"Content-Type": response.content_type, "Cache-Control": "no-cache, private", **response.headers}
    return web.Response(status=response.code, body=response.body, headers=headers)


async def _stream(raw: web.BaseRequest, response: Response, *, cut: int | None = None) -> web.StreamResponse:
    """Send a stream; `cut`: reset the connection after that many chunks."""
    reply = web.StreamResponse(status=response.code, headers={"Content-Type": response.content_type})
    reply.enable_chunked_encoding()
    stream = response.stream
    if stream is None:
        await reply.prepare(raw)
        return reply
    async with aclosing(stream):
        await reply.prepare(raw)
        async for chunk in stream:
            if cut == 0:
                return await _no_reply(raw, silent=False)
            cut = None if cut is None else cut - 1
            await reply.write(chunk)
    await reply.write_eof()
    return reply


async def _no_reply(raw: web.BaseRequest, *, silent: bool) -> web.StreamResponse:
    """Reset the connection, at once or when the client gives up."""
    if silent:
        await asyncio.sleep(_SILENCE_S)
    if raw.transport is not None:
        raw.transport.abort()
    return web.Response()
