"""Sends messages to every open page: each is encoded once, and a page that does not keep up loads all anew.

No page can hold memory: its backlog is bounded, and if it is full the page gets the whole state instead.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from edl.errors import TemporaryError
from edl.waiting import is_set_within

MAX_CLIENTS = 32
BACKLOG = 32
_RETRY_S = 10.0


class TooManyClientsError(TemporaryError):
    """A page is rejected because enough others are open."""


class Client:
    """One open page; `feed` fills it, the HTTP handler empties it.

    Attributes:
        is_closed: the server stops.
    """

    def __init__(self, backlog: int) -> None:
        self.is_closed = False
        self._messages: deque[bytes] = deque()
        self._backlog = backlog
        self._arrived = asyncio.Event()
        self._is_behind = False

    def put(self, message: bytes) -> None:
        """Queue a message; if the queue is full, the page reloads the whole state."""
        if len(self._messages) >= self._backlog:
            self._messages.clear()
            self._is_behind = True
        if not self._is_behind:
            self._messages.append(message)
        self._arrived.set()

    def clear(self) -> None:
        """Drop the queued messages, because the page now gets the whole state."""
        self._messages.clear()
        self._is_behind = False
        self._arrived.clear()

    def close(self) -> None:
        """End the stream."""
        self.is_closed = True
        self._arrived.set()

    async def next(self, timeout_s: float) -> bytes | None:
        """The next message, or b"" if none came within the time; None if the page needs the whole state."""
        if not await is_set_within(self._arrived, timeout_s):
            return b""
        if self.is_closed:
            return b""
        if self._is_behind:
            return None
        message = self._messages.popleft()
        if not self._messages:
            self._arrived.clear()
        return message


class Feed:
    """The open pages.

    Args:
        clients: the most pages that may be open at a time.
        backlog: the most messages that wait for one page.
    """

    def __init__(self, *, clients: int = MAX_CLIENTS, backlog: int = BACKLOG) -> None:
        self._most, self._backlog = clients, backlog
        self._clients: set[Client] = set()

    @property
    def is_watched(self) -> bool:
        """True if any page is open."""
        return bool(self._clients)

    def send(self, event: str, body: object) -> None:
        """Send a message to every open page."""
        if self._clients:
            message = encoded(event, body)
            for client in self._clients:
                client.put(message)

    def close(self) -> None:
        """End every stream, because the server stops."""
        for client in self._clients:
            client.close()

    @contextmanager
    def opened(self) -> Iterator[Client]:
        """Within the block, count and serve a page as open.

        Raises:
            TooManyClientsError: as many pages are open as may be.
        """
        if len(self._clients) >= self._most:
            raise TooManyClientsError(
                f"{self._most} pages are open, which is the most that edl serves; close one and reload",
                retry_after_s=_RETRY_S,
            )
        client = Client(self._backlog)
        self._clients.add(client)
        try:
            yield client
        finally:
            self._clients.discard(client)


def encoded(event: str, body: object) -> bytes:
    """Encode a message for an event stream: one line of JSON without line breaks.

    Source: https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
    """
    text = json.dumps(body, separators=(",", ":"), allow_nan=False)
    return f"event: {event}\ndata: {text}\n\n".encode()
