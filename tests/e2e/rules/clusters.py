"""Clusters with random nodes, on which the cases of one batch are tried together."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from tests.e2e.control_plane.nodes import MANAGED_LABEL, NodeSpec, manifest
from tests.worlds.rules.scenes import ZONE

Object = dict[str, Any]
SPACES = ("default", "rules-a", "rules-b")
TEAM = {"rules-a": "one", "rules-b": "two"}
NODES = 8
_SIZE = {"cpu": "900", "memory": "900Gi", "pods": "5000"}
_TAINTS = ("gpu", "NoSchedule"), ("gpu", "NoExecute"), ("spot", "NoSchedule"), ("spot", "PreferNoSchedule")
PATIENT, URGENT = "patient", "urgent"


def node_name(batch: int, number: int) -> str:
    """The name of a node; no two batches share one."""
    return f"b{batch}-n{number}"


def prerequisites() -> Iterable[Object]:
    """What all cases share."""
    for name, team in TEAM.items():
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"team": team}}}
    for name, value, policy in ((PATIENT, 1000, "Never"), (URGENT, 0, "PreemptLowerPriority")):
        yield {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "preemptionPolicy": policy,
        }


def random_nodes(rng: random.Random, batch: int) -> list[Object]:
    """Nodes of random zones, labels and taints; the first three never repel, so that most cases have a chance."""
    found = []
    for number in range(NODES):
        labels = {"rank": str(rng.randrange(6))}
        if rng.random() < 0.85:
            labels[ZONE] = "abc"[number % 3] if number < 3 else rng.choice("abc")
        if rng.random() < 0.6:
            labels["disk"] = rng.choice(("ssd", "hdd"))
        taints = []
        if number >= 3 and rng.random() < 0.4:
            key, effect = rng.choice(_TAINTS)
            taints = [{"key": key, "value": rng.choice("xy"), "effect": effect}]
        name = node_name(batch, number)
        body = manifest(NodeSpec(name, _SIZE, labels=labels, taints=taints), batch * NODES % 20_000 + number)
        del body["metadata"]["labels"][MANAGED_LABEL]  # nobody runs its pods
        body["spec"]["unschedulable"] = number >= 3 and rng.random() < 0.1
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "as a test wrote it"}
        body["status"]["conditions"] = [ready]
        found.append({"apiVersion": "v1", "kind": "Node", **body})
    return found


def csi_node(name: str, limits: dict[str, int]) -> Object:
    """How many volumes of each driver a node attaches."""
    drivers = [{"name": one, "nodeID": name, "allocatable": {"count": count}} for one, count in limits.items()]
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": name},
        "spec": {"drivers": drivers},
    }
