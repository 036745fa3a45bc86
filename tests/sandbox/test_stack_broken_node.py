"""A node of a sandbox whose trainers are killed as soon as they run: found, avoided, reported, and tried again."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from pathlib import Path
from typing import Any

from edl.sandbox.kubelet.images import default_images
from edl.sandbox.kubelet.kubelet import Kubelet
from edl.sandbox.kubelet.node import NodeShape
from edl.sandbox.stack import StackSettings, started
from tests.e2e.control_plane.kube import Kube
from tests.e2e.worlds.jobs import training_job
from tests.sandbox.pods import FOREVER, make_pod

FLAGS = ("--avoid-nodes-after", "2", "--avoid-nodes-for-s", "30")
JOBS = ("ads", "ctr")
WAIT_S = 180.0
TRAINER = "paddlepaddle.org/role=trainer"

Object = dict[str, Any]


def sleeper(name: str) -> Object:
    """A job whose trainers do nothing for ever."""
    container = {"name": "trainer", "command": ["python", "-c", FOREVER]}
    template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 5}}
    job = training_job(name, min_trainers=2, max_trainers=20, cpu="1", memory="64Mi", trainer={"template": template})
    job["spec"] |= {"image": "python", "backoffLimit": 1000, "elasticity": {"cooldownSeconds": 3600}}
    return job


def trainers(kube: Kube, node: str = "") -> list[Object]:
    """Trainers that run, on one node or on all."""
    found = kube.list("pods", "default", labels=TRAINER)
    runs = [p for p in found if p["status"].get("phase") == "Running" and "deletionTimestamp" not in p["metadata"]]
    return [pod for pod in runs if not node or pod["spec"].get("nodeName") == node]


async def kill_all(kube: Kube, kubelet: Kubelet, node: str) -> None:
    """Kill each trainer that runs on the node, for ever."""
    while True:
        for pod in await asyncio.to_thread(trainers, kube, node):
            found = kubelet.container("default", pod["metadata"]["name"], "trainer")
            if found is not None and found.process is not None:
                await kubelet.host.runtime.signal(found.process, signal.SIGKILL)
        await asyncio.sleep(0.2)


def shared_node(kube: Kube) -> str:
    """A node with trainers of both jobs; empty while there is none, or while room is left."""
    here = Counter[tuple[str, str]]()
    for pod in trainers(kube):
        here[pod["spec"]["nodeName"], pod["metadata"]["labels"]["paddlepaddle.org/job"]] += 1
    if here.total() < 12:
        return ""
    return next((n for n in sorted({n for n, _ in here}) if all(here[n, job] for job in JOBS)), "")


def is_reported(kube: Kube, node: str) -> bool:
    """True if both jobs and the node say that it is avoided."""
    for name in JOBS:
        conditions = kube.get("trainingjobs", name).get("status", {}).get("conditions", [])
        reasons = {one["reason"]: one["message"] for one in conditions if one["type"] == "Degraded"}
        if node not in reasons.get("NodeAvoided", ""):
            return False
    events = kube.list("events", "default")
    return any(e["reason"] == "AvoidedByTraining" and e["involvedObject"]["name"] == node for e in events)


def innocents(kube: Kube, node: str) -> set[str]:
    """UIDs of the trainers on the other nodes."""
    return {pod["metadata"]["uid"] for pod in trainers(kube) if pod["spec"]["nodeName"] != node}


def avoid(kube: Kube, node: str, before: set[str]) -> None:
    """Wait until the node is avoided, and look at what else has happened."""
    kube.wait_until(lambda: is_reported(kube, node), WAIT_S, "the node is reported")
    kube.wait_until(lambda: not trainers(kube, node), WAIT_S, "no trainer runs on the node")
    assert before <= innocents(kube, node)
    kube.create(make_pod("web", FOREVER, spec={"nodeSelector": {"kubernetes.io/hostname": node}}))
    kube.wait_until(lambda: kube.get("pods", "web")["status"].get("phase") == "Running", WAIT_S, "serving runs there")
    kube.delete("pods", "web")


async def test_a_node_that_kills_trainers_is_avoided_until_a_trainer_does_well_there(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    settings = StackSettings(4, NodeShape(), 0, tmp_path / "work", default_images(), path, FLAGS)
    async with started(settings) as stack:
        with Kube(path) as kube, Kube(path) as other:
            for name in JOBS:
                await asyncio.to_thread(kube.create, sleeper(name))
            await asyncio.to_thread(kube.wait_until, lambda: shared_node(kube), WAIT_S, "both jobs share a node")
            node = await asyncio.to_thread(shared_node, kube)
            before = await asyncio.to_thread(innocents, kube, node)
            killing = asyncio.create_task(kill_all(other, stack.kubelet, node))
            await asyncio.to_thread(avoid, kube, node, before)
            killing.cancel()
            await asyncio.gather(killing, return_exceptions=True)
            await asyncio.to_thread(
                kube.wait_until, lambda: len(trainers(kube, node)) > 1, WAIT_S, "the node is used again"
            )
        assert not stack.parts.done()
