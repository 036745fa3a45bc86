"""One session with the API server: the official client's authentication, and requests that edl sends itself.

The official client's typed calls are too slow for 10,000 pods, so aiohttp sends the requests and returns bytes. Every
call has a timeout, and every library error is translated once. This module does not retry, because only the caller
knows whether a retry is safe. The one exception: after a 401 it reloads the credentials and sends once more.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Final, Literal, Self
from urllib.parse import urlsplit

import aiohttp
import msgspec
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException

from edl.errors import TemporaryError
from edl.kube.client.api_errors import UntrustedError, error_of, translated
from edl.kube.client.body import lines_of, whole
from edl.kube.client.calls import Call, FencedError, Params, accepting, decoded
from edl.kube.client.connections import Sockets, connections
from edl.kube.client.credentials import (
    configuration_of_caller,
    impersonation_of,
    load_configuration,
)
from edl.kube.client.reloading import ReloadedCredentials
from edl.kube.client.server_clock import ServerClock

MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"

CONNECTIONS, EXEMPT_CONNECTIONS = 100, 2
"""The most connections of ordinary requests, and those that only the lease uses; watches have no limit."""

Propagation = Literal["Background", "Foreground", "Orphan"]


class ApiSession:
    """Sends requests to one API server; use it as an async context manager or call `close`."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        reload: Callable[[], Awaitable[Configuration]] | None = None,
        timeout_s: float = 15.0,
    ) -> None:
        """Open a session with a loaded configuration; nothing is sent yet.

        Args:
            configuration: the official client's: host, credentials, TLS.
            reload: loads the configuration again after a 401; None if that cannot help.
            timeout_s: timeout of a call that sets none itself, in seconds.

        Raises:
            ConfigError: a certificate cannot be used.
        """
        self.server_clock = ServerClock()
        self._timeout_s = timeout_s
        self._credentials = ReloadedCredentials(configuration, reload)
        self._may_write: Callable[[], bool] = lambda: True
        self._exempt: str | None = None
        self._only_reads = False
        # A watch keeps its connection for minutes, and there is one for each namespace: watches must not take those
        # of other requests, and nothing may take that of the lease.
        self._sockets = Sockets()
        self._client, self._watches, self._exempt_client = (
            connections(configuration, most, self._check_fence, self._sockets)
            for most in (CONNECTIONS, 0, EXEMPT_CONNECTIONS)
        )

    @classmethod
    async def open(cls, kubeconfig: str = "", *, timeout_s: float = 15.0) -> Self:
        """Load the configuration as kubectl does and open a session; nothing is sent yet.

        Args:
            kubeconfig: one path, or several as in $KUBECONFIG. If it is empty: $KUBECONFIG, then ~/.kube/config if
                that exists, then the service account of the pod in which edl runs.
            timeout_s: timeout of a call that sets none itself, in seconds.

        Raises:
            ConfigError: there is no configuration, or it cannot be used.
        """

        async def load() -> Configuration:
            return await load_configuration(kubeconfig)

        return cls(await load(), reload=load, timeout_s=timeout_s)

    def of_caller(self, token: str) -> ApiSession:
        """Open a session with the same server that sends this token, and no credentials of this one.

        Raises:
            ConfigError: the certificate of the server's authority cannot be used.
        """
        return ApiSession(configuration_of_caller(self._configuration, token), timeout_s=self._timeout_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; open watches end with a TemporaryError."""
        self._credentials.close()
        for client in (self._client, self._watches, self._exempt_client):
            await client.close()
        await self._sockets.closed()

    def fence(self, may_write: Callable[[], bool], *, exempt: str) -> None:
        """Call `may_write` right before each further request that can change something.

        One action may need several requests, and each can take as long as its timeout. So the lease can be lost
        between the first and the last of them. It is asked when the request has a connection, too: a process that
        was stopped while it connected would send the request when it continues.

        Args:
            may_write: returns True while the request may be sent.
            exempt: requests to paths with this prefix are always sent: those of leader election, which needs them to
                get the lease back.
        """
        self._may_write, self._exempt = may_write, exempt

    def only_read(self) -> None:
        """Reject all requests but GET for the rest of the session."""
        self._only_reads = True

    def _check_fence(self, method: str, path: str) -> None:
        if method != "GET" and self._only_reads:
            raise FencedError(f"{method} {path} was not sent: this process only reads the cluster")
        if method == "GET" or self._exempt is None or path.startswith(self._exempt) or self._may_write():
            return
        raise FencedError(f"{method} {path} was not sent: this replica does not hold the lease any more")

    @property
    def _configuration(self) -> Configuration:
        return self._credentials.configuration

    @property
    def host(self) -> str:
        """Scheme, host and port of the API server; a path or a user may hold a secret, so logs get neither."""
        url = urlsplit(str(self._configuration.host))
        return f"{url.scheme}://{url.netloc.rpartition('@')[2]}"

    async def get(
        self, path: str, *, params: Params | None = None, accept: str = "", timeout_s: float | None = None
    ) -> bytes:
        """Read the object at `path`, or any other response to a GET.

        Args:
            path: the path of the object.
            params: parameters of the query.
            accept: the form of the response; empty for JSON.
            timeout_s: timeout of this call.

        Raises:
            NotFoundError: there is none.
            TemporaryError, PermanentError: see `request`.
        """
        return await self.request("GET", path, params=params, accept=accept, timeout_s=timeout_s)

    async def list(
        self,
        path: str,
        *,
        params: Params | None = None,
        limit: int = 500,
        continue_: str = "",
        timeout_s: float | None = None,
        max_bytes: int | None = None,
    ) -> bytes:
        """Read one page of a collection.

        Args:
            path: the path of the collection.
            params: selectors.
            limit: the most items in the page; 0 for no limit.
            continue_: the token of the page before; empty for the first page.
            timeout_s: timeout of this call.
            max_bytes: the most bytes that are read; None for no limit.

        Raises:
            GoneError: the token is too old.
            TooLongError: the page has more bytes.
        """
        query = {**(params or {}), **({"limit": str(limit)} if limit else {})}
        if continue_:
            query["continue"] = continue_
        return await self.request("GET", path, params=query, timeout_s=timeout_s, max_bytes=max_bytes)

    async def post(self, path: str, body: Mapping[str, Any], *, timeout_s: float | None = None) -> dict[str, Any]:
        """Create an object in the collection `path` and return it as stored.

        Raises:
            AlreadyExistsError: an object of that name exists.
        """
        return decoded(path, await self.request("POST", path, body=body, timeout_s=timeout_s))

    async def patch(
        self, path: str, body: object, *, content_type: str = MERGE_PATCH, timeout_s: float | None = None
    ) -> dict[str, Any]:
        """Patch an object and return it as stored. A resourceVersion or uid in a merge patch makes it conditional.

        Raises:
            ConflictError: the condition does not hold.
            NotFoundError: the object does not exist.
        """
        raw = await self.request("PATCH", path, body=body, content_type=content_type, timeout_s=timeout_s)
        return decoded(path, raw)

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
        """Delete the object at `path` if it still has that UID, and that resourceVersion if one is given.

        Raises:
            ConflictError: another object has the name now, or the object has changed.
            NotFoundError: the object does not exist.
        """
        conditions = {"uid": uid, **({"resourceVersion": resource_version} if resource_version else {})}
        body: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": conditions}
        if grace_s is not None:
            body["gracePeriodSeconds"] = grace_s
        if propagation is not None:
            body["propagationPolicy"] = propagation
        return decoded(path, await self.request("DELETE", path, body=body, timeout_s=timeout_s))

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: object = None,
        content_type: str = "application/json",
        accept: str = "",
        timeout_s: float | None = None,
        max_bytes: int | None = None,
    ) -> bytes:
        """Send a request and return the body of the response.

        Args:
            method: the HTTP method.
            path: the path of the object, the collection or the subresource.
            params: parameters of the query.
            body: an object to send as JSON; None for no body.
            content_type: the form of the body.
            accept: the form of the response; empty for JSON.
            timeout_s: timeout of this call.
            max_bytes: the most bytes of the response that are read; None for no limit.

        Raises:
            TooLongError: the response has more bytes.
            TemporaryError: timeout, lost connection, 408, 429 or 5xx; with `retry_after_s` if the server sets it.
            GoneError: 410.
            ConflictError: 409 (AlreadyExistsError if an object of that name exists).
            RefusedError: any other status that is not 2xx (NotFoundError for 404), with the server's own message.
            FencedError: the request can change something, and this process may not write now.
        """
        data = None if body is None else msgspec.json.encode(body)
        headers = {**({} if data is None else {"Content-Type": content_type}), **accepting(accept)}
        limits = aiohttp.ClientTimeout(total=timeout_s or self._timeout_s)
        call = Call(method, path, limits, params, data, headers)
        async with self._response(call) as response:
            with translated(str(call), self.host):
                return await whole(response, max_bytes)

    @asynccontextmanager
    async def watch(
        self, path: str, *, params: Params, timeout_s: int, read_timeout_s: float, accept: str = ""
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch: an iterator over its lines, one JSON event each, that ends when the server ends the watch.

        Args:
            path: the path of the collection.
            params: selectors, resourceVersion.
            timeout_s: the server ends the watch after this time.
            read_timeout_s: the connection is considered lost after this time without a byte; more than `timeout_s`.
            accept: the form of the objects; empty for JSON.

        Raises:
            GoneError: the resourceVersion is too old. It can also come as an ERROR event, which the caller decodes.
            TemporaryError: the connection is lost; resume from the last resourceVersion.
        """
        query = {**params, "watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(timeout_s)}
        limits = aiohttp.ClientTimeout(total=None, sock_connect=self._timeout_s, sock_read=read_timeout_s)
        call = Call("GET", path, limits, query, headers=accepting(accept), is_watch=True)
        async with self._response(call) as response:
            yield lines_of(response, f"watch of {path}", self.host)

    @asynccontextmanager
    async def lines(self, path: str, *, params: Params) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a text, such as a log: an iterator over its lines, that ends when the server ends the text.

        Args:
            path: the path of the text.
            params: parameters of the query.

        Raises:
            TemporaryError: the connection is lost.
        """
        limits = aiohttp.ClientTimeout(total=None, sock_connect=self._timeout_s)
        call = Call("GET", path, limits, params, headers=accepting("*/*"))
        async with self._response(call) as response:
            yield lines_of(response, f"text of {path}", self.host)

    @asynccontextmanager
    async def _response(self, call: Call) -> AsyncIterator[aiohttp.ClientResponse]:
        """Open a successful response; after a 401, or from an untrusted server, try again with new credentials."""
        sent_with = self._configuration
        wait_s = call.limits.total or self._timeout_s
        try:
            response = await self._send(call)
        except UntrustedError:
            if not await self._credentials.has_newer(sent_with, wait_s):
                raise
            response = await self._send(call)
        if response.status == 401 and await self._credentials.has_newer(sent_with, wait_s):
            response.close()
            response = await self._send(call)
        try:
            if response.status >= 300:
                with translated(str(call), self.host):
                    raw = await response.read()
                raise error_of(response.status, raw, str(call), response.headers.get("Retry-After"))
            yield response
        finally:
            # Not release(): it would read a watch that is left early to its end, to reuse the connection.
            response.close()

    async def _send(self, call: Call) -> aiohttp.ClientResponse:
        """Send the request once, if this replica may write now: reloading credentials may have taken long."""
        own = {**call.headers, **await self._authorization()}
        headers = [*own.items(), *impersonation_of(self._configuration)]  # a user's groups have one header each
        self._check_fence(call.method, call.path)
        is_exempt = self._exempt is not None and call.path.startswith(self._exempt)
        client = self._watches if call.is_watch else self._exempt_client if is_exempt else self._client
        sent_s = time.time()
        with translated(str(call), self.host):
            response = await client.request(
                call.method,
                self.host + call.path,
                params=call.params,
                data=call.data,
                headers=headers,
                timeout=call.limits,
                allow_redirects=False,
                ssl=self._credentials.tls,
                server_hostname=self._configuration.tls_server_name,
                proxy=self._configuration.proxy,
                proxy_headers=self._configuration.proxy_headers,
            )
        self.server_clock.saw(response.headers.get("Date", ""), sent_s, time.time())
        return response

    async def _authorization(self) -> dict[str, str]:
        try:
            settings = await self._configuration.auth_settings()
        except (ConfigException, OSError) as error:
            raise TemporaryError(f"the token of the service account cannot be read: {error}") from error
        token = settings.get("BearerToken")
        return {token["key"]: token["value"].strip()} if token and token["value"] else {}
