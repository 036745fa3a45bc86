"""Objects about devices by claim, as files that `edl plan -f` reads."""

from __future__ import annotations

from typing import Any

from tests.worlds.rules.scenes import Object

API = "resource.k8s.io/v1"
DRIVER = CLASS = "gpu.example.com"


def device_class(name: str = CLASS, expression: str = f'device.driver == "{DRIVER}"', **spec: Any) -> Object:
    selectors = [{"cel": {"expression": expression}}]
    return {
        "apiVersion": API,
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": selectors, **spec},
    }


def device(name: str, *, memory: str = "", taint: str = "", **attributes: Any) -> Object:
    """A device with attributes of the driver's own domain."""
    kinds = {bool: "bool", int: "int", str: "string"}
    found: Object = {
        "name": name,
        "attributes": {key: {kinds[type(value)]: value} for key, value in attributes.items()},
    }
    if memory:
        found["capacity"] = {"memory": {"value": memory}}
    if taint:
        found["taints"] = [{"key": taint, "effect": "NoSchedule"}]
    return found


def slice_of(
    node: str, *devices: Object, generation: int = 1, slices: int = 1, name: str = "", **spec: Any
) -> Object:
    """The devices of a node."""
    pool = {"name": node, "generation": generation, "resourceSliceCount": slices}
    body = {"driver": DRIVER, "pool": pool, "devices": list(devices), **(spec or {"nodeName": node})}
    return {
        "apiVersion": API,
        "kind": "ResourceSlice",
        "metadata": {"name": name or f"{node}-{generation}"},
        "spec": body,
    }


def slices(count: int, each: int = 4) -> list[Object]:
    """So many devices on each of the nodes n0, n1..."""
    return [slice_of(f"n{i}", *(device(f"gpu-{k}") for k in range(each))) for i in range(count)]


def request(count: int = 1, name: str = CLASS, **exactly: Any) -> Object:
    return {"name": "gpu", "exactly": {"deviceClassName": name, "count": count, **exactly}}


def template(*requests: Object, name: str = "one-gpu", **devices: Any) -> Object:
    spec = {"devices": {"requests": list(requests or (request(),)), **devices}}
    return {
        "apiVersion": API,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"spec": spec},
    }


def claim(
    name: str, node: str = "", *devices: str, requests: tuple[Object, ...] = (), owner: str = "", user: str = ""
) -> Object:
    """A claim; with devices of a node it has these. `owner` and `user` are UIDs of pods."""
    results = [{"request": "gpu", "driver": DRIVER, "pool": node, "device": one} for one in devices]
    here = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]}
    status: Object = {"allocation": {"devices": {"results": results}, "nodeSelector": here}} if devices else {}
    if user:
        status["reservedFor"] = [{"resource": "pods", "name": user, "uid": user}]
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": owner, "uid": owner}] if owner else []
    return {
        "apiVersion": API,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default", "ownerReferences": owners},
        "spec": {"devices": {"requests": list(requests or (request(),))}},
        "status": status,
    }


def uses(name: str = "one-gpu", *, shared: bool = False) -> Object:
    """The part of the spec of a pod that claims a device."""
    source = {"resourceClaimName": name} if shared else {"resourceClaimTemplateName": name}
    return {"resourceClaims": [{"name": "gpu", **source}]}
