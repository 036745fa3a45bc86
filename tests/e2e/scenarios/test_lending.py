"""A wave of serving over trainers that lend CPU: it waits for nobody, and its nodes are cleared up later."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.worlds import facts
from tests.e2e.worlds.harness import World
from tests.e2e.worlds.jobs import serving, training_job
from tests.e2e.worlds.pod_log import PodLog

FLAGS = ("--surplus-cpu-request", "0.1", "--clear-lending-after-s", "20")
CAPACITY, TRAINER, SERVING = 8, 2, 3  # cores
FULL = 15  # trainers on four nodes, beside a master


def node_of(pod: Mapping[str, Any]) -> str:
    return str(pod["spec"].get("nodeName", ""))


def declared(here: World) -> Counter[str]:
    """By node, the cores that trainers and serving declare."""
    pods = here.pods()
    cores = Counter[str]()
    for pod in facts.trainers(pods, "ctr"):
        cores[node_of(pod)] += TRAINER
    for pod in here.kube.list("pods", "default", labels="app=web"):
        cores[node_of(pod)] += SERVING
    return cores


def is_settled(here: World) -> bool:
    """True if every trainer runs, has what it declares, and nobody is leaving."""
    pods = here.pods()
    moving = any(facts.is_terminating(pod) or not facts.is_running(pod) for pod in pods)
    return not moving and max(declared(here).values()) <= CAPACITY


def lending_of(here: World) -> object:
    return here.kube.get("trainingjobs", "ctr")["status"].get("lending")


def test_serving_uses_lent_cpu_at_once_and_its_nodes_are_cleared_later(
    control_plane: Callable[..., ControlPlane],
) -> None:
    here = World(control_plane(mix="small", pod_delete_s=8.0), *FLAGS)
    here.kube.create(serving())
    job = training_job("ctr", min_trainers=2, max_trainers=60, cpu=str(TRAINER), elasticity={"cooldownSeconds": 1})
    with here.controller:
        here.submit(job)
        here.kube.wait_until(lambda: here.running("ctr") == FULL, 60, "training is full by what it declares")
        surplus = [pod for pod in facts.trainers(here.pods(), "ctr") if requested(pod) == "200m"]
        assert len(surplus) == FULL - 2
        here.kube.wait_until(lambda: lending_of(here) == {"cpu": "23400m", "slowed": 0}, 20, "the status shows it")
        with PodLog(here.kube) as log:
            here.kube.scale("deployments", "web", 4)
            here.kube.wait_until(lambda: here.ready_serving() == 4, 30, "serving is ready")
            assert not log.causes(), "nobody was deleted for serving"
            assert here.running("ctr") == FULL
            here.kube.wait_until(lambda: is_settled(here), 120, "every trainer has what it declares")
            assert set(log.causes()) == {"controller: LendingCleared"}
        assert here.counts()["ctr"] >= 2


def requested(pod: Mapping[str, Any]) -> str:
    return str(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])
