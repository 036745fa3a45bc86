"""Workloads with rules, in the shape in which charts install databases, queues, stores and model servers.

Each file of `manifests` has one workload, and what else it needs. `scene` gives the objects of a cluster in which its
pods wait: six nodes in three zones, one of them tainted, three with an SSD, with classes of volumes and with devices.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml

from tests.worlds.rules.device_scenes import device, device_class, slice_of
from tests.worlds.rules.scenes import HOSTNAME, NO_NODE, ZONE, node, storage

Object = dict[str, Any]
MANIFESTS = Path(__file__).parent / "manifests"
NAMES = tuple(sorted(path.stem for path in MANIFESTS.glob("*.yaml")))
NODES, ZONES, DRIVER = 6, "abc", "disk.example.com"

ALL = ""
EXPECTED = {
    "block-store": (2, "other pods that wait get the 2 free volumes"),
    "cache-cluster": (5, "one pod of app.kubernetes.io/component=server,app.kubernetes.io/name=cache-cluster"),
    "certificates": (3, ALL),
    "column-store": (2, ALL),
    "document-store": (3, "one pod of app.kubernetes.io/component=server,app.kubernetes.io/name=document-store"),
    "gateway": (4, ALL),
    "head-workers": (2, "differ by at most 1 between nodes; node n0 has 0 of them and takes none"),
    "inference": (4, ALL),
    "ingress": (5, ALL),
    "key-store": (3, ALL),
    "large-model": (1, ALL),
    "log-broker": (3, ALL),
    "many-volumes": (10, ALL),
    "message-queue": (4, ALL),
    "metrics-store": (2, ALL),
    "name-server": (4, ALL),
    "near-database": (3, ALL),
    "node-agent": (0, ALL),
    "not-preempting": (2, ALL),
    "object-store": (3, "at most 1 a zone, because minDomains is 4 and only 3 count"),
    "one-zone": (4, ALL),
    "quorum": (3, ALL),
    "quorum-of-five": (3, "a zone; every one that accepts it has one"),
    "readers": (3, ALL),
    "registry-agents": (3, ALL),
    "ring": (5, ALL),
    "search-data": (4, ALL),
    "search-scratch": (2, "one pod of app=search-scratch in namespace charts a node"),
    "secrets": (3, ALL),
    "shared-weights": (1, "differ by at most 1 between zones; zone b has 0 of them and takes none"),
    "sidecar-cache": (3, ALL),
    "single-writer": (1, "one pod uses claim single, which is ReadWriteOncePod"),
    "sql-by-zone": (3, "a zone; every one that accepts it has one"),
    "sql-primary": (3, ALL),
    "ssd-brokers": (3, "one pod of app=ssd-brokers in namespace charts a node"),
    "tenant-workers": (2, ALL),
    "tolerant-models": (2, ALL),
}
"""Of each workload how many pods get a node, and why no eviction helps the others; a DaemonSet has room anyway."""


def scene(name: str) -> list[Object]:
    """The cluster, and the pods of a workload with their claims."""
    return [*cluster(), *objects_of(name)]


def objects_of(name: str) -> list[Object]:
    """What else a workload needs, and its pods with their claims."""
    workload, *others = yaml.safe_load_all((MANIFESTS / f"{name}.yaml").read_text())
    for number, other in enumerate(others):
        other["metadata"].setdefault("uid", f"uid-other-{number}")
    return [*others, *_pods(workload)]


def cluster() -> list[Object]:
    """Nodes, classes of volumes, devices and namespaces."""
    found = [*_nodes(), *storage("a", waits=True), device_class()]
    for number, memory in enumerate(("80Gi", "24Gi")):
        found.append(slice_of(f"n{number}", *(device(f"gpu-{k}", memory=memory) for k in range(2))))
    for name, team in (("charts", "serving"), ("other", "data")):
        found.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"team": team}}})
    places = [{"matchLabelExpressions": [{"key": ZONE, "values": [zone]}]} for zone in ZONES]
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "zonal"}}
    found.append(
        {
            **kind,
            "provisioner": DRIVER,
            "volumeBindingMode": "WaitForFirstConsumer",
            "allowedTopologies": places,
        }
    )
    return found


def _nodes() -> list[Object]:
    found = []
    for number in range(NODES):
        labels = {"disk": "ssd"} if number % 2 == 0 else {}
        taints = [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}] if number == NODES - 1 else []
        zone = ZONES[number % len(ZONES)]
        found.append(node(f"n{number}", zone=zone, labels=labels, spec={"taints": taints}))
        drivers = [{"name": DRIVER, "nodeID": f"n{number}", "topologyKeys": [ZONE], "allocatable": {"count": 2}}]
        name = {"name": f"n{number}", "labels": {HOSTNAME: f"n{number}"}}
        found.append(
            {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": name, "spec": {"drivers": drivers}}
        )
    return found


def _pods(workload: Object) -> list[Object]:
    """The pods that the controller of a workload makes, none with a node, and their claims."""
    name, kind, spec = workload["metadata"]["name"], workload["kind"], workload["spec"]
    count = NODES if kind == "DaemonSet" else spec["replicas"]
    found = []
    for number in range(count):
        pod = copy.deepcopy(spec["template"])
        owner = {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}
        pod["metadata"] |= {
            "name": f"{name}-{number}",
            "namespace": workload["metadata"]["namespace"],
            "uid": f"uid-{name}-{number}",
            "creationTimestamp": f"2026-01-05T10:00:{number:02d}Z",
            "ownerReferences": [owner],
        }
        if kind == "DaemonSet":
            fields = [{"key": "metadata.name", "operator": "In", "values": [f"n{number}"]}]
            required = {"nodeSelectorTerms": [{"matchFields": fields}]}
            pod["spec"]["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        for template in spec.get("volumeClaimTemplates") or ():
            claim = f"{template['metadata']['name']}-{name}-{number}"
            metadata = {"name": claim, "namespace": pod["metadata"]["namespace"], "uid": f"uid-{claim}"}
            found.append(
                {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata} | _spec(template)
            )
            uses = {"name": template["metadata"]["name"], "persistentVolumeClaim": {"claimName": claim}}
            pod["spec"].setdefault("volumes", []).append(uses)
        status = {"phase": "Pending", "conditions": [NO_NODE]}
        found.append({"apiVersion": "v1", "kind": "Pod", **pod, "status": status})
    return found


def _spec(template: Object) -> Object:
    return {"spec": copy.deepcopy(template["spec"])}
