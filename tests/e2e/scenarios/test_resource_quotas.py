"""ResourceQuota `count/pods`, which counts finished pods: edl plans with it, and what it keeps itself makes way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.nodes import NodeSpec
from tests.e2e.worlds.harness import World
from tests.e2e.worlds.jobs import training_job

Object = dict[str, Any]
WITHIN_S = 90.0
NODES = tuple(NodeSpec(f"capped-{i}", {"cpu": "8", "memory": "32Gi", "pods": "110"}) for i in range(2))


@pytest.fixture
def here(control_plane: Callable[..., ControlPlane]) -> Iterator[World]:
    """Two nodes, a namespace of at most 6 pods, and a controller that runs."""
    world = World(control_plane(nodes=NODES))
    metadata = {"name": "objects", "namespace": "default"}
    spec = {"hard": {"count/pods": "6"}}
    world.kube.create({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": spec})
    with world.controller:
        yield world


def pods(here: World, name: str) -> list[Object]:
    return here.kube.list("pods", "default", labels=f"paddlepaddle.org/job={name}")


def status(here: World, name: str) -> Object:
    found: Object = here.kube.get("trainingjobs", name).get("status") or {}
    return found


def test_pods_that_an_ended_job_keeps_make_way_for_the_next_one(here: World) -> None:
    here.submit(training_job("first", min_trainers=3, max_trainers=3))
    here.kube.wait_until(lambda: here.running("first") == 3, WITHIN_S, "the first job runs")
    for number in range(3):
        here.kube.annotate("pods", f"first-trainer-{number}", exit_code="0")
    here.kube.wait_until(lambda: status(here, "first").get("phase") == "Succeeded", WITHIN_S, "it succeeds")
    here.kube.wait_until(lambda: len(pods(here, "first")) == 3, WITHIN_S, "it keeps its trainers for their logs")
    here.submit(training_job("second", min_trainers=3, max_trainers=4, gang=True))
    here.kube.wait_until(lambda: here.running("second") == 4, WITHIN_S, "the second job has its maximum")
    assert len(pods(here, "first")) == 1, "no more make way than are needed"


def test_pods_of_others_that_fill_it_are_named(here: World) -> None:
    container = {"name": "done", "image": "example/done", "resources": {"requests": {"cpu": "100m"}}}
    for number in range(4):
        metadata = {"name": f"done-{number}", "namespace": "default"}
        spec = {"containers": [container], "restartPolicy": "Never"}
        here.kube.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        here.kube.annotate("pods", f"done-{number}", exit_code="0")
    finished = {"fields": "status.phase=Succeeded"}
    here.kube.wait_until(lambda: len(here.kube.list("pods", "default", **finished)) == 4, WITHIN_S, "four have ended")
    here.submit(training_job("late", min_trainers=3, max_trainers=4))
    here.kube.wait_until(lambda: status(here, "late").get("reason") == "QuotaReached", WITHIN_S, "the job says why")
    assert status(here, "late")["explanation"] == "waits for quota of ResourceQuota objects of namespace default"
    admitted = next(one for one in status(here, "late")["conditions"] if one["type"] == "Admitted")
    assert "pods that edl does not plan use 4 pods by count/pods of its quota of 6 pods" in admitted["message"]
    for number in range(4):
        here.kube.delete("pods", f"done-{number}")
    here.kube.wait_until(lambda: here.running("late") == 4, WITHIN_S, "it runs once they are gone")
