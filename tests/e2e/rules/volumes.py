"""Random volumes of one case: bound ones in zones, ones that wait for their first pod, and limits of attachment."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from tests.worlds.rules.scenes import ZONE

Object = dict[str, Any]
SIZE = {"storage": "1Gi"}


@dataclass(slots=True)
class Storage:
    """What volumes a case has.

    Attributes:
        objects: classes, volumes and claims, in the order of their creation.
        mounted: the claims of the waiting pod, by name.
        used: the claims that running pods use, one for each of some of them.
        limits: for each node by its number, how many volumes of each driver it attaches.
        inline: the driver of a volume in the spec of the waiting pod; empty for none.
        provisioned: a claim for which the scheduler only chooses a node, because nobody makes its volume.
    """

    objects: list[Object] = field(default_factory=list)
    mounted: list[str] = field(default_factory=list)
    used: list[str] = field(default_factory=list)
    limits: dict[int, dict[str, int]] = field(default_factory=dict)
    inline: str = ""
    provisioned: str = ""


def random_storage(rng: random.Random, number: int, namespace: str, nodes: int, *, alone: bool) -> Storage:
    """The volumes of a case.

    Args:
        rng: gives the numbers.
        number: of the case.
        namespace: of the waiting pod and its claims.
        nodes: so many nodes there are.
        alone: one pod waits.
    """
    found = Storage()
    match rng.choice(("zones", "zones", "labels", "alone", "limits", "limits", "inline", "waits", "waits", "makes")):
        case "zones":
            _bound(found, f"v{number}", namespace, zones=_zones(rng))
        case "labels":
            _bound(found, f"v{number}", namespace, labels={ZONE: "__".join(_zones(rng))})
        case "alone":
            _bound(found, f"v{number}", namespace, mode="ReadWriteOncePod")
            if rng.random() < 0.5:
                found.used.append(f"v{number}")
        case "limits":
            _limited(found, rng, number, namespace, nodes)
        case "inline":
            found.inline = f"csi{number}.example.com"
            found.limits = {n: {found.inline: rng.randrange(1, 3)} for n in range(nodes)}
        case "waits":
            _by_hand(found, rng, number, namespace)
        case _ if alone:
            _provisioned(found, rng, number, namespace)
    return found


def claim_volume(name: str) -> Object:
    """The part of a pod that mounts a claim."""
    return {"name": name, "persistentVolumeClaim": {"claimName": name}}


def _zones(rng: random.Random) -> list[str]:
    return sorted(rng.sample("abc", rng.choice((1, 1, 2))))


def _in_zones(zones: list[str]) -> Object:
    terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": zones}]}]
    return {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}


def _claim(name: str, namespace: str, mode: str, storage_class: str, volume: str = "") -> Object:
    spec: Object = {"accessModes": [mode], "storageClassName": storage_class, "resources": {"requests": SIZE}}
    if volume:
        spec["volumeName"] = volume
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def _volume(name: str, mode: str, storage_class: str, labels: Object, **more: Any) -> Object:
    spec = {"capacity": SIZE, "accessModes": [mode], "storageClassName": storage_class, **more}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": labels},
        "spec": {"persistentVolumeReclaimPolicy": "Retain", **spec},
    }


def _bound(
    found: Storage,
    name: str,
    namespace: str,
    *,
    zones: list[str] | None = None,
    labels: Object | None = None,
    mode: str = "ReadWriteMany",
    driver: str = "",
    mounted: bool = True,
) -> None:
    """A volume and the claim that is bound to it."""
    reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": name, "namespace": namespace}
    source: Object = {"csi": {"driver": driver or f"plain{name}.example.com", "volumeHandle": name}}
    where = _in_zones(zones) if zones else {}
    found.objects.append(_volume(name, mode, "", labels or {}, claimRef=reference, **source, **where))
    found.objects.append(_claim(name, namespace, mode, "", name))
    if mounted:
        found.mounted.append(name)


def _limited(found: Storage, rng: random.Random, number: int, namespace: str, nodes: int) -> None:
    """Volumes of a driver with limits: some that running pods use, and one or two for the waiting pod."""
    driver = f"csi{number}.example.com"
    found.limits = {n: {driver: rng.randrange(1, 3)} for n in range(nodes) if rng.random() < 0.9}
    for place in range(rng.randrange(1, 4)):
        _bound(found, f"u{number}-{place}", namespace, driver=driver, mounted=False)
        found.used.append(f"u{number}-{place}")
    for place in range(rng.choice((1, 1, 2))):
        _bound(found, f"v{number}-{place}", namespace, driver=driver)
    if rng.random() < 0.3:
        found.used.append(f"v{number}-0")


def _by_hand(found: Storage, rng: random.Random, number: int, namespace: str) -> None:
    """A claim for volumes that exist in some zones, of which the first pod decides one."""
    name = f"hand{number}"
    found.objects.append(_class(name, "kubernetes.io/no-provisioner"))
    for place, zone in enumerate(rng.sample("abc", rng.randrange(3))):
        volume = _volume(f"h{number}-{place}", "ReadWriteMany", name, {}, local={"path": "/x"}, **_in_zones([zone]))
        if rng.random() < 0.2:
            volume["spec"]["capacity"] = {"storage": "1Mi"}
        found.objects.append(volume)
    found.objects.append(_claim(f"v{number}", namespace, "ReadWriteMany", name))
    found.mounted.append(f"v{number}")


def _provisioned(found: Storage, rng: random.Random, number: int, namespace: str) -> None:
    """A claim whose volume would be made where the first pod runs, in the zones of its class."""
    name = f"made{number}"
    body = _class(name, f"maker{number}.example.com")
    if rng.random() < 0.7:
        body["allowedTopologies"] = [{"matchLabelExpressions": [{"key": ZONE, "values": _zones(rng)}]}]
    found.objects += [body, _claim(f"v{number}", namespace, "ReadWriteMany", name)]
    found.mounted.append(f"v{number}")
    found.provisioned = f"v{number}"


def _class(name: str, provisioner: str) -> Object:
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}}
    return {**kind, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
