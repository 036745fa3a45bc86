"""The objects that the end-to-end tests create."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]


def training_job(
    name: str, *, min_trainers: int = 2, max_trainers: int = 6, cpu: str = "1", memory: str = "1Gi", **spec: Any
) -> Object:
    """An elastic TrainingJob with trainers and a small master."""
    amounts = {"cpu": cpu, "memory": memory}
    trainer = {
        "entrypoint": "python train.py",
        "workspace": "/workspace",
        "min-instance": min_trainers,
        "max-instance": max_trainers,
        "resources": {"requests": amounts, "limits": amounts},
        **spec.pop("trainer", {}),
    }
    return {
        "apiVersion": "paddlepaddle.org/v1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"image": "example/trainer", "fault_tolerant": True, "trainer": trainer, **spec},
    }


def serving(name: str = "web", *, replicas: int = 0, cpu: str = "3", memory: str = "3Gi", **pod: Any) -> Object:
    """A Deployment of serving pods with the default priority."""
    labels = {"app": name}
    container = {
        "name": "web",
        "image": "example/web",
        "resources": {"requests": {"cpu": cpu, "memory": memory}},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "strategy": {"type": "RollingUpdate"},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container], **pod}},
        },
    }


def volcano_job(name: str, *, replicas: int, low: int, high: int, **spec: Any) -> Object:
    """A Volcano Job of trainers of one cpu that asks to be resized between two bounds."""
    asks = {"elastic": "true", "min-instance": str(low), "max-instance": str(high)}
    container = {"name": "train", "image": "example/train", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": "default",
            "annotations": {f"paddlepaddle.org/{key}": value for key, value in asks.items()},
        },
        "spec": {
            "minAvailable": replicas,
            "schedulerName": "volcano",
            "tasks": [{"name": "trainer", "replicas": replicas, "template": template}],
            **spec,
        },
    }


def batch_job(
    name: str, *, parallelism: int, low: int, high: int, annotations: dict[str, str] | None = None, **spec: Any
) -> Object:
    """A `batch/v1` Job of pods of one cpu that asks to be resized between two bounds."""
    asks = {"elastic": "true", "min-instance": str(low), "max-instance": str(high)}
    container = {"name": "train", "image": "example/train", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": "default",
            "annotations": {
                **{f"paddlepaddle.org/{key}": value for key, value in asks.items()},
                **(annotations or {}),
            },
        },
        "spec": {
            "parallelism": parallelism,
            "template": {"spec": {"containers": [container], "restartPolicy": "Never"}},
            **spec,
        },
    }
