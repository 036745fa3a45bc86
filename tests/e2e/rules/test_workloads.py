"""kube-scheduler gives as many pods of each workload in the shape of a chart a node as a plan does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.kube import Kube
from tests.e2e.control_plane.nodes import NodeSpec
from tests.e2e.rules.verdicts import NOT_YET
from tests.worlds.rules.scenes import ZONE
from tests.worlds.rules.workloads import DRIVER, EXPECTED, NAMES, NODES, cluster, objects_of

Object = dict[str, Any]
pytestmark = pytest.mark.cluster("kube-scheduler judges the rules of the workloads")
WITHIN_S = 20.0
SELECTED = "volume.kubernetes.io/selected-node"
LEFT = ("resourceclaimtemplates", "resourceclaims", "persistentvolumeclaims")


@pytest.mark.timeout(900)
def test_kube_scheduler_places_as_many_pods_as_the_plan(control_plane: Callable[..., ControlPlane]) -> None:
    bodies = cluster()
    specs = [_spec(body) for body in bodies if body["kind"] == "Node"]
    kube = control_plane(nodes=tuple(specs)).kube
    zones = {spec.name: spec.labels[ZONE] for spec in specs}
    shared = [body for body in bodies if body["kind"] not in {"Node", "PersistentVolume"}]
    for body in shared:
        kube.apply(body)
    expected = {**{name: placed for name, (placed, _) in EXPECTED.items()}, "node-agent": NODES}
    for name in NAMES:
        _judge(kube, name, zones, expected[name])


def _spec(node: Object) -> NodeSpec:
    metadata = node["metadata"]
    taints = node["spec"]["taints"]
    return NodeSpec(metadata["name"], node["status"]["allocatable"], labels=metadata["labels"], taints=taints)


def _judge(kube: Kube, name: str, zones: dict[str, str], expected: int) -> None:
    """So many pods of a workload get a node, and no more; everything of it is removed again.

    kube-scheduler may refuse a pod once because it has not seen a volume yet that was made before the pod, so what it
    says first is not the end.
    """
    made = [*(one for one in cluster() if one["kind"] == "PersistentVolume"), *objects_of(name)]
    own = [one["metadata"]["name"] for one in made if one["kind"] == "Pod" and "nodeName" not in one["spec"]]
    for body in made:
        body["metadata"] = {k: v for k, v in body["metadata"].items() if k in {"name", "namespace", "labels"}}
        kube.create(body)

    def are_placed() -> bool:
        is_decided = _are_decided(kube, own, zones)
        placed = [_name(pod) for pod in kube.list("pods", "charts") if pod["spec"].get("nodeName")]
        return is_decided and len({*placed} & {*own}) == expected

    kube.wait_until(are_placed, WITHIN_S, f"{expected} pods of {name} get a node, and the others none", poll_s=0.3)
    for space in ("charts", "other"):
        for kind in ("pods", *LEFT):
            for body in kube.list(kind, space):
                kube.delete(kind, _name(body), space, grace_s=0) if kind == "pods" else kube.delete(
                    kind, _name(body), space
                )
    for body in kube.list("persistentvolumes"):
        kube.delete("persistentvolumes", _name(body))
    gone = ("pods", "persistentvolumeclaims", "persistentvolumes", "resourceclaims")
    kube.wait_until(lambda: not any(kube.list(kind) for kind in gone), WITHIN_S, f"{name} is gone", poll_s=0.3)


def _name(body: Object) -> str:
    return str(body["metadata"]["name"])


def _are_decided(kube: Kube, names: list[str], zones: dict[str, str]) -> bool:
    _provision(kube, zones)
    pods = {_name(pod): pod for pod in kube.list("pods", "charts")}
    return all(_is_decided(pods[name]) for name in names)


def _is_decided(pod: Object) -> bool:
    if pod["spec"].get("nodeName"):
        return True
    refused = (one for one in pod.get("status", {}).get("conditions") or () if one["type"] == "PodScheduled")
    return any(
        one.get("reason") == "Unschedulable" and not any(words in one.get("message", "") for words in NOT_YET)
        for one in refused
    )


def _provision(kube: Kube, zones: dict[str, str]) -> None:
    """Make a volume for each claim for which the scheduler has chosen a node, in its zone."""
    known = {_name(volume) for volume in kube.list("persistentvolumes")}
    for claim in kube.list("persistentvolumeclaims", "charts"):
        chosen, name = (claim["metadata"].get("annotations") or {}).get(SELECTED), f"for-{_name(claim)}"
        if (
            not chosen
            or claim["spec"].get("volumeName")
            or name in known
            or claim["spec"]["storageClassName"] != "zonal"
        ):
            continue
        term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zones[chosen]]}]}
        spec = {
            "capacity": claim["spec"]["resources"]["requests"],
            "accessModes": claim["spec"]["accessModes"],
            "storageClassName": "zonal",
            "csi": {"driver": DRIVER, "volumeHandle": name},
            "claimRef": {"namespace": "charts", "name": _name(claim), "uid": claim["metadata"]["uid"]},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        }
        kube.create({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec})
