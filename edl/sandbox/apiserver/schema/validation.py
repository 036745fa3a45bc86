"""Custom resources: the rules of a structural schema, with the error messages of the real server.

Source: k8s.io/apiextensions-apiserver pkg/apiserver/validation and k8s.io/kube-openapi pkg/validation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from edl.sandbox.apiserver.errors import FieldError, go_value, not_supported, required

Object = dict[str, Any]
Schema = dict[str, Any]

ABSENT: Any = object()
"""The former state of what is new."""

_LARGEST = 2**63 - 1
_LARGEST_REPLICAS = 2**31 - 1

_BLOCKING = {
    "FieldValueNotSupported",
    "FieldValueRequired",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "FieldValueTypeInvalid",
}
NOT_CHECKED = FieldError(
    "<nil>",
    "FieldValueInvalid",
    "Invalid value: null: some validation rules were not checked because the object was invalid; correct the "
    "existing errors to complete validation",
)


def is_blocking(errors: list[FieldError]) -> bool:
    """Return whether the expressions of the schema are not evaluated after these errors."""
    return any(error.reason in _BLOCKING for error in errors)


def schema_errors(schema: Schema, value: Any, path: str = "", old: Any = ABSENT) -> Iterator[FieldError]:
    """Check a value against a schema, without its expressions, and list the errors.

    Args:
        schema: the schema of the value.
        value: the new state.
        path: the path of the value.
        old: the former state; what has not changed since is not refused.
    """
    if (value is None and schema.get("nullable")) or (old is not ABSENT and value == old):
        return
    if schema.get("x-kubernetes-int-or-string"):
        yield from _int_or_string_errors(value, path)
    elif (kind := schema.get("type")) and not _is_of(kind, value):
        yield _wrong_type(value, path, kind)
        if kind != "integer" or type_name(value) != "number":
            return
        yield _not_whole(path)
        value = float(value)
    if "enum" in schema and value not in schema["enum"]:
        yield not_supported(path, value, [str(one) for one in schema["enum"]])
    if isinstance(value, str):
        yield from _text_errors(schema, value, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _number_errors(schema, value, path)
    elif isinstance(value, list):
        yield from _list_errors(schema, value, path)
    elif isinstance(value, dict):
        yield from _object_errors(schema, value, path, old)


def matches(pattern: str, text: str) -> bool:
    """True if a text matches a pattern in Go's syntax, in which `$` is the end of the text and not of a line."""
    return re.search(re.sub(r"(?<!\\)\$$", r"\\Z", pattern), text) is not None


def type_name(value: Any) -> str:
    """The name of a JSON type, as messages call it."""
    if value is None:
        return "null"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _LARGEST:
        return "number"
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names[type(value)]


def _is_of(kind: str, value: Any) -> bool:
    found = type_name(value)
    return (
        found == kind
        or (kind == "number" and found == "integer")
        or (kind == "integer" and isinstance(value, float) and value.is_integer())
    )


def _wrong_type(value: Any, path: str, kind: str) -> FieldError:
    found = type_name(value)
    return FieldError(
        path,
        "FieldValueTypeInvalid",
        f'Invalid value: "{found}": {path} in body must be of type {kind}: "{found}"',
    )


def _int_or_string_errors(value: Any, path: str) -> Iterator[FieldError]:
    if type_name(value) in {"integer", "string"} or _is_of("integer", value):
        return
    yield _wrong_type(value, path, "integer,string")
    yield FieldError(
        "<nil>", "FieldValueInvalid", f'Invalid value: "": "{path}" must validate at least one schema (anyOf)'
    )
    yield _wrong_type(value, path, "integer")
    if type_name(value) == "number":
        yield _not_whole(path)


def _not_whole(path: str) -> FieldError:
    detail = f"Checked value must be of type integer (default format) in {path}"
    return FieldError("<nil>", "FieldValueInvalid", f'Invalid value: "": {detail}')


def _text_errors(schema: Schema, value: str, path: str) -> Iterator[FieldError]:
    if len(value) > schema.get("maxLength", len(value)):
        yield FieldError(path, "FieldValueTooLong", f"Too long: may not be more than {schema['maxLength']} bytes")
    elif len(value) < schema.get("minLength", 0):
        detail = f"{path} in body should be at least {schema['minLength']} chars long"
        yield FieldError(path, "FieldValueInvalid", f"Invalid value: {go_value(value)}: {detail}")
    elif "pattern" in schema and not matches(schema["pattern"], value):
        detail = f"{path} in body should match '{schema['pattern']}'"
        yield FieldError(path, "FieldValueInvalid", f"Invalid value: {go_value(value)}: {detail}")


