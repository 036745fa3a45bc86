"""PUT and PATCH: the new state of an object, by the content type of the request."""

from __future__ import annotations

from typing import Any

from edl.sandbox.apiserver.cluster import Cluster
from edl.sandbox.apiserver.conversion import from_stored
from edl.sandbox.apiserver.errors import bad_request, unsupported_media
from edl.sandbox.apiserver.http.request import Request
from edl.sandbox.apiserver.kinds.kind import Kind, Object
from edl.sandbox.apiserver.patches.json_patch import json_patch, merge_patch, require_object
from edl.sandbox.apiserver.patches.strategic import strategic_patch
from edl.sandbox.apiserver.schema.types import builtin_types
from edl.sandbox.apiserver.storage.store import Entry
from edl.sandbox.apiserver.writing import Write, Writer


class Patcher:
    """Changes objects; see the module."""

    def __init__(self, cluster: Cluster, writer: Writer) -> None:
        self._cluster = cluster
        self._writer = writer

    def create(self, write: Write, value: Object) -> Entry:
        """Store a new object, decoded."""
        return self._writer.create(write, value)

    def replace(self, write: Write, old: Entry, new: Object) -> Entry:
        """Store a new state of an object."""
        return self._writer.replace(write, old, new)

    def change(self, write: Write) -> tuple[Entry, bool]:
        """Execute a PUT or PATCH.

        Returns:
            The object, and whether it was created.

        Raises:
            ApiError: 400, 404, 409, 415 or 422.
        """
        entry = self._cluster.entry(write.kind, write.key)
        body = self.plain(write.request, from_stored(write.kind, entry.value), write.kind)
        return self.replace(write, entry, self._writer.decode(write, body)), False

    def plain(self, request: Request, current: Object, kind: Kind | None = None) -> Any:
        """The new state of an object by a PUT or by any patch but server-side apply.

        Raises:
            ApiError: 400, 415 or 422.
        """
        if request.method == "PUT":
            return request.decoded(kind.name if kind else "object")
        match request.content_type:
            case "application/json-patch+json":
                return json_patch(current, request.decoded("patch"))
            case "application/merge-patch+json":
                return merge_patch(current, require_object(request.decoded("patch")))
            case "application/strategic-merge-patch+json":
                patch = require_object(request.decoded("patch"))
                if kind is None:
                    return merge_patch(current, patch)
                if kind.is_custom:
                    raise unsupported_media()
                return strategic_patch(builtin_types()[kind.type_name], current, patch)
            case "application/apply-patch+yaml":
                raise bad_request("server-side apply of a Scale is not supported")
        raise unsupported_media()
