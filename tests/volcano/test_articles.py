"""The manifest of Volcano's CTR article, applied as published, and the pair that the article compares it with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
import yaml

from tests.e2e.control_plane.nodes import NodeSpec
from tests.volcano.scene import MANIFESTS, Scene, machine

pytestmark = pytest.mark.cluster("Volcano runs on a real control plane only")

Object = dict[str, Any]
Start = Callable[[Sequence[NodeSpec]], Scene]
CTR = MANIFESTS / "ctr-volcano.yaml"
ALL_FOUR = {f"ctr-volcano-{task}-{index}" for task in ("pserver", "trainer") for index in range(2)}
TOO_SMALL, SECOND = machine("small", 3), machine("second", 4)


def test_the_published_manifest_starts_whole_restarts_whole_and_completes(scene: Start) -> None:
    here = scene([TOO_SMALL])
    here.kube.kubectl("apply", "-f", str(CTR))
    here.wait(lambda: "4 minAvailable" in here.waits_for("ctr-volcano"), "the PodGroup says why it waits")
    assert here.pods("ctr-volcano") == {}, "three of the four would fit, and none starts"

    here.plane.add_nodes([SECOND])
    first = here.wait(lambda: whole(here), "all four run")
    here.kube.delete("pods", "ctr-volcano-trainer-1")
    second = here.wait(lambda: whole(here, without=first.values()), "all four are new ones")
    assert here.restarts("ctr-volcano") >= 1

    here.kube.delete("pods", "ctr-volcano-pserver-0")
    here.wait(lambda: whole(here, without={*first.values(), *second.values()}), "a lost pserver restarts all, too")

    here.wait(lambda: is_completed(here), "the job is completed with its trainers")
    here.wait(lambda: not here.pods("ctr-volcano-pserver"), "its pservers are gone")
    left = here.pods("ctr-volcano")
    assert {name: pod["status"]["phase"] for name, pod in left.items()} == {
        "ctr-volcano-trainer-0": "Succeeded",
        "ctr-volcano-trainer-1": "Succeeded",
    }


def test_the_pair_without_volcano_starts_in_part_and_leaves_its_pservers(scene: Start) -> None:
    here = scene([TOO_SMALL])
    for body in native_pair():
        here.kube.create(body)
    here.wait(
        lambda: len(here.running("fluid-ctr")) == 3, "three of four pods run: a part of a job that cannot train"
    )
    waiting = [name for name, pod in here.pods("fluid-ctr").items() if pod["status"]["phase"] == "Pending"]
    assert len(waiting) == 1

    here.plane.add_nodes([SECOND])
    first = here.wait(lambda: four(here), "the fourth runs as well")
    lost = next(name for name in first if "trainer" in name)
    here.kube.delete("pods", lost)
    second = here.wait(lambda: four(here, other_than=first), "another pod takes its place")
    assert len(first.keys() & second.keys()) == 3, "the other three know nothing of it"

    for name in second:
        if "trainer" in name:
            here.kube.annotate("pods", name, exit_code="0")
    here.wait(lambda: is_complete(here), "the Job of the trainers is complete")
    assert len(here.running("fluid-ctr-pserver")) == 2, "nobody ends the pservers"


def whole(here: Scene, without: Iterable[str] = ()) -> dict[str, str]:
    running = here.running("ctr-volcano")
    return running if running.keys() == ALL_FOUR and not set(without) & set(running.values()) else {}


def is_completed(here: Scene) -> bool:
    """True once the job is completed; each trainer that runs ends with success."""
    for name in here.running("ctr-volcano-trainer"):
        here.kube.annotate("pods", name, exit_code="0")
    return here.phase("ctr-volcano") == "Completed"


def four(here: Scene, other_than: dict[str, str] | None = None) -> dict[str, str]:
    running = here.running("fluid-ctr")
    return running if len(running) == 4 and running != other_than else {}


def is_complete(here: Scene) -> bool:
    conditions = (here.kube.get("jobs.batch", "fluid-ctr-trainer").get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Complete" and one["status"] == "True" for one in conditions)


def native_pair() -> list[Object]:
    """A ReplicaSet of pservers and a Job of trainers with the pods of the published manifest."""
    tasks = {task["name"]: task["template"] for task in yaml.safe_load(CTR.read_text())["spec"]["tasks"]}
    pserver, trainer = tasks["pserver"], tasks["trainer"]
    pserver["spec"]["restartPolicy"] = "Always"  # a ReplicaSet takes no other
    labels = pserver["metadata"]["labels"]
    replicas = {"replicas": 2, "selector": {"matchLabels": labels}, "template": pserver}
    names = ("fluid-ctr-pserver", "fluid-ctr-trainer")
    metadata = [{"name": name, "namespace": "default"} for name in names]
    return [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata[0], "spec": replicas},
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": metadata[1],
            "spec": {"parallelism": 2, "completions": 2, "template": trainer},
        },
    ]
