"""Bytes and dictionaries become objects; an object that cannot be decoded is quarantined under its name.

One unreadable object must never prevent the others from being read. An object whose fields have the wrong type is
returned as `Quarantined`, with as much of its name as can be read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from edl.kube.json_depth import UNREADABLE, decode
from edl.kube.translate.objects import (
    DaemonSetObject,
    HasMetadata,
    JobObject,
    NodeObject,
    ObjectMetadata,
    PodObject,
    PriorityClassObject,
    ResourceQuotaObject,
)

T = TypeVar("T", bound=HasMetadata)

_ANYTHING: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


@dataclass(frozen=True, slots=True)
class Quarantined:
    """An object that cannot be decoded or translated, and that no decision sees.

    Attributes:
        namespace, name, uid: as far as they can be read; else empty.
        problem: what is wrong, and in which field.
        place: the file and the position in it; empty for an object of a live cluster.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    problem: str
    place: str = ""

    def __str__(self) -> str:
        name = f"{self.namespace}/{self.name}" if self.namespace else self.name
        message = f"{self.kind} {name or '(name unreadable)'} is left out: {self.problem}"
        return f"{self.place}: {message}" if self.place else message


class _Named(msgspec.Struct):
    metadata: ObjectMetadata | None = None


class Decoder(Generic[T]):
    """Decodes one kind, from bytes (a live cluster) or from a dictionary (a saved file)."""

    def __init__(self, kind: str, struct: type[T]) -> None:
        self.kind = kind
        self._struct: type[T] = struct
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(struct)

    def from_bytes(self, raw: bytes | msgspec.Raw) -> T | Quarantined:
        """Decode JSON; an object that cannot be decoded is returned as quarantined."""
        try:
            return decode(self._decoder, raw)
        except UNREADABLE as error:
            return self._quarantine(_named_in(raw), error)

    def from_dict(self, body: dict[str, Any]) -> T | Quarantined:
        """Convert a decoded document; one that cannot be converted is returned as quarantined."""
        try:
            return msgspec.convert(body, self._struct)
        except UNREADABLE as error:
            return self._quarantine(body, error)

    def _quarantine(self, body: object, error: Exception) -> Quarantined:
        """Keep the name of the object as far as it can be read."""
        found = body.get("metadata") if isinstance(body, dict) else None
        metadata = found if isinstance(found, dict) else {}
        namespace, name, uid = (
            value if isinstance(value := metadata.get(key), str) else "" for key in ("namespace", "name", "uid")
        )
        return Quarantined(self.kind, namespace, name, uid, str(error))


class JobDecoder(Decoder[JobObject]):
    """Decodes TrainingJobs; the spec stays raw, because an invalid spec is a condition of the job."""

    def __init__(self) -> None:
        super().__init__("TrainingJob", JobObject)

    def from_bytes(self, raw: bytes | msgspec.Raw) -> JobObject | Quarantined:
        """Decode JSON; a job without readable metadata is returned as quarantined."""
        try:
            body = decode(_ANYTHING, raw)
        except UNREADABLE as error:
            return self._quarantine({}, error)
        return self.from_dict(body)

    def from_dict(self, body: dict[str, Any]) -> JobObject | Quarantined:
        """Take a decoded document, without managedFields."""
        try:
            metadata = msgspec.convert(body, _Named).metadata
        except UNREADABLE as error:
            return self._quarantine(body, error)
        if isinstance(fields := body.get("metadata"), dict) and "managedFields" in fields:
            body = {**body, "metadata": {key: value for key, value in fields.items() if key != "managedFields"}}
        return JobObject(metadata, body)


NODES = Decoder("Node", NodeObject)
PODS = Decoder("Pod", PodObject)
DAEMON_SETS = Decoder("DaemonSet", DaemonSetObject)
PRIORITY_CLASSES = Decoder("PriorityClass", PriorityClassObject)
RESOURCE_QUOTAS = Decoder("ResourceQuota", ResourceQuotaObject)
TRAINING_JOBS = JobDecoder()


def _named_in(raw: bytes | msgspec.Raw) -> object:
    """Decode the object into plain values; None if it is not JSON."""
    try:
        body: object = decode(_ANYTHING, raw)
    except UNREADABLE:
        return None
    return body
