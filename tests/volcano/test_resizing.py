"""Volcano Jobs that ask to be resized: no resize sets off their own policies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import yaml

from tests.e2e.control_plane.nodes import NodeSpec
from tests.e2e.worlds.jobs import serving
from tests.volcano.scene import MANIFESTS, Scene, machine

pytestmark = pytest.mark.cluster("Volcano runs on a real control plane only")

Object = dict[str, Any]
Start = Callable[[Sequence[NodeSpec]], Scene]
PSERVERS, TRAINERS = "ctr-volcano-pserver", "ctr-volcano-trainer"
NODES = (machine("one", 6), machine("two", 6))


def elastic(low: int, high: int) -> Object:
    """The published job of the CTR article, which restarts when a pod is evicted, with the annotations of edl."""
    job: Object = yaml.safe_load((MANIFESTS / "ctr-volcano.yaml").read_text())
    asks = {"elastic": "true", "min-instance": str(low), "max-instance": str(high)}
    job["metadata"]["annotations"] = {f"paddlepaddle.org/{name}": value for name, value in asks.items()}
    return job


def events(here: Scene, name: str) -> dict[str, str]:
    """The last message of each event of edl on a Volcano Job, by reason."""
    found = here.kube.list("events", "default", fields=f"involvedObject.kind=Job,involvedObject.name={name}")
    return {e["reason"]: e["message"] for e in found if e["source"].get("component") == "edl-controller"}


def test_a_job_with_a_restart_policy_grows_yields_to_serving_and_grows_again(scene: Start) -> None:
    here = scene(NODES)
    world = here.with_edl()
    with world.controller:
        here.kube.create(elastic(1, 8))
        here.wait(lambda: len(here.running(TRAINERS)) == 8, "it grows into the cluster")
        before = here.running("ctr-volcano")
        here.kube.create(serving(replicas=6, cpu="1", memory="1Gi"))
        here.wait(lambda: world.ready_serving() == 6, "the serving pods are ready")
        here.wait(lambda: len(here.running(TRAINERS)) == 4, "the job has given 4 cpus, two were free")
        assert "ServingNeedsRoom" in events(here, "ctr-volcano")
        after = here.running("ctr-volcano")
        assert after.items() <= before.items(), "nobody started again"
        assert len(here.running(PSERVERS)) == 2
        here.kube.scale("deployments", "web", 0)
        here.wait(lambda: len(here.running(TRAINERS)) == 8, "it grows again")
        assert here.restarts("ctr-volcano") == 0
        assert here.phase("ctr-volcano") == "Running"


def test_a_job_that_gives_way_stops_whole_and_starts_whole(scene: Start) -> None:
    here = scene(NODES)
    world = here.with_edl()
    with world.controller:
        here.kube.create(elastic(3, 6))
        here.wait(lambda: len(here.running(TRAINERS)) == 6, "it grows")
        here.kube.create(serving(replicas=3))
        here.wait(lambda: world.ready_serving() == 3, "serving leaves less than its minimum")
        here.wait(lambda: not here.pods("ctr-volcano"), "its pservers are of no use alone")
        assert [task["replicas"] for task in here.job("ctr-volcano")["spec"]["tasks"]] == [0, 0]
        here.kube.scale("deployments", "web", 0)
        here.wait(lambda: len(here.running(TRAINERS)) == 6, "it starts again")
        assert len(here.running(PSERVERS)) == 2
        assert here.restarts("ctr-volcano") == 0
