"""Random devices of one case: slices of a driver, a class, and claims of the pods that run and wait."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]
API = "resource.k8s.io/v1"
_FEATURES = ("claim", "claim", "template", "extended")


@dataclass(slots=True)
class Devices:
    """What devices a case has.

    Attributes:
        objects: slices, the class and claims, in the order of their creation.
        claims: of the waiting pod, as its spec has them.
        requests: the extended resources that the waiting pod requests.
        held: for some running pods by their number, the status of a claim of that name.
    """

    objects: list[Object] = field(default_factory=list)
    claims: list[Object] = field(default_factory=list)
    requests: dict[str, str] = field(default_factory=dict)
    held: dict[int, tuple[str, Object]] = field(default_factory=dict)


def random_devices(
    rng: random.Random, number: int, namespace: str, nodes: list[str], places: list[int], *, alone: bool
) -> Devices:
    """The devices of a case.

    Args:
        rng: gives the numbers.
        number: of the case.
        namespace: of the waiting pod and of the claims.
        nodes: the names of the nodes, which have the devices.
        places: the node of each running pod, by number; those in the namespace only, -1 for others.
        alone: one pod waits.
    """
    driver, found, have = f"d{number}.example.com", Devices(), dict[int, list[str]]()
    for node, node_name in enumerate(nodes):
        devices = [_device(rng, f"gpu-{place}") for place in range(rng.randrange(4))]
        if devices:
            have[node] = [one["name"] for one in devices]
            found.objects.append(_slice(driver, node_name, devices))
    kind = rng.choice(_FEATURES) if alone else rng.choice(_FEATURES[2:])
    more = {"extendedResourceName": f"{driver}/gpu"} if kind == "extended" else {}
    selectors = [{"cel": {"expression": f'device.driver == "{driver}"'}}]
    found.objects.append(_body("DeviceClass", driver, "", {"selectors": selectors, **more}))
    for pod, node in enumerate(places):
        if node >= 0 and have.get(node) and rng.random() >= 0.5:
            name = f"d{number}-held{pod}"
            requests = [{"name": "r", "exactly": {"deviceClassName": driver}}]
            found.objects.append(_body("ResourceClaim", name, namespace, {"devices": {"requests": requests}}))
            found.held[pod] = (name, _held(driver, nodes[node], have[node].pop(0)))
    if kind == "extended":
        found.requests[f"{driver}/gpu"] = str(rng.choice((1, 1, 2)))
        return found
    spec = {"devices": {"requests": _requests(rng, driver)}}
    name = f"d{number}"
    if kind == "claim":
        found.objects.append(_body("ResourceClaim", name, namespace, spec))
        found.claims.append({"name": "gpu", "resourceClaimName": name})
    else:
        found.objects.append(_body("ResourceClaimTemplate", name, namespace, {"spec": spec}))
        found.claims.append({"name": "gpu", "resourceClaimTemplateName": name})
    return found


def _held(driver: str, node: str, device: str) -> Object:
    """The status of a claim that has a device of a node."""
    where = {"key": "metadata.name", "operator": "In", "values": [node]}
    result = {"request": "r", "driver": driver, "pool": node, "device": device}
    terms = [{"matchFields": [where]}]
    return {"allocation": {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": terms}}}


def _requests(rng: random.Random, driver: str) -> list[Object]:
    """One or two requests, of which one may choose among the devices."""
    exactly: Object = {"deviceClassName": driver, "count": rng.choice((1, 1, 2))}
    chosen: Object = {"deviceClassName": driver, "count": 1}
    expression = rng.choice(
        (
            f'device.attributes["{driver}"].model == "a"',
            f'device.attributes["{driver}"].model in ["a", "b"] && device.attributes["{driver}"].index > 1',
            f'device.capacity["{driver}"].memory.compareTo(quantity("40Gi")) >= 0',
        )
    )
    chosen["selectors"] = [{"cel": {"expression": expression}}]
    if rng.random() < 0.2:
        exactly["tolerations"] = chosen["tolerations"] = [{"key": "worn", "operator": "Exists"}]
    return rng.choice(
        (
            [{"name": "r", "exactly": exactly}],
            [{"name": "r", "exactly": chosen}],
            [{"name": "r", "exactly": chosen}, {"name": "s", "exactly": exactly}],
        )
    )


def _device(rng: random.Random, name: str) -> Object:
    found: Object = {
        "name": name,
        "attributes": {"model": {"string": rng.choice("ab")}, "index": {"int": rng.randrange(4)}},
        "capacity": {"memory": {"value": rng.choice(("20Gi", "80Gi"))}},
    }
    if rng.random() < 0.1:
        found["taints"] = [{"key": "worn", "effect": "NoSchedule"}]
    return found


def _slice(driver: str, node: str, devices: list[Object]) -> Object:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": devices}
    return _body("ResourceSlice", f"{node}-{driver}", "", spec)


def _body(kind: str, name: str, namespace: str, spec: Object) -> Object:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec}
