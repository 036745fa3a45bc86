"""The record of the last resize counts for the object that edl wrote it on, and for no other of that name."""

from __future__ import annotations

import json

import pytest

from edl.controller.due_jobs import next_end_s
from edl.kube.workloads.annotations import RECORD
from edl.kube.workloads.resize import resize_request
from edl.kube.workloads.volcano_tasks import STOPPED
from edl.model.actions import ResizeWorkload
from edl.model.names import JobKey, WorkloadKind
from edl.model.status import Resize, Unseen
from tests.worlds.raw_objects import Object, batch_job, decoded, ray_cluster, task, the_job, volcano_job

MADE = "2026-11-28T00:09:57Z"
"""When the object was created anew; the record is eight seconds older."""
RECORDED = {"time": "2026-11-28T00:09:49Z", "from": 1, "to": 4, "reason": "AtMax"}


def recorded(**more: object) -> Object:
    return {RECORD: json.dumps(RECORDED | more)}


def managed(manager: str, field: str) -> list[Object]:
    return [{"manager": manager, "operation": "Update", "fieldsV1": {"f:spec": {field: {}}}}]


OF_A_FORMER_OBJECT = pytest.mark.parametrize(
    "more", [{}, {"uid": "uid-of-another"}], ids=["by its time", "by its uid"]
)


@OF_A_FORMER_OBJECT
def test_nobody_is_blamed_for_what_was_recorded_of_a_former_job(more: Object) -> None:
    again = batch_job(
        annotations=recorded(**more),
        creationTimestamp=MADE if not more else "2026-11-27T00:00:00Z",
        managedFields=managed("kubectl-create", "f:parallelism"),
    )
    found = the_job(again)
    assert (found.problem, found.status and found.status.last_resize) == ("", None)


@OF_A_FORMER_OBJECT
def test_nor_of_a_former_volcano_job(more: Object) -> None:
    made = MADE if not more else "2026-11-27T00:00:00Z"
    again = volcano_job(
        annotations=recorded(**more), creationTimestamp=made, managedFields=managed("argo", "f:tasks")
    )
    assert the_job(again).problem == ""


@OF_A_FORMER_OBJECT
def test_a_ray_cluster_that_its_owner_creates_suspended_is_not_taken_for_one_that_edl_stopped(more: Object) -> None:
    made = MADE if not more else "2026-11-27T00:00:00Z"
    again = ray_cluster(annotations=recorded(to=0, **more), creationTimestamp=made, spec={"suspend": True})
    assert the_job(again).suspended


def test_the_cooldown_of_a_former_job_is_not_that_of_the_new_one() -> None:
    given = recorded(voluntaryTime=RECORDED["time"], uid="uid-of-another")
    status = the_job(batch_job(annotations=given)).status
    assert status is not None
    assert status.last_resize is None


def test_sizes_of_a_former_volcano_job_do_not_count_once_its_tasks_have_sizes_of_their_own() -> None:
    sizes = {"minAvailable": 9, "tasks": {"pserver": [7, 7], "trainer": [2, 2]}}
    again = volcano_job(annotations={STOPPED: json.dumps(sizes)}, tasks=[task("pserver", 1), task("trainer", 3)])
    assert [fixed.count for fixed in the_job(again).fixed] == [1]


def test_a_resize_is_recorded_with_the_uid_of_its_object() -> None:
    action = ResizeWorkload(
        JobKey.of(WorkloadKind.BATCH_JOB, "ads", "train"), "uid-train", 3, 5, Resize(0.0, 3, 5, "AtMax")
    )
    patch = resize_request(action, decoded(batch_job())).patch
    assert isinstance(patch, dict)
    annotations = patch["metadata"]["annotations"]
    assert json.loads(annotations[RECORD])["uid"] == "uid-train"
    mine = the_job(
        batch_job(annotations=annotations, spec={"parallelism": 5}, creationTimestamp="1969-01-01T00:00:00Z")
    )
    assert mine.status is not None
    assert mine.status.last_resize == Resize(0.0, 3, 5, "AtMax")


def test_a_higher_count_that_its_controller_may_still_act_on_is_recorded_to_the_millisecond() -> None:
    key = JobKey.of(WorkloadKind.BATCH_JOB, "ads", "train")
    resize = Resize(0.0, 5, 3, "AtMax", unseen=Unseen(5, 1.25))
    patch = resize_request(ResizeWorkload(key, "uid-train", 3, 3, resize), decoded(batch_job())).patch
    assert isinstance(patch, dict)
    annotations = patch["metadata"]["annotations"]
    assert json.loads(annotations[RECORD])["unseen"] == {"count": 5, "until": "1970-01-01T00:00:01.250Z"}
    mine = the_job(batch_job(annotations=annotations))
    assert mine.status is not None
    assert mine.status.last_resize == resize
    assert next_end_s(mine, 0.5) == 1.25, "then its Workloads may go"


@pytest.mark.parametrize("wrong", [5, {"count": 5}, {"count": -1, "until": "soon"}, {"until": ["1970"]}, "5"])
def test_such_a_count_that_cannot_be_read_is_none(wrong: object) -> None:
    status = the_job(batch_job(annotations=recorded(unseen=wrong))).status
    assert status is not None
    assert status.last_resize is not None
    assert status.last_resize.unseen is None


@pytest.mark.parametrize("made", [None, "2026-11-28T00:09:48Z", "2026-11-28T00:09:49Z", "yesterday"])
def test_a_record_of_an_older_edl_counts_if_it_is_not_older_than_the_object(made: str | None) -> None:
    taken = batch_job(annotations=recorded(), creationTimestamp=made, managedFields=managed("keda", "f:parallelism"))
    assert "keda set spec.parallelism to 3 after edl had set it to 4" in the_job(taken).problem
