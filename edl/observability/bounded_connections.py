"""A bound on the connections that strangers hold: whoever opens many loses the oldest, and others get through.

Half-open connections cost nothing to make. Without a bound they fill the table of open files, and neither a probe of
the kubelet nor a connection to the API server finds a place. A new connection is never refused: if there are too
many, the oldest one of the address with the most ends. So a probe, which takes milliseconds, is answered.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from aiohttp import web

MAX_CONNECTIONS = 256
"""Of one server: far below the 1024 open files with which many containers start."""

MAX_OF_ADDRESS = 64
"""The page has at most 32 open streams, which all come from one address through `kubectl port-forward`."""

IDLE_S = 20.0
"""A connection is closed if it brings no whole request header for so long."""


class _Entrance(asyncio.Protocol):
    """Makes room for a connection, and hands it to the server."""

    def __init__(self, server: web.Server) -> None:
        self._server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - for the type checker
        _make_room(self._server, _address(transport))
        handler = self._server()
        transport.set_protocol(handler)
        handler.connection_made(transport)


def entrance(server: web.Server) -> Callable[[], asyncio.Protocol]:
    """The factory of protocols for `loop.create_server`."""
    return lambda: _Entrance(server)


def _make_room(server: web.Server, newcomer: str) -> None:
    """End the oldest connections of the addresses that have too many, counting the one that comes."""
    transports = [one.transport for one in server.connections]
    held = [(one, _address(one)) for one in transports if one is not None and not one.is_closing()]
    counts = Counter(address for _, address in held)
    counts[newcomer] += 1
    while counts.total() > MAX_CONNECTIONS or counts[newcomer] > MAX_OF_ADDRESS:
        crowd = newcomer if counts[newcomer] > MAX_OF_ADDRESS else counts.most_common(1)[0][0]
        oldest = next((pair for pair in held if pair[1] == crowd), None)
        if oldest is None:
            return
        held.remove(oldest)
        counts[crowd] -= 1
        oldest[0].abort()


def _address(transport: asyncio.BaseTransport) -> str:
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) else ""
