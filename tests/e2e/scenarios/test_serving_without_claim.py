"""A serving pod whose volume claim does not exist costs no trainer, as kube-scheduler says that no eviction helps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.nodes import NodeSpec
from tests.e2e.worlds.harness import World
from tests.e2e.worlds.jobs import serving, training_job
from tests.e2e.worlds.pod_log import PodLog

Object = dict[str, Any]
WITHIN_S = 90.0
NODES = tuple(NodeSpec(f"claim-{i}", {"cpu": "8", "memory": "32Gi", "pods": "110"}) for i in range(2))


@pytest.fixture
def here(control_plane: Callable[..., ControlPlane]) -> Iterator[World]:
    """Two nodes of 8 cpus, and a controller that runs."""
    world = World(control_plane(nodes=NODES))
    with world.controller:
        yield world


def is_refused(here: World, name: str) -> bool:
    pod = here.kube.get("pods", name)
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(one["type"] == "PodScheduled" and "not found" in one.get("message", "") for one in conditions)


def test_nobody_makes_room_for_a_pod_without_its_claim(here: World) -> None:
    here.submit(training_job("full", min_trainers=1, max_trainers=20))
    here.kube.wait_until(lambda: here.running("full") == 15, WITHIN_S, "the job fills both nodes")
    claim = {"name": "d", "persistentVolumeClaim": {"claimName": "not-there"}}
    container = {
        "name": "web",
        "image": "example/web",
        "resources": {"requests": {"cpu": "2", "memory": "64Mi"}},
        "volumeMounts": [{"name": "d", "mountPath": "/d"}],
    }
    web = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "default"}}
    with PodLog(here.kube) as log:
        here.kube.create({**web, "spec": {"containers": [container], "volumes": [claim]}})
        here.kube.wait_until(lambda: is_refused(here, "web"), WITHIN_S, "kube-scheduler names the claim")
        here.kube.create(serving("other", replicas=1, cpu="1", memory="1Gi"))
        here.kube.wait_until(lambda: here.ready_serving("other") == 1, WITHIN_S, "another one gets its capacity")
        here.kube.wait_until(lambda: here.running("full") == 14, WITHIN_S, "it costs one trainer")
        assert log.causes().total() == 1, "and the pod without its claim none"
