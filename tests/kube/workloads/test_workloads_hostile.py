"""Counts that no controller would keep, in specs and statuses of workloads: they give no more than honest ones."""

from __future__ import annotations

import pytest

from edl.model.names import JobKey, WorkloadKind
from tests.kube.translate.test_pods_hostile import TRAINERS
from tests.worlds.rules.scenes import Object, job, members, nodes, plan

COUNTS = [-(2**63), -(2**31), -1000, -1, 0, 2**31 - 1, 2**63 - 1, 2**64]
TEMPLATE = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]}}
SHARE = 10
QUEUE = {
    "apiVersion": "paddlepaddle.org/v1",
    "kind": "Queue",
    "metadata": {"name": "mallory"},
    "spec": {"nominalQuota": {"cpu": str(SHARE)}, "borrowingLimit": {"cpu": "0"}},
}
BATCH, RAY, TORCH, VOLCANO = (
    ("batch/v1", "Job", WorkloadKind.BATCH_JOB),
    ("ray.io/v1", "RayCluster", WorkloadKind.RAY_CLUSTER),
    ("kubeflow.org/v1", "PyTorchJob", WorkloadKind.PYTORCH_JOB),
    ("batch.volcano.sh/v1alpha1", "Job", WorkloadKind.VOLCANO_JOB),
)


def group(name: str, **counts: int) -> Object:
    return {"groupName": name, "template": TEMPLATE, "replicas": 1, **counts}


def workers(count: int, low: int = 1, high: int = 50) -> Object:
    worker = {"replicas": count, "restartPolicy": "OnFailure", "template": TEMPLATE}
    return {
        "elasticPolicy": {"minReplicas": low, "maxReplicas": high},
        "pytorchReplicaSpecs": {"Worker": worker, **{f"R{n}": worker for n in range(100)}},
    }


def tasks(**counts: int) -> Object:
    return {"tasks": [{"name": name, "replicas": count, "template": TEMPLATE} for name, count in counts.items()]}


def all_kinds(n: int) -> list[tuple[tuple[str, str, WorkloadKind], Object, Object]]:
    """(kind, spec, status) with that count in each place."""
    one = {"parallelism": 1, "template": TEMPLATE}
    return [
        (BATCH, {**one, "parallelism": n}, {}),
        (BATCH, {**one, "completions": n}, {}),
        (BATCH, {**one, "completions": 5}, {"succeeded": n, "failed": n}),
        (BATCH, {**one, "completions": 5}, {"failedIndexes": f"0-{n}," * 1000}),
        (RAY, {"workerGroupSpecs": [group("trainer", replicas=n, minReplicas=n)]}, {}),
        (RAY, {"workerGroupSpecs": [group("trainer", maxReplicas=n)]}, {}),
        (RAY, {"workerGroupSpecs": [group("trainer"), group("b", replicas=n)]}, {}),
        (RAY, {"workerGroupSpecs": [group("trainer"), group("b", replicas=5, numOfHosts=n)]}, {}),
        (RAY, {"workerGroupSpecs": [group("trainer"), group("b", replicas=5, maxReplicas=n)]}, {}),
        (TORCH, workers(n), {}),
        (TORCH, workers(1, low=n, high=n), {}),
        (VOLCANO, tasks(trainer=n), {}),
        (VOLCANO, tasks(trainer=1, other=n), {"failed": n, "retryCount": n, "version": n}),
        (
            VOLCANO,
            {**tasks(trainer=1), "minAvailable": n},
            {"taskStatusCount": {"trainer": {"phase": {"Failed": n}}}},
        ),
    ]


@pytest.mark.parametrize("number", COUNTS)
def test_no_count_gives_a_workload_more_than_the_share_of_its_queue(number: int) -> None:
    asks = {"elastic": "true", "max-instance": "50", "queue": "mallory", "task": "trainer"}
    annotations = {f"paddlepaddle.org/{name}": value for name, value in asks.items()}
    for (version, kind, of), spec, status in all_kinds(number):
        own = dict(annotations)
        if of in {WorkloadKind.BATCH_JOB, WorkloadKind.PYTORCH_JOB}:
            del own["paddlepaddle.org/task"]
        metadata = {"name": "w", "namespace": "mallory", "uid": "w", "annotations": own}
        body = {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec, "status": status}
        found = plan(nodes(10), QUEUE, job("good", 2, 80), members("good", *TRAINERS), body)
        hostile = found.decision(JobKey.of(of, "mallory", "w"))
        good = found.decision(JobKey("default", "good"))
        assert hostile is not None
        assert good is not None
        assert hostile.target <= SHARE, (kind, spec)
        assert len(good.victims) <= SHARE, (kind, spec)
