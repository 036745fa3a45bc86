"""Events have two forms: core/v1, which is stored, and events.k8s.io/v1."""

from __future__ import annotations

from edl.sandbox.apiserver.kinds.kind import Kind, Object

_NEW_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
_OLD_NAMES = {new: old for old, new in _NEW_NAMES.items()}


def from_stored(kind: Kind, value: Object) -> Object:
    """Convert a stored object to the version of a kind."""
    if not kind.stored_as:
        return value
    renamed = {_NEW_NAMES.get(key, key): inner for key, inner in value.items()}
    return {**renamed, "apiVersion": kind.api_version}


def to_stored(kind: Kind, value: Object) -> Object:
    """Convert an object in the version of a kind to the stored form."""
    if not kind.stored_as:
        return value
    renamed = {_OLD_NAMES.get(key, key): inner for key, inner in value.items()}
    return {**renamed, "apiVersion": "v1"}
