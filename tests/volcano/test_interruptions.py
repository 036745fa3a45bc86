"""What disturbs the resize of a Volcano Job: killed controllers, a job that completes, somebody else's count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.e2e.control_plane.kube import KubeError
from tests.e2e.control_plane.nodes import NodeSpec
from tests.e2e.worlds.jobs import serving
from tests.volcano.elastic import JOB, NODES, PSERVERS, TRAINERS, elastic_job, events
from tests.volcano.scene import VOLCANO_JOBS, Scene

pytestmark = pytest.mark.cluster("Volcano runs on a real control plane only")

Object = dict[str, Any]
Start = Callable[[Sequence[NodeSpec]], Scene]


def replicas(here: Scene) -> int:
    """How many trainers the job asks for."""
    return next(int(task["replicas"]) for task in here.job(JOB)["spec"]["tasks"] if task["name"] == "trainer")


def set_replicas(here: Scene, count: int) -> None:
    """Set the count as another autoscaler would."""
    index = next(i for i, task in enumerate(here.job(JOB)["spec"]["tasks"]) if task["name"] == "trainer")
    here.kube.patch(VOLCANO_JOBS, JOB, [{"op": "replace", "path": f"/spec/tasks/{index}/replicas", "value": count}])


def test_controllers_that_die_in_mid_resize_end_it_when_they_are_back_and_nothing_is_lost(scene: Start) -> None:
    here = scene(NODES)
    with elastic_job(here, 1, 8) as world:
        before = here.running(JOB)

        here.volcano.stop_controllers()
        here.kube.create(serving(replicas=6, cpu="1", memory="1Gi"))
        here.wait(lambda: replicas(here) == 4, "edl lowers the count to what is left of 12 cpus")
        assert here.running(JOB) == before, "nobody deletes a pod meanwhile, and edl leaves that to Volcano"
        here.volcano.start_controllers()
        here.wait(lambda: world.ready_serving() == 6, "the serving pods are ready")
        here.wait(lambda: len(here.running(TRAINERS)) == 4, "the shrink is done")
        after = here.running(JOB)
        assert after.items() <= before.items(), "nobody started again"
        assert len(here.running(PSERVERS)) == 2

        here.volcano.stop_controllers()
        here.kube.scale("deployments", "web", 0)
        here.wait(lambda: replicas(here) == 8, "edl raises the count")
        assert here.running(JOB) == after
        here.volcano.start_controllers()
        here.wait(lambda: len(here.running(TRAINERS)) == 8, "the growth is done")
        assert after.items() <= here.running(JOB).items(), "those that ran run on"
        assert (here.restarts(JOB), here.phase(JOB)) == (0, "Running")


def test_a_job_that_completes_in_mid_resize_is_completed_and_leaves_its_room(scene: Start) -> None:
    here = scene(NODES)
    with elastic_job(here, 1, 8) as world:
        here.kube.create(serving(replicas=2))
        here.wait(lambda: replicas(here) < 8, "edl lowers the count")
        here.wait(lambda: is_completed(here), "its trainers end with success, and it is completed")
        last = replicas(here)
        here.wait(lambda: not here.pods(PSERVERS), "its pservers are gone")
        here.wait(lambda: world.ready_serving() == 2, "the serving pods are ready")
        assert replicas(here) == last, "edl sets no count of a job that has ended"
        assert here.restarts(JOB) == 0


def test_a_count_that_somebody_else_sets_is_left_to_them_and_given_back(scene: Start) -> None:
    here = scene(NODES)
    with elastic_job(here, 1, 6):
        set_replicas(here, 7)
        here.wait(lambda: "NotResized" in events(here, JOB), "an event names the other writer")
        assert "set replicas of task trainer to 7 after edl had set it to 6" in events(here, JOB)["NotResized"]
        here.wait(lambda: len(here.running(TRAINERS)) == 7, "the other writer has its way")
        annotate(here, {"paddlepaddle.org/last-resize": None})
        here.wait(lambda: len(here.running(TRAINERS)) == 6, "the count is given back to edl")
        assert here.restarts(JOB) == 0
        with pytest.raises(KubeError, match="404"):
            here.kube.scale(VOLCANO_JOBS, JOB, 3)  # what a HorizontalPodAutoscaler would write


def test_annotations_that_contradict_each_other_are_named_and_the_job_keeps_its_size(scene: Start) -> None:
    here = scene(NODES)
    with elastic_job(here, 5, 3, grown=2):
        here.wait(lambda: "NotResized" in events(here, JOB), "an event says why")
        assert "min-instance 5 exceeds paddlepaddle.org/max-instance 3" in events(here, JOB)["NotResized"]
        assert len(here.running(TRAINERS)) == 2, "it runs as it was published"
        annotate(here, {"paddlepaddle.org/max-instance": "6"})
        here.wait(lambda: len(here.running(TRAINERS)) == 6, "the contradiction is gone")


def annotate(here: Scene, annotations: dict[str, str | None]) -> None:
    here.kube.patch(VOLCANO_JOBS, JOB, {"metadata": {"annotations": annotations}})


def is_completed(here: Scene) -> bool:
    """True once the job is completed; each trainer that runs ends with success."""
    for name in here.running(TRAINERS):
        here.kube.annotate("pods", name, exit_code="0")
    return here.phase(JOB) == "Completed"
