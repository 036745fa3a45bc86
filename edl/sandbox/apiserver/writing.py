"""Creating and changing objects: decode, default, admit, check, store.

Every write goes through `create` or `replace`, so that versions, generations, field managers, dry runs and finalizers
are the same for all kinds and for all verbs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from edl.sandbox.apiserver.admission import admit_create, admit_update, permit_create, permit_resize
from edl.sandbox.apiserver.cluster import Cluster
from edl.sandbox.apiserver.conversion import to_stored
from edl.sandbox.apiserver.deletion import Deleter
from edl.sandbox.apiserver.errors import (
    ApiError,
    FieldError,
    already_exists,
    bad_request,
    conflict,
    forbidden_field,
    invalid,
    invalid_value,
    required,
)
from edl.sandbox.apiserver.http.request import Request
from edl.sandbox.apiserver.kinds.kind import Kind, Object, dig
from edl.sandbox.apiserver.kinds.names import NAME_PROBLEMS
from edl.sandbox.apiserver.patches.managers import APPLY, UPDATE, Applied, Manager, record_apply, record_update
from edl.sandbox.apiserver.resizing import RESIZE, resize_errors, resized_spec
from edl.sandbox.apiserver.schema import structural
from edl.sandbox.apiserver.schema.rules import rule_errors
from edl.sandbox.apiserver.schema.types import OBJECT_META, builtin_types, decode, strict_error
from edl.sandbox.apiserver.schema.validation import (
    ABSENT,
    NOT_CHECKED,
    is_blocking,
    number_at_errors,
    schema_errors,
    text_at_errors,
)
from edl.sandbox.apiserver.storage.store import Entry, Key

_SYSTEM = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink")
_MAX_GENERATED = 58
_LONGEST_MANAGER = 128


@dataclass(slots=True)
class Write:
    """The options of one write: who writes, what is dry-run, and how strictly fields are checked.

    Attributes:
        request: the request.
        kind: the kind of the object.
        key: the key of the object; its name may be generated.
        subresource: `status`, `resize` or empty.
        warnings: for the client, filled in on the way.
        is_scale: whether it comes through the scale subresource.
        applied: what a server-side apply sets; None for any other write.
    """

    request: Request
    kind: Kind
    key: Key
    subresource: str = ""
    warnings: list[str] = field(default_factory=list)
    applied: Applied | None = None
    is_scale: bool = False

    @property
    def manager_subresource(self) -> str:
        """The subresource that the managed fields name."""
        return "scale" if self.is_scale else self.subresource


class Writer:
    """Stores objects; see the module."""

    def __init__(
        self, cluster: Cluster, deleter: Deleter, admit: Callable[[Write, Object, Object | None], None]
    ) -> None:
        """Prepare to write into a cluster.

        Args:
            cluster: the objects and kinds.
            deleter: removes an object whose last finalizer goes.
            admit: refuses an object by an admission policy.
        """
        self._cluster = cluster
        self._deleter = deleter
        self._admit = admit

    # Decoding

    def decode(self, write: Write, body: Any) -> Object:
        """Decode an object as sent into the form in which it is stored.

        Raises:
            ApiError: 400, it is of another kind, or of another namespace or name than the path.
        """
        kind = write.kind
        if not isinstance(body, dict):
            raise bad_request(f"the object provided is unrecognized (must be of type {kind.name})")
        self._require_kind(kind, body)
        value = self._typed(write, copy.deepcopy(body))
        metadata = value.setdefault("metadata", {})
        namespace = metadata.get("namespace", "")
        if kind.namespaced:
            if namespace and namespace != write.key[0]:
                raise bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request"
                )
            metadata["namespace"] = write.key[0]
        return to_stored(kind, {"apiVersion": kind.api_version, "kind": kind.name, **value})

    @staticmethod
    def _require_kind(kind: Kind, body: Object) -> None:
        version, name = body.get("apiVersion", ""), body.get("kind", "")
        if not version and not name and not kind.is_custom:
            return
        if kind.is_custom and (not version or not name):
            missing = "apiVersion" if version == "" and name else "Kind"
            why = f"the object provided is unrecognized (must be of type {kind.name})"
            raise bad_request(f"{why}: Object '{missing}' is missing")
        if version != kind.api_version:
            why = f"does not match the expected API version ({kind.api_version})"
            raise bad_request(f"the API version in the data ({version}) {why}")
        if name != kind.name and kind.is_custom:
            error = invalid_value("kind", name, f"must be {kind.name}")
            raise invalid(name, kind.group, dig(body, "metadata", "name", default=""), [error])
        if name != kind.name:
            why = f"converting ({kind.version}.{name}) to (core.{kind.name}): unknown conversion"
            raise bad_request(f'{name} in version "{kind.version}" cannot be handled as a {kind.name}: {why}')

    def _typed(self, write: Write, body: Object) -> Object:
        """The body without unknown fields; these are an error, a warning or nothing, as the client asked."""
        kind = write.kind
        how = write.request.query.get("fieldValidation") or "Warn"
        if kind.schema is not None:
            metadata = decode(OBJECT_META, "ObjectMeta", "v1", body.get("metadata") or {})
            unknown = structural.prune(kind.schema, body) + [f"metadata.{path}" for path in metadata.unknown]
            value = {**body, "metadata": metadata.value}
            if unknown and how == "Strict":
                why = ", ".join(f'unknown field "{path}"' for path in sorted(unknown))
                head = f'{kind.name} in version "{kind.version}" cannot be handled as a {kind.name}'
                raise bad_request(f"{head}: strict decoding error: {why}")
        else:
            decoded = decode(kind.type_name, kind.name, kind.version, body)
            value, unknown = decoded.value, decoded.unknown
            if unknown and how == "Strict":
                raise strict_error(kind.name, kind.version, unknown)
        if how == "Warn":
            write.warnings += [f'unknown field "{path}"' for path in unknown]
        return value

    # Creating

    def create(self, write: Write, value: Object) -> Entry:
        """Store a new object, decoded.

        Raises:
            ApiError: 403, 404, 409 or 422.
        """
        cluster, kind = self._cluster, write.kind
        metadata = value["metadata"]
        if metadata.get("resourceVersion") not in {None, "", "0"}:
            why = "resourceVersion should not be set on objects to be created"
            if not write.request.is_dry_run:
                raise ApiError(500, "", why)
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"][:_MAX_GENERATED] + cluster.suffix()
        for name in (*_SYSTEM, "resourceVersion"):
            metadata.pop(name, None)
        metadata.update(uid=cluster.uid(), creationTimestamp=cluster.timestamp())
        if kind.has_generation:
            metadata["generation"] = 1
        if kind.is_custom and kind.has_status:
            value.pop("status", None)
        key = (metadata.get("namespace", ""), metadata.get("name", ""))
        self._complete(kind, value, None)
        if errors := self._metadata_errors(kind, metadata):
            further = schema_errors_of(kind, value, None, errors)
            raise invalid(kind.name, kind.group, key[1], [*kind.rules(value, None), *further])
        admit_create(cluster, kind, value)
        if cluster.store.get(kind.resource, key) is not None:
            raise already_exists(kind.plural, kind.group, key[1])
        self._judge(write, value, None)
        permit_create(cluster, kind, value)
        self._record(write, value, None)
        if write.request.is_dry_run:
            return Entry(value, 0)
        return cluster.store.put(kind.resource, key, value)

    @staticmethod
    def _complete(kind: Kind, value: Object, old: Object | None) -> None:
        if kind.schema is not None:
            structural.default(kind.schema, value)
        kind.prepare(value, old)

    @staticmethod
    def _metadata_errors(kind: Kind, metadata: Object) -> list[FieldError]:
        name = metadata.get("name", "")
        if not name:
            return [required("metadata.name", "name or generateName is required")]
        problem = NAME_PROBLEMS[kind.name_form](name)
        return [invalid_value("metadata.name", name, problem)] if problem else []

    def _judge(self, write: Write, value: Object, old: Object | None) -> None:
        kind = write.kind
        before = [] if old is None else _finalizer_errors(value["metadata"], old["metadata"])
        broken = resize_errors(value, old) if old and write.subresource == RESIZE else kind.rules(value, old)
        if errors := [*before, *broken, *schema_errors_of(kind, value, old, ())]:
            raise invalid(kind.name, kind.group, value["metadata"]["name"], errors)
        self._admit(write, value, old)

    # Changing

    def replace(self, write: Write, old: Entry, new: Object) -> Entry:
        """Store a new state of an object that exists, decoded.

        Raises:
            ApiError: 403, 409 or 422.
        """
        cluster, kind = self._cluster, write.kind
        value = self._merged(write, old.value, new)
        self._complete(kind, value, old.value)
        admit_update(cluster, kind, value)
        self._count_generation(write, value, old.value)
        self._judge(write, value, old.value)
        if write.subresource == RESIZE:
            permit_resize(cluster, kind, value, old.value)
        if write.applied is None and _same_but_managers(value, old.value):
            return old
        self._record(write, value, old.value)
        if value == old.value:
            return old
        if write.request.is_dry_run:
            return Entry(value, old.version)
        entry = cluster.store.put(kind.resource, write.key, value)
        return self._deleter.finish_if_ready(kind, write.key, entry)

    def _merged(self, write: Write, old: Object, new: Object) -> Object:
        """Return the new state with those fields of the old one that a client cannot change."""
        kind = write.kind
        before, metadata = old["metadata"], dict(new.get("metadata", {}))
        wanted = metadata.get("resourceVersion")
        if wanted and wanted != before["resourceVersion"]:
            raise conflict(kind.plural, kind.group, write.key[1])
        if (uid := metadata.get("uid")) and uid != before["uid"]:
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {before['uid']}"
            if write.request.method == "PATCH":
                error = invalid_value("metadata.uid", uid, "field is immutable")
                raise invalid(kind.name, kind.group, write.key[1], [error])
            raise conflict(kind.plural, kind.group, write.key[1], why)
        if metadata.get("name", write.key[1]) != write.key[1]:
            why = f"the name of the object ({metadata['name']}) does not match the name on the URL ({write.key[1]})"
            raise bad_request(why)
        for name in (*_SYSTEM, "resourceVersion", "name", "namespace"):
            metadata.pop(name, None)
            if name in before:
                metadata[name] = before[name]
        if write.subresource == "status":
            kept = old["metadata"] if kind.is_custom else metadata
            managed = {
                **kept,
                **({"managedFields": metadata["managedFields"]} if "managedFields" in metadata else {}),
            }
            return {**old, "metadata": managed, **({"status": new["status"]} if "status" in new else {})}
        if write.subresource == RESIZE:
            return {**old, "metadata": {**old["metadata"]}, "spec": resized_spec(old["spec"], new["spec"])}
        value = {**new, "metadata": metadata}
        if kind.has_status:
            value.pop("status", None)
            if "status" in old:
                value["status"] = old["status"]
        return value

    @staticmethod
    def _count_generation(write: Write, value: Object, old: Object) -> None:
        if not write.kind.has_generation or write.subresource == "status":
            return
        ignored = {"metadata"} | ({"status"} if write.kind.has_status else set())
        if any(value.get(name) != old.get(name) for name in (value.keys() | old.keys()) - ignored):
            value["metadata"] = {**value["metadata"], "generation": dig(old, "metadata", "generation", default=0) + 1}

    def _record(self, write: Write, value: Object, old: Object | None) -> None:
        """Record in the managed fields who has set which fields."""
        kind, time = write.kind, self._cluster.timestamp()
        schema = type_of(kind)
        if write.applied is None:
            manager = Manager(write.request.manager, UPDATE, value["apiVersion"], write.manager_subresource)
            record_update(schema, old, value, manager=manager, time=time, is_custom=kind.is_custom)
        else:
            manager = Manager(write.request.manager, APPLY, value["apiVersion"], write.manager_subresource)
            record_apply(schema, old, value, write.applied, manager=manager, time=time, is_custom=kind.is_custom)


def _finalizer_errors(metadata: Object, before: Object) -> list[FieldError]:
    added = [name for name in metadata.get("finalizers") or () if name not in (before.get("finalizers") or ())]
    if not before.get("deletionTimestamp") or not added:
        return []
    shown = ", ".join(f'"{name}"' for name in added)
    why = f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{shown}}}"
    return [forbidden_field("metadata.finalizers", why)]


def _same_but_managers(value: Object, old: Object) -> bool:
    """Return whether two states differ in nothing but the managers of their fields."""
    plain = [{k: v for k, v in one["metadata"].items() if k != "managedFields"} for one in (value, old)]
    return plain[0] == plain[1] and {**value, "metadata": None} == {**old, "metadata": None}


def type_of(kind: Kind) -> Object:
    """The type of a kind's objects, for merging and for field managers."""
    stored = builtin_types()["io.k8s.api.core.v1.Event"] if kind.stored_as else None
    if stored is not None:
        return stored
    if kind.schema is None:
        return builtin_types()[kind.type_name]
    return {**kind.schema, "properties": {**kind.schema.get("properties", {}), "metadata": {"$ref": OBJECT_META}}}


def schema_errors_of(kind: Kind, value: Object, old: Object | None, before: Sequence[FieldError]) -> list[FieldError]:
    """Extend a list of errors by what the schema of a custom resource and its expressions reject."""
    if kind.schema is None:
        return list(before)
    former = ABSENT if old is None else old
    errors = [*before, *_scale_errors(kind, value), *schema_errors(kind.schema, value, old=former)]
    if is_blocking(errors):
        return [*errors, NOT_CHECKED]
    return [*errors, *rule_errors(kind.schema, value, former)]


def _scale_errors(kind: Kind, value: Object) -> Iterator[FieldError]:
    """List what the scale subresource cannot read in an object."""
    if kind.scale is not None:
        yield from number_at_errors(value, kind.scale.spec)
        yield from number_at_errors(value, kind.scale.status)
        yield from text_at_errors(value, kind.scale.selector)