def _number_errors(schema: Schema, value: float, path: str) -> Iterator[FieldError]:
    def refused(words: str, bound: float) -> FieldError:
        detail = f"{path} in body should be {words} {bound}"
        return FieldError(path, "FieldValueInvalid", f"Invalid value: {value}: {detail}")

    if "minimum" in schema and value < schema["minimum"]:
        yield refused("greater than or equal to", schema["minimum"])
    if "minimum" in schema and schema.get("exclusiveMinimum") is True and value == schema["minimum"]:
        yield refused("greater than", schema["minimum"])
    if "maximum" in schema and value > schema["maximum"]:
        yield refused("less than or equal to", schema["maximum"])
    if "maximum" in schema and schema.get("exclusiveMaximum") is True and value == schema["maximum"]:
        yield refused("less than", schema["maximum"])


def _list_errors(schema: Schema, value: list[Any], path: str) -> Iterator[FieldError]:
    if len(value) > schema.get("maxItems", len(value)):
        detail = f"Too many: {len(value)}: must have at most {schema['maxItems']} items"
        yield FieldError(path, "FieldValueTooMany", detail)
    if len(value) < schema.get("minItems", 0):
        detail = f"{path} in body should have at least {schema['minItems']} items"
        yield FieldError(path, "FieldValueInvalid", f"Invalid value: {len(value)}: {detail}")
    for place, item in enumerate(value):
        if "items" in schema:
            yield from schema_errors(schema["items"], item, f"{path}[{place}]")
    yield from _duplicates(schema, value, path)


def _duplicates(schema: Schema, value: list[Any], path: str) -> Iterator[FieldError]:
    keys = schema.get("x-kubernetes-list-map-keys")
    if schema.get("x-kubernetes-list-type") not in {"map", "set"}:
        return
    seen = []
    for place, item in enumerate(value):
        mark = {key: item.get(key) for key in keys} if keys and isinstance(item, dict) else item
        if mark in seen:
            shown = ", ".join(f'"{key}":{go_value(one)}' for key, one in mark.items()) if keys else ""
            detail = f"Duplicate value: {{{shown}}}" if keys else f"Duplicate value: {go_value(item)}"
            yield FieldError(f"{path}[{place}]", "FieldValueDuplicate", detail)
        seen.append(mark)


def _object_errors(schema: Schema, value: Object, path: str, old: Any) -> Iterator[FieldError]:
    for name in schema.get("required", ()):
        if name not in value:
            yield required(f"{path}.{name}" if path else name)
    if len(value) > schema.get("maxProperties", len(value)):
        detail = f"Too many: {len(value)}: must have at most {schema['maxProperties']} items"
        yield FieldError(path, "FieldValueTooMany", detail)
    if len(value) < schema.get("minProperties", 0):
        detail = f"{path} in body should have at least {schema['minProperties']} properties"
        yield FieldError(path, "FieldValueInvalid", f"Invalid value: {len(value)}: {detail}")
    properties, others = schema.get("properties", {}), schema.get("additionalProperties")
    for name in sorted(value):
        inner = properties.get(name, others if isinstance(others, dict) else None)
        if inner is not None:
            before = old.get(name, ABSENT) if isinstance(old, dict) else ABSENT
            yield from schema_errors(inner, value[name], f"{path}.{name}" if path else name, before)


def number_at_errors(value: Object, path: Sequence[str]) -> Iterator[FieldError]:
    """List what the scale subresource rejects in the number at its path; the schema is checked later."""
    detail, number = _problem_at(value, path, int, "int64")
    if not detail and number is not None and number < 0:
        detail = "should be a non-negative integer"
    elif not detail and number is not None and number > _LARGEST_REPLICAS:
        detail = f"should be less than or equal to {_LARGEST_REPLICAS}"
    if detail:
        shown = number if type(number) is int else 0
        yield FieldError(f".{'.'.join(path)}", "FieldValueInvalid", f"Invalid value: {shown}: {detail}")


def text_at_errors(value: Object, path: Sequence[str]) -> Iterator[FieldError]:
    """List what the scale subresource rejects in the text at its path."""
    detail, _ = _problem_at(value, path, str, "string")
    if detail:
        yield FieldError(f".{'.'.join(path)}", "FieldValueInvalid", f'Invalid value: "": {detail}')


def _problem_at(value: Any, path: Sequence[str], wanted: type, name: str) -> tuple[str, Any]:
    """Return why no value can be read at a path (empty if one can, or if it is absent), and the value."""
    for place, key in enumerate(path):
        if value is None:
            return "", None
        if not isinstance(value, dict):
            where = ".".join(path[: place + 1])
            return f".{where} accessor error: {_go(value)}, expected map[string]interface{{}}", None
        if key not in value:
            return "", None
        value = value[key]
    if type(value) is not wanted:
        return f".{'.'.join(path)} accessor error: {_go(value)}, expected {name}", None
    return "", value


def _go(value: Any) -> str:
    """Format a value and its type as Go prints them."""
    types = {bool: "bool", int: "int64", float: "float64", str: "string", list: "[]interface {}"}
    name = "<nil>" if value is None else types.get(type(value), "map[string]interface {}")
    return f"{_go_text(value)} is of the type {name}"


def _go_text(value: Any) -> str:
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{' '.join(_go_text(one) for one in value)}]"
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{_go_text(one)}' for key, one in sorted(value.items()))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)
