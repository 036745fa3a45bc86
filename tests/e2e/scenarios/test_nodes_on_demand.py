"""Nodes that come when a job asks and leave when nothing needs them; the autoscaler knows only pods and nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.nodes import NodeSpec
from tests.e2e.worlds.autoscaler import Autoscaler
from tests.e2e.worlds.harness import World
from tests.e2e.worlds.jobs import training_job

Object = dict[str, Any]
WITHIN_S = 60.0
CAPACITY = {"cpu": "4", "memory": "16Gi", "pods": "110"}
LABELS = {"pool": "spot"}
OWN = (NodeSpec("own", {"cpu": "4", "memory": "16Gi", "pods": "110"}, labels={"pool": "own"}),)
ASKS: Object = {"elasticity": {"scaleUp": "Minimum"}}
REQUESTS = "paddlepaddle.org/requests-node-for"


@pytest.fixture
def plane(control_plane: Callable[..., ControlPlane]) -> ControlPlane:
    """One node of the cluster's own."""
    return control_plane(nodes=OWN)


def world_on(plane: ControlPlane, *flags: str, seconds_to_come: float = 60.0) -> World:
    """The controller with a file of one group that the autoscaler has."""
    file = plane.workdir / "expected-nodes.yaml"
    file.write_text(
        "groups:\n- name: spot\n  allocatable: {cpu: 4, memory: 16Gi}\n  labels: {pool: spot}\n"
        f"  price-per-hour: 0.2\n  limit: 3\n  seconds-to-come: {seconds_to_come:g}\n"
    )
    return World(plane, f"--expect-nodes={file}", *flags)


def autoscaler(plane: ControlPlane, *, comes: bool = True) -> Autoscaler:
    return Autoscaler(plane, CAPACITY, LABELS, comes=comes)


def wait(world: World, predicate: Callable[[], Any], what: str) -> None:
    world.kube.wait_until(predicate, WITHIN_S, what)


def requests(world: World) -> list[str]:
    """The names of the request pods."""
    return [pod["metadata"]["name"] for pod in world.kube.list("pods", "default", labels=REQUESTS)]


def events(world: World, job: str) -> dict[str, str]:
    """The last message of each event of a job, by reason."""
    found = world.kube.list("events", "default", fields=f"involvedObject.kind=TrainingJob,involvedObject.name={job}")
    return {event["reason"]: event["message"] for event in found}


def explanation(world: World, job: str) -> str:
    """What condition Admitted of a job says."""
    conditions = (world.kube.get("trainingjobs", job).get("status") or {}).get("conditions") or []
    return next((str(each["message"]) for each in conditions if each["type"] == "Admitted"), "")


def test_a_waiting_minimum_brings_a_node_and_runs_and_the_node_leaves(plane: ControlPlane) -> None:
    world = world_on(plane)
    with autoscaler(plane) as cloud, world.controller:
        world.submit(training_job("old", min_trainers=3, max_trainers=3))
        wait(world, lambda: world.running("old") == 3, "the cluster is full")
        world.submit(training_job("new", min_trainers=3, max_trainers=3, **ASKS))
        wait(world, lambda: world.running("new") == 3, "the job that asked runs")
        assert cloud.arrivals == ["scaled-0"]
        assert cloud.asked == {"new-node-0"}
        wait(world, lambda: not requests(world), "its request pod is gone")
        said = events(world, "new")
        assert said["NodeRequested"] == "edl asks for a node of group spot at 0.2 an hour"
        assert said["NodeCame"] == "node scaled-0 of group spot has joined the cluster"
        world.withdraw("new")
        wait(world, lambda: cloud.departures == ["scaled-0"], "the empty node leaves")
        wait(world, lambda: world.running("old") == 3, "the other job runs on")
    assert len(cloud.arrivals) == 1


def test_a_node_that_only_surplus_holds_is_emptied_and_leaves(plane: ControlPlane) -> None:
    world = world_on(plane, "--drain-idle-s=2")
    with autoscaler(plane) as cloud, world.controller:
        world.submit(training_job("surplus", min_trainers=2, max_trainers=20))
        wait(world, lambda: world.running("surplus") == 3, "the cluster is full")
        world.submit(training_job("new", min_trainers=4, max_trainers=4, **ASKS))
        wait(world, lambda: world.running("new") == 4, "the job that asked runs")
        assert len(cloud.arrivals) == 1
        world.withdraw("new")
        wait(world, lambda: cloud.departures == cloud.arrivals, "the node is emptied and leaves")
        wait(world, lambda: world.running("surplus") == 3, "surplus stays on the cluster's own node")
    assert len(cloud.arrivals) == 1


def test_a_request_is_withdrawn_when_room_is_found_elsewhere(plane: ControlPlane) -> None:
    world = world_on(plane)
    with autoscaler(plane, comes=False) as cloud, world.controller:
        world.submit(training_job("old", min_trainers=3, max_trainers=3))
        wait(world, lambda: world.running("old") == 3, "the cluster is full")
        world.submit(training_job("new", min_trainers=3, max_trainers=3, **ASKS))
        wait(world, lambda: cloud.asked == {"new-node-0"}, "the autoscaler sees the request pod")
        # Request pods and statuses are written side by side.
        wait(world, lambda: "asks for 1 node of group spot" in explanation(world, "new"), "the status says so")
        world.withdraw("old")
        wait(world, lambda: world.running("new") == 3, "the job runs where the other ran")
        wait(world, lambda: not requests(world), "the request is withdrawn")
        wait(world, lambda: "NodeRequestWithdrawn" in events(world, "new"), "the user hears of it")
        assert "the job found capacity elsewhere" in events(world, "new")["NodeRequestWithdrawn"]
    assert cloud.arrivals == []


def test_a_node_that_never_comes_is_reported_and_not_asked_for_without_a_pause(plane: ControlPlane) -> None:
    world = world_on(plane, seconds_to_come=0.5)  # given up after 61 s; 60 s is the least
    with autoscaler(plane, comes=False) as cloud, world.controller:
        world.submit(training_job("old", min_trainers=3, max_trainers=3))
        wait(world, lambda: world.running("old") == 3, "the cluster is full")
        world.submit(training_job("new", min_trainers=3, max_trainers=3, **ASKS))
        wait(world, lambda: requests(world) == ["new-node-0"], "it asks for a node")
        wait(world, lambda: not requests(world), "the request is withdrawn")
        wait(world, lambda: "brought no node in time" in explanation(world, "new"), "the status says why")
        wait(world, lambda: "NodeDidNotCome" in events(world, "new"), "the user is warned")
        said = events(world, "new")["NodeDidNotCome"]
        assert said == "group spot brought no node in 61 s; edl withdraws the request and asks again later"
        assert requests(world) == []
    assert cloud.asked == {"new-node-0"}
