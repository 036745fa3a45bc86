"""PUT and PATCH: the new state of an object, by the content type of the request."""

from __future__ import annotations

import json
from typing import Any

from edl.sandbox.apiserver.cluster import Cluster
from edl.sandbox.apiserver.conversion import from_stored
from edl.sandbox.apiserver.errors import (
    ApiError,
    bad_request,
    invalid,
    invalid_value,
    not_found,
    required,
    unsupported_media,
)
from edl.sandbox.apiserver.http.request import Request
from edl.sandbox.apiserver.kinds.kind import Kind, Object, dig
from edl.sandbox.apiserver.patches.apply import merge, without
from edl.sandbox.apiserver.patches.json_patch import json_patch, merge_patch, require_object
from edl.sandbox.apiserver.patches.managers import APPLY, Manager, plan_apply
from edl.sandbox.apiserver.patches.strategic import strategic_patch
from edl.sandbox.apiserver.schema.typed_patch import typed_patch_errors
from edl.sandbox.apiserver.schema.types import WrongTypeError, builtin_types, decode, decode_plain
from edl.sandbox.apiserver.storage.store import Entry
from edl.sandbox.apiserver.writing import Write, Writer, type_of

SCALE = "io.k8s.api.autoscaling.v1.Scale"
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
        if write.request.method == "PATCH" and write.kind.schema is None:
            _require_types(write.request, write.kind.type_name, body)
        return self.replace(write, entry, self._writer.decode(write, body)), False

    def _apply(self, write: Write) -> tuple[Entry, bool]:
        request, kind = write.request, write.kind
        if not request.query.get("fieldManager"):
            error = required("fieldManager", "is required for apply patch")
            raise invalid("PatchOptions", "meta.k8s.io", "", [error])
        body = require_object(request.decoded("patch"))
        if dig(body, "metadata", "managedFields"):
            raise bad_request("metadata.managedFields must be nil")
        _require_typed_patch(write, body)
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
            return request.decoded(kind.name, kind.type_name) if kind else request.decoded("Scale", SCALE)
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


def scale_types(request: Request, scale: Any) -> None:
    """Check the types of a Scale that is put or patched.

    Raises:
        ApiError: 400 for a PUT, 422 for a patch.
    """
    if request.method == "PUT" and isinstance(scale, dict):
        decode(SCALE, "Scale", "v1", scale)
    elif request.method == "PATCH":
        _require_types(request, SCALE, scale)


def _require_types(request: Request, type_name: str, patched: Any) -> None:
    """Check the types of an object after a patch, which the real server decodes only then.

    Raises:
        ApiError: 422.
    """
    try:
        decode_plain(type_name, patched)
    except WrongTypeError as error:
        is_strategic = request.content_type == "application/strategic-merge-patch+json"
        detail = error.restored if is_strategic else str(error)
        raise invalid("", "", "", [invalid_value("patch", json.dumps(patched), detail)]) from None


def _require_typed_patch(write: Write, body: Object) -> None:
    """Check the types of what a server-side apply sets.

    Raises:
        ApiError: 500, as the real server answers.
    """
    detail = list(typed_patch_errors(type_of(write.kind), body))
    if detail:
        name, namespace = dig(body, "metadata", "name", default=""), dig(body, "metadata", "namespace", default="")
        what = f"({namespace}/{name}; {body.get('apiVersion', '')}, Kind={body.get('kind', '')})"
        listed = detail[0] if len(detail) == 1 else "errors:\n" + "\n".join(f"  {one}" for one in detail)
        raise ApiError(500, "", f"failed to create typed patch object {what}: {listed}")
