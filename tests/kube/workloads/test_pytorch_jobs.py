"""PyTorchJobs as workloads: what is read, what is refused in words, and what is written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from edl.kube.workloads.annotations import RECORD
from edl.kube.workloads.pytorch_jobs import PyTorchJobs
from edl.kube.workloads.resize import resize_request
from edl.model.actions import ResizeWorkload
from edl.model.names import JobKey, Role, WorkloadKind
from edl.model.status import Resize
from edl.sandbox.apiserver.patches.json_patch import merge_patch
from tests.worlds.raw_objects import (
    Object,
    container,
    decoded,
    elastic_pytorch_job,
    pytorch_job,
    pytorch_pod,
    take,
    the_job,
)

KEY = JobKey.of(WorkloadKind.PYTORCH_JOB, "ads", "torch")
PODS = tuple(pytorch_pod(f"torch-worker-{index}") for index in range(3))


def problem_of(obj: Object) -> str:
    return PyTorchJobs().problem(decoded(obj))


def resized(obj: Object, count: int) -> Object:
    """The object after edl has given it another count."""
    before = PyTorchJobs().count(decoded(obj))
    action = ResizeWorkload(KEY, "uid-torch", before, count, Resize(0.0, before, count, "AtMax"))
    request = resize_request(action, decoded(obj))
    assert request.path == "/apis/kubeflow.org/v1/namespaces/ads/pytorchjobs/torch"
    assert request.surplus == ()
    assert isinstance(request.patch, dict)
    assert request.patch["metadata"]["resourceVersion"] == obj["metadata"]["resourceVersion"]
    stored: Object = merge_patch(obj, request.patch)
    return {**stored, "metadata": {**stored["metadata"], "resourceVersion": "8"}}


def replicas(obj: Object) -> int:
    found: int = obj["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"]
    return found


def recorded(to: int) -> Object:
    return {RECORD: json.dumps({"time": "2026-01-01T00:00:00Z", "from": 3, "to": to, "reason": "AtMax"})}


def with_master() -> Object:
    job = elastic_pytorch_job()
    job["spec"]["pytorchReplicaSpecs"]["Master"] = {"replicas": 1, "template": {"spec": {}}}
    return job


def managed(manager: str, *fields: str) -> list[Object]:
    owned: Object = {}
    for field in reversed(fields):
        owned = {f"f:{field}": owned}
    return [{"manager": manager, "operation": "Update", "fieldsV1": {"f:spec": owned}}]


def owned_by(kind: str, version: str = "example.com/v1") -> list[Object]:
    return [{"apiVersion": version, "kind": kind, "name": "night", "uid": "u", "controller": True}]


def test_a_job_that_asks_is_read_with_the_bounds_of_its_policy() -> None:
    job = the_job(elastic_pytorch_job(), *PODS)
    assert (job.key, job.bounds, job.owner_count, job.fixed) == (KEY, (2, 6), 3, ())
    assert [(pod.role, pod.index) for pod in job.live_trainers] == [(Role.TRAINER, index) for index in range(3)]
    assert not job.fault_tolerant, "no pod of it is moved"
    assert job.is_schedulable


def test_annotations_within_the_policy_and_sizes_count() -> None:
    asked = {"paddlepaddle.org/min-instance": "3", "paddlepaddle.org/max-instance": "5"}
    assert the_job(elastic_pytorch_job(annotations=asked)).bounds == (3, 5)
    assert the_job(elastic_pytorch_job(annotations={"paddlepaddle.org/step": "2"})).sizes == (2, 4, 6)


def test_a_job_that_does_not_ask_is_none_of_ours() -> None:
    snapshot = take(elastic_pytorch_job(annotations={"paddlepaddle.org/elastic": None}), *PODS)
    assert (snapshot.jobs, len(snapshot.pods)) == ((), 3)


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (with_master(), "it has a Master"),
        (elastic_pytorch_job(policy={}), "lacks minReplicas or maxReplicas"),
        (elastic_pytorch_job(policy={"maxReplicas": 6}), "lacks minReplicas or maxReplicas"),
        (
            elastic_pytorch_job(policy={"minReplicas": 2, "maxReplicas": 6, "metrics": [{}]}),
            "HorizontalPodAutoscaler",
        ),
        (
            elastic_pytorch_job(annotations={"paddlepaddle.org/min-instance": "1"}),
            "is below elasticPolicy.minR",
        ),
        (
            elastic_pytorch_job(annotations={"paddlepaddle.org/max-instance": "7"}),
            "exceeds elasticPolicy.maxR",
        ),
        (elastic_pytorch_job(worker={"restartPolicy": "Never"}), "restartPolicy of Worker is Never"),
        (elastic_pytorch_job(worker={"restartPolicy": "ExitCode"}), "restartPolicy of Worker is ExitCode"),
        (elastic_pytorch_job(run={"backoffLimit": 0}), "backoffLimit is 0"),
        (
            elastic_pytorch_job(run={"schedulingPolicy": {"minAvailable": 3}}),
            "spec.runPolicy.schedulingPolicy.minAvailable is 3, so no pod starts while there are fewer, and",
        ),
        (
            elastic_pytorch_job(run={"managedBy": "kueue.x-k8s.io/multikueue"}),
            "managedBy is kueue.x",
        ),
        (elastic_pytorch_job(labels={"kueue.x-k8s.io/queue-name": "q"}), "gives the job to Kueue"),
        (elastic_pytorch_job(ownerReferences=owned_by("Night")), "it belongs to Night night"),
        (elastic_pytorch_job(ownerReferences=owned_by("Workflow")), "it belongs to Workflow night"),  # of another API
        (elastic_pytorch_job(worker={"replicas": 20_000}), "it has 20000 workers; edl plans at most 10000"),
        (
            elastic_pytorch_job(worker={"template": {"spec": {"containers": [container("", "")]}}}),
            "request neither cpu nor memory",
        ),
        (
            elastic_pytorch_job(
                annotations=recorded(5),
                managedFields=managed("kubectl", "pytorchReplicaSpecs", "Worker", "replicas"),
            ),
            "kubectl set replicas of Worker to 3 after edl had set it to 5",
        ),
        (elastic_pytorch_job(annotations=recorded(0)), "set replicas of Worker to 3 after edl had set it to 0"),
    ],
)
def test_what_cannot_be_resized_is_refused_in_words(job: Object, words: str) -> None:
    assert words in problem_of(job)
    assert not the_job(job).is_schedulable


def test_a_job_without_an_elastic_policy_is_refused_with_the_remedy() -> None:
    asked = {"paddlepaddle.org/elastic": "true", "paddlepaddle.org/max-instance": "4"}
    job = pytorch_job(master=0, metadata={"annotations": asked})
    assert "it has no spec.elasticPolicy" in problem_of(job)
    assert "start the script with torchrun" in problem_of(job)


@pytest.mark.parametrize(
    "job",
    [
        elastic_pytorch_job(),
        elastic_pytorch_job(run={"managedBy": "kubeflow.org/training-operator", "backoffLimit": 3}),
        elastic_pytorch_job(worker={"restartPolicy": "Always"}),
        elastic_pytorch_job(worker={"restartPolicy": None}),
        elastic_pytorch_job(ownerReferences=owned_by("Trial", "kubeflow.org/v1beta1")),  # of Katib
        elastic_pytorch_job(
            ownerReferences=owned_by("Workflow", "argoproj.io/v1alpha1")
        ),  # of Argo (argo-workflows 1317)
        elastic_pytorch_job(annotations=recorded(3), managedFields=managed("edl", "pytorchReplicaSpecs")),
        elastic_pytorch_job(annotations=recorded(5), run={"suspend": True}),
    ],
)
def test_what_can_be_resized_has_no_problem(job: Object) -> None:
    assert problem_of(job) == ""


def test_a_resize_writes_the_replicas_alone() -> None:
    stored = resized(elastic_pytorch_job(), 6)
    assert replicas(stored) == 6
    assert stored["spec"]["elasticPolicy"] == {"minReplicas": 2, "maxReplicas": 6}, "the bounds are the owner's"
    assert stored["spec"]["runPolicy"] == {}
    assert stored["spec"]["pytorchReplicaSpecs"]["Worker"]["template"], "the rest of the workers stays"


def test_the_highest_indexes_go() -> None:
    job = the_job(resized(elastic_pytorch_job(), 2), *reversed(PODS))
    assert [pod.name for pod in job.pods if pod.terminating] == ["torch-worker-2"]
    assert [pod.index for pod in job.live_trainers] == [0, 1]


def test_a_job_that_stops_is_suspended_and_resumed_with_its_count() -> None:
    stopped = resized(elastic_pytorch_job(), 0)
    assert (replicas(stopped), stopped["spec"]["runPolicy"]) == (3, {"suspend": True})
    job = the_job(stopped, *PODS)
    assert (job.owner_count, job.suspended, job.is_schedulable, job.live_trainers) == (0, False, True, ())
    started = resized(stopped, 4)
    assert (replicas(started), started["spec"]["runPolicy"]) == (4, {"suspend": False})


def test_a_job_that_its_owner_suspends_gets_nothing() -> None:
    job = the_job(elastic_pytorch_job(run={"suspend": True}, annotations=recorded(3)))
    assert (job.suspended, job.is_schedulable, job.owner_count) == (True, False, 0)


def test_a_job_that_has_ended_is_left_alone_without_a_word() -> None:
    ended: dict[str, Any] = {"conditions": [{"type": "Succeeded", "status": "True"}]}
    job = the_job(elastic_pytorch_job(status=ended, policy={}))
    assert (job.finished, job.problem) == (True, "")
