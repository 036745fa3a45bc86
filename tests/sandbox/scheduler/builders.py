"""Nodes and pods for the tests of the scheduler."""

from __future__ import annotations

from typing import Any

from edl.sandbox.scheduler.view import NodeView, PodView, PodViews, node_views, pod_view

Object = dict[str, Any]


def make_pod(
    name: str, cpu: str = "1", *, node: str = "", priority: int = 0, created: int = 0, **spec: Any
) -> Object:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}, "ports": spec.pop("ports", [])}]
    at = f"2026-01-01T00:00:{created:02d}Z"
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "creationTimestamp": at}
    where = {"nodeName": node} if node else {}
    return {"metadata": metadata, "spec": {"containers": containers, "priority": priority, **where, **spec}}


def view(name: str, cpu: str = "1", **more: Any) -> PodView:
    return pod_view(make_pod(name, cpu, **more))


def make_node(name: str, cpu: str = "4", *, labels: dict[str, str] | None = None, **spec: Any) -> Object:
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": spec,
        "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "10"}},
    }


def views(nodes: list[Object], *pods: Object) -> list[NodeView]:
    return node_views(nodes, pods, {}, PodViews())
