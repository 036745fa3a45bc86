"""A trainer that hangs, and a node that breaks whatever runs on it: found, named, replaced, and nobody else touched.

edl avoids nodes only in clusters of three or more, so these tests start a cluster of their own.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from edl.lifecycle.hung_trainers import REPLACED_AFTER_S
from tests.e2e.control_plane.versions import ControlPlaneError
from tests.real.cluster.images import BASE_IMAGE, ROOT, TRAINER_IMAGE
from tests.real.cluster.running import RealCluster
from tests.real.mission import (
    Journal,
    condition,
    events,
    names,
    pods,
    run_program,
    status,
    with_settings,
)
from tests.sandbox import broken_node
from tests.sandbox.broken_node import JOBS, WAIT_S, innocents, shared_node, trainers

Object = dict[str, Any]
JOB = "hangs"
PROGRAMS = (Path(__file__).parent / "programs" / "in_step.py", ROOT / "tests" / "worlds" / "in_step" / "lists.py")
BATCH, STEPS = 12, 2400
RECORDS = BATCH * STEPS
NAMED_WITHIN_S = 60.0
SLEEPS = "import time\nwhile True: time.sleep(3600)"
LEAST = 8


def in_step(folder: Path) -> Object:
    """Three trainers in step."""
    amounts = {"cpu": "200m", "memory": "96Mi"}
    return {
        "apiVersion": "paddlepaddle.org/v1",
        "kind": "TrainingJob",
        "metadata": {"name": JOB, "namespace": "default"},
        "spec": {
            "image": TRAINER_IMAGE,
            "fault_tolerant": True,
            "dataset": {"source": f"index:{RECORDS}"},
            "elasticity": {"globalBatch": BATCH},
            "trainer": {
                "entrypoint": "python in_step.py",
                "min-instance": 3,
                "max-instance": 3,
                "resources": {"requests": amounts, "limits": {"cpu": "1", "memory": "256Mi"}},
                "template": {"spec": {"terminationGracePeriodSeconds": 2}},
            },
            "volumes": [{"name": "shared", "hostPath": {"path": str(folder)}}],
            "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
        },
    }


@pytest.fixture
def hangs(three_nodes: RealCluster, tmp_path: Path) -> Iterator[Journal]:
    """The job, in step, and the volume of its journal."""
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o777)
    shared.chmod(0o777)
    journal = Journal(three_nodes, tmp_path / "journal")
    run_program(three_nodes, in_step(shared), *PROGRAMS)
    three_nodes.kube.wait_until(lambda: done(three_nodes) > 0, 120, "it trains")
    three_nodes.kube.wait_until(lambda: len(pods(three_nodes, JOB)) == 3, 60, "three trainers run")
    yield journal
    three_nodes.kubectl("delete", f"tj/{JOB}", timeout_s=60)
    three_nodes.kubectl("delete", f"configmap/{JOB}")
    journal.remove()


def done(cluster: RealCluster) -> int:
    """How many records are done."""
    return int(status(cluster, JOB).get("dataset", {}).get("done", 0))


def is_named(cluster: RealCluster, pod: Object) -> bool:
    """Whether the status says which trainer hangs, and where."""
    found = condition(cluster, JOB, "Degraded")
    where = f"{pod['metadata']['name']} on node {pod['spec']['nodeName']} hangs: its process is stopped"
    return found.get("reason") == "TrainerHangs" and where in str(found.get("message"))


def by_uid(cluster: RealCluster) -> dict[str, int]:
    """How often the container of each trainer was started again, by the uid of its pod."""
    return {p["metadata"]["uid"]: p["status"]["containerStatuses"][0]["restartCount"] for p in pods(cluster, JOB)}


def test_a_stopped_trainer_is_named_and_replaced_and_the_others_train_on(
    three_nodes: RealCluster, hangs: Journal
) -> None:
    victim = pods(three_nodes, JOB)[1]
    name, uid = victim["metadata"]["name"], victim["metadata"]["uid"]
    before = by_uid(three_nodes)
    three_nodes.stop_container(name)
    stopped_s, stopped_at = time.monotonic(), done(three_nodes)
    three_nodes.kube.wait_until(lambda: is_named(three_nodes, victim), NAMED_WITHIN_S, f"the job names {name}")
    named_s = time.monotonic() - stopped_s
    message = condition(three_nodes, JOB, "Degraded")["message"]
    three_nodes.kube.wait_until(lambda: done(three_nodes) > stopped_at + 10 * BATCH, 120, "the others train on")
    three_nodes.kube.wait_until(
        lambda: uid not in by_uid(three_nodes) and len(by_uid(three_nodes)) == 3,
        REPLACED_AFTER_S + 60,
        "another trainer is in its place",
        poll_s=0.5,
    )
    replaced_s = time.monotonic() - stopped_s
    print(f"named after {named_s:.1f} s: {message}\nreplaced after {replaced_s:.1f} s\n{events(three_nodes, JOB)}")
    assert replaced_s >= REPLACED_AFTER_S
    after = by_uid(three_nodes)
    others = {other: count for other, count in before.items() if other != uid}
    assert {other: after.get(other) for other in others} == others, "the innocent trainers run as before"
    three_nodes.kube.wait_until(lambda: not condition(three_nodes, JOB, "Degraded"), 60, "nothing is wrong any more")

    three_nodes.kube.wait_until(
        lambda: status(three_nodes, JOB).get("phase") in {"Succeeded", "Failed"}, 300, "it ends"
    )
    assert status(three_nodes, JOB)["phase"] == "Succeeded", status(three_nodes, JOB)
    report = hangs.audit()
    assert report["ok"], report["problems"]
    (epoch,) = report["epochs"]
    assert (epoch["done"], epoch["total"]) == (RECORDS, RECORDS)
    said = three_nodes.kubectl("logs", sorted(names(pods_of(three_nodes)))[0])
    assert f"the model has {RECORDS} records, {RECORDS} of them distinct" in said, said


def pods_of(cluster: RealCluster) -> list[Object]:
    """The trainers' pods, which are kept for their logs."""
    return cluster.kube.list("pods", "default", labels=f"paddlepaddle.org/job={JOB},paddlepaddle.org/role=trainer")


