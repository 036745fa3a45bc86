"""Fills a cluster straight through the API, over many connections: nodes, jobs, and pods that are bound already."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from edl.api.pods import pod_manifest
from edl.api.priorities import PRIORITY_CLASSES
from edl.api.v1 import parse_job
from edl.kube.client.session import ApiSession
from edl.model.names import LABEL_JOB, Role
from tests.e2e.control_plane.nodes import NodeSpec, manifest
from tests.e2e.worlds.jobs import training_job

Object = dict[str, Any]
CONNECTIONS = 48
NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/paddlepaddle.org/v1/namespaces/default/trainingjobs"
SINCE = "2026-01-01T00:00:00Z"
NEVER = "modest"
"""The PriorityClass of serving pods that preempt nobody."""
RUNS = {
    "phase": "Running",
    "startTime": SINCE,
    "conditions": [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Initialized", "Ready")],
}
SUCCEEDED = {
    "phase": "Succeeded",
    "containerStatuses": [
        {
            "name": "trainer",
            "image": "example/trainer",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": {"terminated": {"exitCode": 0}},
        }
    ],
}
JOB_LABEL = LABEL_JOB


@dataclass(frozen=True, slots=True)
class Request:
    """One request of the filling."""

    method: str
    path: str
    body: Object


@dataclass(frozen=True, slots=True)
class Rate:
    """How many requests the API server answered in how long."""

    requests: int
    seconds: float

    @property
    def per_s(self) -> float:
        """Requests a second."""
        return self.requests / max(self.seconds, 1e-9)


class Filler:
    """Sends requests over many connections.

    Args:
        kubeconfig: of an administrator.
    """

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = str(kubeconfig)

    def send(self, requests: Iterable[Request]) -> tuple[list[Object], Rate]:
        """Send all of them; returns the answers in the order of the requests, and how fast that was."""
        return asyncio.run(self._send(list(requests)))

    async def _send(self, requests: Sequence[Request]) -> tuple[list[Object], Rate]:
        answers: list[Object] = [{}] * len(requests)
        waiting = iter(enumerate(requests))

        async def work(session: ApiSession) -> None:
            for number, one in waiting:
                raw = await session.request(one.method, one.path, body=one.body, content_type=_content_type(one))
                answers[number] = _decoded(raw)

        async with await ApiSession.open(self._kubeconfig, timeout_s=60.0) as session:
            began_s = time.monotonic()
            await asyncio.gather(*(work(session) for _ in range(CONNECTIONS)))
            return answers, Rate(len(requests), time.monotonic() - began_s)


def create(path: str, body: Object) -> Request:
    """Create an object in a collection."""
    return Request("POST", path, body)


def set_status(path: str, name: str, status: Object) -> Request:
    """Set the status of an object, as a kubelet does."""
    return Request("PATCH", f"{path}/{name}/status", {"status": status})


def machine(number: int, cpu: str) -> Object:
    """A node that is ready."""
    body = manifest(NodeSpec(node_name(number), {"cpu": cpu, "memory": "64Gi", "pods": "110"}), number)
    body["status"]["conditions"] = [{"type": "Ready", "status": "True", "lastHeartbeatTime": SINCE}]
    return body


def node_name(number: int) -> str:
    """The name of a node."""
    return f"node-{number:04}"


def serving_pod(name: str, cpu: str, *, node: str = "", priority_class: str = "") -> Object:
    """A serving pod, on a node or waiting for one."""
    container = {"name": "web", "image": "example/web", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    spec: Object = {"containers": [container], "priorityClassName": priority_class}
    if node:
        spec["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "web"}}, "spec": spec}


def job(name: str, *, least: int, most: int, cpu: str = "1") -> Object:
    """A job with a small master."""
    small = {"cpu": "100m", "memory": "64Mi"}
    master = {"resources": {"requests": small, "limits": small}}
    return training_job(name, min_trainers=least, max_trainers=most, cpu=cpu, memory="1Gi", master=master)


def pods_of(stored: Object, trainers: int, hosts: Iterator[str], of_masters: Iterator[str]) -> Iterator[Object]:
    """The master and the first trainers of a stored job, each bound to the next host of its kind."""
    parsed = parse_job(stored)
    for role, count in ((Role.MASTER, 1), (Role.TRAINER, trainers)):
        for index in range(count):
            pod = pod_manifest(
                parsed, role, index, default_master_image="example/edl", priority_classes=PRIORITY_CLASSES
            )
            pod["spec"]["nodeName"] = next(hosts if role is Role.TRAINER else of_masters)
            yield pod


def priority_class() -> Object:
    """Serving pods of this class preempt nobody, so only the controller can help them."""
    named = {"metadata": {"name": NEVER}, "value": 10, "preemptionPolicy": "Never"}
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", **named}


def name_of(stored: Object) -> str:
    """The name of an object."""
    return str(stored["metadata"]["name"])


def is_of_job(pod: Object) -> bool:
    """True for a pod of a TrainingJob."""
    return JOB_LABEL in (pod["metadata"].get("labels") or {})


def _content_type(one: Request) -> str:
    return "application/merge-patch+json" if one.method == "PATCH" else "application/json"


def _decoded(raw: bytes) -> Object:
    found: Object = msgspec.json.decode(raw)
    return found
