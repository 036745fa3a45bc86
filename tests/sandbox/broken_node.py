"""A node that breaks the trainers of two jobs, as the API shows it: for the sandbox and for real kubelets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.e2e.control_plane.kube import Kube
from tests.e2e.worlds.jobs import training_job

FLAGS = ("--avoid-nodes-after", "2", "--avoid-nodes-for-s", "30")
JOBS = ("ads", "ctr")
WAIT_S = 180.0
_TRAINER = "paddlepaddle.org/role=trainer"

Object = dict[str, Any]


def sleeper(name: str, program: str, cpu: str = "1") -> Object:
    """A job whose trainers run a program that does nothing for ever."""
    container = {"name": "trainer", "command": ["python", "-c", program]}
    template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 5}}
    job = training_job(name, min_trainers=2, max_trainers=20, cpu=cpu, memory="64Mi", trainer={"template": template})
    job["spec"] |= {"image": "python", "backoffLimit": 1000, "elasticity": {"cooldownSeconds": 3600}}
    return job


def trainers(kube: Kube, node: str = "") -> list[Object]:
    """Trainers that run, on one node or on all."""
    found = kube.list("pods", "default", labels=_TRAINER)
    runs = [p for p in found if p["status"].get("phase") == "Running" and "deletionTimestamp" not in p["metadata"]]
    return [pod for pod in runs if not node or pod["spec"].get("nodeName") == node]


def shared_node(kube: Kube, least: int) -> str:
    """A node with trainers of both jobs; empty while there is none, or while fewer trainers run."""
    here = Counter[tuple[str, str]]()
    for pod in trainers(kube):
        here[pod["spec"]["nodeName"], pod["metadata"]["labels"]["paddlepaddle.org/job"]] += 1
    if here.total() < least:
        return ""
    return next((n for n in sorted({n for n, _ in here}) if all(here[n, job] for job in JOBS)), "")


def innocents(kube: Kube, node: str) -> set[str]:
    """UIDs of the trainers on the other nodes."""
    return {pod["metadata"]["uid"] for pod in trainers(kube) if pod["spec"]["nodeName"] != node}


def avoid(kube: Kube, node: str, before: set[str], serve: Callable[[], object]) -> None:
    """Wait until the node is avoided: it is named, the other trainers still run, and serving starts on it.

    Args:
        kube: the cluster.
        node: that breaks trainers.
        before: the trainers on other nodes, when it began.
        serve: starts the pod `web` on that node.
    """
    kube.wait_until(lambda: _is_reported(kube, node), WAIT_S, "the node is reported")
    kube.wait_until(lambda: not trainers(kube, node), WAIT_S, "no trainer runs on the node")
    assert before <= innocents(kube, node)
    serve()
    kube.wait_until(lambda: kube.get("pods", "web")["status"].get("phase") == "Running", WAIT_S, "serving runs there")
    kube.delete("pods", "web")


def is_avoided_by(kube: Kube, job: str, node: str) -> bool:
    """True if a job says that it avoids the node."""
    conditions = kube.get("trainingjobs", job).get("status", {}).get("conditions", [])
    reasons = {one["reason"]: one["message"] for one in conditions if one["type"] == "Degraded"}
    return node in reasons.get("NodeAvoided", "")


def _is_reported(kube: Kube, node: str) -> bool:
    """True if both jobs and the node say that it is avoided."""
    if not all(is_avoided_by(kube, name, node) for name in JOBS):
        return False
    events = kube.list("events", "default")
    return any(e["reason"] == "AvoidedByTraining" and e["involvedObject"]["name"] == node for e in events)
