"""The bounds of objects that edl decodes: nobody may make the controller slow or large by creating an object.

An empty list of two bytes becomes one of 56. So an object of the 1.5 MB that etcd takes can cost a second and 32 MB,
each time that it is listed, and a few dozen of them the lease. An object beyond the bounds is skipped before it is
decoded: only what names the object is read.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from edl.kube.bounds.json_depth import UNREADABLE, decode

MAX_BYTES = 256 * 1024
"""The largest JSON of an object that edl decodes: ten times that of the largest expected object."""

MAX_BYTES_OF_POD = 1024 * 1024
"""The most bytes of a pod: the API server adds managedFields and statuses to what the job's template has."""

MAX_VALUES = 20_000
"""The most lists, objects and their members."""

MAX_VALUES_OF_POD = 50_000
"""The most values in a pod; managedFields have a member for each field."""

MAX_STATUS_BYTES = 64 * 1024
"""A status up to this size is read of an object that is skipped."""

_PREFIX = 512 * 1024
_STRINGS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_TOKENS = re.compile(rb'("metadata"\s*:\s*)?(?:("[^"\\]*(?:\\.[^"\\]*)*")|([\[{])|([\]}]))', re.DOTALL)
_ANYTHING: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


class Oversized(dict[str, Any]):
    """The decoded part of an object that is too large: its names, and its status if that is small.

    Attributes:
        problem: which bound it exceeds.
        has_status: its status is here, or there is none.
    """

    problem = ""
    has_status = True


class _Outline(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    metadata: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))
    status: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"null"))


class _Metadata(msgspec.Struct, rename="camel", omit_defaults=True):
    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    generation: int | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    finalizers: list[str] | None = None


_OUTLINES = msgspec.json.Decoder(_Outline)
_METADATA = msgspec.json.Decoder(_Metadata)


def excess(raw: bytes | msgspec.Raw, max_bytes: int = MAX_BYTES, max_values: int = MAX_VALUES) -> str:
    """Return which bound an object exceeds, as a sentence; empty if none. This decodes nothing.

    Args:
        raw: its JSON.
        max_bytes: the largest size in bytes.
        max_values: the most lists, objects and their members.
    """
    view = memoryview(raw)
    if len(view) > max_bytes:
        return f"its JSON has {len(view)} bytes; edl reads up to {max_bytes}; make it smaller"
    text = bytes(view)
    if _values(text) <= max_values:
        return ""
    values = _values(_STRINGS.sub(b"", text))
    if values <= max_values:
        return ""
    return f"it has {values} values in lists and objects; edl reads up to {max_values}; use fewer"


def _values(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def outline(raw: bytes | msgspec.Raw, problem: str) -> Oversized:
    """Decode only the kind and the names of an object that is too large.

    Raises:
        msgspec.MsgspecError, ValueError: not even its name can be read.
    """
    is_deep = False
    try:
        found = _OUTLINES.decode(raw)
    except RecursionError:
        is_deep = True
        found = _Outline(metadata=msgspec.Raw(_metadata_of(bytes(memoryview(raw)[:_PREFIX]))))
    named = Oversized(metadata=msgspec.to_builtins(_METADATA.decode(found.metadata)))
    named |= {name: text for name, text in (("apiVersion", found.api_version), ("kind", found.kind)) if text}
    is_small = not excess(found.status, MAX_STATUS_BYTES)
    if is_small:
        named["status"] = decode(_ANYTHING, found.status)
    named.problem, named.has_status = problem, is_small and not is_deep
    return named


def _metadata_of(start: bytes) -> bytes:
    """The metadata of an object that is nested too deeply for a decoder; they come before the spec."""
    depth, begun = 0, -1
    for token in _TOKENS.finditer(start):
        is_metadata, _, opens, closes = token.groups()
        if opens:
            depth += 1
            if is_metadata and depth == 2:
                begun = token.start(3)
        elif closes:
            depth -= 1
            if depth == 1 and begun >= 0:
                return start[begun : token.end()]
    return b"{}"


def decode_object(raw: bytes) -> dict[str, Any]:
    """Decode an object that the API server has answered with; of one beyond the bounds, its outline.

    Raises:
        msgspec.MsgspecError, ValueError: it is no JSON object.
    """
    problem = excess(raw)
    if problem and _is_pod(raw):
        problem = excess(raw, MAX_BYTES_OF_POD, MAX_VALUES_OF_POD)
    if problem:
        return outline(raw, problem)
    body = decode(_ANYTHING, raw)
    if not isinstance(body, dict):
        raise msgspec.ValidationError("it is not an object")
    return body


def _is_pod(raw: bytes) -> bool:
    """Return True if a JSON object says that it is a pod before anything long in it."""
    try:
        return _OUTLINES.decode(raw).kind == "Pod"
    except UNREADABLE:
        return False
