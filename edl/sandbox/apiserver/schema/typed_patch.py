"""Checks the types of what a server-side apply sets, with the error messages of the real server.

Source: sigs.k8s.io/structured-merge-diff typed/validate.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from edl.sandbox.apiserver.schema.types import inner

Schema = dict[str, Any]
_GO = {
    bool: "bool",
    int: "int64",
    float: "float64",
    str: "string",
    list: "[]interface {}",
    dict: "map[string]interface {}",
}


def typed_patch_errors(schema: Schema, value: Any, path: str = "") -> Iterator[str]:
    """List the values whose type the field managers cannot merge."""
    schema = inner(schema)
    if (
        value is None
        or schema.get("x-kubernetes-int-or-string")
        or schema.get("x-kubernetes-preserve-unknown-fields")
    ):
        return
    kind = schema.get("type")
    if kind == "object" or "properties" in schema:
        yield from _map_errors(schema, value, path)
    elif kind == "array":
        if not isinstance(value, list):
            yield f"{path}: expected list, got &{{{_text(value)}}}"
            return
        for place, item in enumerate(value):
            yield from typed_patch_errors(schema.get("items", {}), item, f"{path}[{place}]")
    elif kind in {"integer", "number"} and (isinstance(value, bool) or not isinstance(value, int | float)):
        yield f"{path}: expected numeric (int or float), got {_GO[type(value)]}"
    elif kind == "string" and not isinstance(value, str):
        yield f"{path}: expected string, got {_verbose(value)}"
    elif kind == "boolean" and not isinstance(value, bool):
        yield f"{path}: expected boolean, got {_verbose(value)}"


def _map_errors(schema: Schema, value: Any, path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{path}: expected map, got &{{{_text(value)}}}"
        return
    properties, others = schema.get("properties", {}), schema.get("additionalProperties")
    for key, item in value.items():
        if key in properties:
            yield from typed_patch_errors(properties[key], item, f"{path}.{key}")
        elif isinstance(others, dict):
            yield from typed_patch_errors(others, item, f"{path}.{key}")


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{' '.join(_text(one) for one in value)}]"
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{_text(one)}' for key, one in sorted(value.items()))}]"
    return "<nil>" if value is None else str(value)


def _verbose(value: Any) -> str:
    shown = f'"{value}"' if isinstance(value, str) else _text(value)
    return f"&value.valueUnstructured{{Value:{shown}}}"
