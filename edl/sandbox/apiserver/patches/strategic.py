"""Strategic merge patch: lists of built-in types merge by key, with the directives that kubectl sends.

Source: k8s.io/apimachinery pkg/util/strategicpatch; the keys are in the types (`x-kubernetes-patch-merge-key`).
"""

from __future__ import annotations

from typing import Any

from edl.sandbox.apiserver.errors import bad_request
from edl.sandbox.apiserver.schema.types import Schema, inner

Object = dict[str, Any]

_DIRECTIVE = "$patch"
_RETAIN = "$retainKeys"
_ORDER = "$setElementOrder/"
_FROM_LIST = "$deleteFromPrimitiveList/"


def strategic_patch(schema: Schema, target: Any, patch: Object) -> Object:
    """Apply a strategic merge patch to a target and return the result; nothing is changed in place.

    Args:
        schema: the type of the target.
        target: the stored object; None where it has none.
        patch: the patch, with `$patch`, `$retainKeys`, `$setElementOrder` and `$deleteFromPrimitiveList`.

    Raises:
        ApiError: 400, a directive or an item of a list cannot be understood.
    """
    result: Object = dict(target) if isinstance(target, dict) else {}
    directive = patch.get(_DIRECTIVE)
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != _DIRECTIVE}
    if directive == "delete":
        return {}
    if directive not in {None, "merge"}:
        raise bad_request(f"unknown patch type: {directive}")
    if (kept := patch.get(_RETAIN)) is not None:
        result = {key: value for key, value in result.items() if key in kept}
    for key, value in patch.items():
        if key.startswith(_FROM_LIST):
            name = key.removeprefix(_FROM_LIST)
            result[name] = [item for item in result.get(name, []) if item not in value]
        elif not key.startswith("$"):
            _merge_field(schema, result, key, value, patch.get(_ORDER + key))
    for key, order in patch.items():
        if key.startswith(_ORDER) and (name := key.removeprefix(_ORDER)) not in patch and name in result:
            result[name] = _ordered(result[name], order, _merge_key(_field(schema, name)))
    return result


def _field(schema: Schema, name: str) -> Schema:
    found = schema.get("properties", {}).get(name)
    if found is None:
        others = schema.get("additionalProperties")
        found = others if isinstance(others, dict) else {}
    return {**found, **inner(found)}


def _merge_key(field: Schema) -> str | None:
    """The key that joins items; empty for a list of plain values that merges, None for one that is replaced."""
    if "merge" not in str(field.get("x-kubernetes-patch-strategy", "")):
        return None
    return str(field.get("x-kubernetes-patch-merge-key", ""))


def _merge_field(schema: Schema, result: Object, key: str, value: Any, order: Any) -> None:
    if value is None:
        result.pop(key, None)
        return
    field = _field(schema, key)
    if isinstance(value, dict):
        if "retainKeys" in str(field.get("x-kubernetes-patch-strategy", "")) and _RETAIN not in value:
            value = {**value}
        result[key] = strategic_patch(field, result.get(key), value)
    elif isinstance(value, list) and (merge_key := _merge_key(field)) is not None:
        merged = _merge_list(inner(field.get("items", {})), result.get(key, []), value, merge_key)
        result[key] = _ordered(merged, order, merge_key) if order else merged
    else:
        result[key] = value


def _merge_list(item_schema: Schema, current: list[Any], patch: list[Any], merge_key: str) -> list[Any]:
    if not merge_key:
        return [*current, *(item for item in patch if item not in current)]
    if any(isinstance(item, dict) and item.get(_DIRECTIVE) == "replace" for item in patch):
        return [item for item in patch if not (isinstance(item, dict) and _DIRECTIVE in item)]
    result = list(current)
    for item in patch:
        if not isinstance(item, dict) or merge_key not in item:
            raise bad_request(f"map: {item} does not contain declared merge key: {merge_key}")
        place = next((i for i, old in enumerate(result) if old.get(merge_key) == item[merge_key]), None)
        if item.get(_DIRECTIVE) == "delete":
            result = [old for old in result if old.get(merge_key) != item[merge_key]]
        elif place is None:
            result.append(strategic_patch(item_schema, None, item))
        else:
            result[place] = strategic_patch(item_schema, result[place], item)
    return result


def _ordered(items: list[Any], order: list[Any], merge_key: str | None) -> list[Any]:
    """Sort items in the wanted order; an item that the order does not name stays behind the one before it."""
    if not order or merge_key is None:
        return items

    def name(item: Any) -> Any:
        return item.get(merge_key) if merge_key and isinstance(item, dict) else item

    wanted = [name(item) for item in order]
    named = sorted((item for item in items if name(item) in wanted), key=lambda item: wanted.index(name(item)))
    result: list[Any] = []
    for item in items:
        if name(item) in wanted:
            result.append(named.pop(0))
        else:
            result.append(item)
    return result
