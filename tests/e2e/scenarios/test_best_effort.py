"""Trainers without requests: only where the queue allows them, one pod each, and first to go for serving."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.nodes import NodeSpec
from tests.e2e.worlds.harness import World
from tests.e2e.worlds.jobs import serving, training_job

Object = dict[str, Any]
WITHIN_S = 90.0
PODS = 10
QUEUE = {
    "apiVersion": "paddlepaddle.org/v1",
    "kind": "Queue",
    "metadata": {"name": "default"},
    "spec": {"nominalQuota": {"pods": 100}, "bestEffort": "Allowed"},
}


@pytest.fixture
def here(control_plane: Callable[..., ControlPlane]) -> World:
    """One node of 16 cpus that holds ten pods, and a controller that does not run yet."""
    node = NodeSpec("tiers-0", {"cpu": "16", "memory": "64Gi", "pods": str(PODS)})
    return World(control_plane(nodes=(node,)))


def status(here: World, job: str) -> Object:
    found: Object = here.kube.get("trainingjobs", job).get("status") or {}
    return found


def wait_running(here: World, job: str, count: int) -> None:
    here.kube.wait_until(lambda: here.running(job) == count, WITHIN_S, f"job {job} has {count} trainers")


def wait_reason(here: World, job: str, reason: str) -> None:
    here.kube.wait_until(lambda: status(here, job).get("reason") == reason, WITHIN_S, f"job {job} is {reason}")


def test_trainers_without_requests_wait_for_their_queue_and_make_way_for_serving(here: World) -> None:
    with here.controller:
        here.submit(training_job("rider", min_trainers=1, max_trainers=20, trainer={"resources": {}}))
        wait_reason(here, "rider", "BestEffortNotAllowed")
        message = status(here, "rider")["explanation"]
        assert message.startswith(
            "trainers of default/rider request neither cpu nor memory, and queue default does not allow that; set"
        )
        here.kube.wait_until(
            lambda: any(
                event["reason"] == "BestEffortNotAllowed" and event["type"] == "Warning"
                for event in here.kube.list("events", "default", fields="involvedObject.name=rider")
            ),
            WITHIN_S,
            "an event says so",
        )
        here.kube.create(QUEUE)
        wait_running(here, "rider", PODS - 1)  # its master is a pod too
        assert status(here, "rider")["qosClass"] == "BestEffort"
        here.submit(training_job("solid", min_trainers=2, max_trainers=3))
        wait_running(here, "solid", 3)
        wait_running(here, "rider", PODS - 5)
        here.kube.create(serving(replicas=2, cpu="1"))
        here.kube.wait_until(lambda: here.ready_serving() == 2, WITHIN_S, "two serving pods are ready")
        wait_running(here, "solid", 3)
        wait_running(here, "rider", PODS - 7)
        specs = {p["metadata"]["name"]: p["spec"] for p in here.pods() if "priorityClassName" in p["spec"]}
        classes = {name: (spec["priorityClassName"], spec["priority"]) for name, spec in specs.items()}
        assert classes.pop("rider-trainer-0") == ("edl-best-effort", -10)
        riders = {found for name, found in classes.items() if name.startswith("rider-trainer")}
        assert riders == {("edl-best-effort-surplus", -1000)}
        assert classes["solid-trainer-2"] == ("edl-surplus", -100)
        pods = [pod for pod in here.pods() if pod["metadata"]["name"].startswith("rider-trainer")]
        assert {pod["status"]["qosClass"] for pod in pods} == {"BestEffort"}
        here.kube.patch("queues.paddlepaddle.org", "default", {"spec": {"bestEffort": "Refused"}})
        wait_running(here, "rider", 0)
        wait_reason(here, "rider", "BestEffortNotAllowed")
        wait_running(here, "solid", 3)


def test_trainers_that_get_requests_from_a_limit_range_have_the_classes_of_other_trainers(here: World) -> None:
    defaults = {"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "500m", "memory": "64Mi"}}
    here.kube.create(
        {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": {"name": "some", "namespace": "default"},
            "spec": {"limits": [defaults]},
        }
    )
    here.kube.create(QUEUE)
    with here.controller:
        here.submit(training_job("given", min_trainers=1, max_trainers=2, trainer={"resources": {}}))
        wait_running(here, "given", 2)
        here.kube.wait_until(
            lambda: status(here, "given").get("qosClass") == "Burstable", WITHIN_S, "its class is known"
        )
        classes = {pod["metadata"]["name"]: pod["spec"]["priorityClassName"] for pod in here.pods()}
        assert [classes[f"given-trainer-{i}"] for i in (0, 1)] == ["edl-training", "edl-surplus"]
