"""Trainers that never end once they are deleted: serving gets the room of others, and the metrics say what is so.

A kubelet that waits for containers of such trainers is a kwok node that keeps a pod for days (`edl.test/stop-s`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.nodes import make_nodes
from tests.e2e.worlds import facts
from tests.e2e.worlds.harness import World
from tests.e2e.worlds.jobs import batch_job, serving, training_job
from tests.e2e.worlds.pod_log import PodLog

Object = dict[str, Any]
pytestmark = pytest.mark.cluster("kube-scheduler preempts, and the API server keeps pods for their grace period")
NODES, CORES = 2, 8
NEVER_ENDS = {"edl.test/stop-s": "1000000"}
LONGEST_GRACE_S = 2**31 - 1
MASTER = {"resources": {"requests": {"cpu": "50m", "memory": "64Mi"}}}
WITHIN_S = 60.0
WAVE, FLOOD = 4, 40


def cluster(control_plane: Callable[..., ControlPlane], *flags: str) -> World:
    """Two nodes of eight cores and the namespace `mallory`."""
    here = World(control_plane(nodes=make_nodes(NODES, cpu=str(CORES))), *flags)
    here.kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mallory"}})
    return here


def metric(here: World, name: str) -> float:
    """The value of a metric without labels."""
    found = re.search(rf"^{name} (\S+)$", here.controller.fetch("/metrics")[1], re.MULTILINE)
    assert found, name
    return float(found[1])


def stuck(here: World) -> list[Object]:
    """The pods of namespace `mallory` that are deleted and still there."""
    return [pod for pod in here.kube.list("pods", "mallory") if facts.is_terminating(pod)]


def wait_served(here: World, count: int) -> None:
    here.kube.wait_until(lambda: here.ready_serving() == count, WITHIN_S, f"{count} serving pods are ready")


def test_serving_gets_the_room_of_others_if_the_trainers_that_it_displaced_do_not_end(
    control_plane: Callable[..., ControlPlane],
) -> None:
    here = cluster(control_plane, "--max-grace-s", "1")
    with here.controller, PodLog(here.kube) as log:
        here.submit(training_job("honest", min_trainers=2, max_trainers=8, master=MASTER))
        here.wait_full(60)
        job = training_job("stuck", min_trainers=1, max_trainers=20, master=MASTER)
        job["metadata"]["namespace"] = "mallory"
        job["spec"]["trainer"]["template"] = {
            "metadata": {"annotations": NEVER_ENDS},
            "spec": {"terminationGracePeriodSeconds": LONGEST_GRACE_S},
        }
        here.submit(job)
        here.wait_full(60)
        assert {p["spec"]["terminationGracePeriodSeconds"] for p in facts.trainers(here.pods(), "stuck")} == {1}
        before = len(log.ended_of("honest"))
        here.kube.create(serving(replicas=WAVE, cpu="1", memory="1Gi"))
        here.kube.wait_until(lambda: stuck(here), WITHIN_S, "kube-scheduler has preempted the youngest trainers")
        wait_served(here, WAVE)
        lost = len(log.ended_of("honest")) - before
        kept = len(stuck(here))
        here.kube.wait_until(lambda: metric(here, "edl_lingering_pods") == kept, WITHIN_S, "the alert has its reason")
        assert metric(here, "edl_serving_short_pods") == 0
        assert 1 <= lost <= WAVE, "as many honest trainers as serving needs, and none in vain"
        here.kube.scale("deployments", "web", FLOOD)
        least = FLOOD - (NODES * CORES - kept)
        here.kube.wait_until(
            lambda: metric(here, "edl_serving_short_pods") >= least, WITHIN_S, "it says who is short"
        )


def test_trainers_that_would_take_years_to_end_make_room_last(control_plane: Callable[..., ControlPlane]) -> None:
    here = cluster(control_plane)
    modest = {"metadata": {"name": "modest"}, "value": 10, "preemptionPolicy": "Never"}
    here.kube.create({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", **modest})
    endless = batch_job("endless", parallelism=2, low=1, high=8)
    endless["metadata"]["namespace"] = "mallory"
    endless["spec"]["template"]["metadata"] = {"annotations": NEVER_ENDS}
    endless["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = LONGEST_GRACE_S
    with here.controller, PodLog(here.kube) as log:
        here.submit(training_job("honest", min_trainers=2, max_trainers=7, master=MASTER))
        here.kube.create(endless)
        here.kube.wait_until(lambda: len(running(here)) == 8 and here.running("honest") == 7, WITHIN_S, "all is full")
        here.kube.create(serving(replicas=WAVE, cpu="1", memory="1Gi", priorityClassName="modest"))
        wait_served(here, WAVE)
        assert not stuck(here), "nobody waits for those"
        assert len(log.ended_of("honest")) <= WAVE


def running(here: World) -> list[Object]:
    return [pod for pod in here.kube.list("pods", "mallory") if facts.is_running(pod)]
