"""Pods whose owner or whose labels somebody takes away: a job has its own pods, all of them and no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.worlds import facts
from tests.e2e.worlds.harness import World
from tests.e2e.worlds.jobs import training_job


def degraded(here: World, job: str) -> str:
    conditions = here.kube.get("tj", job).get("status", {}).get("conditions") or []
    return next((c["reason"] for c in conditions if c["type"] == "Degraded" and c["status"] == "True"), "")


def owners(here: World) -> set[str]:
    return {ref["uid"] for pod in here.pods() for ref in pod["metadata"].get("ownerReferences") or []}


def test_a_job_that_is_created_anew_adopts_no_pods_of_the_former_one(
    control_plane: Callable[..., ControlPlane],
) -> None:
    here = World(control_plane(mix="small", pod_delete_s=1.0))
    with here.controller:
        here.submit(training_job("live", min_trainers=1, max_trainers=2))
        here.kube.wait_until(lambda: here.running("live") == 2, 40, "the job runs")
        here.kube.kubectl("delete", "tj", "live", "--cascade=orphan")
        here.kube.wait_until(lambda: not owners(here), 20, "its pods have no owner any more")
        left = {pod["metadata"]["uid"] for pod in here.pods()}
        here.kube.create(training_job("live", min_trainers=1, max_trainers=2, cpu="2"))
        here.kube.wait_until(lambda: degraded(here, "live") == "NameTaken", 20, "the job says whose names it lacks")
        status: dict[str, Any] = here.kube.get("tj", "live")["status"]
        assert status["trainer"]["ready"] == 0
        assert status["phase"] == "Pending"
        assert {pod["metadata"]["uid"] for pod in here.pods()} == left, "nothing was created or ended"
        here.kube.kubectl("delete", "pods,services", "-l", "paddlepaddle.org/job=live")
        here.kube.wait_until(lambda: here.running("live") == 2, 60, "it runs with pods of its own")
        assert owners(here) == {here.kube.get("tj", "live")["metadata"]["uid"]}
        here.withdraw("live")
        here.kube.wait_until(lambda: not facts.trainers(here.pods(), "live"), 40, "its pods go with it")


def test_a_trainer_without_its_labels_stays_a_trainer_of_its_job(control_plane: Callable[..., ControlPlane]) -> None:
    here = World(control_plane(mix="small", pod_delete_s=1.0))
    with here.controller:
        here.submit(training_job("a", min_trainers=1, max_trainers=5))
        here.kube.wait_until(lambda: here.running("a") == 5, 40, "the job has its maximum")
        before = {pod["metadata"]["uid"] for pod in here.pods()}
        changed = ("--overwrite", "paddlepaddle.org/job-", "paddlepaddle.org/role=master")
        here.kube.kubectl("label", "pod", "a-trainer-1", *changed)
        here.kube.patch("tj", "a", {"spec": {"trainer": {"max-instance": 4}}})
        here.kube.wait_until(lambda: len(here.pods()) == len(before) - 1, 20, "the job gives one trainer back")
        here.kube.patch("tj", "a", {"spec": {"trainer": {"max-instance": 5}}})
        here.kube.wait_until(lambda: here.kube.get("tj", "a")["status"]["trainer"]["ready"] == 5, 20, "all count")
        assert len(here.pods()) == len(before)
        assert "a-trainer-1" in {pod["metadata"]["name"] for pod in here.pods()}
        assert degraded(here, "a") == ""
