"""Names -> addresses, many at a time, as the machine resolves them."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

from edl.errors import TemporaryError

_AT_ONCE = 16
_NO_SUCH_NAME = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}


def addresses_of(names: list[str]) -> list[tuple[str, ...]]:
    """The addresses of each name; none where there is no such name.

    Raises:
        TemporaryError: the name server does not answer.
    """
    with ThreadPoolExecutor(min(_AT_ONCE, len(names))) as pool:
        return list(pool.map(_addresses, names))


def _addresses(name: str) -> tuple[str, ...]:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno in _NO_SUCH_NAME:
            return ()
        raise TemporaryError(f"{name}: the name server does not answer: {error}") from error
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))
