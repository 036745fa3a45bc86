"""Devices, their classes and the claims on them, as the API server sends them (`resource.k8s.io/v1`)."""

from __future__ import annotations

from typing import Any

from edl.kube.translate.objects import ObjectMetadata
from edl.kube.translate.rule_objects import NodeSelectorObject
from edl.kube.translate.scalars import ApiStruct


class DeviceTaintObject(ApiStruct):
    """A taint of a device."""

    key: str | None = None
    value: str | None = None
    effect: str | None = None


class DeviceTolerationObject(ApiStruct):
    """A toleration of a request for devices."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class DeviceObject(ApiStruct):
    """A device; an attribute has one of `int`, `bool`, `string` and `version`, a capacity has a `value`."""

    name: str | None = None
    attributes: dict[str, dict[str, Any]] | None = None
    capacity: dict[str, dict[str, Any]] | None = None
    taints: list[DeviceTaintObject] | None = None
    node_name: str | None = None
    node_selector: NodeSelectorObject | None = None
    all_nodes: bool | None = None
    consumes_counters: list[dict[str, Any]] | None = None
    allow_multiple_allocations: bool | None = None
    binding_conditions: list[str] | None = None


class PoolObject(ApiStruct):
    """The pool that the devices of a slice belong to; all its slices of the newest generation make it complete."""

    name: str | None = None
    generation: int | None = None
    resource_slice_count: int | None = None


class SliceSpec(ApiStruct):
    """The spec of a ResourceSlice."""

    driver: str | None = None
    pool: PoolObject | None = None
    node_name: str | None = None
    node_selector: NodeSelectorObject | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    devices: list[DeviceObject] | None = None


class ResourceSliceObject(ApiStruct):
    """A ResourceSlice: devices that a driver offers."""

    metadata: ObjectMetadata | None = None
    spec: SliceSpec | None = None


class CelObject(ApiStruct):
    """An expression that chooses devices."""

    expression: str | None = None


class DeviceSelectorObject(ApiStruct):
    """Chooses devices."""

    cel: CelObject | None = None


class DeviceClassSpec(ApiStruct):
    """The spec of a DeviceClass."""

    selectors: list[DeviceSelectorObject] | None = None
    extended_resource_name: str | None = None


class DeviceClassObject(ApiStruct):
    """A DeviceClass."""

    metadata: ObjectMetadata | None = None
    spec: DeviceClassSpec | None = None


class ExactRequestObject(ApiStruct):
    """A request for devices of one class."""

    device_class_name: str | None = None
    selectors: list[DeviceSelectorObject] | None = None
    allocation_mode: str | None = None
    count: int | None = None
    admin_access: bool | None = None
    tolerations: list[DeviceTolerationObject] | None = None
    capacity: dict[str, Any] | None = None


class DeviceRequestObject(ApiStruct):
    """A request of a claim: exactly one kind of devices, or the first of several that is available."""

    name: str | None = None
    exactly: ExactRequestObject | None = None
    first_available: list[dict[str, Any]] | None = None


class DeviceClaimObject(ApiStruct):
    """The requests in a claim."""

    requests: list[DeviceRequestObject] | None = None
    constraints: list[dict[str, Any]] | None = None


class DeviceClaimSpec(ApiStruct):
    """The spec of a ResourceClaim."""

    devices: DeviceClaimObject | None = None


class AllocatedDeviceObject(ApiStruct):
    """A device that a claim has."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None
    admin_access: bool | None = None


class AllocatedDevicesObject(ApiStruct):
    """The devices that a claim has."""

    results: list[AllocatedDeviceObject] | None = None


class AllocationObject(ApiStruct):
    """The devices allocated to a claim, and the nodes that can use them."""

    devices: AllocatedDevicesObject | None = None
    node_selector: NodeSelectorObject | None = None


class ConsumerObject(ApiStruct):
    """A pod that may use a claim."""

    resource: str | None = None
    uid: str | None = None


class ResourceClaimStatus(ApiStruct):
    """The status of a ResourceClaim."""

    allocation: AllocationObject | None = None
    reserved_for: list[ConsumerObject] | None = None


class ResourceClaimObject(ApiStruct):
    """A ResourceClaim."""

    metadata: ObjectMetadata | None = None
    spec: DeviceClaimSpec | None = None
    status: ResourceClaimStatus | None = None


class ClaimTemplateSpec(ApiStruct):
    """The claim that a ResourceClaimTemplate makes for each pod."""

    spec: DeviceClaimSpec | None = None


class ResourceClaimTemplateObject(ApiStruct):
    """A ResourceClaimTemplate."""

    metadata: ObjectMetadata | None = None
    spec: ClaimTemplateSpec | None = None


def expressions_of(selectors: list[DeviceSelectorObject] | None) -> tuple[str, ...]:
    """Return the expressions of selectors; all of them must hold."""
    return tuple(one.cel.expression or "" for one in selectors or () if one.cel is not None)
