"""Pods whose requests admission changes: edl plans what the pods request, and not what their manifests say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.nodes import NodeSpec
from tests.e2e.worlds.harness import World
from tests.e2e.worlds.jobs import batch_job, training_job

Object = dict[str, Any]
WITHIN_S = 90.0
NODES = tuple(NodeSpec(f"small-{i}", {"cpu": "4", "memory": "32Gi", "pods": "110"}) for i in range(2))


@pytest.fixture
def here(control_plane: Callable[..., ControlPlane]) -> Iterator[World]:
    """Two nodes of 4 cpus, and a controller that runs."""
    world = World(control_plane(nodes=NODES))
    with world.controller:
        yield world


def defaults(cpu: str) -> Object:
    limits = [{"type": "Container", "defaultRequest": {"cpu": cpu, "memory": "64Mi"}}]
    body = {"apiVersion": "v1", "kind": "LimitRange", "spec": {"limits": limits}}
    return {**body, "metadata": {"name": "defaults", "namespace": "default"}}


def with_agent(job: Object) -> Object:
    """The Job with a small first container, and a second one that requests nothing."""
    small = {"name": "main", "image": "example/train", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
    spec = job["spec"]["template"]["spec"]
    spec["containers"] = [small, {"name": "agent", "image": "example/agent"}]
    return job


def resizes(here: World, name: str) -> list[str]:
    """The messages of edl's resizes of a Job, each counted as often as it happened."""
    found = here.kube.list("events", "default", fields=f"involvedObject.kind=Job,involvedObject.name={name}")
    return [e["message"] for e in found if "changes the number" in e["message"] for _ in range(e.get("count") or 1)]


def test_a_job_that_fits_by_its_template_alone_is_stopped_once_and_costs_no_neighbour_twice(here: World) -> None:
    """Ten pods of 100m are 1100m each by the defaults of the namespace, and eight cores hold seven of them."""
    here.kube.create(defaults("1"))
    here.submit(training_job("neighbour", min_trainers=1, max_trainers=7, memory="64Mi"))
    here.kube.wait_until(lambda: here.running("neighbour") == 7, WITHIN_S, "the neighbour has its seven trainers")
    here.kube.create(with_agent(batch_job("side", parallelism=10, low=10, high=12)))
    here.kube.wait_until(
        lambda: here.kube.get("jobs.batch", "side")["spec"]["parallelism"] == 0, WITHIN_S, "the Job is stopped"
    )
    here.kube.wait_until(lambda: here.running("neighbour") == 7, WITHIN_S, "the neighbour has its trainers again")
    here.submit(training_job("later", min_trainers=1, max_trainers=1, cpu="100m", memory="64Mi"))
    here.kube.wait_until(lambda: here.running("later") == 1, WITHIN_S, "further plans are made")
    assert len(resizes(here, "side")) <= 3
    assert here.running("neighbour") == 7
