"""Decodes protobuf bodies, which kubectl's typed commands send, into the objects that JSON would give.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding; the numbers of the fields are
recorded from the API's Go modules (`builtin_numbers.json`).
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from edl.sandbox.apiserver.schema.types import builtin_types

Object = dict[str, Any]

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_META = "io.k8s.apimachinery.pkg."
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class ProtobufError(Exception):
    """The body is not a protobuf object of a known type."""


@cache
def _numbers() -> dict[str, dict[int, tuple[str, str]]]:
    """By type, the name and the kind of each field number."""
    raw = files("edl.sandbox.apiserver.schema").joinpath("builtin_numbers.json").read_bytes()
    recorded: dict[str, dict[str, str]] = msgspec.json.decode(raw)
    return {
        name: {int(number): (text.split()[0], text.split()[1]) for number, text in fields.items()}
        for name, fields in recorded.items()
    }


def decode_protobuf(body: bytes, type_name: str) -> Object:
    """Decode the object in a protobuf body.

    Args:
        body: as sent.
        type_name: the full name of the type that is expected.

    Raises:
        ProtobufError: the body cannot be read.
    """
    if not body.startswith(_MAGIC):
        raise ProtobufError("the body has no protobuf prefix")
    try:
        envelope = dict(_fields(body[len(_MAGIC) :]))
        meta = dict(_fields(envelope.get(1, b"")))
        value = _message(envelope.get(2, b""), type_name)
    except (IndexError, KeyError, struct.error, UnicodeDecodeError, TypeError) as error:
        raise ProtobufError(f"the protobuf body cannot be read: {error}") from None
    return {"apiVersion": _text(meta.get(1, b"")), "kind": _text(meta.get(2, b"")), **value}


def _text(raw: bytes) -> str:
    return raw.decode()


def _fields(raw: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message: number, and an int or bytes."""
    at = 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _varint(raw, at)
            yield number, value
        elif wire == _BYTES:
            size, at = _varint(raw, at)
            if at + size > len(raw):
                raise IndexError("a field is cut off")
            yield number, raw[at : at + size]
            at += size
        elif wire in {_FIXED64, _FIXED32}:
            size = 8 if wire == _FIXED64 else 4
            yield number, raw[at : at + size]
            at += size
        else:
            raise IndexError(f"unknown wire type {wire}")


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value - (1 << 64) if value >= 1 << 63 else value), at
        shift += 7


def _message(raw: bytes, type_name: str) -> Any:
    short = type_name.rpartition(".")[2]
    if type_name.startswith(_META) and short in _SPECIAL:
        return _SPECIAL[short](dict(_fields(raw)))
    known = _numbers()[type_name]
    properties = builtin_types().get(type_name, {}).get("properties", {})
    result: Object = {}
    for number, value in _fields(raw):
        if number in known:
            name, kind = known[number]
            _add(result, name, kind, value, is_inline=name not in properties)
    return result


def _add(result: Object, name: str, kind: str, raw: Any, *, is_inline: bool) -> None:
    mark = kind[0] if kind[0] in "*{?" else ""
    kind = kind[len(mark) :]
    if mark == "{":
        pair = dict(_fields(raw))
        value = _value(kind, pair[2]) if 2 in pair else ({} if kind.startswith("@") else "")
        result.setdefault(name, {})[_text(pair.get(1, b""))] = value
        return
    value = _value(kind, raw)
    if mark == "*":
        result.setdefault(name, []).append(value)
    elif is_inline and isinstance(value, dict):
        result.update(value)
    elif mark == "?" or value not in ("", 0, False, None):
        result[name] = value


def _value(kind: str, raw: Any) -> Any:
    if kind.startswith("@"):
        return _message(raw, kind[1:])
    match kind:
        case "s":
            return _text(raw)
        case "b":
            return bool(raw)
        case "y":
            return base64.b64encode(raw).decode()
        case "d":
            return struct.unpack("<d", raw)[0]
    return raw


def _time(fields: dict[int, Any]) -> str | None:
    if not fields.get(1) and not fields.get(2):
        return None
    moment = datetime.fromtimestamp(fields.get(1, 0), UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _micro_time(fields: dict[int, Any]) -> str | None:
    if not fields.get(1) and not fields.get(2):
        return None
    moment = datetime.fromtimestamp(fields.get(1, 0), UTC).replace(microsecond=fields.get(2, 0) // 1000)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _int_or_string(fields: dict[int, Any]) -> int | str:
    return _text(fields.get(3, b"")) if fields.get(1) else int(fields.get(2, 0))


def _json(fields: dict[int, Any]) -> Any:
    return msgspec.json.decode(fields[1]) if fields.get(1) else {}


_SPECIAL = {
    "Quantity": lambda fields: _text(fields.get(1, b"")),
    "Time": _time,
    "MicroTime": _micro_time,
    "IntOrString": _int_or_string,
    "FieldsV1": _json,
    "RawExtension": _json,
}
