"""Serving over trainers that lend, on real kubelets: it runs, and no trainer is deleted or restarted for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.worlds import facts
from tests.e2e.worlds.pod_log import PodLog
from tests.real.cluster.images import TRAINER_IMAGE
from tests.real.cluster.running import RealCluster
from tests.real.lending import (
    JOB,
    LENDING,
    PODS,
    deployed,
    flags,
    job,
    restarts,
    scale,
    serving_pods,
    steps,
    wait_trained,
)
from tests.real.mission import EXAMPLE, FLIGHTS_IMAGE, Journal, names, pods, status

Object = dict[str, Any]
NODE, OTHER = "node-1", "node-2"
MOST, LEFT_MILLI = 4, 100


@pytest.fixture
def journal(controller: RealCluster, tmp_path: Path) -> Iterator[Journal]:
    """The journal of a job whose surplus trainers lend, beside which nothing may run on the other node."""
    controller.build_image(FLIGHTS_IMAGE, context=EXAMPLE, base=TRAINER_IMAGE)
    with flags(controller, LENDING | {"EDL_CLEAR_LENDING_AFTER_S": "0"}):
        controller.kubectl("cordon", OTHER)
        made = Journal(controller, tmp_path / "journal")
        yield made
        controller.kubectl("delete", "tj", "--all", timeout_s=90)
        controller.kubectl("uncordon", OTHER)
        made.remove()


def free_milli(cluster: RealCluster) -> int:
    """What no pod requests of the node's CPU."""
    return facts.free_room(cluster.kube.list("nodes"), cluster.kube.list("pods"))[NODE]["cpu"]


def lending(cluster: RealCluster) -> Object:
    found: Object = status(cluster, JOB).get("lending", {})
    return found


def test_serving_runs_beside_trainers_that_lend(controller: RealCluster, journal: Journal) -> None:
    controller.kube.create(job(most=MOST))
    controller.kube.wait_until(lambda: len(pods(controller, JOB)) == MOST, 60, "its trainers run")
    controller.kube.wait_until(lambda: lending(controller).get("cpu"), 30, "the status says what they lend")
    wait_trained(controller)
    before = names(pods(controller, JOB))
    room = (free_milli(controller) - LEFT_MILLI) // PODS
    with deployed(controller, f"{room}m"), PodLog(controller.kube) as log:
        scale(controller, PODS)
        controller.kube.wait_until(lambda: lending(controller).get("slowed"), 30, "the status says who is slow")
        so_far, _ = steps(controller)
        controller.kube.wait_until(lambda: steps(controller)[0] > so_far, 30, "they train on")
        assert {pod["spec"]["nodeName"] for pod in serving_pods(controller)} == {NODE}
        assert not log.causes(), "nobody was deleted"
        assert (names(pods(controller, JOB)), restarts(controller)) == (before, 0)
        scale(controller, 0)
        controller.kube.wait_until(lambda: not lending(controller)["slowed"], 30, "nobody is slow any more")
    report = journal.audit()
    assert report["ok"], report["problems"]
