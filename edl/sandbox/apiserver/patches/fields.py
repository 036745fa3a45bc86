"""The fields of an object as a set of paths, and this set as FieldsV1.

Source: sigs.k8s.io/structured-merge-diff, fieldpath: `f:` a field, `k:` an item by its keys, `v:` one by its value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from edl.sandbox.apiserver.schema.types import Schema, inner

Object = dict[str, Any]
Path = tuple[str, ...]
Fields = dict[Path, Any]
"""The value at each path: that of a leaf, or `CONTAINER`."""

CONTAINER = object()
"""The value of a path that has other paths below it."""

_SYSTEM = (
    *("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp"),
    *("deletionGracePeriodSeconds", "selfLink", "managedFields"),
)
_UNMANAGED = frozenset(("f:metadata", f"f:{name}") for name in _SYSTEM)


def fields_of(schema: Schema, value: Object, *, every_container: bool) -> Fields:
    """The fields of an object that managers can own.

    Args:
        schema: the type of the object.
        value: the object.
        every_container: whether objects with fields of their own count too, as they do for custom resources.
    """
    found: Fields = {}
    for key, item in value.items():
        if key not in {"apiVersion", "kind"}:
            node = field_schema(schema, key)
            _walk(node, item, (f"f:{key}",), found, every_container=every_container and key != "metadata")
    found.pop(("f:metadata",), None)
    return {path: item for path, item in found.items() if path[:2] not in _UNMANAGED}


def field_schema(schema: Schema, key: str) -> Schema:
    """The type of a field or of an entry of a map."""
    found = schema.get("properties", {}).get(key)
    if found is None:
        others = schema.get("additionalProperties")
        found = others if isinstance(others, dict) else {}
    return {**inner(found), **{name: text for name, text in found.items() if name.startswith("x-")}}


def _walk(schema: Schema, value: Any, path: Path, found: Fields, *, every_container: bool) -> None:
    if isinstance(value, dict) and value and schema.get("x-kubernetes-map-type") != "atomic":
        if every_container or "additionalProperties" in schema:
            found[path] = CONTAINER
        for key, item in value.items():
            _walk(field_schema(schema, key), item, (*path, f"f:{key}"), found, every_container=every_container)
    elif _has_keys(schema, value):
        item_schema = inner(schema["items"])
        for item in value:
            place = (*path, item_name(schema, item))
            found[place] = CONTAINER
            for key, one in item.items():
                _walk(
                    field_schema(item_schema, key), one, (*place, f"f:{key}"), found, every_container=every_container
                )
    elif isinstance(value, list) and schema.get("x-kubernetes-list-type") == "set":
        for item in value:
            found[(*path, f"v:{_json(item)}")] = item
    else:
        found[path] = value


def _has_keys(schema: Schema, value: Any) -> bool:
    """True if a value is a list of objects with keys; a value stored under an older schema may be another one."""
    is_keyed = schema.get("x-kubernetes-list-type") == "map" and isinstance(value, list)
    return is_keyed and all(isinstance(item, dict) for item in value)


def item_name(schema: Schema, item: Object) -> str:
    """The element of a path for an item of a list that has keys."""
    defaults = inner(schema["items"]).get("properties", {})
    keys = schema["x-kubernetes-list-map-keys"]
    return "k:" + _json({key: item.get(key, defaults.get(key, {}).get("default")) for key in keys})


def _json(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def to_fields_v1(paths: Iterable[Path]) -> Object:
    """Encode a set of field paths as nested objects (FieldsV1); `.` marks a path that also has paths below it."""
    root: Object = {}
    for path in sorted(paths):
        node = root
        for part in path:
            node = node.setdefault(part, {})
        node["."] = {}
    return _tidied(root)


def _tidied(node: Object) -> Object:
    return {key: {} if set(child) == {"."} else _tidied(child) for key, child in node.items()}


def from_fields_v1(fields: Mapping[str, Any]) -> set[Path]:
    """The set of paths of nested objects."""
    return set(_paths(fields, ()))


def _paths(node: Mapping[str, Any], path: Path) -> Iterator[Path]:
    for key, child in node.items():
        if key == ".":
            yield path
        elif not child:
            yield (*path, key)
        else:
            yield from _paths(child, (*path, key))


def path_text(path: Path) -> str:
    """Format a path for messages: `.spec.containers[name="a"].image`."""
    text = ""
    for part in path:
        kind, _, name = part.partition(":")
        if kind == "f":
            text += f".{name}"
        elif kind == "k":
            keys = msgspec.json.decode(name.encode())
            text += "[" + ",".join(f"{key}={_json(value)}" for key, value in keys.items()) + "]"
        else:
            text += f"[={name}]"
    return text
