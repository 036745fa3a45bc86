"""What a workload can still run: its controller makes no pod in place of one that has failed for good."""

from __future__ import annotations

import json

import pytest

from edl.controller.planning import plan_snapshot
from edl.kube.snapshot_files.saved_cluster import read_snapshot_texts
from edl.model.limits import Limits
from edl.model.plan import ScalePlan
from tests.worlds.raw_objects import (
    Object,
    batch_job,
    batch_pod,
    elastic_pytorch_job,
    job,
    node,
    pod,
    pytorch_pod,
    task,
    the_job,
    volcano_job,
    volcano_pod,
)

ITEMS = {"paddlepaddle.org/indexes": "items"}
RANKS = {"paddlepaddle.org/indexes": "ranks"}
ONE_RUNS = {"active": 1, "succeeded": 2, "failed": 5, "failedIndexes": "1-5", "completedIndexes": "6,7"}


def shards(low: int, status: Object = ONE_RUNS, indexes: Object = ITEMS) -> Object:
    """An Indexed Job of 8 completions, of which each may fail once."""
    spec = {"completionMode": "Indexed", "completions": 8, "parallelism": 8, "backoffLimitPerIndex": 0}
    bounds = {"paddlepaddle.org/min-instance": str(low), "paddlepaddle.org/max-instance": "8"}
    return batch_job("shards", spec={**spec, "maxFailedIndexes": 8}, status=status, annotations=bounds | indexes)


def planned(*objects: Object) -> ScalePlan:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", **one} for one in objects]})
    snapshot, unread = read_snapshot_texts([("now.json", text)]).snapshot()
    assert not unread
    return plan_snapshot(snapshot, "", Limits())


def cores(number: int) -> Object:
    return node(status={"allocatable": {"cpu": str(number), "memory": "64Gi", "pods": "110"}})


RUNNING = batch_pod("shards-0-abcde", job="shards", ready_at=1)


def test_no_capacity_is_kept_for_indexes_that_have_failed() -> None:
    trainer = {"min-instance": 1, "max-instance": 8, "entrypoint": "x"}
    one_core = {"resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}}
    other = job("other", spec={"image": "x", "trainer": {**trainer, **one_core}, "master": one_core})
    decisions = {d.job.name: d for d in planned(cores(10), shards(1), RUNNING, other).decisions}
    assert (decisions["job.batch/shards"].target, decisions["job.batch/shards"].victims) == (1, ())
    assert decisions["other"].target == 8


def test_the_last_index_is_not_stopped_for_a_minimum_that_the_job_can_no_longer_have() -> None:
    web = pod("web-1", namespace="serving", spec={"nodeName": "n1", "containers": [{"name": "w", **_requests("3")}]})
    (decision,) = planned(cores(6), shards(4), RUNNING, web).decisions
    assert (decision.target, decision.victims, decision.reason) == (1, (), "AtMax")


def _requests(cpu: str) -> Object:
    return {"resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}


@pytest.mark.parametrize(
    ("status", "left"),
    [
        ({"succeeded": 2, "failedIndexes": "1-3,5"}, 2),
        ({"failedIndexes": "7"}, 7),
        ({"succeeded": 1, "failedIndexes": ""}, 7),
        ({"failedIndexes": "1,3-4,6"}, 4),
        ({"succeeded": 1, "uncountedTerminatedPods": {"succeeded": ["uid-a", "uid-b"], "failed": ["uid-c"]}}, 5),
    ],
)
def test_what_is_left_are_the_indexes_that_neither_succeeded_nor_failed(status: Object, left: int) -> None:
    assert the_job(shards(1, status)).bounds == (1, left)


def test_a_job_whose_indexes_have_all_succeeded_or_failed_is_about_to_end() -> None:
    done = the_job(shards(1, {"succeeded": 3, "failedIndexes": "3-7"}))
    assert (done.finished, done.problem, done.is_schedulable) == (True, "", False)


@pytest.mark.parametrize("text", ["x", "5-", "3-1", "1--2", "1e9", "9" * 400, "0-999999999999"])
def test_failed_indexes_that_cannot_be_read_count_as_far_as_they_can(text: str) -> None:
    found = the_job(shards(1, {"failedIndexes": f"2,{text}"}))
    assert (found.finished, found.bounds.max_trainers) in {(False, 7), (True, 1)}


def test_a_job_that_lost_a_rank_for_good_is_left_to_its_end() -> None:
    assert "a rank of the Job has failed for good" in the_job(shards(1, {"failedIndexes": "3"}, RANKS)).problem


FAILED = {"taskStatusCount": {"trainer": {"phase": {"Running": 1, "Failed": 2}}}, "state": {"phase": "Running"}}


@pytest.mark.parametrize(
    ("spec", "policies", "is_left"),
    [
        ({}, [], True),
        ({"policies": [{"event": "PodEvicted", "action": "RestartJob"}]}, [], True),
        ({"policies": [{"event": "PodFailed", "action": "RestartJob"}]}, [], False),
        ({"policies": [{"events": ["PodEvicted", "*"], "action": "RestartJob"}]}, [], False),
        ({}, [{"exitCode": 3, "action": "RestartTask"}], False),
    ],
)
def test_a_volcano_job_that_nobody_restarts_is_left_to_its_end_once_a_trainer_has_failed(
    spec: Object, policies: list[Object], is_left: bool
) -> None:
    trainers = task("trainer", 3, policies=policies)
    pods = [volcano_pod("ctr-trainer-0"), *(_failed(f"ctr-trainer-{index}") for index in (1, 2))]
    found = the_job(volcano_job(spec=spec, tasks=[trainers], status=FAILED), *pods)
    assert ("a pod of the task has failed" in found.problem) is is_left


@pytest.mark.parametrize("status", [{"active": 2, "succeeded": 1}, {"active": 2, "succeeded": 1, "failed": 3}])
def test_a_pytorch_job_of_which_a_worker_has_succeeded_gets_no_more(status: Object) -> None:
    """The workers of a training end together with torchrun: another one would wait for its peers for ever."""
    done = {**pytorch_pod("torch-worker-0"), "status": {"phase": "Succeeded"}}
    pods = (done, pytorch_pod("torch-worker-1"), pytorch_pod("torch-worker-2"))
    (decision,) = planned(
        cores(10), elastic_pytorch_job(status={"replicaStatuses": {"Worker": status}}), *pods
    ).decisions
    assert (decision.target, decision.victims, decision.reason) == (2, (), "Finishing")


def _failed(name: str) -> Object:
    return {**volcano_pod(name), "status": {"phase": "Failed"}}
