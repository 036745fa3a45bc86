"""A pool of connections to an API server. It asks before it writes a request whether that may still be sent."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import aiohttp
from kubernetes.aio.client import Configuration

from edl import __version__
from edl.kube.client.credentials import bypasses_proxy

READ_BUFFER_BYTES = 2 * 1024 * 1024
"""A watch event can be as large as etcd's limit for an object (1.5 MiB)."""


def connections(
    configuration: Configuration, most: int, before_writing: Callable[[str, str], None]
) -> aiohttp.ClientSession:
    """Open a pool; nothing is sent yet.

    Args:
        configuration: the official client's: whether the environment names a proxy.
        most: connections at one time; 0 for no limit.
        before_writing: called with method and path once the request has a connection, before its first byte is
            written. It raises if the request must not be sent, and the connection is closed.
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=most),
        trust_env=not bypasses_proxy(str(configuration.host)),
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
