"""Volumes, their claims and classes, what nodes can attach, and namespaces, as the API server sends them."""

from __future__ import annotations

import msgspec

from edl.kube.translate.objects import ObjectMetadata
from edl.kube.translate.rule_objects import ClaimSpec, LabelSelectorObject, NodeSelectorObject
from edl.kube.translate.scalars import ApiStruct, Scalar


class VolumeAffinityObject(ApiStruct):
    """From which nodes a volume can be reached."""

    required: NodeSelectorObject | None = None


class ClaimReferenceObject(ApiStruct):
    """The claim that a volume is bound to."""

    namespace: str | None = None
    name: str | None = None
    uid: str | None = None


class DriverObject(ApiStruct):
    """The CSI driver of a volume."""

    driver: str | None = None


class VolumeSpec(ApiStruct):
    """The spec of a PersistentVolume."""

    capacity: dict[str, Scalar] | None = None
    access_modes: list[str] | None = None
    storage_class_name: str | None = None
    node_affinity: VolumeAffinityObject | None = None
    claim_ref: ClaimReferenceObject | None = None
    csi: DriverObject | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class VolumeStatus(ApiStruct):
    """The status of a PersistentVolume."""

    phase: str | None = None


class LabelledMetadata(ObjectMetadata):
    """Metadata with labels."""

    labels: dict[str, Scalar] | None = None


class ClassMetadata(ObjectMetadata):
    """Metadata of a StorageClass: an annotation makes it the default."""

    annotations: dict[str, Scalar] | None = None


class StorageAnnotations(ApiStruct):
    """Annotations of volumes and claims: the class in its older form, and the node that a volume is made for."""

    storage_class: Scalar = msgspec.field(default=None, name="volume.beta.kubernetes.io/storage-class")
    selected_node: Scalar = msgspec.field(default=None, name="volume.kubernetes.io/selected-node")


class VolumeMetadata(LabelledMetadata):
    """Metadata of a volume: its labels say where it is, and claims choose by them."""

    annotations: StorageAnnotations | None = None


class PersistentVolumeObject(ApiStruct):
    """A v1 PersistentVolume."""

    metadata: VolumeMetadata | None = None
    spec: VolumeSpec | None = None
    status: VolumeStatus | None = None


class ClaimMetadata(ObjectMetadata):
    """Metadata of a claim."""

    annotations: StorageAnnotations | None = None


class ClaimStatus(ApiStruct):
    """The status of a claim."""

    phase: str | None = None


class PersistentVolumeClaimObject(ApiStruct):
    """A v1 PersistentVolumeClaim."""

    metadata: ClaimMetadata | None = None
    spec: ClaimSpec | None = None
    status: ClaimStatus | None = None


class TopologyExpressionObject(ApiStruct):
    """The values that a label of nodes may have."""

    key: str | None = None
    values: list[str] | None = None


class TopologyTermObject(ApiStruct):
    """Where volumes of a class may be made; all expressions must hold."""

    match_label_expressions: list[TopologyExpressionObject] | None = None


class StorageClassObject(ApiStruct):
    """A storage.k8s.io/v1 StorageClass."""

    metadata: ClassMetadata | None = None
    provisioner: str | None = None
    volume_binding_mode: str | None = None
    allowed_topologies: list[TopologyTermObject] | None = None


class AttachableObject(ApiStruct):
    """How many volumes a driver can attach to a node; None for no limit."""

    count: int | None = None


class NodeDriverObject(ApiStruct):
    """A CSI driver on a node; a volume is reached from the nodes that have equal values of the topology keys."""

    name: str | None = None
    allocatable: AttachableObject | None = None
    topology_keys: list[str] | None = None


class NodeDriversSpec(ApiStruct):
    """The CSI drivers on a node."""

    drivers: list[NodeDriverObject] = msgspec.field(default_factory=list)


class CsiNodeObject(ApiStruct):
    """A storage.k8s.io/v1 CSINode, named as its node is."""

    metadata: ObjectMetadata | None = None
    spec: NodeDriversSpec | None = None


class CsiDriverSpec(ApiStruct):
    """What a CSI driver offers."""

    storage_capacity: bool | None = None
    attach_required: bool | None = None
    prevent_pod_scheduling_if_missing: bool | None = None


class CsiDriverObject(ApiStruct):
    """A storage.k8s.io/v1 CSIDriver."""

    metadata: ObjectMetadata | None = None
    spec: CsiDriverSpec | None = None


class CsiStorageCapacityObject(ApiStruct):
    """A storage.k8s.io/v1 CSIStorageCapacity: how much storage is left for a class on some nodes."""

    metadata: ObjectMetadata | None = None
    node_topology: LabelSelectorObject | None = None
    storage_class_name: str | None = None
    capacity: Scalar = None
    maximum_volume_size: Scalar = None


class NamespaceAnnotations(ApiStruct):
    """The annotations with which admission plugins change where the pods of a namespace run."""

    node_selector: Scalar = msgspec.field(default=None, name="scheduler.alpha.kubernetes.io/node-selector")
    openshift_node_selector: Scalar = msgspec.field(default=None, name="openshift.io/node-selector")
    default_tolerations: Scalar = msgspec.field(default=None, name="scheduler.alpha.kubernetes.io/defaultTolerations")
    allowed_tolerations: Scalar = msgspec.field(
        default=None, name="scheduler.alpha.kubernetes.io/tolerationsWhitelist"
    )


class NamespaceMetadata(LabelledMetadata):
    """Metadata of a namespace."""

    annotations: NamespaceAnnotations | None = None


class NamespaceObject(ApiStruct):
    """A v1 Namespace: a rule between pods may choose namespaces by their labels."""

    metadata: NamespaceMetadata | None = None
