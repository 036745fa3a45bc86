"""Reads the body of a response: as a whole up to a limit, or line by line as it comes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp

from edl.kube.client.api_errors import translated
from edl.kube.client.calls import TooLongError


async def whole(response: aiohttp.ClientResponse, max_bytes: int | None) -> bytes:
    """Read the whole body.

    Raises:
        TooLongError: it has more than `max_bytes`.
    """
    if max_bytes is None:
        return await response.read()
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > max_bytes:
            raise TooLongError(f"the response has more than {max_bytes} bytes")
    return bytes(body)


async def lines_of(response: aiohttp.ClientResponse, what: str, host: str) -> AsyncIterator[bytes]:
    """Yield the lines that are not empty, without their ends.

    Args:
        response: an open response.
        what: what is read, and `host` from where; for the errors.
        host: the API server.

    Raises:
        TemporaryError: the connection is lost.
    """
    rest = b""
    with translated(what, host):
        async for chunk in response.content.iter_any():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line:
                    yield line
    if rest:
        yield rest
