"""`kubectl scale`: the count that is asked for if it fits, else what runs stays and the status says how many fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.nodes import NodeSpec
from tests.e2e.worlds.harness import World
from tests.e2e.worlds.jobs import training_job
from tests.e2e.worlds.pod_log import PodLog

Object = dict[str, Any]
WITHIN_S = 90.0
NODES = tuple(NodeSpec(f"scaled-{i}", {"cpu": "8", "memory": "64Gi", "pods": "110"}) for i in range(4))
MASTER = {"resources": {"requests": {"cpu": "50m", "memory": "64Mi"}}}


@pytest.fixture
def here(control_plane: Callable[..., ControlPlane]) -> Iterator[World]:
    """Four nodes of 8 cpus, and a controller that runs."""
    world = World(control_plane(nodes=NODES))
    with world.controller:
        yield world


def wait_running(here: World, count: int) -> None:
    here.kube.wait_until(lambda: here.running("scaled") == count, WITHIN_S, f"{count} trainers run")


def status(here: World) -> Object:
    found: Object = here.kube.get("trainingjobs", "scaled").get("status") or {}
    return found


def test_a_count_that_cannot_be_had_takes_nothing_away(here: World) -> None:
    here.submit(training_job("other", min_trainers=4, max_trainers=20, master=MASTER))
    here.submit(training_job("scaled", min_trainers=2, max_trainers=40, master=MASTER))
    here.kube.wait_until(lambda: here.running("scaled") >= 13, WITHIN_S, "both jobs have their shares")
    for count in (10, 26):
        here.kube.scale("trainingjobs", "scaled", count)
        wait_running(here, count)
    with PodLog(here.kube, {"scaled": 26}) as log:
        here.kube.scale("trainingjobs", "scaled", 34)
        # Until the API server has accepted the changed spec, the line says that edl asks it.
        here.kube.wait_until(lambda: "cpu is full" in status(here)["explanation"], WITHIN_S, "it says what fits")
        running, found = here.running("scaled"), status(here)
        assert running >= 26
        assert found["explanation"].startswith(f"34 asked, {found['trainer']['desired']} fit: cpu is full")
        assert log.lowest["scaled"] >= 26
    here.kube.scale("trainingjobs", "scaled", 10)
    wait_running(here, 10)
