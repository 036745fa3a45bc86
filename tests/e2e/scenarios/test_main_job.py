"""The main path of a user: create, watch, describe and delete a job."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.kube import KubeError
from tests.e2e.worlds import facts
from tests.e2e.worlds.harness import ROOT, World
from tests.e2e.worlds.jobs import Object, training_job
from tests.e2e.worlds.pod_log import PodLog

EXAMPLE = ROOT / "example" / "examplejob.yaml"
# kube-controller-manager looks for new kinds every 30 s, and collects what a job owned only once it knows the kind.
GC_LEARNS_OF_A_NEW_KIND_S = 90.0


@contextmanager
def watching_jobs(here: World, file: Path) -> Iterator[None]:
    """`kubectl get tj -w`, writing to a file while the block runs."""
    command = [str(here.kube.kubectl_path), "--kubeconfig", str(here.kube.kubeconfig), "get", "tj", "-w"]
    with file.open("wb") as out:
        watch = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        try:
            yield
        finally:
            watch.terminate()
            watch.wait()


@pytest.mark.cluster("kubectl")
def test_the_original_example_runs_grows_tells_its_story_and_leaves_nothing(
    control_plane: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    here = World(control_plane(mix="small", pod_delete_s=1.0))
    watched = tmp_path / "watch"
    with here.controller, watching_jobs(here, watched):
        here.kube.kubectl("create", "-f", str(EXAMPLE))
        here.kube.wait_until(lambda: here.running("example") == 6, 30, "trainers grow from 2 to 6")
        here.kube.wait_until(lambda: phase(here) == "Running", 10, "the job's phase is Running")
        here.kube.wait_until(lambda: " Running " in watched.read_text(), 10, "the watch shows it")
        lines = watched.read_text().splitlines()
        assert lines[0].split() == ["NAME", "PHASE", "MIN", "MAX", "DESIRED", "READY", "REASON", "AGE"]
        phases = [line.split()[1] for line in lines[1:] if len(line.split()) > 2]
        assert phases.index("Pending") < phases.index("Running")
        assert lines[-1].split()[:6] == ["example", "Running", "2", "6", "6", "6"]
        story = here.kube.kubectl("describe", "tj", "example")
        for word in ("Admitted", "ScaledUp", "2 -> 6"):
            assert word in story
        assert "6 of 6" in here.kube.get("tj", "example")["status"]["explanation"]
        roles = {(p["metadata"]["labels"][facts.ROLE_LABEL]): p["spec"]["priorityClassName"] for p in here.pods()}
        assert roles.keys() == {"master", "pserver", "trainer"}
        here.kube.kubectl("delete", "tj", "example", "--wait=false")
        here.kube.wait_until(lambda: not left_over(here), GC_LEARNS_OF_A_NEW_KIND_S, "nothing of the job is left")


def phase(here: World, name: str = "example") -> str:
    """The phase in the job's status."""
    return str((here.kube.get("tj", name).get("status") or {}).get("phase", ""))


def left_over(here: World) -> list[str]:
    """Everything in the namespace that a job may have left."""
    return [
        f"{kind}/{item['metadata']['name']}"
        for kind in ("trainingjobs", "pods", "services", "secrets", "persistentvolumeclaims", "endpointslices")
        for item in here.kube.list(kind, "default")
        if item["metadata"]["name"] != "kubernetes"
    ]


def test_base_and_surplus_trainers_have_the_classes_that_serving_preempts_in_order(
    control_plane: Callable[..., ControlPlane],
) -> None:
    here = World(control_plane(mix="small", pod_delete_s=1.0))
    with here.controller:
        here.submit(training_job("a", min_trainers=2, max_trainers=5))
        here.kube.wait_until(lambda: here.running("a") == 5, 30, "five trainers run")
        classes = {
            p["metadata"]["name"]: (p["spec"]["priorityClassName"], p["spec"]["priority"]) for p in here.pods()
        }
        assert classes == {
            "a-master-0": ("edl-core", -1),
            **{f"a-trainer-{i}": ("edl-training", -5) for i in range(2)},
            **{f"a-trainer-{i}": ("edl-surplus", -100) for i in range(2, 5)},
        }
        assert all(p["spec"]["preemptionPolicy"] == "Never" for p in here.pods())


def test_scale_pins_the_count_and_zero_gives_it_back(control_plane: Callable[..., ControlPlane]) -> None:
    here = World(control_plane(mix="small", pod_delete_s=1.0))
    with here.controller, PodLog(here.kube) as log:
        here.submit(training_job("a", min_trainers=2, max_trainers=6))
        here.kube.wait_until(lambda: here.running("a") == 6, 30, "it grows to its maximum")
        here.kube.scale("tj", "a", 3)
        here.kube.wait_until(lambda: here.counts() == {"a": 3}, 20, "it is pinned to three")
        surplus = {"a-trainer-3", "a-trainer-4", "a-trainer-5"}
        here.kube.wait_until(lambda: names(log.ended_trainers()) >= surplus, 10, "the surplus goes")
        assert names(log.ended_trainers()) == surplus, "and nothing else"
        here.kube.scale("tj", "a", 0)
        here.kube.wait_until(lambda: here.running("a") == 6, 30, "it grows again")


def test_suspend_ends_every_pod_and_resume_brings_the_job_back(control_plane: Callable[..., ControlPlane]) -> None:
    here = World(control_plane(mix="small", pod_delete_s=1.0))
    with here.controller:
        here.submit(training_job("a", min_trainers=2, max_trainers=4))
        here.kube.wait_until(lambda: here.running("a") == 4, 30, "it runs")
        here.kube.patch("tj", "a", {"spec": {"suspend": True}})
        here.kube.wait_until(lambda: not here.pods(), 20, "it has no pods")
        here.kube.wait_until(lambda: phase(here, "a") == "Suspended", 10, "it says so")
        here.kube.patch("tj", "a", {"spec": {"suspend": False}})
        here.kube.wait_until(lambda: here.running("a") == 4, 30, "it runs again")


def test_a_bad_job_says_what_is_wrong_and_the_others_run(control_plane: Callable[..., ControlPlane]) -> None:
    here = World(control_plane(mix="small", pod_delete_s=1.0))
    refused = training_job("refused", min_trainers=4, max_trainers=2)
    with here.controller:
        here.submit(training_job("good", min_trainers=1, max_trainers=2))
        here.submit(training_job("huge", min_trainers=1, max_trainers=2, memory="9999999Pi"))
        with pytest.raises(KubeError, match="min-instance"):
            here.kube.create(refused)
        here.kube.wait_until(lambda: here.running("good") == 2, 30, "the good one runs")
        here.kube.wait_until(lambda: reason(here, "huge") == "Unschedulable", 15, "the impossible one says so")
        assert "memory" in here.kube.get("tj", "huge")["status"]["explanation"]


def reason(here: World, name: str) -> str:
    """The reason in the job's status."""
    return str((here.kube.get("tj", name).get("status") or {}).get("reason", ""))


def names(pods: list[Object]) -> set[str]:
    """The names of some objects."""
    return {pod["metadata"]["name"] for pod in pods}
