"""TrainingJobs whose minimum set is a PodGroup that the real Volcano schedules, in the queue of the job."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.e2e.control_plane.nodes import NodeSpec
from tests.e2e.worlds import facts
from tests.e2e.worlds.jobs import training_job
from tests.volcano.scene import VOLCANO_QUEUES, WITHIN_S, Scene, machine

pytestmark = pytest.mark.cluster("Volcano runs on a real control plane only")

Start = Callable[[Sequence[NodeSpec]], Scene]


def queue(name: str, **capability: str) -> dict[str, object]:
    """A queue of Volcano that may hold so much."""
    spec = {"weight": 1, "capability": capability}
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": spec,
    }


def test_the_minimum_set_starts_whole_in_the_queue_of_the_job(scene: Start) -> None:
    here = scene([machine("one", 8)])
    here.kube.create(queue("research", cpu="1"))
    world = here.with_edl()
    with world.controller:
        job = training_job("gang", min_trainers=3, max_trainers=5, schedulerName="volcano", queue="research")
        world.submit(job)
        here.wait(lambda: "minAvailable" in here.waits_for("gang"), "the PodGroup waits: its queue may hold one cpu")
        group = here.group("gang")["spec"]
        trainers = facts.trainers(world.pods(), "gang")
        assert (group["minMember"], group["queue"]) == (4, "research"), "three trainers and the master"
        assert int(group["minResources"]["cpu"].removesuffix("m")) >= 3000
        assert group["priorityClassName"] == "edl-training"
        assert not any(pod["spec"].get("nodeName") for pod in trainers), "one would fit, and none starts"

        here.kube.patch(VOLCANO_QUEUES, "research", {"spec": {"capability": {"cpu": "8"}}})
        here.kube.wait_until(lambda: world.running("gang") == 5, WITHIN_S, "all run, and the surplus follows")
        binders = here.kube.list("events", "default", fields="reason=Scheduled")
        assert {event["source"]["component"] for event in binders} == {"volcano"}
