"""One call of an API server: its parts, its errors, and the body of its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from edl.errors import EdlError, TemporaryError
from edl.kube.bounds.json_depth import UNREADABLE
from edl.kube.bounds.object_bounds import decode_object

Params = Mapping[str, str]


class FencedError(EdlError):
    """The request was not sent, because this process may not write now."""


class TooLongError(EdlError):
    """The response has more bytes than the caller wants to read."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request.

    Attributes:
        path: the path of the request, without the host.
        is_watch: it takes as long as the watch lasts, and no place of an ordinary request.
    """

    method: str
    path: str
    limits: aiohttp.ClientTimeout
    params: Params | None = None
    data: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    is_watch: bool = False

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def accepting(form: str) -> dict[str, str]:
    """The headers that ask for a media type; none if it is empty."""
    return {"Accept": form} if form else {}


def decoded(path: str, raw: bytes) -> dict[str, Any]:
    """Decode the body of an answer.

    Raises:
        TemporaryError: it is not a JSON object.
    """
    try:
        return decode_object(raw)
    except UNREADABLE as error:
        raise TemporaryError(f"{path}: the response is not a JSON object: {error}") from error
