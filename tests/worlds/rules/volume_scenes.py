"""Claims and classes of volumes, as files that `edl plan -f` reads."""

from __future__ import annotations

from typing import Any

from tests.worlds.rules.scenes import Object

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
