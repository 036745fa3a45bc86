"""A pool of connections to an API server. Before it writes a request, it checks that sending is still allowed."""

from __future__ import annotations

import asyncio
import socket
import time
import weakref
from collections.abc import Callable
from types import SimpleNamespace

import aiohttp
from kubernetes.aio.client import Configuration

from edl import __version__
from edl.kube.client.credentials import proxy_of_environment

READ_BUFFER_BYTES = 2 * 1024 * 1024
"""A watch event can be as large as etcd's limit for an object (1.5 MiB)."""

_CLOSING_S = 1.0
_CLOSING_POLL_S = 0.005


class Sockets:
    """Tracks the sockets of one or more pools, so that closing the pools can wait until the last one is closed."""

    def __init__(self) -> None:
        """Start with none."""
        self._opened: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def open(self, address: aiohttp.AddrInfoType) -> socket.socket:
        """Make a socket for an address, as aiohttp does, and remember it while it exists."""
        family, kind, protocol, *_ = address
        opened = socket.socket(family, kind, protocol)
        self._opened.add(opened)
        return opened

    async def closed(self) -> None:
        """Wait until all are closed, at most a second.

        The connection of a cancelled request has left the pool when aiohttp closes it. With TLS that takes a message
        to the server and one back. An event loop that ends before that would leave the socket open.
        """
        until_s = time.monotonic() + _CLOSING_S
        while self._is_any_open() and time.monotonic() < until_s:  # noqa: ASYNC110 - a socket has no event for its end
            await asyncio.sleep(_CLOSING_POLL_S)

    def _is_any_open(self) -> bool:
        return any(opened.fileno() >= 0 for opened in self._opened)


def connections(
    configuration: Configuration, most: int, before_writing: Callable[[str, str], None], sockets: Sockets
) -> aiohttp.ClientSession:
    """Open a pool; nothing is sent yet.

    Args:
        configuration: the official client's: the environment may name a proxy for its host.
        most: connections at one time; 0 for no limit.
        before_writing: called with method and path once the request has a connection, before its first byte is
            written. It raises if the request must not be sent, and the connection is closed.
        sockets: where the pool's sockets are remembered.
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=most, socket_factory=sockets.open),
        proxy=proxy_of_environment(str(configuration.host)),
        read_bufsize=READ_BUFFER_BYTES,
        headers={"User-Agent": f"edl/{__version__}", "Accept": "application/json"},
        trace_configs=[_asking(before_writing)],
    )


def _asking(before_writing: Callable[[str, str], None]) -> aiohttp.TraceConfig:
    async def ask(
        _session: aiohttp.ClientSession, _context: SimpleNamespace, request: aiohttp.TraceRequestHeadersSentParams
    ) -> None:
        before_writing(request.method, request.url.path)

    # In spite of its name, aiohttp awaits this signal before it writes the headers.
    asking = aiohttp.TraceConfig()
    asking.on_request_headers_sent.append(ask)
    return asking
