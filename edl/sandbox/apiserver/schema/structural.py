"""Custom resources: pruning and defaulting by the structural schema of their CustomResourceDefinition.

Source: k8s.io/apiextensions-apiserver pkg/apiserver/schema (pruning, defaulting).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

Object = dict[str, Any]
Schema = dict[str, Any]

_TOP = ("apiVersion", "kind", "metadata")
_PRESERVE = "x-kubernetes-preserve-unknown-fields"


def prune(schema: Schema, value: Object) -> list[str]:
    """Remove the fields that a schema does not have, in place; returns their paths."""
    removed: list[str] = []
    properties = schema.get("properties", {})
    top = {**schema, "properties": {**properties, **{name: {_PRESERVE: True} for name in _TOP}}}
    _prune(top, value, "", removed)
    return removed


def _prune(schema: Schema, value: Any, path: str, removed: list[str]) -> None:
    if isinstance(value, list):
        items = schema.get("items", {_PRESERVE: True} if schema.get(_PRESERVE) else {})
        for place, item in enumerate(value):
            _prune(items, item, f"{path}[{place}]", removed)
        return
    if not isinstance(value, dict):
        return
    properties, others = schema.get("properties", {}), schema.get("additionalProperties")
    for key in list(value):
        where = f"{path}.{key}" if path else key
        if key in properties:
            _prune(properties[key], value[key], where, removed)
        elif isinstance(others, dict):
            _prune(others, value[key], where, removed)
        elif not schema.get(_PRESERVE) and others is not True:
            removed.append(where)
            del value[key]


def default(schema: Schema, value: Any) -> None:
    """Fill in the defaults of a schema, in place; a null where the schema has a default counts as absent."""
    if isinstance(value, list):
        for item in value:
            if "items" in schema:
                default(schema["items"], item)
        return
    if not isinstance(value, dict):
        return
    properties = schema.get("properties", {})
    for key in [key for key, item in value.items() if item is None and _drops_null(properties.get(key))]:
        del value[key]
    for key, inner in properties.items():
        missing = key not in value or (value[key] is None and not inner.get("nullable"))
        if missing and "default" in inner:
            value[key] = copy.deepcopy(inner["default"])
        if key in value:
            default(inner, value[key])
    others = schema.get("additionalProperties")
    if isinstance(others, dict):
        for key in value.keys() - properties.keys():
            default(others, value[key])


def _drops_null(schema: Schema | None) -> bool:
    """Return whether a null counts as absent: where the schema knows the field and does not allow it."""
    return schema is not None and not schema.get("nullable") and not schema.get(_PRESERVE)


def nodes(schema: Schema, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Schema]]:
    """Every node of a schema with its path; `[]` and `{}` stand for the items of lists and maps."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from nodes(inner, (*path, name))
    if isinstance(schema.get("items"), dict):
        yield from nodes(schema["items"], (*path, "[]"))
    if isinstance(schema.get("additionalProperties"), dict):
        yield from nodes(schema["additionalProperties"], (*path, "{}"))
