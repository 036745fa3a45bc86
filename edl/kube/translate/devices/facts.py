"""The objects about devices of one moment, by name, and which devices claims have taken."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from edl.kube.translate.devices.inventory import DeviceId
from edl.kube.translate.devices.objects import (
    AllocatedDeviceObject,
    AllocationObject,
    DeviceClassObject,
    ResourceClaimObject,
    ResourceClaimStatus,
    ResourceClaimTemplateObject,
    ResourceSliceObject,
)
from edl.kube.translate.objects import ObjectMetadata

Named = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """The device objects in the cluster; a collection that edl may not read is empty.

    Attributes:
        made: the claims that were made for pods, by the UID of the pod.
        complete: of which collections every object is known, named as in `RuleObjects`.
    """

    slices: tuple[ResourceSliceObject, ...] = ()
    classes: Mapping[str, DeviceClassObject] = field(default_factory=dict)
    claims: Mapping[Named, ResourceClaimObject] = field(default_factory=dict)
    templates: Mapping[Named, ResourceClaimTemplateObject] = field(default_factory=dict)
    made: Mapping[str, tuple[ResourceClaimObject, ...]] = field(default_factory=dict)
    complete: frozenset[str] = frozenset()

    def has_allocated(self, pod: str) -> bool:
        """Return True if a claim that was made for a pod, given by its UID, has its devices."""
        return any(allocation_of(claim) is not None for claim in self.made.get(pod, ()))

    def taken(self, bound: Set[str]) -> set[DeviceId]:
        """The devices that no new claim can have.

        Those of pods that are not bound yet, or that have ended, are not taken: such a pod requests
        them itself, or its claim goes in a moment.

        Args:
            bound: the UIDs of the pods that have a node and have not ended.
        """
        return {
            (one.driver or "", one.pool or "", one.device or "")
            for claim in self.claims.values()
            for one in _results(claim)
            if not one.admin_access and _is_in_use(claim, bound)
        }


NO_DEVICES = DeviceFacts()


def read_devices(
    *,
    slices: Iterable[ResourceSliceObject] = (),
    device_classes: Iterable[DeviceClassObject] = (),
    device_claims: Iterable[ResourceClaimObject] = (),
    claim_templates: Iterable[ResourceClaimTemplateObject] = (),
    complete: frozenset[str] = frozenset(),
) -> DeviceFacts:
    """Sort the objects by their names."""
    classes = {(one.metadata or ObjectMetadata()).name or "": one for one in device_classes}
    if not (classes or "device_classes" in complete):
        return NO_DEVICES
    claims = {name_of(one.metadata): one for one in device_claims}
    made: dict[str, tuple[ResourceClaimObject, ...]] = {}
    for claim in claims.values():
        for uid in _owners(claim):
            made[uid] = (*made.get(uid, ()), claim)
    return DeviceFacts(
        complete=complete,
        slices=tuple(slices),
        classes=classes,
        claims=claims,
        made=made,
        templates={name_of(one.metadata): one for one in claim_templates},
    )


def allocation_of(claim: ResourceClaimObject) -> AllocationObject | None:
    """The devices allocated to a claim; None if it has none yet."""
    return (claim.status or ResourceClaimStatus()).allocation


def _results(claim: ResourceClaimObject) -> list[AllocatedDeviceObject]:
    devices = (allocation_of(claim) or AllocationObject()).devices
    return (devices.results if devices is not None else None) or []


def _is_in_use(claim: ResourceClaimObject, bound: Set[str]) -> bool:
    users = _owners(claim)
    users |= {one.uid or "" for one in (claim.status or ResourceClaimStatus()).reserved_for or ()}
    return not users or not users.isdisjoint(bound)


def _owners(claim: ResourceClaimObject) -> set[str]:
    """The UIDs of the pods that a claim was made for."""
    owners = (claim.metadata or ObjectMetadata()).owner_references or ()
    return {one.uid or "" for one in owners if one.kind == "Pod"}


def name_of(metadata: ObjectMetadata | None) -> Named:
    """The namespace and the name of an object."""
    found = metadata or ObjectMetadata()
    return found.namespace or "default", found.name or ""
