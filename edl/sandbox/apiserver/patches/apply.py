"""Server-side apply: merging what a manager wants into what is there.

Source: https://kubernetes.io/docs/reference/using-api/server-side-apply/#merge-strategy.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import msgspec

from edl.sandbox.apiserver.patches.fields import Path, field_schema, item_name
from edl.sandbox.apiserver.schema.types import Schema, inner

Object = dict[str, Any]


def merge(schema: Schema, live: Any, applied: Any) -> Any:
    """Merge an applied value into the live one by their type; nothing is changed in place."""
    if isinstance(applied, dict) and isinstance(live, dict) and schema.get("x-kubernetes-map-type") != "atomic":
        result = dict(live)
        for key, value in applied.items():
            result[key] = merge(field_schema(schema, key), live[key], value) if key in live else copy.deepcopy(value)
        return result
    if isinstance(applied, list) and isinstance(live, list):
        kind = schema.get("x-kubernetes-list-type")
        if kind == "map":
            return _merged_items(schema, live, applied)
        if kind == "set":
            return [*live, *(item for item in applied if item not in live)]
    return copy.deepcopy(applied)


def _merged_items(schema: Schema, live: list[Any], applied: list[Any]) -> list[Any]:
    items = inner(schema["items"])
    wanted = {item_name(schema, item): item for item in applied}
    result = [
        merge(items, item, wanted.pop(name)) if (name := item_name(schema, item)) in wanted else item for item in live
    ]
    return [*result, *copy.deepcopy(list(wanted.values()))]


def without(schema: Schema, value: Object, paths: Iterable[Path]) -> Object:
    """Copy an object without the fields at some paths; missing fields are ignored."""
    result: Object = copy.deepcopy(value)
    for path in sorted(paths, key=len, reverse=True):
        _remove(schema, result, path)
    return result


def _remove(schema: Schema, value: Any, path: Path) -> None:
    part, rest = path[0], path[1:]
    kind, _, name = part.partition(":")
    if kind == "f" and isinstance(value, dict) and name in value:
        if rest:
            _remove(field_schema(schema, name), value[name], rest)
        else:
            del value[name]
    elif kind == "k" and isinstance(value, list):
        for item in [item for item in value if item_name(schema, item) == part]:
            if rest:
                _remove(inner(schema["items"]), item, rest)
            else:
                value.remove(item)
    elif kind == "v" and isinstance(value, list):
        wanted = msgspec.json.decode(name.encode())
        value[:] = [item for item in value if item != wanted]
