"""Claims and classes of volumes, as files that `edl plan -f` reads."""

from __future__ import annotations

from typing import Any

from edl.model.cluster import ClusterSnapshot
from edl.planner.eligibility import takes
from tests.worlds.rules.scenes import Object, pod

USES = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
"""The volumes of a pod that uses claim `data`."""


def claim(name: str = "data", metadata: Object | None = None, status: Object | None = None, **spec: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default", **(metadata or {})},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec},
        **({"status": status} if status else {}),
    }


def storage_class(binding: str = "WaitForFirstConsumer", **more: Any) -> Object:
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "ssd"}}
    return {**kind, "provisioner": "ebs.csi.aws.com", "volumeBindingMode": binding, **more}


def accepting(found: ClusterSnapshot, name: str = "stateful-0") -> list[str]:
    """The nodes that may take a waiting serving pod."""
    (waiting,) = [one for one in found.waiting_serving if one.name == name]
    return [one.name for one in found.nodes if takes(one, waiting.shape.placement)]


def stateful(**spec: Any) -> Object:
    """A serving pod that waits and uses claim `data`."""
    return pod("stateful-0", volumes=USES, **spec)
