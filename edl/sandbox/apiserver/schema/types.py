"""The types of the built-in kinds, and decoding with them: unknown fields, wrong types, canonical values.

The types are recorded from a real API server, without descriptions (`builtin_types.json`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from edl.sandbox.apiserver.errors import ApiError, bad_request
from edl.sandbox.apiserver.schema.quantities import canonical

Object = dict[str, Any]
Schema = dict[str, Any]

QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_OPAQUE = ("FieldsV1", "RawExtension", "JSON", "JSONSchemaProps", "JSONSchemaPropsOrBool", "JSONSchemaPropsOrArray")
_GO = {"string": "string", "integer": "int32", "boolean": "bool", "number": "float64"}


@cache
def builtin_types() -> dict[str, Schema]:
    """Every known type by its full name."""
    raw = files("edl.sandbox.apiserver.schema").joinpath("builtin_types.json").read_bytes()
    types: dict[str, Schema] = msgspec.json.decode(raw)
    return types


def is_opaque(name: str) -> bool:
    """Return whether values of the type are stored as they come."""
    return name.rpartition(".")[2] in _OPAQUE


def inner(schema: Schema) -> Schema:
    """The schema itself, or the type that it refers to."""
    reference = schema.get("$ref")
    if reference is None:
        return schema
    if is_opaque(reference):
        return {"x-kubernetes-preserve-unknown-fields": True}
    if reference == QUANTITY:
        return {"type": "quantity"}
    if reference == INT_OR_STRING:
        return {"x-kubernetes-int-or-string": True}
    return builtin_types()[reference]


@dataclass(slots=True)
class Decoded:
    """A decoded object and the paths of the fields that its type does not have."""

    value: Object
    unknown: list[str] = field(default_factory=list)


def decode(type_name: str, kind: str, version: str, body: Object) -> Decoded:
    """Decode an object of a built-in type.

    Nulls, empty maps and empty lists are dropped, as the real server's encoder omits them; unknown fields are
    dropped and reported; quantities become canonical.

    Raises:
        ApiError: 400, a value has the wrong type.
    """
    try:
        return decode_plain(type_name, body)
    except WrongTypeError as error:
        raise bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {error}') from None


def decode_plain(type_name: str, body: Object) -> Decoded:
    """Decode as `decode` does, for a caller that writes its own error messages.

    Raises:
        WrongTypeError: a value has the wrong type.
    """
    decoded = Decoded({})
    decoded.value = _struct(builtin_types()[type_name], type_name, body, "", decoded.unknown)
    return decoded


def strict_error(kind: str, version: str, unknown: list[str]) -> ApiError:
    """The error for unknown fields of a built-in kind."""
    why = ", ".join(f'unknown field "{path}"' for path in unknown)
    return bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: strict decoding error: {why}')


class WrongTypeError(Exception):
    """A value has a wrong type; the decoder of the struct around the value completes the message."""

    def __init__(self, value: str, path: str, expected: str) -> None:
        super().__init__(value, path, expected)
        self.value, self.path, self.expected, self.owner = value, path, expected, ""

    @property
    def restored(self) -> str:
        """The error message of the real server for a value that a strategic merge patch has set."""
        found = {"number": "int64", "array": "slice", "object": "map"}.get(self.value, self.value)
        if self.expected.startswith("v1."):
            return f"cannot restore struct from: {found}"
        if self.expected.startswith("[]"):
            return f"cannot restore slice from: {found}"
        if self.expected.startswith("map["):
            return f"cannot restore map from: {found}"
        return f"unrecognized type: {self.expected}"

    def __str__(self) -> str:
        if not self.path:
            return self.value
        field = f"{self.owner}.{self.path}" if self.owner else self.path
        return f"json: cannot unmarshal {self.value} into Go struct field {field} of type {self.expected}"


def _struct(schema: Schema, name: str, value: Any, path: str, unknown: list[str]) -> Object:
    if not isinstance(value, dict):
        raise _wrong(value, path, f"v1.{name.rpartition('.')[2]}")
    properties = schema.get("properties")
    if properties is None:
        return value
    result: Object = {}
    for key, item in value.items():
        where = f"{path}.{key}" if path else key
        if key not in properties:
            unknown.append(where)
        elif item is not None:
            try:
                decoded = _value(properties[key], item, where, unknown)
            except WrongTypeError as error:
                error.owner = error.owner or name.rpartition(".")[2]
                raise
            if not _is_omitted(properties[key], decoded):
                result[key] = decoded
    return result


def _is_omitted(schema: Schema, value: Any) -> bool:
    if value == []:
        return True
    return value == {} and "additionalProperties" in inner(schema)


def _value(schema: Schema, value: Any, path: str, unknown: list[str]) -> Any:
    name = schema.get("$ref", "")
    schema = inner(schema)
    kind = schema.get("type")
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return value
    if kind == "quantity":
        return _quantity(value, path)
    if schema.get("x-kubernetes-int-or-string"):
        if not isinstance(value, str | int):
            raise _wrong(value, path, "IntOrString")
        return value
    if kind == "array":
        return _array(schema, value, path, unknown)
    if kind == "object":
        if "additionalProperties" in schema:
            return _map(schema, value, path, unknown)
        return _struct(schema, name, value, path, unknown)
    return _scalar(schema, value, path)


def _array(schema: Schema, value: Any, path: str, unknown: list[str]) -> list[Any]:
    if not isinstance(value, list):
        raise _wrong(value, path, f"[]{_go_name(schema['items'])}")
    return [
        _value(schema["items"], item, f"{path}[{i}]", unknown) for i, item in enumerate(value) if item is not None
    ]


def _map(schema: Schema, value: Any, path: str, unknown: list[str]) -> Object:
    if not isinstance(value, dict):
        raise _wrong(value, path, f"map[string]{_go_name(schema['additionalProperties'])}")
    values = schema["additionalProperties"]
    return {
        key: "" if item is None else _value(values, item, f"{path}.{key}", unknown) for key, item in value.items()
    }


def _quantity(value: Any, path: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise _wrong(value, path, "Quantity")
    try:
        return canonical(str(value))
    except ValueError as error:
        raise WrongTypeError(str(error), "", "") from None


def _scalar(schema: Schema, value: Any, path: str) -> Any:
    fits = {
        "string": isinstance(value, str),
        "boolean": isinstance(value, bool),
        "integer": isinstance(value, int) and not isinstance(value, bool),
        "number": isinstance(value, int | float) and not isinstance(value, bool),
    }
    if not fits.get(schema.get("type", ""), True):
        raise _wrong(value, path, _go_name(schema))
    return value


def _go_name(schema: Schema) -> str:
    if "$ref" in schema:
        return f"v1.{schema['$ref'].rpartition('.')[2]}"
    return {"int64": "int64"}.get(schema.get("format", ""), _GO.get(schema.get("type", ""), "string"))


def _wrong(value: Any, path: str, expected: str) -> WrongTypeError:
    json_kind = {bool: "bool", str: "string", int: "number", float: "number", list: "array", dict: "object"}
    plain = ".".join(part.split("[")[0] for part in path.split("."))
    found = f"number {value:g}" if isinstance(value, float) else json_kind.get(type(value), "value")
    return WrongTypeError(found, plain, expected)
