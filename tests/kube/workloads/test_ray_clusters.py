"""RayClusters as workloads: what is read, what is refused in words, and what is written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from edl.kube.workloads.annotations import RECORD, TASK
from edl.kube.workloads.ray_clusters import RayClusters
from edl.kube.workloads.resize import resize_request
from edl.model.actions import ResizeWorkload
from edl.model.names import JobKey, Role, WorkloadKind
from edl.model.status import Resize
from edl.sandbox.apiserver.patches.json_patch import json_patch
from tests.worlds.raw_objects import MI, Object, container, decoded, ray_cluster, ray_group, ray_pod, take, the_job

KEY = JobKey.of(WorkloadKind.RAY_CLUSTER, "ads", "ray")
HEAD = ray_pod("ray-head-x", group="headgroup", spec={"containers": [container("2", "2Gi")]})
PODS = (HEAD, *(ray_pod(f"ray-workers-{name}") for name in "abc"))


def problem_of(obj: Object) -> str:
    return RayClusters().problem(decoded(obj))


def resized(obj: Object, count: int, *victims: str) -> Object:
    """The object after edl has given it another count."""
    before = RayClusters().count(decoded(obj))
    resize = Resize(0.0, before, count, "AtMax")
    request = resize_request(ResizeWorkload(KEY, "uid-ray", before, count, resize, victims), decoded(obj))
    assert request.path == "/apis/ray.io/v1/namespaces/ads/rayclusters/ray"
    assert request.surplus == ()
    assert isinstance(request.patch, list)
    stored: Object = json_patch(obj, request.patch)
    return stored


def again(obj: Object) -> Object:
    """The object with the version of another write."""
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": "8"}}


def managed(manager: str) -> list[Object]:
    return [{"manager": manager, "operation": "Update", "fieldsV1": {"f:spec": {"f:workerGroupSpecs": {}}}}]


def recorded(to: int) -> Object:
    return {RECORD: json.dumps({"time": "2026-01-01T00:00:00Z", "from": 3, "to": to, "reason": "AtMax"})}


def owned_by(kind: str, version: str = "ray.io/v1") -> list[Object]:
    return [{"apiVersion": version, "kind": kind, "name": "night", "uid": "u", "controller": True}]


def test_a_cluster_that_asks_is_read_with_its_head_and_its_workers() -> None:
    job = the_job(ray_cluster(), *PODS)
    assert (job.key, job.bounds, job.owner_count) == (KEY, (2, 6), 3)
    assert str(job.key) == "ads/raycluster.ray.io/ray"
    assert [(fixed.role, fixed.count, fixed.shape.request["cpu"]) for fixed in job.fixed] == [(Role.MASTER, 1, 2000)]
    assert [pod.name for pod in job.pods if pod.role is Role.MASTER] == ["ray-head-x"]
    assert sorted(pod.name for pod in job.live_trainers) == ["ray-workers-a", "ray-workers-b", "ray-workers-c"]
    assert not job.fault_tolerant, "no pod of it is moved"
    assert not job.may_lend(5)


def test_the_workers_of_another_group_are_needed_besides() -> None:
    groups = [ray_group("big", 2, cpu="4"), ray_group("workers", 3)]
    job = the_job(ray_cluster(groups=groups, annotations={"paddlepaddle.org/task": "workers"}), *PODS)
    assert [(fixed.role, fixed.count) for fixed in job.fixed] == [(Role.MASTER, 1), (Role.PSERVER, 2)]
    assert job.trainer.request["cpu"] == 1000


@pytest.mark.parametrize(
    ("resources", "request_of_one"),
    [
        ({"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}, (200, 256 * MI, 1)),
        ({"requests": {"cpu": "100m", "memory": "1Gi"}}, (200, 1024 * MI, 0)),
        ({"requests": {"cpu": "1", "memory": "64Mi"}}, (1000, 256 * MI, 0)),
    ],
)
def test_the_init_container_that_kuberay_adds_counts_before_the_first_worker(
    resources: Object, request_of_one: tuple[int, int, int]
) -> None:
    """The report is kuberay 2735: the container that waits for the head has requests of its own."""
    spec = {"containers": [{"name": "ray", "resources": resources}]}
    groups = [ray_group(template={"spec": spec}), ray_group("more", 1, template={"spec": spec})]
    job = the_job(ray_cluster(annotations={TASK: "workers"}, groups=groups))
    more = next(fixed for fixed in job.fixed if fixed.role is Role.PSERVER)
    for shape in (job.trainer, more.shape):
        assert tuple(shape.request[name] for name in ("cpu", "memory", "nvidia.com/gpu")) == request_of_one
    assert next(fixed for fixed in job.fixed if fixed.role is Role.MASTER).shape.request["cpu"] == 2000


def test_an_operator_that_adds_no_init_container_is_known_by_its_first_worker() -> None:
    small = {"containers": [container("100m", "64Mi")]}
    cluster = ray_cluster(groups=[ray_group(template={"spec": small})])
    assert the_job(cluster, ray_pod("ray-workers-a", spec=small)).trainer.request["cpu"] == 100


def test_a_cluster_that_does_not_ask_is_none_of_ours() -> None:
    snapshot = take(ray_cluster(annotations={"paddlepaddle.org/elastic": None}), *PODS)
    assert (snapshot.jobs, len(snapshot.pods)) == ((), 4)


def test_the_bounds_of_the_group_count_if_no_annotation_says_otherwise() -> None:
    none = {"paddlepaddle.org/min-instance": None, "paddlepaddle.org/max-instance": None}
    assert the_job(ray_cluster(annotations=none, groups=[ray_group(minReplicas=1, maxReplicas=9)])).bounds == (1, 9)
    assert the_job(ray_cluster(annotations=none, groups=[ray_group(maxReplicas=9)])).bounds == (1, 9)
    assert the_job(ray_cluster(groups=[ray_group(minReplicas=1, maxReplicas=9)])).bounds == (2, 6)


@pytest.mark.parametrize(("replicas", "count"), [(1, 2), (3, 3), (9, 6)])
def test_kuberay_keeps_the_replicas_within_the_bounds_of_the_group(replicas: int, count: int) -> None:
    group = ray_group(replicas=replicas, minReplicas=2, maxReplicas=6)
    assert RayClusters().count(decoded(ray_cluster(groups=[group]))) == count


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"spec": {"enableInTreeAutoscaling": True}}, "spec.enableInTreeAutoscaling is true"),
        ({"spec": {"managedBy": "kueue.x-k8s.io/multikueue"}}, "spec.managedBy is kueue.x-k8s.io/multikueue"),
        ({"labels": {"kueue.x-k8s.io/queue-name": "q"}}, "gives it to Kueue, which starts it anew"),
        ({"ownerReferences": owned_by("RayService")}, "it belongs to RayService night"),
        ({"annotations": {"paddlepaddle.org/max-instance": None}}, "max-instance is missing"),
        ({"annotations": {"paddlepaddle.org/min-instance": "7"}}, "min-instance 7 exceeds"),
        ({"groups": []}, "has the groups ; set annotation"),
        ({"groups": [ray_group("a"), ray_group("b")]}, "has the groups a, b; set annotation paddlepaddle.org/task"),
        ({"annotations": {"paddlepaddle.org/task": "gpu"}}, 'is "gpu", but the groups are workers'),
        (
            {"groups": [ray_group(n) for n in "abc"], "annotations": {"paddlepaddle.org/task": "a"}},
            "has 3 groups; edl plans one and at most one other",
        ),
        (
            {"groups": [ray_group(maxReplicas=2**31 - 1, replicas=20_000)]},
            "has 20000 workers; edl plans at most 10000",
        ),
        ({"groups": [ray_group(numOfHosts=4)]}, "a replica of group workers is 4 pods"),
        ({"groups": [ray_group(suspend=True)]}, "group workers is suspended"),
        ({"groups": [ray_group(minReplicas=3)]}, "min-instance 2 is below minReplicas 3 of group workers"),
        ({"groups": [ray_group(maxReplicas=5)]}, "max-instance 6 exceeds maxReplicas 5 of group workers"),
        ({"groups": [ray_group(cpu="")]}, "request neither cpu nor memory"),
        (
            {"annotations": recorded(5), "managedFields": managed("ray-autoscaler")},
            "ray-autoscaler set replicas of group workers to 3",
        ),
        ({"annotations": recorded(0)}, "set replicas of group workers to 3 after edl had set it to 0"),
    ],
)
def test_what_cannot_be_resized_is_refused_in_words(change: dict[str, Any], words: str) -> None:
    assert words in problem_of(ray_cluster(**change))


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"spec": {"enableInTreeAutoscaling": False, "managedBy": "ray.io/kuberay-operator"}},
        {"ownerReferences": owned_by("Workflow", "argoproj.io/v1alpha1")},
        {"groups": [ray_group("a"), ray_group("b")], "annotations": {"paddlepaddle.org/task": "b"}},
        {"annotations": recorded(3), "managedFields": managed("edl")},
        {"annotations": recorded(5), "spec": {"suspend": True}},
    ],
)
def test_what_can_be_resized_has_no_problem(change: dict[str, Any]) -> None:
    assert problem_of(ray_cluster(**change)) == ""


def test_a_growth_writes_the_count_and_names_nobody() -> None:
    (group,) = resized(ray_cluster(), 6)["spec"]["workerGroupSpecs"]
    assert (group["replicas"], group["scaleStrategy"]) == (6, {"workersToDelete": []})
    assert (group["minReplicas"], group["maxReplicas"]) == (0, 2147483647), "the bounds are the owner's"


def test_a_shrink_names_the_workers_that_go_in_the_same_patch() -> None:
    stored = resized(ray_cluster(), 2, "ray-workers-b")
    (group,) = stored["spec"]["workerGroupSpecs"]
    assert (group["replicas"], group["scaleStrategy"]["workersToDelete"]) == (2, ["ray-workers-b"])
    job = the_job(stored, *PODS)
    assert [pod.name for pod in job.pods if pod.terminating] == ["ray-workers-b"], "it are terminating"
    assert [pod.index for pod in job.live_trainers] == [0, 1]
    assert job.status is not None
    assert job.status.last_resize == Resize(0.0, 3, 2, "AtMax", None)


def test_a_further_group_is_the_one_that_changes() -> None:
    groups = [ray_group("big", 2), ray_group("small", 3)]
    stored = resized(ray_cluster(groups=groups, annotations={"paddlepaddle.org/task": "small"}), 5)
    assert [group["replicas"] for group in stored["spec"]["workerGroupSpecs"]] == [2, 5]


def test_a_cluster_that_stops_is_suspended_and_gets_back_its_head_with_its_workers() -> None:
    stopped = resized(ray_cluster(), 0)
    assert stopped["spec"]["suspend"] is True
    job = the_job(stopped, *PODS)
    assert (job.owner_count, job.suspended, job.is_schedulable, job.live_trainers) == (0, False, True, ())
    assert all(pod.terminating for pod in job.pods), "its head goes too"
    assert [(fixed.role, fixed.count) for fixed in job.fixed] == [(Role.MASTER, 1)], "its capacity is still asked for"
    started = resized(again(stopped), 4)
    assert (started["spec"]["suspend"], started["spec"]["workerGroupSpecs"][0]["replicas"]) == (False, 4)


def test_a_cluster_that_its_owner_suspends_gets_nothing() -> None:
    job = the_job(ray_cluster(spec={"suspend": True}, annotations=recorded(3)))
    assert (job.suspended, job.is_schedulable, job.owner_count) == (True, False, 0)


def test_those_that_do_the_least_work_go_first() -> None:
    ready: Object = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    unbound: Object = {"spec": {"nodeName": ""}, "status": {"phase": "Pending"}}
    pods = [
        ray_pod("ray-workers-ready", **ready),
        ray_pod("ray-workers-new"),
        ray_pod("ray-workers-unbound", **unbound),
    ]
    by_index = sorted(the_job(ray_cluster(), HEAD, *pods).live_trainers, key=lambda pod: pod.index or 0)
    assert [pod.name.rpartition("-")[2] for pod in by_index] == ["ready", "new", "unbound"]


def test_workers_beyond_the_count_are_on_their_way_out_and_one_that_failed_does_not_count() -> None:
    failed = ray_pod("ray-workers-failed", status={"phase": "Failed"})
    job = the_job(ray_cluster(groups=[ray_group(replicas=2)]), failed, *PODS)
    assert len(job.live_trainers) == 2
    assert sum(pod.terminating for pod in job.pods if pod.name != "ray-workers-failed") == 1
