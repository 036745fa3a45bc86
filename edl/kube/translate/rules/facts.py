"""The objects beside nodes, pods and jobs that rules depend on: volumes, claims, classes, namespaces and so on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from edl.kube.translate.devices.facts import NO_DEVICES, DeviceFacts, read_devices
from edl.kube.translate.devices.objects import (
    DeviceClassObject,
    ResourceClaimObject,
    ResourceClaimTemplateObject,
    ResourceSliceObject,
)
from edl.kube.translate.groups.gangs import (
    COSCHEDULING,
    KAI,
    KUBERNETES,
    VOLCANO,
    Minimums,
    VolcanoQueues,
    minimums,
    volcano_queues,
)
from edl.kube.translate.groups.objects import PodGroupObject, VolcanoQueueObject
from edl.kube.translate.objects import ObjectMetadata
from edl.kube.translate.rules.namespaces import NAME_LABEL
from edl.kube.translate.rules.storage_capacity import Place, counting_drivers, places_by_class
from edl.kube.translate.rules.terms import DEFAULT_NAMESPACE
from edl.kube.translate.scalars import text
from edl.kube.translate.storage_objects import (
    CsiDriverObject,
    CsiNodeObject,
    CsiStorageCapacityObject,
    NamespaceObject,
    PersistentVolumeClaimObject,
    PersistentVolumeObject,
    StorageClassObject,
)

Claim = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True)
class RuleFacts:
    """The other objects that rules read, by name; a kind that edl may not read is empty.

    Attributes:
        complete: of which collections every object of the cluster is known, named as in `RuleObjects`.
        limits: for each node, how many volumes of each CSI driver it can attach.
        needed: the nodes of each CSI driver without which a node takes no pod that uses its volumes.
        unattached: the CSI drivers whose volumes are attached to no node: any number of nodes may use them.
        topologies: for each CSI driver, the labels of nodes whose values tell where a volume of it is.
        counting: the CSI drivers that say how much storage they have left.
        places: where and how large volumes of each StorageClass can be made, as these drivers say.
        namespaces: the labels of each namespace.
        devices: devices, their classes, and the claims on them.
        gangs: with how many pods each PodGroup starts.
        volcano: the queues of Volcano.
    """

    claims: Mapping[Claim, PersistentVolumeClaimObject] = field(default_factory=dict)
    volumes: Mapping[str, PersistentVolumeObject] = field(default_factory=dict)
    classes: Mapping[str, StorageClassObject] = field(default_factory=dict)
    limits: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    needed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    unattached: frozenset[str] = frozenset()
    topologies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    counting: frozenset[str] = frozenset()
    places: Mapping[str, tuple[Place, ...]] = field(default_factory=dict)
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    devices: DeviceFacts = NO_DEVICES
    gangs: Minimums = field(default_factory=dict)
    volcano: VolcanoQueues = field(default_factory=VolcanoQueues)
    complete: frozenset[str] = frozenset()

    def lacks_claim(self, claim: Claim) -> bool:
        """Return True if a volume claim does not exist."""
        return claim not in self.claims and "claims" in self.complete

    def lacks_volume(self, name: str) -> bool:
        """Return True if a volume does not exist."""
        return name not in self.volumes and "volumes" in self.complete

    def lacks_class(self, name: str) -> bool:
        """Return True if a class of volumes does not exist."""
        return name not in self.classes and "classes" in self.complete


NO_FACTS = RuleFacts()


@dataclass(frozen=True, slots=True)
class RuleObjects:
    """The objects that rules read, decoded; a collection that edl may not read is empty.

    Attributes:
        complete: the names of the collections that hold every such object of the cluster.
    """

    claims: Iterable[PersistentVolumeClaimObject] = ()
    volumes: Iterable[PersistentVolumeObject] = ()
    classes: Iterable[StorageClassObject] = ()
    csi_nodes: Iterable[CsiNodeObject] = ()
    csi_drivers: Iterable[CsiDriverObject] = ()
    csi_capacities: Iterable[CsiStorageCapacityObject] = ()
    namespaces: Iterable[NamespaceObject] = ()
    slices: Iterable[ResourceSliceObject] = ()
    device_classes: Iterable[DeviceClassObject] = ()
    device_claims: Iterable[ResourceClaimObject] = ()
    claim_templates: Iterable[ResourceClaimTemplateObject] = ()
    volcano_pod_groups: Iterable[PodGroupObject] = ()
    kubernetes_pod_groups: Iterable[PodGroupObject] = ()
    pod_groups: Iterable[PodGroupObject] = ()
    kai_pod_groups: Iterable[PodGroupObject] = ()
    volcano_queues: Iterable[VolcanoQueueObject] = ()
    complete: frozenset[str] = frozenset()


def read_facts(objects: RuleObjects) -> RuleFacts:
    """Sort the objects by their names."""
    by_claim: dict[Claim, PersistentVolumeClaimObject] = {}
    for claim in objects.claims:
        metadata = claim.metadata or ObjectMetadata()
        by_claim[metadata.namespace or DEFAULT_NAMESPACE, metadata.name or ""] = claim
    csi_nodes, drivers = list(objects.csi_nodes), list(objects.csi_drivers)
    return RuleFacts(
        claims=by_claim,
        volumes={one.metadata.name or "": one for one in objects.volumes if one.metadata},
        classes={one.metadata.name or "": one for one in objects.classes if one.metadata},
        limits={one.metadata.name or "": _limits(one) for one in csi_nodes if one.metadata},
        needed=_needed(drivers, csi_nodes) if "csi_nodes" in objects.complete else {},
        unattached=frozenset(
            one.metadata.name or ""
            for one in drivers
            if one.metadata and one.spec is not None and one.spec.attach_required is False
        ),
        topologies=_topologies(csi_nodes),
        counting=counting_drivers(drivers) if "csi_capacities" in objects.complete else frozenset(),
        places=places_by_class(objects.csi_capacities),
        namespaces=labels_of_namespaces(objects.namespaces),
        devices=read_devices(
            slices=objects.slices,
            device_classes=objects.device_classes,
            device_claims=objects.device_claims,
            claim_templates=objects.claim_templates,
            complete=objects.complete,
        ),
        gangs=minimums(
            {
                KUBERNETES: objects.kubernetes_pod_groups,
                VOLCANO: objects.volcano_pod_groups,
                COSCHEDULING: objects.pod_groups,
                KAI: objects.kai_pod_groups,
            }
        ),
        volcano=volcano_queues(objects.volcano_pod_groups, objects.volcano_queues),
        complete=objects.complete,
    )


def labels_of_namespaces(namespaces: Iterable[NamespaceObject]) -> dict[str, dict[str, str]]:
    """The labels of each namespace, with the one that the API server gives it."""
    labels: dict[str, dict[str, str]] = {}
    for namespace in namespaces:
        name = namespace.metadata.name or "" if namespace.metadata else ""
        found = namespace.metadata.labels if namespace.metadata else None
        labels[name] = {NAME_LABEL: name, **{k: text(v) for k, v in (found or {}).items()}}
    return labels


def _limits(node: CsiNodeObject) -> dict[str, int]:
    """How many volumes of each driver a node can attach; a driver without a limit is left out."""
    drivers = node.spec.drivers if node.spec else []
    counts = {driver.name: driver.allocatable.count for driver in drivers if driver.name and driver.allocatable}
    return {name: number for name, number in counts.items() if number is not None}


def _needed(drivers: Iterable[CsiDriverObject], nodes: Iterable[CsiNodeObject]) -> dict[str, frozenset[str]]:
    """By driver, the nodes on which it runs, for drivers that must run on a node; empty if no CSINode is known."""
    places: dict[str, set[str]] = {}
    for node in nodes:
        if node.metadata is not None:
            for name in ("", *(driver.name for driver in (node.spec.drivers if node.spec else ()))):
                places.setdefault(name or "", set()).add(node.metadata.name or "")
    needed = [
        driver.metadata.name or ""
        for driver in drivers
        if driver.metadata is not None and driver.spec is not None and driver.spec.prevent_pod_scheduling_if_missing
    ]
    return {name: frozenset(places.get(name, ())) for name in needed} if places else {}


def _topologies(nodes: Iterable[CsiNodeObject]) -> dict[str, tuple[str, ...]]:
    """The topology keys of each driver, which are the same on each of its nodes; a driver without any is left out."""
    drivers = [driver for node in nodes if node.spec for driver in node.spec.drivers]
    return {
        driver.name: tuple(sorted(driver.topology_keys)) for driver in drivers if driver.name and driver.topology_keys
    }
