"""Rules of workloads of other controllers: they are in the template, also before the first pod is there."""

from __future__ import annotations

from typing import Any

import pytest

from edl.kube.translate.objects import PodMetadata
from edl.kube.workloads.pytorch_jobs import PyTorchJobs
from edl.model.names import Role
from tests.worlds.raw_objects import (
    batch_job,
    decoded,
    elastic_pytorch_job,
    ray_cluster,
    ray_group,
    task,
    volcano_job,
)
from tests.worlds.rules.device_scenes import device_class, slices, template, uses
from tests.worlds.rules.scenes import ZONE, Object, apart, bound, nodes, plan, pod, spread, storage

CONTAINER = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}


def batch(spec: Object) -> Object:
    return batch_job(spec={"parallelism": 0, "template": {"spec": {"containers": [CONTAINER], **spec}}})


def pytorch(spec: Object) -> Object:
    return elastic_pytorch_job(worker={"template": {"spec": {"containers": [CONTAINER], **spec}}})


def ray(spec: Object) -> Object:
    return ray_cluster(groups=[ray_group(template={"spec": {"containers": [CONTAINER], **spec}})])


def volcano(spec: Object) -> Object:
    trainers = task("trainer", 3, template={"spec": {"containers": [CONTAINER], **spec}})
    return volcano_job(tasks=[trainers], spec={"minAvailable": 3})


KINDS = {
    "batch/v1 Job": (batch, {"job-name": "train"}),
    "PyTorchJob": (pytorch, {"training.kubeflow.org/job-name": "torch"}),
    "RayCluster": (ray, {"ray.io/group": "workers"}),
    "Volcano Job": (volcano, {"volcano.sh/job-name": "ctr"}),
}


def targets(*scene: Any) -> dict[str, int]:
    (decision,) = plan(*scene).decisions
    return dict(decision.nodes)


@pytest.mark.parametrize("kind", KINDS)
def test_pods_that_are_to_be_apart_get_a_node_each(kind: str) -> None:
    """By a label that their controller adds."""
    made, labels = KINDS[kind]
    assert set(targets(nodes(4), made({"affinity": apart(**labels)})).values()) == {1}


@pytest.mark.parametrize("kind", KINDS)
def test_pods_go_where_their_volume_is(kind: str) -> None:
    there = [one | {"metadata": {**one["metadata"], "namespace": "ads"}} for one in bound(storage("a"), "pv-a0")]
    uses_it = {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]}
    assert targets(nodes(4, "ab"), there, KINDS[kind][0](uses_it)).keys() <= {"n0", "n2"}


@pytest.mark.parametrize("name", ["data", None])
def test_pods_of_a_volcano_job_go_where_the_volume_of_the_whole_job_is(name: str | None) -> None:
    """A claim that Volcano has still to make has no name, and may be anywhere."""
    there = [one | {"metadata": {**one["metadata"], "namespace": "ads"}} for one in bound(storage("a"), "pv-a0")]
    job = volcano({"volumes": [{"name": "tmp"}]})
    job["spec"]["volumes"] = [{"mountPath": "/data", "volumeClaimName": name}]
    others = [pod(f"db-{zone}", f"n{index}", cpu="6") for index, zone in enumerate("ab")]
    assert targets(nodes(2, "ab"), others, there, job) == {"n0": 2, **({} if name else {"n1": 2})}


@pytest.mark.parametrize("kind", KINDS)
def test_no_more_pods_than_devices(kind: str) -> None:
    one = template()
    one["metadata"]["namespace"] = "ads"
    found = targets(nodes(2), device_class(), slices(2, 2), one, KINDS[kind][0](uses()))
    assert sum(found.values()) == 4


def test_labels_of_the_template_count_for_the_rules_of_others() -> None:
    labelled: Object = {"metadata": {"labels": {"noise": "much"}}, "spec": {"containers": [CONTAINER]}}
    job = batch_job(spec={"parallelism": 0, "template": labelled})
    quiet = pod("web-0", "n0", cpu="1", namespace="ads", affinity=apart(ZONE, noise="much"))
    assert targets(nodes(4, "ab"), quiet, job).keys() <= {"n1", "n3"}


def ray_head(spec: Object, *groups: Object) -> Object:
    head = {"rayStartParams": {}, "template": {"spec": {"containers": [CONTAINER], **spec}}}
    return ray_cluster(groups=[ray_group(), *groups], annotations=WORKERS, spec={"headGroupSpec": head})


def ray_other(spec: Object) -> Object:
    return ray_head({}, ray_group("cpu", 1, template={"spec": {"containers": [CONTAINER], **spec}}))


def volcano_task(spec: Object) -> Object:
    server = task("server", 1, template={"spec": {"containers": [CONTAINER], **spec}})
    return volcano_job(tasks=[server, task("trainer", 3)], spec={"minAvailable": 4})


WORKERS = {"paddlepaddle.org/task": "workers"}
OTHERS = {
    "head of a RayCluster": (ray_head, {"ray.io/group": "workers"}),
    "other group of a RayCluster": (ray_other, {"ray.io/group": "workers"}),
    "other task of a Volcano Job": (volcano_task, {"volcano.sh/task-spec": "trainer"}),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_pods_that_a_job_needs_besides_its_trainers_take_a_node_for_themselves(kind: str) -> None:
    made, trainers = OTHERS[kind]
    alone = made({"affinity": apart(**trainers)})
    together = made({})
    scene = nodes(2), [pod("db-0", "n0", cpu="4"), pod("db-1", "n1", cpu="4")]
    assert sum(targets(*scene, together).values()) > 4
    assert len(targets(*scene, alone)) == 1


@pytest.mark.parametrize("kind", OTHERS)
def test_pods_that_a_job_needs_besides_its_trainers_go_where_their_volume_is(kind: str) -> None:
    """No trainer is planned if the volume of the others is nowhere; else its node has room for one fewer."""
    there = [one | {"metadata": {**one["metadata"], "namespace": "ads"}} for one in bound(storage("c"), "pv-c0")]
    uses_it = {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]}
    (decision,) = plan(nodes(4, "ab"), there, OTHERS[kind][0](uses_it)).decisions
    assert decision.target == 0


@pytest.mark.parametrize("kind", OTHERS)
def test_pods_that_a_job_needs_besides_its_trainers_spread(kind: str) -> None:
    """Not over nodes without the label."""
    (decision,) = plan(nodes(2), OTHERS[kind][0]({"topologySpreadConstraints": spread(ZONE, app="x")})).decisions
    assert decision.target == 0
    assert "differ by at most 1 between zones" in decision.details


def test_a_master_of_a_pytorch_job_has_the_rules_of_its_template() -> None:
    """As `edl shadow` reads such jobs."""
    job = elastic_pytorch_job()
    job["spec"]["pytorchReplicaSpecs"]["Master"] = {"replicas": 1, "template": {"spec": {"hostname": "m"}}}
    found = PyTorchJobs(as_if=True).templates(decoded(job))
    assert found[Role.MASTER].spec is not None
    assert (found[Role.MASTER].metadata or PodMetadata()).labels == {
        "training.kubeflow.org/job-name": "torch",
        "training.kubeflow.org/replica-type": "master",
    }
