"""Builders of Kubernetes objects as kubectl prints them: a test names the fields that matter.

`take` turns a list of objects into a snapshot, as the controller and `edl plan` do.
"""

from __future__ import annotations

from typing import Any

from edl.kube.translate.decoders import (
    DAEMON_SETS,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    TRAINING_JOBS,
    Decoder,
    Quarantined,
)
from edl.kube.translate.snapshot import Translator
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.pods import Pod

MI = 1024**2
GI = 1024**3
DECODERS: dict[str, Decoder[Any]] = {
    "Node": NODES,
    "Pod": PODS,
    "TrainingJob": TRAINING_JOBS,
    "DaemonSet": DAEMON_SETS,
    "PriorityClass": PRIORITY_CLASSES,
    "ResourceQuota": RESOURCE_QUOTAS,
}
Object = dict[str, Any]


def container(cpu: str = "", memory: str = "", **more: Any) -> Object:
    requests = {name: value for name, value in (("cpu", cpu), ("memory", memory)) if value}
    return {"name": "c", "resources": {"requests": requests}, **more}


def sidecar(cpu: str) -> Object:
    return container(cpu, restartPolicy="Always")


def node(name: str = "n1", **more: Any) -> Object:
    return {
        "kind": "Node",
        "metadata": {"name": name, **more.pop("metadata", {})},
        "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}, **more.pop("status", {})},
        **more,
    }


def pod(
    name: str, *, namespace: str = "ads", labels: Object | None = None, owner: Object | None = None, **more: Any
) -> Object:
    metadata: Object = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "labels": labels}
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    return {
        "kind": "Pod",
        "metadata": {**metadata, **more.pop("metadata", {})},
        "spec": {"containers": [container("1")], **more.pop("spec", {})},
        "status": more.pop("status", {"phase": "Running"}),
    }


def trainer(index: int, *, job: str = "ctr", owner: Object | None = None, **more: Any) -> Object:
    labels = {"paddlepaddle.org/job": job, "paddlepaddle.org/role": "trainer", "paddlepaddle.org/index": str(index)}
    return pod(f"{job}-trainer-{index}", labels=labels, owner=owner, **more)


def owned_by(uid: str, name: str = "ctr") -> Object:
    return {"apiVersion": "paddlepaddle.org/v1", "kind": "TrainingJob", "name": name, "uid": uid, "controller": True}


def job(name: str = "ctr", *, uid: str = "uid-ctr", spec: Object | None = None, **more: Any) -> Object:
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}}
    return {
        "apiVersion": "paddlepaddle.org/v1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": "ads", "uid": uid, "generation": 3, **more.pop("metadata", {})},
        "spec": {
            "fault_tolerant": True,
            "trainer": {"min-instance": 2, "max-instance": 6, "entrypoint": "x", "resources": resources},
            **(spec or {}),
        },
        **more,
    }


def decoded(obj: Object) -> Any:
    """An object as the watch decodes it."""
    found = DECODERS[obj["kind"]].from_dict(obj)
    assert not isinstance(found, Quarantined), found
    return found


def take(*objects: Object, now_s: float = 1000.0, translator: Translator | None = None) -> ClusterSnapshot:
    by_kind: dict[str, list[Any]] = {kind: [] for kind in DECODERS}
    for obj in objects:
        by_kind[obj["kind"]].append(decoded(obj))
    return (translator or Translator()).snapshot(
        nodes=by_kind["Node"],
        pods=by_kind["Pod"],
        jobs=by_kind["TrainingJob"],
        daemonsets=by_kind["DaemonSet"],
        priority_classes=by_kind["PriorityClass"],
        resource_quotas=by_kind["ResourceQuota"],
        now_s=now_s,
    )


def the_job(*objects: Object) -> Job:
    (found,) = take(*objects).jobs
    return found


def the_pod(obj: Object, *more: Object) -> Pod:
    (found,) = take(obj, *more).pods
    return found


DAEMON_SET: Object = {
    "kind": "DaemonSet",
    "metadata": {"name": "logs", "namespace": "kube-system"},
    "spec": {"template": {"spec": {"containers": [container("250m")], "nodeSelector": {"os": "linux"}}}},
}
