"""Workloads of others as if they had asked to be resized: which bounds they get, and which are left as they are."""

from __future__ import annotations

from typing import Any

import pytest

from edl.kube.translate.decoders import PODS, Quarantined
from edl.kube.translate.snapshot import ClusterObjects, Translator
from edl.kube.workloads.adapter import MirroredKind
from edl.kube.workloads.as_if_elastic import AsIfBounds, AsIfElastic
from edl.kube.workloads.batch_jobs import BatchJobs
from edl.kube.workloads.pytorch_jobs import PyTorchJobs
from edl.kube.workloads.ray_clusters import RayClusters
from edl.kube.workloads.volcano_jobs import VolcanoJobs
from edl.model.jobs import Job
from edl.model.names import Role
from tests.worlds.raw_objects import (
    Object,
    batch_job,
    batch_pod,
    node,
    pytorch_job,
    pytorch_pod,
    ray_cluster,
    ray_group,
    ray_pod,
    take,
    volcano_job,
)

SILENT = {f"paddlepaddle.org/{name}": "" for name in ("elastic", "min-instance", "max-instance")}
ASKED_TRUE = {"paddlepaddle.org/elastic": "true"}


def jobs_of(reader: MirroredKind, obj: Object, *pods: Object, bounds: AsIfBounds | None = None) -> tuple[Job, ...]:
    """What a cluster with this object and these pods shows as jobs."""
    source = reader.decoder.from_dict(obj)
    assert not isinstance(source, Quarantined), source
    read = [PODS.from_dict(one) for one in pods]
    return (
        Translator()
        .snapshot(
            now_s=1000.0,
            objects=ClusterObjects(
                nodes=[],
                pods=[one for one in read if not isinstance(one, Quarantined)],
                jobs=[],
                workloads=[(AsIfElastic(reader, bounds or AsIfBounds()), source)],
            ),
        )
        .jobs
    )


def the_job(*arguments: Any, **options: Any) -> Job:
    (found,) = jobs_of(*arguments, **options)
    return found


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        (AsIfBounds(), (2, 6)),
        (AsIfBounds(halves=False), (1, 6)),
        (AsIfBounds(doubles=False), (2, 3)),
        (AsIfBounds(halves=False, doubles=False), (1, 3)),
    ],
)
def test_a_batch_job_gets_the_bounds_that_were_asked_for(bounds: AsIfBounds, expected: tuple[int, int]) -> None:
    job = the_job(BatchJobs(), batch_job(annotations=SILENT), batch_pod("train-a"), bounds=bounds)
    assert job.bounds == expected
    assert (job.problem, [p.name for p in job.live_trainers]) == ("", ["train-a"])


def test_a_job_that_asks_itself_keeps_its_bounds() -> None:
    own = {"paddlepaddle.org/max-instance": "4"}
    assert the_job(BatchJobs(), batch_job(annotations=own)).bounds == (2, 4)


def test_a_job_that_refuses_is_left_alone() -> None:
    assert jobs_of(BatchJobs(), batch_job(annotations={**SILENT, "paddlepaddle.org/elastic": "false"})) == ()


def test_a_job_without_pods_is_left_alone() -> None:
    assert jobs_of(BatchJobs(), batch_job(annotations=SILENT, spec={"parallelism": 0})) == ()


def test_an_indexed_job_never_gets_more_pods_than_it_has_indexes_left() -> None:
    indexed = {"completionMode": "Indexed", "completions": 3}
    job = the_job(BatchJobs(), batch_job(annotations=SILENT, spec=indexed))
    assert (job.bounds, job.problem) == ((2, 3), "")


def test_what_a_kind_refuses_is_refused_here_too() -> None:
    job = the_job(BatchJobs(), batch_job(annotations=SILENT, spec={"managedBy": "somebody/else"}))
    assert "spec.managedBy is somebody/else" in job.problem


def test_a_ray_cluster_keeps_the_bounds_of_its_group() -> None:
    narrow = ray_group(minReplicas=3, maxReplicas=4)
    assert the_job(RayClusters(), ray_cluster(annotations=SILENT, groups=[narrow])).bounds == (3, 4)
    job = the_job(RayClusters(), ray_cluster(annotations=SILENT), ray_pod("ray-head", group="headgroup"))
    assert (job.bounds, job.problem, [f.role for f in job.fixed]) == ((2, 6), "", [Role.MASTER])


def test_a_volcano_job_is_read_by_its_trainer_task() -> None:
    assert the_job(VolcanoJobs(), volcano_job(annotations=SILENT)).bounds == (2, 6)


def test_a_pytorch_job_is_a_master_and_workers() -> None:
    pods = [pytorch_pod(name) for name in ("torch-master-0", "torch-worker-1", "torch-worker-0")]
    job = the_job(PyTorchJobs(as_if=True), pytorch_job(), *pods)
    assert str(job.key) == "ads/pytorchjob.kubeflow.org/torch"
    assert (job.bounds, job.owner_count, job.problem) == ((2, 6), 3, "")
    assert [(p.role, p.index) for p in job.pods] == [(Role.MASTER, 0), (Role.TRAINER, 0), (Role.TRAINER, 1)]
    assert [(f.role, f.count) for f in job.fixed] == [(Role.MASTER, 1)]


def test_an_elastic_pytorch_job_has_bounds_of_its_own() -> None:
    spec = {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 9}}
    job = the_job(PyTorchJobs(as_if=True), pytorch_job(master=0, spec=spec))
    assert (job.bounds, job.fixed) == ((1, 9), ())


def test_a_pytorch_job_of_a_master_alone_is_not_planned() -> None:
    # No worker: the bounds are those of no pods, so nothing is asked in its name.
    assert jobs_of(PyTorchJobs(as_if=True), pytorch_job(0)) == ()
    asked = pytorch_job(0, metadata={"annotations": {**ASKED_TRUE, "paddlepaddle.org/max-instance": "2"}})
    assert "has a master and no workers" in the_job(PyTorchJobs(as_if=True), asked).problem


def test_an_ended_or_suspended_pytorch_job_gets_nothing() -> None:
    ended = pytorch_job(status={"conditions": [{"type": "Succeeded", "status": "True"}]})
    suspended = pytorch_job(spec={"runPolicy": {"suspend": True}})
    assert the_job(PyTorchJobs(as_if=True), ended).finished
    assert jobs_of(PyTorchJobs(as_if=True), suspended) == (), "a job without pods asks for nothing"


def test_a_pytorch_job_that_another_controller_runs_is_not_planned() -> None:
    job = the_job(
        PyTorchJobs(as_if=True), pytorch_job(spec={"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}})
    )
    assert "kueue.x-k8s.io/multikueue" in job.problem


def test_pods_of_a_pytorch_job_are_those_of_somebody_else_for_a_controller() -> None:
    found = take(node("n1"), pytorch_pod("torch-worker-0"))
    assert ([pod.name for pod in found.pods], found.jobs) == (["torch-worker-0"], ())
    assert found.pods[0].job is None
