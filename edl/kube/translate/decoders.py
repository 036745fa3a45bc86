"""Bytes and dictionaries become objects; an object that cannot be decoded is quarantined under its name.

One unreadable object must never prevent the others from being read. An object whose fields have the wrong type, or
that is beyond the bounds, is returned as `Quarantined`, with as much of its name as can be read.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, TypeVar

import msgspec
from msgspec.structs import asdict

from edl.kube.bounds.json_depth import UNREADABLE, decode
from edl.kube.bounds.object_bounds import MAX_BYTES_OF_POD, MAX_VALUES_OF_POD, Oversized, excess, outline
from edl.kube.translate.container_objects import ContainerObject, ResourceAmounts
from edl.kube.translate.groups.objects import PodGroupObject, VolcanoQueueObject
from edl.kube.translate.objects import (
    DaemonSetObject,
    HasMetadata,
    JobObject,
    NodeObject,
    ObjectMetadata,
    PodAnnotations,
    PodMetadata,
    PodObject,
    PodSpec,
    PodStatus,
    PriorityClassObject,
    ResourceQuotaObject,
)
from edl.kube.translate.scalars import ApiStruct, Scalar
from edl.kube.translate.storage_objects import (
    CsiDriverObject,
    CsiNodeObject,
    CsiStorageCapacityObject,
    NamespaceObject,
    PersistentVolumeClaimObject,
    PersistentVolumeObject,
    StorageClassObject,
)
from edl.model.pod_limits import MAX_LABELS

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


class _Occupant(ApiStruct):
    """The spec of a pod as far as it takes a part of its node."""

    node_name: str | None = None
    containers: list[ContainerObject] | None = None
    init_containers: list[ContainerObject] | None = None
    overhead: dict[str, Scalar] | None = None
    resources: ResourceAmounts | None = None
    priority: int | None = None
    priority_class_name: str | None = None
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None


class _OccupantMetadata(ObjectMetadata):
    """Metadata of such a pod."""

    labels: dict[str, Scalar] | None = None
    annotations: PodAnnotations | None = None


class _OccupyingPod(ApiStruct):
    """A pod that is bound, whatever else it says."""

    metadata: _OccupantMetadata | None = None
    spec: _Occupant | None = None
    status: PodStatus | None = None


_OCCUPYING = msgspec.json.Decoder(_OccupyingPod)


class PodDecoder(Decoder[PodObject]):
    """Decodes pods; the requests of a bound pod count even if the rest of it is too large to decode."""

    def __init__(self) -> None:
        super().__init__("Pod", PodObject)

    def from_bytes(self, raw: bytes | msgspec.Raw) -> PodObject | Quarantined:
        """Decode JSON; see the class."""
        problem = excess(raw, MAX_BYTES_OF_POD, MAX_VALUES_OF_POD)
        found = self._too_large(raw, problem) if problem else self._decoded(raw)
        if isinstance(found, Quarantined):
            with suppress(*UNREADABLE):
                return _occupying(_OCCUPYING.decode(raw)) or found
        return found

    def from_dict(self, body: dict[str, Any]) -> PodObject | Quarantined:
        """Convert a decoded document; see the class."""
        found = super().from_dict(body)
        if isinstance(found, Quarantined) and not isinstance(body, Oversized):
            with suppress(*UNREADABLE):
                return _occupying(msgspec.convert(body, _OccupyingPod)) or found
        return found


def _occupying(pod: _OccupyingPod) -> PodObject | None:
    """The pod with what it takes of its node; None if it has no node."""
    spec, metadata = pod.spec, pod.metadata or _OccupantMetadata()
    if spec is None or not spec.node_name:
        return None
    metadata.labels = dict(islice((metadata.labels or {}).items(), MAX_LABELS))
    metadata.owner_references = sorted(metadata.owner_references or (), key=lambda one: not one.controller)[:1]
    return PodObject(PodMetadata(**asdict(metadata)), PodSpec(**asdict(spec)), pod.status)


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
VOLUMES = Decoder("PersistentVolume", PersistentVolumeObject)
VOLUME_CLAIMS = Decoder("PersistentVolumeClaim", PersistentVolumeClaimObject)
STORAGE_CLASSES = Decoder("StorageClass", StorageClassObject)
CSI_NODES = Decoder("CSINode", CsiNodeObject)
CSI_DRIVERS = Decoder("CSIDriver", CsiDriverObject)
CSI_CAPACITIES = Decoder("CSIStorageCapacity", CsiStorageCapacityObject)
NAMESPACES = Decoder("Namespace", NamespaceObject)
RESOURCE_QUOTAS = Decoder("ResourceQuota", ResourceQuotaObject)
TRAINING_JOBS = JobDecoder()
_OF_KUBERNETES = Decoder("PodGroup of Kubernetes", PodGroupObject)
POD_GROUPS = {
    **{f"scheduling.k8s.io/{version}": _OF_KUBERNETES for version in ("v1beta1", "v1alpha3", "v1alpha2")},
    "scheduling.volcano.sh/v1beta1": Decoder("PodGroup of Volcano", PodGroupObject),
    "scheduling.x-k8s.io/v1alpha1": Decoder("PodGroup", PodGroupObject),
    "scheduling.run.ai/v2alpha2": Decoder("PodGroup of KAI-Scheduler", PodGroupObject),
}
"""By apiVersion; four groups have a kind PodGroup."""
VOLCANO_QUEUES = Decoder("Queue of Volcano", VolcanoQueueObject)


def _named_in(raw: bytes | msgspec.Raw) -> object:
    """Decode the object into plain values; None if it is not JSON."""
    try:
        body: object = decode(_ANYTHING, raw)
    except UNREADABLE:
        return None
    return body
