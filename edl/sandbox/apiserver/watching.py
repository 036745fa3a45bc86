"""Watches: the changes of a collection as a stream of lines.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator

import msgspec

from edl.sandbox.apiserver.cluster import Cluster
from edl.sandbox.apiserver.conversion import from_stored
from edl.sandbox.apiserver.errors import ApiError, bad_request, expired, too_large_version
from edl.sandbox.apiserver.http.request import Request
from edl.sandbox.apiserver.http.response import Accepted
from edl.sandbox.apiserver.http.tables import partial, table, without_columns
from edl.sandbox.apiserver.kinds.kind import Kind, Object
from edl.sandbox.apiserver.listing import Selection, parse_version
from edl.sandbox.apiserver.storage.store import Change, ChangeType, Entry, TooOldError

BOOKMARK_S = 10.0
"""Time between bookmarks; a real server sends one about each minute."""

_DEFAULT_TIMEOUT_S = 1800
_INITIAL_END = "k8s.io/initial-events-end"


class Watch:
    """One watch: it listens from the moment it is made, so that nothing is missed before it is read."""

    def __init__(self, cluster: Cluster, selection: Selection, request: Request, form: Accepted) -> None:
        """Begin to listen for changes.

        Raises:
            ApiError: 400, a parameter is wrong; 504, the version is in the future.
        """
        self._cluster = cluster
        self._selection = selection
        self._kind = selection.kind
        self._form = form
        self._include = request.query.get("includeObject", "Metadata")
        self._bookmarks = request.flag("allowWatchBookmarks")
        self._timeout_s = request.number("timeoutSeconds") or _DEFAULT_TIMEOUT_S
        self._initial = request.query.get("sendInitialEvents")
        self._check_initial(request)
        self._since = parse_version(request.query.get("resourceVersion", ""))
        if self._since > cluster.store.version:
            raise too_large_version(self._since, cluster.store.version)
        self._waiting: deque[Change] = deque()
        self._woken = asyncio.Event()
        self._first = True
        self._begun = list(self._begin())
        self._sent = cluster.store.version
        self._stop: Callable[[], None] = cluster.store.listen(self._kind.resource, self._notice)

    def _check_initial(self, request: Request) -> None:
        if self._initial is not None and request.query.get("resourceVersionMatch") != "NotOlderThan":
            detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            raise bad_request(f"sendInitialEvents: Forbidden: {detail}")

    def _notice(self, change: Change) -> None:
        self._waiting.append(change)
        self._woken.set()

    def close(self) -> None:
        """Stop listening."""
        self._stop()

    async def lines(self) -> AsyncGenerator[bytes]:
        """The events as JSON lines, until the timeout of the request."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._timeout_s
        bookmark = loop.time() + BOOKMARK_S
        try:
            if self._begun:
                yield b"".join(self._begun)
            while True:
                now = loop.time()
                if not self._waiting and now < end:
                    self._woken.clear()
                    limit = min(end, bookmark) if self._bookmarks else end
                    try:
                        async with asyncio.timeout_at(limit):
                            await self._woken.wait()
                    except TimeoutError:
                        pass
                if chunk := self._take():
                    yield chunk
                elif loop.time() >= end:
                    return
                elif self._bookmarks and loop.time() >= bookmark:
                    bookmark = loop.time() + BOOKMARK_S
                    yield self._bookmark()
        finally:
            self.close()

    def _take(self) -> bytes:
        """Return all changes that wait, as lines."""
        lines = []
        while self._waiting:
            change = self._waiting.popleft()
            self._sent = change.version
            if line := self._line_of(change):
                lines.append(line)
        return b"".join(lines)

    def _begin(self) -> Iterator[bytes]:
        """Yield the events before the first change: the present objects, or the changes since the asked version."""
        store = self._cluster.store
        if self._initial == "true" or (self._since == 0 and self._initial is None):
            for key, entry in store.entries(self._kind.resource, self._selection.namespace):
                if self._selection.holds(key, entry):
                    yield self._line(ChangeType.ADDED, entry)
            if self._initial == "true" and self._bookmarks:
                yield self._bookmark(initial_end=True)
            return
        if self._since == 0:
            return
        try:
            changes = store.changes_since(self._kind.resource, self._since)
        except TooOldError:
            error: ApiError = expired(f"too old resource version: {self._since} ({store.version})")
            yield msgspec.json.encode({"type": "ERROR", "object": error.status}) + b"\n"
            self._timeout_s = 0
            return
        yield from filter(None, map(self._line_of, changes))

    def _line_of(self, change: Change) -> bytes:
        """Encode a change as seen through the selector; empty if it concerns no selected object."""
        selection = self._selection
        is_in = change.type is not ChangeType.DELETED and selection.holds(change.key, change.entry)
        was_in = change.previous is not None and selection.holds(change.key, change.previous)
        if is_in:
            return self._line(ChangeType.MODIFIED if was_in else ChangeType.ADDED, change.entry)
        if not was_in or change.previous is None:
            return b""
        if change.type is ChangeType.DELETED:
            return self._line(ChangeType.DELETED, change.entry)
        # An object that leaves the selection is shown as it was, with the version of the change.
        metadata = {**change.previous.value["metadata"], "resourceVersion": str(change.version)}
        return self._line(ChangeType.DELETED, Entry({**change.previous.value, "metadata": metadata}, change.version))

    def _line(self, kind: ChangeType, entry: Entry) -> bytes:
        if not self._form.as_kind and not self._kind.stored_as:
            return b'{"type":"%b","object":%b}\n' % (kind.value.encode(), entry.raw)
        return msgspec.json.encode({"type": kind.value, "object": self._shaped(entry.value)}) + b"\n"

    def _shaped(self, value: Object) -> Object:
        if self._form.as_kind == "Table":
            rows = table(
                self._kind,
                [value],
                {"resourceVersion": value["metadata"]["resourceVersion"]},
                self._cluster.now(),
                self._include,
            )
            rows, self._first = (rows if self._first else without_columns(rows)), False
            return rows
        shown = from_stored(self._kind, value)
        return partial(shown) if self._form.as_kind else shown

    def _bookmark(self, *, initial_end: bool = False) -> bytes:
        metadata: Object = {"resourceVersion": str(max(self._cluster.store.version, self._since))}
        metadata["creationTimestamp"] = None
        if initial_end:
            metadata["annotations"] = {_INITIAL_END: "true"}
        body: Object = _bookmark_body(self._kind, self._form, metadata)
        return msgspec.json.encode({"type": "BOOKMARK", "object": body}) + b"\n"


def _bookmark_body(kind: Kind, form: Accepted, metadata: Object) -> Object:
    if form.as_kind == "Table":
        row = {
            "cells": [],
            "object": {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata},
        }
        listed = {"resourceVersion": metadata["resourceVersion"]}
        return {
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": listed,
            "columnDefinitions": [],
            "rows": [row],
        }
    if form.as_kind:
        return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
    return {"kind": kind.name, "apiVersion": kind.api_version, "metadata": metadata}
