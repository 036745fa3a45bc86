"""JobSets, TrainJobs and MPIJobs that ask to be resized hear which field keeps edl from it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from edl.controller.planning import plan_snapshot
from edl.errors import ConfigError
from edl.kube.snapshot_files.saved_cluster import SavedCluster, read_snapshot_texts
from edl.kube.workloads.registry import ADAPTERS
from edl.lifecycle.resized_workload import workload_actions
from edl.model.actions import EmitEvent
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.names import JobKey, WorkloadKind
from tests.worlds.raw_objects import Object, elastic_metadata, node, take

KINDS = [
    (WorkloadKind.JOB_SET, "spec.replicatedJobs[].replicas mutable"),
    (WorkloadKind.TRAIN_JOB, "spec.trainer.numNodes mutable"),
    (WorkloadKind.MPI_JOB, "whether its launcher reads discover_hosts.sh again"),
]


def one_of(kind: WorkloadKind, annotations: Object | None = None, **more: Any) -> Object:
    version, name, _ = ADAPTERS[kind].api
    return {
        "apiVersion": version,
        "kind": name,
        "metadata": elastic_metadata("train", annotations or {}, {}),
        "spec": {},
        **more,
    }


def told(snapshot: ClusterSnapshot) -> list[str]:
    plan = plan_snapshot(snapshot, "maxmin", Limits())
    (job,) = snapshot.jobs
    actions = workload_actions(job, plan.decision(job.key), 100, 1000.0)
    assert all(isinstance(action, EmitEvent) for action in actions), "nothing is written but the event"
    return [f"{action.reason}: {action.message}" for action in actions if isinstance(action, EmitEvent)]


@pytest.mark.parametrize(("kind", "field"), KINDS)
def test_an_event_names_the_field(kind: WorkloadKind, field: str) -> None:
    snapshot = take(node(), one_of(kind))
    (message,) = told(snapshot)
    assert message.startswith("NotResized: edl does not resize this workload: ")
    assert field in message
    assert snapshot.jobs[0].key == JobKey.of(kind, "ads", "train")


@pytest.mark.parametrize(("kind", "_field"), KINDS)
def test_one_that_does_not_ask_or_has_ended_hears_nothing(kind: WorkloadKind, _field: str) -> None:
    assert take(node(), one_of(kind, {"paddlepaddle.org/elastic": ""})).jobs == ()
    ended = {"conditions": [{"type": "Completed", "status": "True"}]}
    assert told(take(node(), one_of(kind, status=ended))) == []


def test_a_wrong_annotation_is_named_first() -> None:
    (message,) = told(take(node(), one_of(WorkloadKind.JOB_SET, {"paddlepaddle.org/max-instance": "x"})))
    assert "write a whole number" in message


def saved(*objects: Object) -> SavedCluster:
    return read_snapshot_texts([("file", json.dumps({"apiVersion": "v1", "kind": "List", "items": [*objects]}))])


@pytest.mark.parametrize(("kind", "version"), [(WorkloadKind.MPI_JOB, "v1"), (WorkloadKind.TRAIN_JOB, "v1beta1")])
def test_a_file_may_hold_any_version_of_a_kind_that_is_never_resized(kind: WorkloadKind, version: str) -> None:
    group = ADAPTERS[kind].api[0].partition("/")[0]
    asks = one_of(kind) | {"apiVersion": f"{group}/{version}"}
    snapshot, _ = saved(asks).snapshot()
    assert [(job.key.kind, bool(job.problem)) for job in snapshot.jobs] == [(kind, True)]


def test_a_workload_in_another_version_that_does_not_ask_is_nobodys_and_one_that_asks_is_refused() -> None:
    asks = one_of(WorkloadKind.RAY_CLUSTER) | {"apiVersion": "ray.io/v1alpha1"}
    plain = asks | {"metadata": {"name": "train", "namespace": "ads"}}
    assert saved(plain).snapshot()[0].jobs == ()
    with pytest.raises(
        ConfigError, match=r"apiVersion ray.io/v1alpha1, which edl does not read; save it as ray.io/v1"
    ):
        saved(asks)


@pytest.mark.parametrize("version", ["kubeflow.org/v1", "example.org/v1"])
def test_an_object_of_an_unknown_kind_that_asks_hears_that_nobody_resizes_it(version: str) -> None:
    asks = one_of(WorkloadKind.MPI_JOB) | {"apiVersion": version, "kind": "TFJob"}
    (left_out,) = saved(asks).quarantined
    assert (left_out.kind, left_out.namespace, left_out.name) == ("TFJob", "ads", "train")
    assert left_out.problem == (
        "annotation paddlepaddle.org/elastic asks edl to resize it, and edl resizes no TFJob; remove the annotation"
    )
