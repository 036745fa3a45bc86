"""Queue objects: a team borrows what another leaves, gives it back, and sees both in the status."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from edl.api.crd import render_queue_crd
from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.kube import KubeError
from tests.e2e.control_plane.nodes import NodeSpec
from tests.e2e.worlds.harness import World
from tests.e2e.worlds.jobs import training_job
from tests.worlds.hostile.queues import INVALID

Object = dict[str, Any]
WITHIN_S = 90.0
NODES = tuple(NodeSpec(f"queue-{i}", {"cpu": "8", "memory": "32Gi", "pods": "110"}) for i in range(2))
EDL = Path(sys.executable).with_name("edl")
DEFINITION = "queues.paddlepaddle.org"


@pytest.fixture
def here(control_plane: Callable[..., ControlPlane]) -> World:
    """Two nodes of 8 cpus, and a controller that does not run yet."""
    return World(control_plane(nodes=NODES))


@pytest.fixture
def running(here: World) -> Iterator[World]:
    with here.controller:
        yield here


def queue(name: str, cpu: str, **spec: Any) -> Object:
    return {
        "apiVersion": "paddlepaddle.org/v1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"nominalQuota": {"cpu": cpu}, **spec},
    }


def status(here: World, name: str) -> Object:
    found: Object = here.kube.get(DEFINITION, name).get("status") or {}
    return found


def wait_running(here: World, job: str, count: int) -> None:
    here.kube.wait_until(lambda: here.running(job) == count, WITHIN_S, f"job {job} has {count} trainers")


def wait_status(here: World, name: str, **wanted: object) -> None:
    """Wait until the status of a queue has these values."""
    here.kube.wait_until(
        lambda: wanted.items() <= status(here, name).items(), WITHIN_S, f"the status of queue {name} has {wanted}"
    )


def test_the_api_server_refuses_what_the_controller_refuses(here: World) -> None:
    accepted = []
    for case, (body, _) in INVALID.items():
        if case not in {"another version", "no spec"}:
            with suppress(KubeError):
                accepted.append((case, here.kube.create(body)["metadata"]["name"]))
    assert accepted == []
    assert here.kube.create(queue("blue", "1"))["spec"]["reclaim"] == "Any"


def test_a_queue_borrows_gives_back_and_follows_a_change(running: World) -> None:
    here = running
    for name in ("blue", "green"):
        here.kube.create(queue(name, "7250m"))
    here.submit(training_job("ours", min_trainers=1, max_trainers=12, queue="blue"))
    wait_running(here, "ours", 12)
    wait_status(here, "blue", borrowed={"cpu": "5"}, share={"cpu": "12250m"}, running=1, pending=0, message="")
    here.submit(training_job("theirs", min_trainers=2, max_trainers=12, queue="green"))
    wait_running(here, "theirs", 7)
    wait_running(here, "ours", 7)
    wait_status(here, "green", used={"cpu": "7250m"}, borrowed={}, running=1)
    account = here.kube.get("trainingjobs", "ours")["status"]
    assert account["reason"] == "QuotaReached"
    here.kube.patch(DEFINITION, "blue", {"spec": {"nominalQuota": {"cpu": "4250m"}, "borrowingLimit": {"cpu": "1"}}})
    wait_running(here, "ours", 4)
    wait_status(here, "blue", observedGeneration=2, used={"cpu": "4250m"})
    here.withdraw("theirs")
    wait_running(here, "ours", 5)
    wait_status(here, "blue", message="cpu: 4.25 cores of its own and 1 core borrowed; its borrowing limit is 1 core")
    here.kube.delete(DEFINITION, "blue")
    wait_running(here, "ours", 12)


def edl(*arguments: str) -> str:
    """What edl prints."""
    done = subprocess.run([EDL, *arguments], capture_output=True, text=True, check=False, timeout=WITHIN_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.cluster("kubectl")
def test_kubectl_explain_and_plan_say_who_has_the_room(running: World, tmp_path: Path) -> None:
    here = running
    here.kube.create(queue("blue", "4250m"))
    here.kube.create(queue("green", "10250m", weight=2))
    here.submit(training_job("theirs", min_trainers=8, max_trainers=8, queue="green"))
    here.submit(training_job("ours", min_trainers=4, max_trainers=12, queue="blue"))
    wait_running(here, "theirs", 8)
    wait_running(here, "ours", 6)
    here.submit(training_job("late", min_trainers=2, max_trainers=2, queue="blue"))
    wait_status(here, "blue", borrowed={"cpu": "2"}, running=1, pending=1)

    head, blue, green = here.kube.kubectl("get", "queues").splitlines()
    assert head.split() == ["NAME", "WEIGHT", "USED", "BORROWED", "SHARE", "RUNNING", "PENDING", "AGE"]
    row = re.compile(r" {2,}")
    assert row.split(blue)[:7] == ["blue", "1", "6.25 cores", "2 cores", "6.25 cores", "1", "1"]
    assert row.split(green)[:7] == ["green", "2", "8.25 cores", "-", "8.25 cores", "1", "0"]

    live = edl("explain", "ours", "--kubeconfig", str(here.plane.kubeconfig))
    assert "queue blue uses 6.25 cores of its share of 6.25 cores" in live
    assert "4.25 cores of its own and 2 cores borrowed; queue green has 8.25 cores" in live

    saved = tmp_path / "now.yaml"
    saved.write_text(here.kube.kubectl("get", "nodes,pods,tj,priorityclasses,queues", "-A", "-o", "yaml"))
    planned = json.loads(edl("plan", "-f", str(saved), "-o", "json"))["decisions"]
    found = {one["name"]: (one["current"], one["target"], one["reason"]) for one in planned}
    assert found == {
        "ours": (6, 6, "QuotaReached"),
        "theirs": (8, 8, "AtMax"),
        "late": (0, 0, "QuotaReached"),
    }
    assert edl("explain", "ours", "-f", str(saved)).splitlines()[:2] == live.splitlines()[:2]


def test_a_cluster_without_the_resource_is_decided_about_and_may_get_it_later(here: World) -> None:
    here.kube.delete("customresourcedefinitions", DEFINITION)
    with here.controller:
        here.submit(training_job("ours", min_trainers=1, max_trainers=6, queue="blue"))
        wait_running(here, "ours", 6)
        here.kube.apply(render_queue_crd())
        here.kube.wait_until(lambda: here.kube.list(DEFINITION) == [], WITHIN_S, "the API server serves queues")
        here.kube.create(queue("blue", "3250m"))
        wait_running(here, "ours", 3)
