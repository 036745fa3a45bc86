"""The devices of each node, as drivers offer them in ResourceSlices.

A pool counts only with all its slices of the newest generation; if these disagree about their number, which of them
kube-scheduler believes is its order, and the pool does not count. Devices that several nodes reach, that are parts of
others, or that several claims share, are no whole devices of a node: they are kept apart, with the reason.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/ (ResourceSlice)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from edl.errors import ConfigError
from edl.kube.expressions import quantity
from edl.kube.translate.devices.objects import DeviceObject, PoolObject, ResourceSliceObject, SliceSpec
from edl.kube.translate.shapes import read_terms
from edl.model.cluster import Node
from edl.model.resources import NodeTerm, Taint
from edl.planner.eligibility import REPELLING_EFFECTS, is_met

DeviceId = tuple[str, str, str]
"""Driver, pool and name."""


@dataclass(frozen=True, slots=True)
class Device:
    """One device of a node.

    Attributes:
        identity: driver, pool and name.
        described: what selectors see: `driver`, `attributes` and `capacity`, the latter two by domain and name.
        taints: those that keep claims away.
        problem: why edl cannot count it as a whole device of the node; empty if it can.
    """

    identity: DeviceId
    described: Mapping[str, Any]
    taints: tuple[Taint, ...] = ()
    problem: str = ""


def devices_of_nodes(slices: Iterable[ResourceSliceObject], nodes: Iterable[Node]) -> dict[str, list[Device]]:
    """The devices of each node by its name, in the order of their names; a node without devices is left out.

    Args:
        slices: every ResourceSlice.
        nodes: every node.
    """
    listed = list(nodes)
    names = {node.name for node in listed}
    found: dict[str, list[Device]] = {}
    for spec in _complete(slices):
        for device in spec.devices or ():
            where = _node_names(spec, device, listed)
            problem = "several nodes reach the device" if len(where) > 1 else _problem(device)
            read = _read(spec, device, problem)
            for name in where & names:
                found.setdefault(name, []).append(read)
    return {name: sorted(here, key=lambda one: one.identity) for name, here in found.items()}


def _complete(slices: Iterable[ResourceSliceObject]) -> list[SliceSpec]:
    """The specs of all slices of complete pools."""
    pools: dict[tuple[str, str], list[tuple[int, SliceSpec]]] = {}
    for one in slices:
        spec = one.spec or SliceSpec()
        pool = spec.pool or PoolObject()
        pools.setdefault((spec.driver or "", pool.name or ""), []).append((pool.generation or 0, spec))
    complete = []
    for parts in pools.values():
        newest = max(generation for generation, _ in parts)
        current = [spec for generation, spec in parts if generation == newest]
        if {(spec.pool or PoolObject()).resource_slice_count or 1 for spec in current} == {len(current)}:
            complete += current
    return complete


def _node_names(spec: SliceSpec, device: DeviceObject, nodes: list[Node]) -> set[str]:
    """The nodes from which a device can be reached."""
    place: SliceSpec | DeviceObject = device if spec.per_device_node_selection else spec
    if place.node_name:
        return {place.node_name}
    if place.all_nodes:
        return {node.name for node in nodes}
    if place.node_selector is None:
        return set()
    terms = read_terms(place.node_selector)
    return {node.name for node in nodes if any(_accepts(term, node) for term in terms)}


def _accepts(term: NodeTerm, node: Node) -> bool:
    return is_met(term, dict(node.labels), {"metadata.name": node.name})


def _problem(device: DeviceObject) -> str:
    if device.consumes_counters:
        return "the device is a part of another one"
    if device.allow_multiple_allocations:
        return "several claims share the device"
    return "the device is bound on conditions" if device.binding_conditions else ""


def _read(spec: SliceSpec, device: DeviceObject, problem: str) -> Device:
    driver, pool = spec.driver or "", spec.pool or PoolObject()
    try:
        capacity = _by_domain(device.capacity, driver, lambda value: quantity(str(value.get("value", "0"))))
        described = {
            "driver": driver,
            "attributes": _by_domain(device.attributes, driver, lambda value: next(iter(value.values()), None)),
            "capacity": capacity,
            "allowMultipleAllocations": bool(device.allow_multiple_allocations),
        }
    except ConfigError as error:
        described, problem = {"driver": driver, "attributes": {}, "capacity": {}}, problem or str(error)
    taints = tuple(
        Taint(taint.key or "", taint.value or "", taint.effect or "")
        for taint in device.taints or ()
        if taint.effect in REPELLING_EFFECTS
    )
    return Device((driver, pool.name or "", device.name or ""), described, taints, problem)


def _by_domain(values: Mapping[str, Any] | None, driver: str, read: Any) -> dict[str, dict[str, Any]]:  # noqa: ANN401
    """Key attributes by domain and name; a name without a domain belongs to the driver."""
    found: dict[str, dict[str, Any]] = {}
    for key, value in (values or {}).items():
        domain, _, name = key.rpartition("/")
        found.setdefault(domain or driver, {})[name] = read(value)
    return found
