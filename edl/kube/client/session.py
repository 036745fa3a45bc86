"""One connection to the API server: the official client's authentication, our own requests.

The official client's typed calls are too slow for 10,000 pods, so requests go through one aiohttp session as bytes.
Every call has a time-out, and every library error is translated once. Nothing is retried here, because only who calls
knows whether a repetition is safe; but credentials which the server no longer accepts are loaded anew once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Literal, Self

import aiohttp
import msgspec
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException

from edl import __version__
from edl.errors import ConfigError, EdlError, TemporaryError
from edl.kube.client.api_errors import error_of, translated
from edl.kube.client.credentials import load_configuration, tls_of
from edl.kube.client.json_depth import decode
from edl.kube.translate.decoders import UNREADABLE

MERGE_PATCH: Final = "application/merge-patch+json"

READ_BUFFER_BYTES = 2 * 1024 * 1024
"""An event may be as large as etcd allows an object to be (1.5 MiB)."""

RELOAD_PAUSE_S = 30.0
"""Refused credentials are loaded anew at most this often: an exec plugin may ask a person or a remote service."""

_OBJECTS = msgspec.json.Decoder(dict[str, Any])

Params = Mapping[str, str]
Propagation = Literal["Background", "Foreground", "Orphan"]


class FencedError(EdlError):
    """Nothing was sent: whoever may write now, it is not this process."""


@dataclass(frozen=True, slots=True)
class _Call:
    """One request as it goes out."""

    method: str
    path: str
    limits: aiohttp.ClientTimeout
    params: Params | None = None
    data: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class ApiSession:
    """Requests to one API server; use it as an async context manager or call `close`."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        reload: Callable[[], Awaitable[Configuration]] | None = None,
        timeout_s: float = 15.0,
    ) -> None:
        """Take a loaded configuration.

        Args:
            configuration: of the official client: host, credentials, TLS.
            reload: loads it anew once the server no longer accepts the credentials; None where that cannot help.
            timeout_s: how long any one call may take, unless it says otherwise.

        Raises:
            ConfigError: a certificate cannot be used.
        """
        self._reload = reload
        self._reloaded_s = time.monotonic()
        self._reloading = asyncio.Lock()
        self._timeout_s = timeout_s
        self._configuration = configuration
        self._ssl = tls_of(configuration)
        self._may_write: Callable[[], bool] = lambda: True
        self._always_open: str | None = None
        self._client = aiohttp.ClientSession(
            trust_env=True,
            read_bufsize=READ_BUFFER_BYTES,
            headers={"User-Agent": f"edl/{__version__}", "Accept": "application/json"},
        )

    @classmethod
    async def open(cls, kubeconfig: str = "", *, timeout_s: float = 15.0) -> Self:
        """Load the configuration as kubectl does and prepare a session; nothing is sent yet.

        Args:
            kubeconfig: a path (or several, as in $KUBECONFIG); empty takes $KUBECONFIG, then ~/.kube/config where it
                exists, then the service account of the pod that we run in.
            timeout_s: how long any one call may take, unless it says otherwise.

        Raises:
            ConfigError: no configuration is found, or it cannot be used.
        """

        async def load() -> Configuration:
            return await load_configuration(kubeconfig)

        return cls(await load(), reload=load, timeout_s=timeout_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; running watches end with a TemporaryError."""
        await self._client.close()

    def fence(self, may_write: Callable[[], bool], *, but_for: str) -> None:
        """From now on ask before each request that may change something, at the moment at which it is sent.

        One action may be several requests, each as slow as its time-out allows: the right to write that it began with
        may be gone before the last of them.

        Args:
            may_write: True while it may be sent.
            but_for: paths below this one are never held back (the elector's own, by which the right comes back).
        """
        self._may_write, self._always_open = may_write, but_for

    @property
    def host(self) -> str:
        """The URL of the API server."""
        return str(self._configuration.host)

    async def get(self, path: str, *, params: Params | None = None, timeout_s: float | None = None) -> bytes:
        """Read one object, or anything else under `path`.

        Raises:
            NotFoundError: there is none.
            TemporaryError, PermanentError: as for every call; see `request`.
        """
        return await self.request("GET", path, params=params, timeout_s=timeout_s)

    async def list(
        self,
        path: str,
        *,
        params: Params | None = None,
        limit: int = 500,
        continue_: str = "",
        timeout_s: float | None = None,
    ) -> bytes:
        """Read one page of a collection.

        Args:
            path: of the collection.
            params: selectors.
            limit: items of one page; 0 asks for all at once.
            continue_: the token of the page before; empty for the first.
            timeout_s: how long this call may take.

        Raises:
            GoneError: the token is too old.
        """
        query = {**(params or {}), **({"limit": str(limit)} if limit else {})}
        if continue_:
            query["continue"] = continue_
        return await self.request("GET", path, params=query, timeout_s=timeout_s)

    async def post(self, path: str, body: Mapping[str, Any], *, timeout_s: float | None = None) -> dict[str, Any]:
        """Create an object in the collection `path`; returns it as stored.

        Raises:
            AlreadyExistsError: the name is taken.
        """
        return _decoded(path, await self.request("POST", path, body=body, timeout_s=timeout_s))

    async def patch(
        self, path: str, body: object, *, content_type: str = MERGE_PATCH, timeout_s: float | None = None
    ) -> dict[str, Any]:
        """Patch an object; returns it as stored. A resourceVersion or uid in a merge patch makes it conditional.

        Raises:
            ConflictError: the condition does not hold.
            NotFoundError: the object is gone.
        """
        answer = await self.request("PATCH", path, body=body, content_type=content_type, timeout_s=timeout_s)
        return _decoded(path, answer)

    async def delete(
        self,
        path: str,
        *,
        uid: str,
        resource_version: str = "",
        grace_s: int | None = None,
        propagation: Propagation | None = None,
        timeout_s: float | None = None,
    ) -> dict[str, Any]:
        """Delete the object at `path` if it still has that UID (and that resourceVersion, where one is given).

        Raises:
            ConflictError: it is another object, or has changed.
            NotFoundError: it is gone.
        """
        conditions = {"uid": uid, **({"resourceVersion": resource_version} if resource_version else {})}
        body: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": conditions}
        if grace_s is not None:
            body["gracePeriodSeconds"] = grace_s
        if propagation is not None:
            body["propagationPolicy"] = propagation
        return _decoded(path, await self.request("DELETE", path, body=body, timeout_s=timeout_s))

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: object = None,
        content_type: str = "application/json",
        timeout_s: float | None = None,
    ) -> bytes:
        """Send any request and return the body of its answer.

        Raises:
            TemporaryError: no answer in time, connection lost, 408, 429 or 5xx; with `retry_after_s` where given.
            GoneError: 410.
            ConflictError: 409 (AlreadyExistsError where the name is taken).
            RefusedError: any other status but 2xx (NotFoundError for 404), with the server's own message.
            FencedError: it may change something, and we may not.
        """
        is_fenced = self._always_open is not None and not path.startswith(self._always_open)
        if method != "GET" and is_fenced and not self._may_write():
            raise FencedError(f"{method} {path}: the lease is not held any more")
        data = None if body is None else msgspec.json.encode(body)
        headers = {} if data is None else {"Content-Type": content_type}
        limits = aiohttp.ClientTimeout(total=timeout_s or self._timeout_s)
        call = _Call(method, path, limits, params, data, headers)
        async with self._answer(call) as response:
            with translated(str(call), self.host):
                return await response.read()

    @asynccontextmanager
    async def watch(
        self, path: str, *, params: Params, timeout_s: int, read_timeout_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch: an iterator of its lines, one JSON event each, that ends when the server ends it.

        Args:
            path: of the collection.
            params: selectors, resourceVersion.
            timeout_s: after this time the server ends the watch by itself.
            read_timeout_s: a watch that is silent for so long is dead; more than `timeout_s`.

        Raises:
            GoneError: the resourceVersion is too old (also as an ERROR event, which the reader decodes).
            TemporaryError: the watch is dead or broken; resume from the last resourceVersion.
        """
        query = {**params, "watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(timeout_s)}
        limits = aiohttp.ClientTimeout(total=None, sock_connect=self._timeout_s, sock_read=read_timeout_s)
        async with self._answer(_Call("GET", path, limits, query)) as response:
            yield _lines(response, f"watch of {path}", self.host)

    @asynccontextmanager
    async def _answer(self, call: _Call) -> AsyncIterator[aiohttp.ClientResponse]:
        """Open a successful response; refused credentials are loaded anew once."""
        response = await self._send(call)
        if response.status == 401 and await self._refresh():
            response.close()
            response = await self._send(call)
        try:
            if response.status >= 300:
                with translated(str(call), self.host):
                    raw = await response.read()
                raise error_of(response.status, raw, str(call), response.headers.get("Retry-After"))
            yield response
        finally:
            # Not release(): a watch that is left early would be read to its end to reuse its connection.
            response.close()

    async def _send(self, call: _Call) -> aiohttp.ClientResponse:
        headers = {**call.headers, **await self._authorization()}
        with translated(str(call), self.host):
            return await self._client.request(
                call.method,
                self.host + call.path,
                params=call.params,
                data=call.data,
                headers=headers,
                timeout=call.limits,
                allow_redirects=False,
                ssl=self._ssl,
                server_hostname=self._configuration.tls_server_name,
                proxy=self._configuration.proxy,
                proxy_headers=self._configuration.proxy_headers,
            )

    async def _authorization(self) -> dict[str, str]:
        try:
            settings = await self._configuration.auth_settings()
        except (ConfigException, OSError) as error:
            raise TemporaryError(f"the service account's token cannot be read: {error}") from error
        token = settings.get("BearerToken")
        return {token["key"]: token["value"].strip()} if token and token["value"] else {}

    async def _refresh(self) -> bool:
        """Load the credentials anew, unless that was just done; False where it did not help."""
        if self._reload is None:
            return False
        before = self._reloaded_s
        async with self._reloading:
            if self._reloaded_s != before:
                return True
            if time.monotonic() - before < RELOAD_PAUSE_S:
                return False
            self._reloaded_s = time.monotonic()
            try:
                self._configuration = await self._reload()
                self._ssl = tls_of(self._configuration)
            except ConfigError:
                return False
            return True


def _decoded(path: str, raw: bytes) -> dict[str, Any]:
    try:
        return decode(_OBJECTS, raw)
    except UNREADABLE as error:
        raise TemporaryError(f"{path}: the answer is not a JSON object: {error}") from error


async def _lines(response: aiohttp.ClientResponse, what: str, host: str) -> AsyncIterator[bytes]:
    rest = b""
    with translated(what, host):
        async for chunk in response.content.iter_any():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line:
                    yield line
    if rest:
        yield rest
