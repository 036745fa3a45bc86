"""JSON that is nested deeper than a decoder can follow, cut off instead of refused.

The API server takes ten thousand levels, Python's decoders about one thousand; and a decoder that gives up on one
object gives up on the list that it is in. So whatever is nested deeper than any object of ours may be is replaced by
null, and the rest is read: what names the object stands near its surface, and its own reader refuses what is left.
"""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

T = TypeVar("T")

LEVELS = 200
"""More than `edl.api` allows a job by far, so that a job which was cut is a job that is refused."""

_TOKENS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)


def decode(decoder: msgspec.json.Decoder[T], raw: bytes | msgspec.Raw) -> T:
    """What the decoder reads; where it cannot follow, what it reads of the upper levels.

    Raises:
        msgspec.MsgspecError, ValueError: as the decoder does.
    """
    try:
        return decoder.decode(raw)
    except RecursionError:
        return decoder.decode(cut_off(bytes(raw)))


def cut_off(raw: bytes, levels: int = LEVELS) -> bytes:
    """The same JSON with null in the place of every list or object deeper than so many levels."""
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
