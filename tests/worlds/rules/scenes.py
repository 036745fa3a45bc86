"""Clusters in which pods have rules about each other, as files that `edl plan -f` reads."""

from __future__ import annotations

import json
from typing import Any

from edl.explain.decision import decide
from edl.kube.snapshot_files.saved_cluster import read_snapshot_texts
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.plan import ScalePlan
from edl.planner.policies.registry import policy_named

Object = dict[str, Any]
HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
NO_NODE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/4 nodes are available"}


def node(name: str, *, zone: str = "", cpu: str = "8", **more: Any) -> Object:
    labels = {HOSTNAME: name, **({ZONE: zone} if zone else {}), **more.pop("labels", {})}
    amounts = {"cpu": cpu, "memory": "64Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": amounts},
        **more,
    }


def nodes(count: int, zones: str = "") -> list[Object]:
    """Nodes n0, n1... of 8 cores, in the zones by turns."""
    return [node(f"n{i}", zone=zones[i % len(zones)] if zones else "") for i in range(count)]


def pod(name: str, on: str = "", *, cpu: str = "4", labels: Object | None = None, **more: Any) -> Object:
    """A serving pod; without a node kube-scheduler has tried it and found none."""
    spec: Object = {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}]}
    status = {"phase": "Running"} if on else {"phase": "Pending", "conditions": [NO_NODE]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": more.pop("namespace", "default"),
            "uid": f"uid-{name}",
            "labels": {"app": name.partition("-")[0]} if labels is None else labels,
            "creationTimestamp": more.pop("created", "2026-01-05T10:00:00Z"),
            **more.pop("metadata", {}),
        },
        "spec": {**spec, **({"nodeName": on} if on else {}), **more},
        "status": status,
    }


def apart(key: str = HOSTNAME, **labels: str) -> Object:
    """An anti-affinity to pods with some labels."""
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": key}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def near(key: str = HOSTNAME, **labels: str) -> Object:
    """An affinity to pods with some labels."""
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": key}
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def spread(key: str = HOSTNAME, skew: int = 1, more: Object | None = None, **labels: str) -> list[Object]:
    """A spread constraint that must hold, over pods with some labels."""
    selector = {"matchLabels": labels}
    whole = {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    return [{**whole, **(more or {})}]


def job(name: str, low: int = 1, high: int = 40, template: Object | None = None, **spec: Any) -> Object:
    """A job of trainers of one core."""
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
    trainer = {"entrypoint": "x", "min-instance": low, "max-instance": high, "resources": resources}
    if template is not None:
        trainer["template"] = {"spec": template}
    return {
        "apiVersion": "paddlepaddle.org/v1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {
            "image": "x",
            "fault_tolerant": True,
            "master": {"resources": {"requests": {"cpu": "50m", "memory": "64Mi"}}},
            "trainer": trainer,
            **spec,
        },
    }


def member(of: str, role: str, index: int, on: str, **more: Any) -> Object:
    """A pod of a job that runs."""
    labels = {"paddlepaddle.org/job": of, "paddlepaddle.org/role": role, "paddlepaddle.org/index": str(index)}
    found = pod(f"{of}-{role}-{index}", on, cpu="1" if role == "trainer" else "50m", labels=labels, **more)
    owner = {"apiVersion": "paddlepaddle.org/v1", "kind": "TrainingJob", "name": of, "uid": f"uid-{of}"}
    found["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    if role == "trainer":
        amounts = {"cpu": "1", "memory": "1Gi"}
        found["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
    else:
        found["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "50m", "memory": "64Mi"}}
    return found


def members(of: str, *places: str, **more: Any) -> list[Object]:
    """A master on the first node, and a trainer on each."""
    trainers = [member(of, "trainer", index, on, **more) for index, on in enumerate(places)]
    return [member(of, "master", 0, places[0]), *trainers]


def storage(zones: str, *, waits: bool = False, claim: str = "data", mode: str = "ReadWriteMany") -> list[Object]:
    """A class of volumes made by hand, with one in each zone, and a claim for the first.

    Args:
        zones: one letter for each volume.
        waits: volumes are bound to the first pod that uses a claim, the class is the default one, there are two
            volumes in each zone, and no claim.
        claim: the name of the claim.
        mode: its access mode.
    """
    binding = "WaitForFirstConsumer" if waits else "Immediate"
    metadata: Object = {"name": "by-hand"}
    if waits:
        metadata["annotations"] = {"storageclass.kubernetes.io/is-default-class": "true"}
    kind = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": binding}
    found: list[Object] = [{"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": metadata, **kind}]
    for name, zone in ((f"pv-{zone}{n}", zone) for zone in zones for n in range(1 + waits)):
        terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}]
        spec: Object = {"capacity": {"storage": "10Gi"}, "storageClassName": "by-hand", "local": {"path": "/x"}}
        spec["accessModes"] = ["ReadWriteOnce"] if waits else [mode]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
        found.append({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec})
    if not waits:
        wants = {"accessModes": [mode], "storageClassName": "by-hand", "resources": {"requests": {"storage": "1Gi"}}}
        named = {"name": claim, "namespace": "default"}
        found.append({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": named, "spec": wants})
    return found


def bound(objects: list[Object], to: str) -> list[Object]:
    """The same with the claim bound to a volume."""
    for one in objects:
        if one["kind"] == "PersistentVolumeClaim":
            one["spec"]["volumeName"] = to
    return objects


def snapshot(*objects: Object | list[Object]) -> ClusterSnapshot:
    """The cluster as a decision reads it."""
    flat = [one for each in objects for one in (each if isinstance(each, list) else [each])]
    saved = read_snapshot_texts([("scene.json", json.dumps({"apiVersion": "v1", "kind": "List", "items": flat}))])
    assert not saved.quarantined
    return saved.snapshot()[0]


def plan(*objects: Object | list[Object]) -> ScalePlan:
    """The plan of a decision."""
    return decide(snapshot(*objects), policy_named("maxmin"), Limits())


def victims(found: ScalePlan) -> list[str]:
    """The trainers that end."""
    return sorted(name for decision in found.decisions for name in decision.victims)


def blocked(found: ClusterSnapshot) -> dict[str, str]:
    """Why no eviction helps which waiting pods."""
    return {pod.name: pod.blocked for pod in found.waiting_serving if pod.blocked}
