"""OpenAPI v3 documents, from the recorded types and the schemas of custom resources.

kubectl reads them to explain fields, to learn that the server validates fields itself, and to merge patches. The
descriptions of built-in types come from the official client, which edl has anyway.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec

from edl.sandbox.apiserver.http.descriptions import described
from edl.sandbox.apiserver.http.discovery import subresources_of
from edl.sandbox.apiserver.kinds.kind import Kind, Object
from edl.sandbox.apiserver.registry import Registry
from edl.sandbox.apiserver.schema.types import OBJECT_META, builtin_types

_LIST_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"
_WRITE_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation", "pretty")
_LIST_PARAMETERS = (
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "watch",
    "timeoutSeconds",
)
_BODIES = ("application/json", "application/yaml")
_PATCHES = ("application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml")
_STRATEGIC = "application/strategic-merge-patch+json"


def index(registry: Registry) -> Object:
    """The answer of /openapi/v3: the document of each group."""
    paths = {}
    for group, versions in registry.groups().items():
        for version in versions:
            name = f"apis/{group}/{version}" if group else f"api/{version}"
            marks = [(kind.plural, kind.schema) for kind in registry.of_group(group, version)]
            digest = hashlib.sha256(msgspec.json.encode(marks)).hexdigest().upper()
            paths[name] = {"serverRelativeURL": f"/openapi/v3/{name}?hash={digest}"}
    return {"paths": paths}


def document(registry: Registry, group: str, version: str) -> Object:
    """The OpenAPI document of one version of one group."""
    kinds = registry.of_group(group, version)
    types: dict[str, Object] = {}
    _add_types(types, [OBJECT_META, _LIST_META, *(kind.type_name for kind in kinds if kind.type_name)])
    schemas = described(types)
    paths: dict[str, Object] = {}
    for kind in kinds:
        name = schema_name(kind)
        if kind.schema is not None:
            schemas[name] = _custom_schema(kind)
        else:
            schemas[name] = {**schemas[name], "x-kubernetes-group-version-kind": [_gvk(kind)]}
        if "list" in kind.verbs:
            schemas[f"{name}List"] = _list_schema(kind, name)
        paths.update(_paths(kind, name))
    info = {"title": "Kubernetes", "version": "v1.36.3"}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


def schema_name(kind: Kind) -> str:
    """The name of the schema of a kind."""
    if kind.type_name:
        return kind.type_name
    return f"{'.'.join(reversed(kind.group.split('.')))}.{kind.version}.{kind.name}"


def _gvk(kind: Kind) -> Object:
    return {"group": kind.group, "version": kind.version, "kind": kind.name}


def _add_types(schemas: dict[str, Object], names: list[str]) -> None:
    """Add types and all types that they refer to."""
    waiting = list(names)
    while waiting:
        if (name := waiting.pop()) not in schemas:
            schemas[name] = _referring(builtin_types()[name])
            waiting += _named(builtin_types()[name])


def _named(schema: Object) -> Iterator[str]:
    if isinstance(schema.get("$ref"), str):
        yield schema["$ref"]
    for inner in schema.get("properties", {}).values():
        yield from _named(inner)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from _named(schema[key])


def _referring(schema: Object) -> Object:
    """Convert the references of a recorded type to those of OpenAPI."""
    node: Object = {}
    for key, value in schema.items():
        if key == "$ref" and isinstance(value, str):
            node["allOf"] = [{"$ref": f"#/components/schemas/{value}"}]
        elif key == "properties":
            node[key] = {name: _referring(inner) for name, inner in value.items()}
        elif key in {"items", "additionalProperties"} and isinstance(value, dict):
            node[key] = _referring(value)
        else:
            node[key] = value
    return node


def _custom_schema(kind: Kind) -> Object:
    schema: Object = dict(kind.schema or {})
    own = {
        "apiVersion": {"type": "string", "description": "version of this representation of the object"},
        "kind": {"type": "string", "description": "kind of the object"},
        "metadata": {
            "description": "standard metadata of the object",
            "allOf": [{"$ref": f"#/components/schemas/{OBJECT_META}"}],
        },
    }
    schema["properties"] = {**schema.get("properties", {}), **own}
    schema.pop("x-kubernetes-validations", None)
    return {**schema, "x-kubernetes-group-version-kind": [_gvk(kind)]}


def _list_schema(kind: Kind, name: str) -> Object:
    return {
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"allOf": [{"$ref": f"#/components/schemas/{_LIST_META}"}]},
            "items": {"type": "array", "items": {"allOf": [{"$ref": f"#/components/schemas/{name}"}]}},
        },
        "x-kubernetes-group-version-kind": [{**_gvk(kind), "kind": kind.list_kind or f"{kind.name}List"}],
    }


def _paths(kind: Kind, name: str) -> dict[str, Object]:
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    place = f"{root}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"
    one = f"{place}/{{name}}"
    paths = {place: _collection(kind, name), one: _single(kind, name)}
    for subresource in subresources_of(kind):
        paths[f"{one}/{subresource}"] = _single(kind, name)
    return {path: operations for path, operations in paths.items() if operations}


def _collection(kind: Kind, name: str) -> Object:
    operations: Object = {}
    if "list" in kind.verbs:
        operations["get"] = _operation(kind, "list", name, _LIST_PARAMETERS)
    if "create" in kind.verbs:
        operations["post"] = _operation(kind, "post", name, _WRITE_PARAMETERS, _BODIES)
    return operations


def _single(kind: Kind, name: str) -> Object:
    operations: Object = {}
    if "get" in kind.verbs:
        operations["get"] = _operation(kind, "get", name, ())
    if "update" in kind.verbs:
        operations["put"] = _operation(kind, "put", name, _WRITE_PARAMETERS, _BODIES)
    if "patch" in kind.verbs:
        patches = _PATCHES if kind.is_custom else (*_PATCHES, _STRATEGIC)
        operations["patch"] = _operation(kind, "patch", name, (*_WRITE_PARAMETERS, "force"), patches)
    if "delete" in kind.verbs:
        operations["delete"] = _operation(kind, "delete", name, _WRITE_PARAMETERS, _BODIES)
    return operations


def _operation(
    kind: Kind, action: str, name: str, parameters: tuple[str, ...], bodies: tuple[str, ...] = ()
) -> Object:
    schema = {"$ref": f"#/components/schemas/{name}"}
    content = {"application/json": {"schema": schema}}
    operation: dict[str, Any] = {
        "parameters": [{"name": one, "in": "query", "schema": {"type": "string"}} for one in parameters],
        "responses": {"200": {"description": "OK", "content": content}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _gvk(kind),
    }
    if bodies:
        operation["requestBody"] = {"content": {body: {"schema": schema} for body in bodies}}
    return operation
