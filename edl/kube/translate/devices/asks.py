"""What a claim asks for, in kinds of devices and numbers; or why edl cannot count it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from edl.kube.translate.devices.inventory import Device
from edl.kube.translate.devices.objects import (
    DeviceClaimObject,
    DeviceClaimSpec,
    DeviceClassObject,
    DeviceClassSpec,
    ExactRequestObject,
    expressions_of,
)
from edl.model.resources import Toleration
from edl.planner.eligibility import matches

Classes = Mapping[str, DeviceClassObject]
IMPLICIT_PREFIX = "deviceclass.resource.kubernetes.io/"
"""Begins the name of the extended resource that each class has."""

MOST_DEVICES = 32
"""kube-scheduler gives no claim more; the API server accepts any number."""


class Kind(NamedTuple):
    """A kind of devices that claims ask for.

    Attributes:
        device_class: the name of the class.
        selectors: expressions of the class and of the request; all must hold.
        tolerations: the tolerations of the request.
    """

    device_class: str
    selectors: tuple[str, ...] = ()
    tolerations: tuple[Toleration, ...] = ()

    def tolerates(self, device: Device) -> bool:
        """Return True if no taint of a device keeps claims for this kind away."""
        return all(any(matches(one, taint) for one in self.tolerations) for taint in device.taints)


class UncountedClaimError(Exception):
    """A claim asks for something else than whole devices of a node, so edl cannot count it; the message says why."""


class RefusedClaimError(Exception):
    """No device of any node satisfies a claim, even if all pods ended; the message says why."""


def kinds_of_claim(spec: DeviceClaimSpec | None, classes: Classes) -> Counter[Kind]:
    """How many devices of each kind a claim asks for.

    Raises:
        UncountedClaimError: it asks for something that edl does not count.
        RefusedClaimError: kube-scheduler gives it nothing.
    """
    claim = (spec or DeviceClaimSpec()).devices or DeviceClaimObject()
    found: Counter[Kind] = Counter()
    for request in claim.requests or ():
        name = request.name or "(no name)"
        if request.first_available:
            raise UncountedClaimError(
                f"request {name} names several kinds of devices (firstAvailable); name one (exactly)"
            )
        kind, count = _exact(name, request.exactly or ExactRequestObject(), classes)
        found[kind] += count
    if found.total() > MOST_DEVICES:
        raise RefusedClaimError(f"it asks for {found.total()} devices, and a claim gets at most {MOST_DEVICES}")
    if claim.constraints and found.total() > 1:
        raise UncountedClaimError(
            "its devices must have something in common (constraints); choose such devices by a selector"
        )
    return found


def kind_of_extended(resource: str, classes: Classes) -> Kind | None:
    """The kind of devices that a DeviceClass offers under an extended resource name; None if no class does."""
    named = resource.removeprefix(IMPLICIT_PREFIX)
    if named != resource:
        return _of_class(named, classes[named]) if named in classes else None
    for name, found in sorted(classes.items()):
        if (found.spec or DeviceClassSpec()).extended_resource_name == resource:
            return _of_class(name, found)
    return None


def _exact(name: str, request: ExactRequestObject, classes: Classes) -> tuple[Kind, int]:
    """The kind of devices of a request, and how many."""
    if request.allocation_mode not in {None, "", "ExactCount"}:
        raise UncountedClaimError(f"request {name} asks for all devices of a node (allocationMode); ask for a count")
    if request.admin_access:
        raise UncountedClaimError(f"request {name} shares devices of others (adminAccess); ask for its own")
    if request.capacity:
        raise UncountedClaimError(f"request {name} asks for a part of a device (capacity); ask for whole ones")
    found = classes.get(request.device_class_name or "")
    if found is None:
        raise RefusedClaimError(f"DeviceClass {request.device_class_name or '(no name)'} does not exist")
    base = _of_class(request.device_class_name or "", found)
    kind = Kind(
        base.device_class,
        (*base.selectors, *expressions_of(request.selectors)),
        tuple(
            Toleration(one.key or "", one.operator or "Equal", one.value or "", one.effect or "")
            for one in request.tolerations or ()
        ),
    )
    return kind, 1 if request.count is None else max(0, request.count)


def _of_class(name: str, found: DeviceClassObject) -> Kind:
    return Kind(name, expressions_of((found.spec or DeviceClassSpec()).selectors))