def sleeper(name: str) -> Object:
    """A job of trainers that do nothing for ever."""
    job = broken_node.sleeper(name, SLEEPS, cpu="400m")
    job["spec"]["image"] = TRAINER_IMAGE
    job["spec"]["trainer"]["template"]["spec"]["terminationGracePeriodSeconds"] = 2
    return job


@contextmanager
def breaking(cluster: RealCluster, node: str) -> Iterator[None]:
    """SIGKILL each trainer that runs on the node, as broken hardware would, while the context lasts."""
    stop = threading.Event()

    def kill() -> None:
        while not stop.wait(0.5):
            for pod in trainers(cluster.kube, node):
                with suppress(ControlPlaneError, KeyError, StopIteration):  # it has ended by itself
                    cluster.kill_container(pod["metadata"]["name"])

    thread = threading.Thread(target=kill, name="breaks a node")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.fixture
def avoiding(three_nodes: RealCluster) -> Iterator[RealCluster]:
    """The cluster with a controller that avoids nodes which break trainers of two jobs."""
    with_settings(three_nodes, "EDL_AVOID_NODES_AFTER=2", "EDL_AVOID_NODES_FOR_S=30")
    yield three_nodes
    three_nodes.kubectl("delete", "tj", "--all", timeout_s=90)
    with_settings(three_nodes, "EDL_AVOID_NODES_AFTER-", "EDL_AVOID_NODES_FOR_S-")


def test_a_node_that_kills_trainers_is_avoided_until_a_trainer_does_well_there(avoiding: RealCluster) -> None:
    kube = avoiding.kube
    for name in JOBS:
        kube.create(sleeper(name))
    kube.wait_until(lambda: shared_node(kube, LEAST), WAIT_S, "both jobs share a node")
    node = shared_node(kube, LEAST)
    before, began_s = innocents(kube, node), time.monotonic()
    with breaking(avoiding, node):
        broken_node.avoid(kube, node, before, lambda: serve_on(avoiding, node))
        print(f"{node} is avoided after {time.monotonic() - began_s:.1f} s; {len(before)} innocent trainers run on")
        for name in JOBS:
            print(condition(avoiding, name, "Degraded")["message"], status(avoiding, name).get("failures"))
    kube.wait_until(lambda: len(trainers(kube, node)) > 1, WAIT_S, "the node is used again")
    kube.wait_until(
        lambda: not any(broken_node.is_avoided_by(kube, name, node) for name in JOBS), WAIT_S, "no job avoids it"
    )
    print(f"{node} is used again after {time.monotonic() - began_s:.1f} s")
    assert before <= innocents(kube, node)


def serve_on(cluster: RealCluster, node: str) -> None:
    """Start a serving pod on that node."""
    chosen = json.dumps({"spec": {"nodeName": node, "terminationGracePeriodSeconds": 0}})
    cluster.kubectl("run", "web", "--image", BASE_IMAGE, "--overrides", chosen, "--command", "--", "sleep", "3600")
