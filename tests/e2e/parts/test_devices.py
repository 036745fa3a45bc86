"""Devices by claim: jobs and serving get what there is, and nobody waits for devices that others have.

No driver is needed: devices are allocated from ResourceSlices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.nodes import NodeSpec
from tests.e2e.worlds.harness import World
from tests.e2e.worlds.jobs import serving, training_job
from tests.e2e.worlds.pod_log import PodLog
from tests.worlds.rules.device_scenes import device_class, slices, template, uses

Object = dict[str, Any]
WITHIN_S = 60.0
MASTER: Object = {"resources": {"requests": {"cpu": "50m", "memory": "64Mi"}}}
CLAIMS: Object = {"template": {"spec": uses()}}


@pytest.fixture
def here(control_plane: Callable[..., ControlPlane]) -> Iterator[World]:
    """Four nodes of eight cores and four devices each, with the controller."""
    amounts = {"cpu": "8", "memory": "64Gi", "pods": "110"}
    world = World(control_plane(nodes=tuple(NodeSpec(f"n{i}", amounts) for i in range(4))))
    for body in (device_class(), template(), *slices(4)):
        world.kube.create(body)
    with world.controller:
        yield world


def job(name: str, low: int, high: int, **trainer: Any) -> Object:
    return training_job(name, min_trainers=low, max_trainers=high, master=MASTER, trainer=trainer)


def pending(here: World) -> list[str]:
    return [pod["metadata"]["name"] for pod in here.pods() if not pod["spec"].get("nodeName")]


def test_jobs_share_devices_and_leave_the_cores_to_others(here: World) -> None:
    cores = {"limits": {"cpu": "1", "memory": "1Gi"}}
    here.submit(job("a", 2, 24, **CLAIMS, resources={**cores, "claims": [{"name": "gpu"}]}))
    here.kube.wait_until(lambda: here.running("a") == 16 and not pending(here), WITHIN_S, "a has all devices")
    here.submit(job("b", 4, 24, **CLAIMS))
    here.kube.wait_until(
        lambda: here.running("b") >= 7 and here.running("a") + here.running("b") == 16 and not pending(here),
        WITHIN_S,
        "a and b share them",
    )
    here.submit(job("plain", 1, 60))
    here.kube.wait_until(lambda: here.running("plain") == 15 and not pending(here), WITHIN_S, "plain has the cores")
    assert here.running("a") + here.running("b") == 16


def test_trainers_give_devices_to_serving_and_only_as_many_as_it_needs(here: World) -> None:
    here.submit(job("a", 2, 16, **CLAIMS))
    here.kube.wait_until(lambda: here.running("a") == 16, WITHIN_S, "a has all devices")
    with PodLog(here.kube) as log:
        here.kube.create(serving(replicas=4, cpu="100m", memory="64Mi", **uses()))
        here.kube.wait_until(lambda: here.ready_serving() == 4, WITHIN_S, "four serving pods have a device")
        here.kube.wait_until(lambda: here.running("a") == 12 and not pending(here), WITHIN_S, "twelve trainers stay")
        assert log.causes().total() == 4


def test_an_extended_resource_that_a_class_stands_for_is_given_out_like_one(here: World) -> None:
    here.kube.create(device_class("gpus", extendedResourceName="nvidia.com/gpu"))
    here.submit(job("a", 2, 24, resources={"limits": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}}))
    here.kube.wait_until(lambda: here.running("a") == 16 and not pending(here), WITHIN_S, "a has all devices")
    claims = here.kube.list("resourceclaims", "default")
    assert len(claims) == 16
    assert all(len(one["status"]["allocation"]["devices"]["results"]) == 1 for one in claims)
    here.kube.create(serving(replicas=1, cpu="100m", memory="64Mi", **uses()))
    here.kube.wait_until(lambda: here.ready_serving() == 1 and here.running("a") == 15, WITHIN_S, "one yields")
