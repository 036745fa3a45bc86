"""Volcano Jobs that ask to be resized: no resize sets off their own policies."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.e2e.control_plane.nodes import NodeSpec
from tests.e2e.worlds.jobs import serving
from tests.volcano.elastic import NODES, PSERVERS, TRAINERS, elastic_job, events
from tests.volcano.scene import Scene

pytestmark = pytest.mark.cluster("Volcano runs on a real control plane only")

Start = Callable[[Sequence[NodeSpec]], Scene]


def test_a_job_with_a_restart_policy_grows_yields_to_serving_and_grows_again(scene: Start) -> None:
    here = scene(NODES)
    with elastic_job(here, 1, 8) as world:
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
    with elastic_job(here, 3, 6) as world:
        here.kube.create(serving(replicas=3))
        here.wait(lambda: world.ready_serving() == 3, "serving leaves less than its minimum")
        here.wait(lambda: not here.pods("ctr-volcano"), "its pservers are of no use alone")
        assert [task["replicas"] for task in here.job("ctr-volcano")["spec"]["tasks"]] == [0, 0]
        here.kube.scale("deployments", "web", 0)
        here.wait(lambda: len(here.running(TRAINERS)) == 6, "it starts again")
        assert len(here.running(PSERVERS)) == 2
        assert here.restarts("ctr-volcano") == 0
