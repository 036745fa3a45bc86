"""JSON that is nested deeper than a decoder can follow: the deep part is cut off, the rest is read.

The API server accepts ten thousand levels, but Python's decoders follow only about one thousand. A decoder that gives
up on one object also gives up on the list that contains it. So null replaces whatever is nested deeper than any valid
object, and the rest is decoded. The fields that name an object are not nested deeply, so they remain; validation
rejects the object by the part that is missing.
"""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

T = TypeVar("T")

LEVELS = 200
"""Levels that are kept. `edl.api` allows a job far fewer, so it rejects every job that was cut."""

UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
"""The exceptions that decoding bytes from outside can raise."""

_TOKENS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)


def decode(decoder: msgspec.json.Decoder[T], raw: bytes | msgspec.Raw) -> T:
    """Decode JSON; if it is nested too deeply for the decoder, decode its upper levels.

    Raises:
        msgspec.MsgspecError, ValueError: as the decoder does.
    """
    try:
        return decoder.decode(raw)
    except RecursionError:
        return decoder.decode(cut_off(bytes(raw)))


def cut_off(raw: bytes, levels: int = LEVELS) -> bytes:
    """Return the same JSON, with null in place of every list or object below that many levels."""
    kept: list[bytes] = []
    depth = start = 0
    for token in _TOKENS.finditer(raw):
        match token[0]:
            case b"[" | b"{":
                depth += 1
                if depth == levels + 1:
                    kept += raw[start : token.start()], b"null"
            case b"]" | b"}":
                if depth == levels + 1:
                    start = token.end()
                depth -= 1
    return b"".join((*kept, raw[start:]))
