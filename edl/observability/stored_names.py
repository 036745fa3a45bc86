"""The field names of stored decision records, which stay when the code renames a field.

Scripts read records, and records are kept for years, so a name in a record is an interface. msgspec writes each field
of a dataclass under its name in the code; this module replaces the few names that differ. It looks only into the
objects that a path leads to, so that 50,000 pods cost nothing on write and are skipped as bytes on read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

import msgspec


@dataclass(frozen=True, slots=True)
class StoredName:
    """A field that is stored under another name than in the code.

    Attributes:
        path: the fields that lead to the object, from the top of the record; for a list, each of its items.
        code: name of the field in the code.
        stored: name of the field in the record.
    """

    path: tuple[str, ...]
    code: str
    stored: str


STORED_NAMES = (
    StoredName(("snapshot", "jobs"), "policies", "answers"),
    StoredName(("plan", "decisions"), "min_trainers", "minimum"),
    StoredName(("plan", "decisions"), "max_trainers", "maximum"),
)
"""Add a line here if you rename a field of `DecisionRecord` or of anything in it."""

STORED_FLAT: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "limits": {
        "serving": {
            "headroom": "serving_headroom",
            "slo": "serving_slo",
            "grace_s": "serving_grace_s",
            "untried_s": "untried_s",
            "schedulers": "serving_schedulers",
        },
        "sharing": {
            "max_load_desired": "max_load_desired",
            "growth_hold_s": "growth_hold_s",
            "head_wait_s": "head_wait_s",
            "consolidate_after_s": "consolidate_after_s",
        },
        "lending": {
            "surplus_cpu_request": "surplus_cpu_request",
            "running": "lend_running",
            "clear_after_s": "clear_lending_after_s",
        },
        "nodes": {
            "expected": "expected_nodes",
            "drain_idle_s": "drain_idle_s",
            "avoid_after": "avoid_nodes_after",
            "avoid_for_s": "avoid_nodes_for_s",
        },
    }
}
"""By field of the record, and by field of the object there: the stored names of the fields of that group, which are
stored among those of the object that holds the group."""

UNIQUE_KEYS = (("container_message", "said"),)
"""(name in the code, stored name) of keys that occur in one kind of object only; they are replaced as bytes, because
there is one for each of up to 50,000 pods."""

_Names = tuple[StoredName, ...]


def encode_with_stored_names(record: Any) -> bytes:  # noqa: ANN401 - any dataclass
    """The record as JSON under the stored names.

    Args:
        record: a dataclass whose fields are named as in the code.
    """
    found = _stored(record, STORED_NAMES)
    for name, groups in STORED_FLAT.items():
        found[name] = _flat(found[name], groups)
    encoded = msgspec.json.encode(found)
    for code, stored in UNIQUE_KEYS:
        encoded = encoded.replace(_key(code), _key(stored))
    return encoded


def with_code_names(encoded: bytes) -> bytes:
    """Rename the fields of a stored record to the names in the code; code names stay as they are.

    Raises:
        msgspec.MsgspecError: it is not JSON, or a path does not lead to an object or a list of objects.
        RecursionError: it is nested too deeply.
    """
    for code, stored in UNIQUE_KEYS:
        encoded = encoded.replace(_key(stored), _key(code))
    return _coded(_grouped(encoded), STORED_NAMES)


def _flat(value: Any, groups: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:  # noqa: ANN401 - any dataclass
    """The fields of an object by their stored names; the fields of its groups are among them."""
    found: dict[str, Any] = {}
    for field in fields(value):
        item = getattr(value, field.name)
        names = groups.get(field.name)
        found |= {names[f.name]: getattr(item, f.name) for f in fields(item)} if names else {field.name: item}
    return found


def _grouped(encoded: bytes) -> bytes:
    """Put the flat fields of a stored record back into their groups."""
    record = msgspec.json.decode(encoded, type=dict[str, msgspec.Raw])
    for name, groups in STORED_FLAT.items():
        if name not in record:
            continue
        found = msgspec.json.decode(record[name], type=dict[str, msgspec.Raw])
        for group, names in groups.items():
            inside = {code: found.pop(stored) for code, stored in names.items() if stored in found}
            if inside:
                found[group] = msgspec.Raw(msgspec.json.encode(inside))
        record[name] = msgspec.Raw(msgspec.json.encode(found))
    return msgspec.json.encode(record)


def _key(name: str) -> bytes:
    """Encode a key so that it can be found in JSON text: within a string its quotes would be escaped."""
    return f'"{name}":'.encode()


def _stored(value: Any, names: _Names) -> Any:  # noqa: ANN401 - any dataclass, or a tuple of them
    if isinstance(value, tuple | list):
        return [_stored(item, names) for item in value]
    here, below = _split(names)
    found = {}
    for field in fields(value):
        item = getattr(value, field.name)
        name = here.get(field.name, field.name)
        found[name] = _stored(item, below[field.name]) if field.name in below else item
    return found


def _coded(encoded: bytes | msgspec.Raw, names: _Names) -> bytes:
    value = msgspec.json.decode(encoded, type=dict[str, msgspec.Raw] | list[msgspec.Raw])
    if isinstance(value, list):
        return b"[" + b",".join(_coded(item, names) for item in value) + b"]"
    here, below = _split(names)
    back = {stored: code for code, stored in here.items()}
    found = {back.get(key, key): item for key, item in value.items()}
    for key in below.keys() & found.keys():
        found[key] = msgspec.Raw(_coded(found[key], below[key]))
    return msgspec.json.encode(found)


@cache
def _split(names: _Names) -> tuple[Mapping[str, str], Mapping[str, _Names]]:
    """The stored names of this object's own fields, and by field the names that belong below it."""
    below: dict[str, _Names] = {}
    for name in names:
        if name.path:
            below[name.path[0]] = (*below.get(name.path[0], ()), replace(name, path=name.path[1:]))
    return {name.code: name.stored for name in names if not name.path}, below
