"""`batch/v1` Jobs that ask to be resized, beside TrainingJobs and serving; their own controller makes the pods."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.kube import KubeError
from tests.e2e.control_plane.nodes import NodeSpec
from tests.e2e.worlds import facts
from tests.e2e.worlds.harness import World
from tests.e2e.worlds.jobs import batch_job, serving, training_job

Object = dict[str, Any]
WITHIN_S = 90.0
NODES = tuple(NodeSpec(f"batch-{i}", {"cpu": "8", "memory": "32Gi", "pods": "110"}) for i in range(2))


@pytest.fixture
def here(control_plane: Callable[..., ControlPlane]) -> Iterator[World]:
    """Two nodes of 8 cpus, and a controller that runs."""
    world = World(control_plane(nodes=NODES))
    with world.controller:
        yield world


def pods_of(here: World, name: str) -> list[Object]:
    """The pods of a Job that run and are not being deleted."""
    labels = f"batch.kubernetes.io/job-name={name}"
    return [pod for pod in here.kube.list("pods", "default", labels=labels) if facts.is_running(pod)]


def wait_count(here: World, name: str, count: int) -> None:
    """Wait until a Job asks for so many pods and has them."""

    def holds() -> bool:
        job = here.kube.get("jobs.batch", name)
        return bool(job["spec"]["parallelism"] == count == len(pods_of(here, name)))

    here.kube.wait_until(holds, WITHIN_S, f"Job {name} has {count} pods")


def reasons(here: World, name: str) -> dict[str, str]:
    """The last message of each event of edl on a Job, by reason."""
    found = here.kube.list("events", "default", fields=f"involvedObject.kind=Job,involvedObject.name={name}")
    return {e["reason"]: e["message"] for e in found if e["source"].get("component") == "edl-controller"}


def annotate(here: World, name: str, annotations: dict[str, str | None]) -> None:
    here.kube.patch("jobs.batch", name, {"metadata": {"annotations": annotations}})


def parallelism(here: World, name: str) -> int:
    return int(here.kube.get("jobs.batch", name)["spec"]["parallelism"])


def is_complete(here: World, name: str) -> bool:
    conditions = (here.kube.get("jobs.batch", name).get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Complete" and one["status"] == "True" for one in conditions)


def failures(here: World, name: str) -> int:
    return int((here.kube.get("jobs.batch", name).get("status") or {}).get("failed") or 0)


def test_a_job_grows_yields_to_serving_and_grows_again(here: World) -> None:
    here.kube.create(batch_job("train", parallelism=2, low=2, high=12))
    wait_count(here, "train", 12)
    here.kube.create(serving(replicas=4))
    here.kube.wait_until(lambda: here.ready_serving() == 4, WITHIN_S, "4 serving pods are ready")
    here.kube.wait_until(lambda: 2 <= len(pods_of(here, "train")) <= 4, WITHIN_S, "the Job has given 8 cpus")
    assert "ServingNeedsRoom" in reasons(here, "train")
    here.kube.scale("deployments", "web", 0)
    wait_count(here, "train", 12)
    assert failures(here, "train") == 0, "a resize is no failure"


def test_a_job_and_a_training_job_share_fairly(here: World) -> None:
    here.kube.create(batch_job("train", parallelism=16, low=1, high=16))
    wait_count(here, "train", 16)
    here.submit(training_job("ours", min_trainers=1, max_trainers=16, elasticity={"cooldownSeconds": 0}))
    here.kube.wait_until(lambda: abs(here.running("ours") - 8) <= 1, WITHIN_S, "the TrainingJob has its share")
    here.kube.wait_until(lambda: abs(len(pods_of(here, "train")) - 8) <= 1, WITHIN_S, "and the Job has its own")
    here.withdraw("ours")
    wait_count(here, "train", 16)
    assert failures(here, "train") == 0


def test_annotations_that_contradict_each_other_are_named_in_an_event(here: World) -> None:
    here.kube.create(batch_job("train", parallelism=2, low=5, high=3))
    here.kube.wait_until(lambda: "NotResized" in reasons(here, "train"), WITHIN_S, "an event says why")
    assert "min-instance 5 exceeds paddlepaddle.org/max-instance 3" in reasons(here, "train")["NotResized"]
    assert here.kube.get("jobs.batch", "train")["spec"]["parallelism"] == 2
    annotate(here, "train", {"paddlepaddle.org/max-instance": "6"})
    wait_count(here, "train", 6)


def test_a_count_that_somebody_else_writes_is_left_to_them(here: World) -> None:
    here.kube.create(batch_job("train", parallelism=2, low=2, high=6))
    wait_count(here, "train", 6)
    here.kube.patch("jobs.batch", "train", {"spec": {"parallelism": 3}})
    here.kube.wait_until(lambda: "NotResized" in reasons(here, "train"), WITHIN_S, "an event names the other writer")
    assert "set spec.parallelism to 3 after edl had set it to 6" in reasons(here, "train")["NotResized"]
    wait_count(here, "train", 3)
    annotate(here, "train", {"paddlepaddle.org/last-resize": None})
    wait_count(here, "train", 6)


def test_a_horizontal_pod_autoscaler_cannot_be_another_writer(here: World) -> None:
    here.kube.create(batch_job("train", parallelism=2, low=2, high=6))
    with pytest.raises(KubeError, match="404"):
        here.kube.scale("jobs.batch", "train", 3)
    wait_count(here, "train", 6)


def test_a_job_that_completes_in_mid_resize_is_left_to_its_end(here: World) -> None:
    here.kube.create(batch_job("train", parallelism=2, low=1, high=12))
    wait_count(here, "train", 12)
    here.kube.create(serving(replicas=4))
    here.kube.wait_until(lambda: parallelism(here, "train") < 12, WITHIN_S, "edl lowers the count")

    def completes() -> bool:
        for pod in pods_of(here, "train"):
            here.kube.annotate("pods", pod["metadata"]["name"], exit_code="0")
        return is_complete(here, "train")

    here.kube.wait_until(completes, WITHIN_S, "its pods end with success, and it completes")
    last = parallelism(here, "train")
    here.kube.wait_until(lambda: here.ready_serving() == 4, WITHIN_S, "4 serving pods are ready")
    assert parallelism(here, "train") == last, "edl sets no count of a Job that has ended"
    assert failures(here, "train") == 0


def test_ranks_and_completions_move_together(here: World) -> None:
    indexed = {"completionMode": "Indexed", "completions": 4}
    job = batch_job(
        "ranks", parallelism=4, low=2, high=8, annotations={"paddlepaddle.org/indexes": "ranks"}, **indexed
    )
    here.kube.create(job)
    wait_count(here, "ranks", 8)
    assert here.kube.get("jobs.batch", "ranks")["spec"]["completions"] == 8
    here.kube.create(serving(replicas=4))
    here.kube.wait_until(lambda: here.ready_serving() == 4, WITHIN_S, "4 serving pods are ready")
    here.kube.wait_until(lambda: len(pods_of(here, "ranks")) <= 4, WITHIN_S, "the Job has given capacity")
    left = {
        pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] for pod in pods_of(here, "ranks")
    }
    assert left == {str(i) for i in range(len(left))}, "the highest ranks went"
    assert failures(here, "ranks") == 0


def test_a_work_queue_that_has_begun_to_finish_is_left_to_its_end(here: World) -> None:
    here.kube.create(batch_job("queue", parallelism=2, low=1, high=4))
    wait_count(here, "queue", 4)
    pods = [pod["metadata"]["name"] for pod in pods_of(here, "queue")]
    here.kube.annotate("pods", pods[0], exit_code="0")
    here.kube.wait_until(lambda: "Finishing" in reasons(here, "queue"), WITHIN_S, "an event says that it finishes")
    assert "a pod of the Job has succeeded" in reasons(here, "queue")["Finishing"]
    assert "NotResized" not in reasons(here, "queue"), "a normal end is no warning"
    assert here.kube.get("jobs.batch", "queue")["spec"]["parallelism"] == 4
    for name in pods[1:]:
        here.kube.annotate("pods", name, exit_code="0")
    here.kube.wait_until(lambda: is_complete(here, "queue"), WITHIN_S, "the Job completes")
    assert failures(here, "queue") == 0


def test_ranks_that_finish_count_in_their_queue_until_they_are_gone(here: World) -> None:
    """`next` starts once the queue really has room for it, and not when the first rank succeeds."""
    here.kube.create(queue("blue", "4500m"))
    asks = {"paddlepaddle.org/indexes": "ranks", "paddlepaddle.org/queue": "blue"}
    indexed = {"completionMode": "Indexed", "completions": 4}
    here.kube.create(batch_job("ranks", parallelism=4, low=4, high=4, annotations=asks, **indexed))
    wait_count(here, "ranks", 4)
    here.submit(training_job("next", min_trainers=2, max_trainers=9, queue="blue"))
    here.kube.wait_until(lambda: used(here, "blue") == "4", WITHIN_S, "the queue counts four ranks")
    pods = sorted(pod["metadata"]["name"] for pod in pods_of(here, "ranks"))
    here.kube.annotate("pods", pods[0], exit_code="0")
    here.kube.wait_until(lambda: used(here, "blue") == "3", WITHIN_S, "the queue counts the three that run")
    status = here.kube.get("trainingjobs", "next")["status"]
    assert (status["reason"], status["trainer"]["desired"]) == ("QuotaReached", 0)
    here.kube.annotate("pods", pods[1], exit_code="0")
    here.kube.wait_until(lambda: here.running("next") == 2, WITHIN_S, "the other job starts in what is left")
    assert len(pods_of(here, "ranks")) == 2
    for name in pods[2:]:
        here.kube.annotate("pods", name, exit_code="0")
    here.kube.wait_until(lambda: here.running("next") == 4, WITHIN_S, "it grows as they end")


def used(here: World, name: str) -> str:
    """What the status of a queue says of its cpu."""
    status = here.kube.get("queues.paddlepaddle.org", name).get("status") or {}
    return str((status.get("used") or {}).get("cpu"))


def queue(name: str, cpu: str) -> Object:
    spec = {"nominalQuota": {"cpu": cpu}, "borrowingLimit": {"cpu": 0}}
    return {"apiVersion": "paddlepaddle.org/v1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}
