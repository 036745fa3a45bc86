"""PUT and PATCH: the new state of an object, by the content type of the request."""

from __future__ import annotations

from typing import Any

from edl.sandbox.apiserver.cluster import Cluster
from edl.sandbox.apiserver.conversion import from_stored
from edl.sandbox.apiserver.errors import bad_request, invalid, not_found, required, unsupported_media
from edl.sandbox.apiserver.http.request import Request
from edl.sandbox.apiserver.kinds.kind import Kind, Object, dig
from edl.sandbox.apiserver.patches.apply import merge, without
from edl.sandbox.apiserver.patches.json_patch import json_patch, merge_patch, require_object
from edl.sandbox.apiserver.patches.managers import APPLY, Manager, plan_apply
from edl.sandbox.apiserver.patches.strategic import strategic_patch
from edl.sandbox.apiserver.schema.types import builtin_types
from edl.sandbox.apiserver.storage.store import Entry
from edl.sandbox.apiserver.writing import Write, Writer, type_of

_SCALE = "io.k8s.api.autoscaling.v1.Scale"
APPLY_PATCH = "application/apply-patch+yaml"


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
        if write.request.content_type == APPLY_PATCH:
            return self._apply(write)
        entry = self._cluster.entry(write.kind, write.key)
        body = self.plain(write.request, from_stored(write.kind, entry.value), write.kind)
        return self.replace(write, entry, self._writer.decode(write, body)), False

    def _apply(self, write: Write) -> tuple[Entry, bool]:
        request, kind = write.request, write.kind
        if not request.query.get("fieldManager"):
            error = required("fieldManager", "is required for apply patch")
            raise invalid("PatchOptions", "meta.k8s.io", "", [error])
        body = require_object(request.decoded("patch"))
        if dig(body, "metadata", "managedFields"):
            raise bad_request("metadata.managedFields must be nil")
        wanted = self._writer.decode(write, body)
        wanted["metadata"].setdefault("name", write.key[1])
        entry = self._cluster.store.get(kind.resource, write.key)
        live = None if entry is None else entry.value
        manager = Manager(request.manager, APPLY, wanted["apiVersion"], write.manager_subresource)
        schema, force = type_of(kind), request.flag("force")
        write.applied = plan_apply(schema, live, wanted, manager, force=force, is_custom=kind.is_custom)
        if entry is None:
            if write.subresource:
                raise not_found(kind.plural, kind.group, write.key[1])
            return self._writer.create(write, wanted), True
        merged = merge(schema, without(schema, entry.value, write.applied.dropped), wanted)
        return self._writer.replace(write, entry, merged), False

    def plain(self, request: Request, current: Object, kind: Kind | None = None) -> Any:
        """The new state of an object by a PUT or by any patch but server-side apply.

        Raises:
            ApiError: 400, 415 or 422.
        """
        if request.method == "PUT":
            return request.decoded(kind.name, kind.type_name) if kind else request.decoded("Scale", _SCALE)
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
