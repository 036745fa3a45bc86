"""Bytes and dictionaries become objects; what cannot be decoded is set aside under its name.

One poisoned object must never stop the reading of the others: an object whose fields have the wrong type comes back
as `Quarantined`, with as much of its name as can still be read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from edl.kube.client.json_depth import decode
from edl.kube.translate.objects import (
    DaemonSetObject,
    HasMetadata,
    JobObject,
    Metadata,
    NodeObject,
    PodObject,
    PriorityClassObject,
)

T = TypeVar("T", bound=HasMetadata)

_ANYTHING: msgspec.json.Decoder[Any] = msgspec.json.Decoder()

UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
"""What decoding of foreign bytes can raise."""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """An object that could not be decoded, under the name that could still be read.

    Attributes:
        problem: what is wrong, and where in the object.
        place: the file that it was read from, and where in it; empty for one of a live cluster.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    problem: str
    place: str = ""

    def __str__(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        told = f"{self.kind} {where or '(its name cannot be read)'} is left out: {self.problem}"
        return f"{self.place}: {told}" if self.place else told


class _Named(msgspec.Struct):
    metadata: Metadata | None = None


class Decoder(Generic[T]):
    """Decodes one kind from bytes (live) or from a dictionary (saved files)."""

    def __init__(self, kind: str, struct: type[T]) -> None:
        self.kind = kind
        self._struct: type[T] = struct
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(struct)

    def from_bytes(self, raw: bytes | msgspec.Raw) -> T | Quarantined:
        """Decode JSON; what cannot be decoded comes back quarantined."""
        try:
            return decode(self._decoder, raw)
        except UNREADABLE as error:
            return self._quarantine(_named_in(raw), error)

    def from_dict(self, body: dict[str, Any]) -> T | Quarantined:
        """Convert a decoded document; what cannot be converted comes back quarantined."""
        try:
            return msgspec.convert(body, self._struct)
        except UNREADABLE as error:
            return self._quarantine(body, error)

    def _quarantine(self, body: object, error: Exception) -> Quarantined:
        """Keep what names the object, whatever else is wrong with it."""
        found = body.get("metadata") if isinstance(body, dict) else None
        metadata = found if isinstance(found, dict) else {}
        namespace, name, uid = (
            value if isinstance(value := metadata.get(key), str) else "" for key in ("namespace", "name", "uid")
        )
        return Quarantined(self.kind, namespace, name, uid, str(error))


class JobDecoder(Decoder[JobObject]):
    """Decodes TrainingJobs: the spec is kept raw, because a broken one is a condition of the job, not poison."""

    def __init__(self) -> None:
        super().__init__("TrainingJob", JobObject)

    def from_bytes(self, raw: bytes | msgspec.Raw) -> JobObject | Quarantined:
        """Decode JSON; what has no readable metadata comes back quarantined."""
        try:
            body = decode(_ANYTHING, raw)
        except UNREADABLE as error:
            return self._quarantine({}, error)
        return self.from_dict(body)

    def from_dict(self, body: dict[str, Any]) -> JobObject | Quarantined:
        """Take a decoded document as it is."""
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
TRAINING_JOBS = JobDecoder()


def _named_in(raw: bytes | msgspec.Raw) -> object:
    """The object as plain values; None where not even that can be read."""
    try:
        body: object = decode(_ANYTHING, raw)
    except UNREADABLE:
        return None
    return body
