"""RayClusters that Kueue admits: Kueue suspends and resumes them, and edl writes only the replicas."""

from __future__ import annotations

from typing import Any

import pytest

from edl.kube.workloads.batch_jobs import BatchJobs
from edl.kube.workloads.ray_clusters import RayClusters
from edl.model.jobs import Job
from tests.worlds.kueue.objects import GATE, cluster_queue, flavor, local_queue, workload
from tests.worlds.raw_objects import Object, batch_job, container, decoded, node, ray_cluster, ray_group, take

LABELS = {"kueue.x-k8s.io/queue-name": "blue"}
ELASTIC = {"kueue.x-k8s.io/elastic-job": "true"}
QUEUE = (node(), flavor(), cluster_queue("blue", 10), local_queue("blue"))


def of_kueue(*, replicas: int = 3, suspend: bool = False, **spec: Any) -> Object:
    template = {"spec": {"containers": [container("1", "1Gi")], **GATE}}
    groups = [{**ray_group("Workers", replicas), "template": template}]
    return ray_cluster(groups=groups, spec={"suspend": suspend, **spec}, annotations=ELASTIC, labels=LABELS)


def cluster(*objects: Object) -> Job:
    (job,) = take(*QUEUE, *objects).jobs
    return job


def ray_workload(head: str = "a") -> Object:
    """A Workload of a head of 2 cpus and 3 workers that holds quota."""
    found = workload("w", 3, admitted=3, job="ray")
    pod_sets = found["spec"]["podSets"]
    pod_sets[0]["name"] = found["status"]["admission"]["podSetAssignments"][0]["name"] = "workers"
    pod_sets.insert(0, {"name": "head", "count": 1, "template": {"spec": {"containers": [container("2", "2Gi")]}}})
    assignment = {"name": "head", "flavors": {"cpu": head}, "count": 1, "resourceUsage": {"cpu": "2"}}
    found["status"]["admission"]["podSetAssignments"].insert(0, assignment)
    return found


def test_a_cluster_that_kueue_has_suspended_waits_with_its_size() -> None:
    job = cluster(of_kueue(suspend=True))
    assert (job.suspended, job.owner_count, job.problem) == (False, 3, "")
    assert job.kueue is not None
    assert job.kueue.pod_set == "workers", "as Kueue names the pods of a group"


def test_only_the_replicas_are_written() -> None:
    written = RayClusters().patch(decoded(of_kueue(suspend=True)), 5, ())
    assert [one["path"].rpartition("/")[2] for one in written] == ["replicas", "scaleStrategy"]


def test_the_reservation_is_that_of_the_workers_and_the_queue_counts_the_head() -> None:
    snapshot = take(*QUEUE, of_kueue(), ray_workload())
    assert snapshot.jobs[0].kueue is not None
    assert snapshot.jobs[0].kueue.reserved == 3
    assert snapshot.kueue.queues[0].reserved == (("cpu", 5000),)


def test_a_head_on_another_flavor_counts_there() -> None:
    snapshot = take(*QUEUE, of_kueue(), ray_workload(head="b"))
    assert snapshot.kueue.queues[0].reserved == (("cpu", 3000),)
    (found,) = snapshot.kueue.nodes
    assert [(pool.flavor, amount) for pool, amount in found.held] == [("b", 2000)]


def test_rays_own_autoscaler_is_refused() -> None:
    assert "enableInTreeAutoscaling" in cluster(of_kueue(enableInTreeAutoscaling=True)).problem


UNIT = "kueue.x-k8s.io/podset-slice-size"


def of_units(size: object, **annotations: str) -> list[str]:
    """What is said of a RayCluster and of a Job of 2 to 6 pods of which Kueue places so many together."""
    template = {
        "metadata": {"annotations": {UNIT: size}},
        "spec": {"containers": [container("1", "1Gi")], **GATE},
    }
    wish = {**ELASTIC, **{f"paddlepaddle.org/{name}": value for name, value in annotations.items()}}
    ray = ray_cluster(groups=[{**ray_group(), "template": template}], annotations=wish, labels=LABELS)
    job = batch_job(spec={"template": template}, annotations=wish, labels=LABELS)
    return [RayClusters().problem(decoded(ray)), BatchJobs().problem(decoded(job))]


@pytest.mark.parametrize(
    ("size", "annotations"),
    [
        ("2", {}),
        ("4", {"step": "2", "min-instance": "2", "max-instance": "6"}),
        (3, {"sizes": "3,4,6", "min-instance": "3", "max-instance": "6"}),
        ("4", {"min-instance": "6", "max-instance": "6"}),
    ],
)
def test_units_of_pods_are_refused_unless_every_size_is_whole_ones(size: object, annotations: dict[str, str]) -> None:
    for problem in of_units(size, **annotations):
        assert f"annotation {UNIT} makes a unit of {size}" in problem
        assert f'annotation paddlepaddle.org/step: "{size}"' in problem


@pytest.mark.parametrize(
    ("size", "annotations"),
    [
        ("2", {"step": "2", "min-instance": "2", "max-instance": "6"}),
        ("2", {"sizes": "2,6", "min-instance": "2", "max-instance": "6"}),
        ("3", {"min-instance": "6", "max-instance": "6"}),
        ("1", {}),
        ("0", {}),
        ("two", {}),
        (None, {}),
        ("9" * 5000, {}),
    ],
)
def test_whole_units_are_resized(size: object, annotations: dict[str, str]) -> None:
    assert of_units(size, **annotations) == ["", ""]
