"""Bytes and dictionaries become objects; an object that cannot be decoded is quarantined under its name.

One unreadable object must never prevent the others from being read. An object whose fields have the wrong type, or
that is beyond the bounds, is returned as `Quarantined`, with as much of its name as can be read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from edl.kube.bounds.json_depth import UNREADABLE, decode
from edl.kube.bounds.object_bounds import MAX_BYTES_OF_POD, MAX_VALUES_OF_POD, Oversized, excess, outline
from edl.kube.translate.objects import (
    DaemonSetObject,
    HasMetadata,
    JobObject,
    NodeObject,
    ObjectMetadata,
    PodObject,
    PodSpec,
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
        """Decode JSON; an object that cannot be decoded, or is beyond the bounds, is returned as quarantined."""
        if problem := excess(raw):
            return self._too_large(raw, problem)
        return self._decoded(raw)

    def _too_large(self, raw: bytes | msgspec.Raw, problem: str) -> T | Quarantined:
        try:
            return self.from_dict(outline(raw, problem))
        except UNREADABLE as error:
            return self._quarantine({}, error)

    def _decoded(self, raw: bytes | msgspec.Raw) -> T | Quarantined:
        try:
            return decode(self._decoder, raw)
        except UNREADABLE as error:
            return self._quarantine(_named_in(raw), error)

    def from_dict(self, body: dict[str, Any]) -> T | Quarantined:
        """Convert a decoded document; one that cannot be converted, or is too large, is returned as quarantined."""
        if isinstance(body, Oversized):
            return self._quarantine(body, ValueError(body.problem))
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


class PodDecoder(Decoder[PodObject]):
    """Decodes pods; of a bound one that is too large, what it takes of its node still counts."""

    def __init__(self) -> None:
        super().__init__("Pod", PodObject)

    def from_bytes(self, raw: bytes | msgspec.Raw) -> PodObject | Quarantined:
        """Decode JSON; see the class."""
        problem = excess(raw, MAX_BYTES_OF_POD, MAX_VALUES_OF_POD)
        if not problem:
            return self._decoded(raw)
        try:
            pod = self._decoder.decode(raw)
        except UNREADABLE:
            return self._too_large(raw, problem)
        if (spec := pod.spec) is None or not spec.node_name:
            return self._too_large(raw, problem)
        pod.spec = PodSpec(
            node_name=spec.node_name,
            containers=spec.containers,
            init_containers=spec.init_containers,
            overhead=spec.overhead,
            resources=spec.resources,
            priority=spec.priority,
            priority_class_name=spec.priority_class_name,
            termination_grace_period_seconds=spec.termination_grace_period_seconds,
        )
        return pod


class JobDecoder(Decoder[JobObject]):
    """Decodes TrainingJobs; the spec stays raw, because an invalid spec is a condition of the job."""

    def __init__(self) -> None:
        super().__init__("TrainingJob", JobObject)

    def from_bytes(self, raw: bytes | msgspec.Raw) -> JobObject | Quarantined:
        """Decode JSON; a job without readable metadata is quarantined. One beyond the bounds is invalid."""
        if problem := excess(raw):
            return self._too_large(raw, problem)
        try:
            body = decode(_ANYTHING, raw)
        except UNREADABLE as error:
            return self._quarantine({}, error)
        return self.from_dict(body)

    def from_dict(self, body: dict[str, Any]) -> JobObject | Quarantined:
        """Take a decoded document, without managedFields.

        A status that is not read could not be compared with what is written, so its job is quarantined.
        """
        if isinstance(body, Oversized) and not body.has_status:
            return self._quarantine(body, ValueError(body.problem))
        try:
            metadata = msgspec.convert(body, _Named).metadata
        except UNREADABLE as error:
            return self._quarantine(body, error)
        if isinstance(fields := body.get("metadata"), dict) and "managedFields" in fields:
            body = {**body, "metadata": {key: value for key, value in fields.items() if key != "managedFields"}}
        return JobObject(metadata, body, body.problem if isinstance(body, Oversized) else "")


NODES = Decoder("Node", NodeObject)
PODS = PodDecoder()
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
