"""A pserver that takes the room of a trainer moves to the other node while its job trains; no record is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.worlds import facts
from tests.real.cluster.images import BASE_IMAGE, TRAINER_IMAGE
from tests.real.cluster.running import RealCluster
from tests.real.mission import (
    EXAMPLE,
    FLIGHTS_IMAGE,
    Journal,
    assert_each_once,
    events,
    pods,
    score,
    status,
    with_settings,
)

Object = dict[str, Any]
JOB = "moves"
AFTER_S = 30
LEFT = {"first": 1300, "second": 300}  # millicores: master, both pservers, and one trainer of two; one pserver
LEAST_AUC = 0.76


@pytest.fixture
def tidying(controller: RealCluster) -> Iterator[RealCluster]:
    """The cluster with a controller that moves pservers after a short rest."""
    controller.build_image(FLIGHTS_IMAGE, context=EXAMPLE, base=TRAINER_IMAGE)
    with_settings(controller, f"EDL_CONSOLIDATE_AFTER_S={AFTER_S}")
    yield controller
    controller.kubectl("delete", "tj", "--all", timeout_s=90)
    controller.kubectl("delete", "pods", "--selector=app=filler", timeout_s=60)
    controller.kubectl("uncordon", *nodes(controller))
    with_settings(controller, "EDL_CONSOLIDATE_AFTER_S-")


def nodes(cluster: RealCluster) -> list[str]:
    return sorted(node["metadata"]["name"] for node in cluster.kube.list("nodes"))


def where(cluster: RealCluster) -> dict[str, str]:
    """The nodes of the job's pservers, by uid."""
    return {p["metadata"]["uid"]: p["spec"]["nodeName"] for p in pods(cluster, JOB, "pserver")}


def fill(cluster: RealCluster, node: str, left: int) -> None:
    """A pod of nobody's job that leaves so many millicores of a node."""
    room = facts.free_room(cluster.kube.list("nodes"), cluster.kube.list("pods"))[node]["cpu"]
    container = {
        "name": "filler",
        "image": BASE_IMAGE,
        "command": ["sleep", "infinity"],
        "resources": {"requests": {"cpu": f"{room - left}m"}},
    }
    cluster.kube.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"filler-{node}", "namespace": "default", "labels": {"app": "filler"}},
            "spec": {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [container]},
        }
    )


def job() -> Object:
    """The example's job, at a pace at which it outlasts the rest; its two pservers keep each other's checkpoints."""
    body: Object = yaml.safe_load((EXAMPLE / "job.yaml").read_text())
    body["metadata"]["name"] = JOB
    spec = body["spec"]
    spec["image"] = FLIGHTS_IMAGE
    spec["master"] = {"resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}}}
    spec["trainer"]["entrypoint"] = (
        "python -c 'import time; from fit_flights import fit; push = fit.Model.push; "
        "fit.Model.push = lambda *all: (time.sleep(0.04), push(*all))[1]; fit.main()'"
    )
    spec["trainer"]["resources"]["requests"]["cpu"] = "400m"
    spec["pserver"]["resources"]["requests"]["cpu"] = "300m"
    return body


def test_a_pserver_moves_while_its_job_trains(tidying: RealCluster, tmp_path: Path) -> None:
    first, second = nodes(tidying)
    journal = Journal(tidying, tmp_path / "journal")
    for node, left in ((first, LEFT["first"]), (second, LEFT["second"])):
        fill(tidying, node, left)
    tidying.kubectl("cordon", second)
    tidying.kube.create(job())
    tidying.kube.wait_until(
        lambda: (len(pods(tidying, JOB)), sorted(where(tidying).values())) == (1, [first, first]),
        60,
        "two pservers run, and one trainer",
    )
    before = where(tidying)

    tidying.kubectl("uncordon", second)
    tidying.kube.wait_until(
        lambda: (len(pods(tidying, JOB)), sorted(where(tidying).values())) == (2, [first, second]),
        120,
        "one pserver runs on the other node, and two trainers",
    )
    after = where(tidying)
    assert len(before.keys() - after.keys()) == 1, "the other was left alone"
    assert {p["spec"]["nodeName"] for p in pods(tidying, JOB)} == {first}
    done = status(tidying, JOB)["dataset"]["done"]
    print(f"it moved after {done} records\n{events(tidying, JOB)}")

    tidying.kube.wait_until(lambda: status(tidying, JOB).get("phase") in {"Succeeded", "Failed"}, 240, "it ends")
    ended = status(tidying, JOB)
    assert (ended["phase"], ended.get("failures", 0)) == ("Succeeded", 0), ended
    assert "Moved" in events(tidying, JOB)
    report = journal.audit()
    print(report)
    assert_each_once(report)
    assert score(tidying, JOB) >= LEAST_AUC
    journal.remove()
