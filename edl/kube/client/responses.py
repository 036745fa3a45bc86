"""What the API server wraps around objects: the pages of a list, the lines of a watch, and its error responses."""

from __future__ import annotations

import asyncio
import re

import msgspec

from edl.kube.bounds.json_depth import cut_off, decode
from edl.kube.translate.objects import ObjectMetadata
from edl.kube.translate.scalars import ApiStruct

_LINE = re.compile(rb'\{"type":"([A-Z]+)","object":(.*)\}', re.DOTALL)


class ListMetadata(ApiStruct):
    """The version of a list, and the token of its next page."""

    resource_version: str | None = None
    continue_: str | None = msgspec.field(default=None, name="continue")


class ListPage(ApiStruct):
    """One page of a list; its items are not decoded."""

    metadata: ListMetadata | None = None
    items: list[msgspec.Raw] | None = None


class WatchEvent(ApiStruct):
    """One line of a watch; its object is not decoded. The type is ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""

    type: str = ""
    object: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))


class Bookmark(ApiStruct):
    """The object of a BOOKMARK: only the version from which a watch can resume."""

    metadata: ObjectMetadata | None = None


class StatusDetails(ApiStruct):
    """The details of a metav1.Status."""

    retry_after_seconds: int | None = None


class ApiStatus(ApiStruct):
    """A metav1.Status: the body of the API server's error responses."""

    message: str | None = None
    reason: str | None = None
    code: int | None = None
    details: StatusDetails | None = None


_PAGES = msgspec.json.Decoder(ListPage)
_EVENTS = msgspec.json.Decoder(WatchEvent)
_BOOKMARKS = msgspec.json.Decoder(Bookmark)


async def page_of(raw: bytes) -> ListPage:
    """Decode a page of a list; the search for objects nested too deeply takes long, and runs in a thread."""
    try:
        return _PAGES.decode(raw)
    except RecursionError:
        return _PAGES.decode(await asyncio.to_thread(cut_off, raw))


def event_of(line: bytes) -> WatchEvent:
    """Decode a line of a watch; an object that is nested too deeply for the decoder is found by a pattern."""
    try:
        return _EVENTS.decode(line)
    except RecursionError:
        found = _LINE.fullmatch(line.strip())
        return WatchEvent(found[1].decode(), msgspec.Raw(found[2])) if found else decode(_EVENTS, line)


def bookmark_of(event: WatchEvent) -> Bookmark:
    """Decode the object of a BOOKMARK.

    Raises:
        msgspec.DecodeError: it is not an object with metadata.
    """
    return _BOOKMARKS.decode(event.object)
