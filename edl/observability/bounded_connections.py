"""Limits the connections that clients hold: a client with many loses its oldest ones, so that others get through.

Half-open connections cost nothing to make. Without a bound they fill the table of open files, and neither a probe of
the kubelet nor a connection to the API server finds a place. A new connection is never refused: if there are too
many, the oldest one of the address with the most ends. So a probe, which takes milliseconds, is answered. The page of
somebody who has shown a token does not end so: all who share a machine share an address.

Whoever asks for a long answer and does not read it makes the server keep it, and a closed window can stay closed for
ever. So a connection ends that has had something to read for too long.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Never

from aiohttp import web

MAX_CONNECTIONS = 256
"""The most connections of one server: far below the 1024 open files that many containers may have."""

MAX_OF_ADDRESS = 64
"""A browser opens a few beside the stream of its page, and all come from one address by `kubectl port-forward`."""

IDLE_S = 20.0
"""A connection without a whole request header for this time is closed."""


UNREAD_S = 30.0
"""A connection is closed if the client does not read all of an answer within this time."""

LOOK_EVERY_S = 1.0

_kept: set[asyncio.BaseTransport] = set()


@contextmanager
def kept(transport: asyncio.BaseTransport | None) -> Iterator[None]:
    """Exempt a connection from the limit while the block runs: it is neither counted nor closed in favour of others.

    Args:
        transport: of somebody who has shown a token, and of whom the caller bounds the number; None if it is closed.
    """
    if transport is None:
        yield
        return
    _kept.add(transport)
    try:
        yield
    finally:
        _kept.discard(transport)


class _Entrance(asyncio.Protocol):
    """Accepts a connection, ends others for it if there are too many, and hands it to the server."""

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


async def end_unread(server: web.Server) -> Never:
    """End connections whose answers are not read; only cancellation ends this."""
    since_s: dict[asyncio.Transport, float] = {}
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        now_s = time.monotonic()
        waiting = [one.transport for one in server.connections if one.transport is not None]
        since_s = {one: since_s.get(one, now_s) for one in waiting if one.get_write_buffer_size()}
        for transport, began_s in since_s.items():
            if now_s - began_s >= UNREAD_S:
                transport.abort()


def _make_room(server: web.Server, newcomer: str) -> None:
    """End the oldest connections of the addresses that have too many, counting the one that comes."""
    transports = [one.transport for one in server.connections]
    held = [
        (one, _address(one)) for one in transports if one is not None and not one.is_closing() and one not in _kept
    ]
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
