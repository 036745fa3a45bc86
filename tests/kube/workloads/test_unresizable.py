"""JobSets, TrainJobs and MPIJobs that ask to be resized hear which field keeps edl from it."""

from __future__ import annotations

from typing import Any

import pytest

from edl.controller.planning import plan_snapshot
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
