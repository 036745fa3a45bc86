"""Volcano Jobs as workloads: what is read, what is refused in words, and what is written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from edl.kube.snapshot_files.saved_cluster import read_snapshot_texts
from edl.kube.workloads.annotations import RECORD
from edl.kube.workloads.resize import MOST_UNSEEN, ResizeRequest, resize_request
from edl.kube.workloads.volcano_jobs import VolcanoJobs
from edl.kube.workloads.volcano_tasks import STOPPED
from edl.model.actions import ResizeWorkload
from edl.model.names import JobKey, Role, WorkloadKind
from edl.model.pods import Pod
from edl.model.status import Resize
from edl.sandbox.apiserver.patches.json_patch import json_patch
from tests.worlds.raw_objects import Object, batch_job, decoded, take, task, the_job, volcano_job, volcano_pod

KEY = JobKey.of(WorkloadKind.VOLCANO_JOB, "ads", "ctr")
PODS = tuple(volcano_pod(f"ctr-{name}") for name in ("pserver-0", "pserver-1", "trainer-0", "trainer-1", "trainer-2"))
PARTITIONS: Object = {"partitionPolicy": {"totalPartitions": 2, "partitionSize": 4, "minPartitions": 1}}


def problem_of(obj: Object) -> str:
    return VolcanoJobs().problem(decoded(obj))


def request_for(obj: Object, count: int) -> ResizeRequest:
    before = VolcanoJobs().count(decoded(obj))
    return resize_request(
        ResizeWorkload(KEY, "uid-ctr", before, count, Resize(0.0, before, count, "AtMax")), decoded(obj)
    )


def resized(obj: Object, count: int) -> Object:
    """The object after edl has given it another count."""
    patch = request_for(obj, count).patch
    assert isinstance(patch, list)
    stored: Object = json_patch(obj, patch)
    return stored


def sizes(obj: Object) -> tuple[int, list[tuple[int, int | None]]]:
    """`minAvailable` of the job, and replicas and minAvailable of each task."""
    tasks = [(one["replicas"], one.get("minAvailable")) for one in obj["spec"]["tasks"]]
    return obj["spec"]["minAvailable"], tasks


def managed(manager: str) -> list[Object]:
    return [{"manager": manager, "operation": "Update", "fieldsV1": {"f:spec": {"f:tasks": {}}}}]


def recorded(to: int) -> Object:
    return {RECORD: json.dumps({"time": "2026-01-01T00:00:00Z", "from": 3, "to": to, "reason": "AtMax"})}


def test_a_pod_without_its_annotations_stays_one_of_its_task() -> None:
    """Its name says the task: annotations are anybody's to write, and nothing else would count the pod."""
    bare = [{**pod, "metadata": {k: v for k, v in pod["metadata"].items() if k != "annotations"}} for pod in PODS]
    renamed = [{**pod, "metadata": {**pod["metadata"], "annotations": {"volcano.sh/task-spec": "x"}}} for pod in PODS]
    expected = the_job(volcano_job(), *PODS).pods
    for pods in (bare, renamed):
        assert the_job(volcano_job(), *pods).pods == expected


def test_a_job_that_asks_is_read_with_the_pods_of_all_its_tasks() -> None:
    job = the_job(volcano_job(), *PODS)
    assert (job.key, job.bounds, job.owner_count, job.gang) == (KEY, (2, 6), 3, True)
    assert str(job.key) == "ads/job.batch.volcano.sh/ctr"
    assert [(fixed.role, fixed.count, fixed.shape.request["cpu"]) for fixed in job.fixed] == [(Role.PSERVER, 2, 1000)]
    assert [pod.index for pod in job.live_trainers] == [0, 1, 2]
    assert [pod.name for pod in job.pods if pod.role is Role.PSERVER] == ["ctr-pserver-0", "ctr-pserver-1"]
    assert not job.may_lend(5)


def test_a_job_of_each_kind_may_have_one_name() -> None:
    keys = [str(one.key) for one in take(volcano_job(), batch_job("ctr")).jobs]
    assert keys == ["ads/job.batch.volcano.sh/ctr", "ads/job.batch/ctr"]


def test_saved_files_keep_jobs_of_two_kinds_apart() -> None:
    items = [{"apiVersion": "v1", **one} for one in (volcano_job(), batch_job("ctr"), *PODS)]
    snapshot, unread = read_snapshot_texts(
        [("now.json", json.dumps({"kind": "List", "apiVersion": "v1", "items": items}))]
    ).snapshot()
    assert not unread
    assert [(str(job.key), len(job.pods)) for job in snapshot.jobs] == [
        ("ads/job.batch.volcano.sh/ctr", 5),
        ("ads/job.batch/ctr", 0),
    ]


def test_a_job_that_does_not_ask_is_none_of_ours() -> None:
    snapshot = take(volcano_job(annotations={"paddlepaddle.org/elastic": None}), *PODS)
    assert (snapshot.jobs, len(snapshot.pods)) == ((), 5)


def test_pods_beyond_the_replicas_are_on_their_way_out() -> None:
    job = the_job(volcano_job(tasks=[task("pserver", 1), task("trainer", 2)]), *PODS)
    assert [pod.name for pod in job.pods if pod.terminating] == ["ctr-pserver-1", "ctr-trainer-2"]


def test_no_pod_of_it_is_moved_to_another_node() -> None:
    job = the_job(volcano_job(), *PODS)
    assert not job.fault_tolerant


@pytest.mark.parametrize(
    ("queue", "annotation", "expected"),
    [("default", None, "default"), ("red", None, "red"), ("red", "blue", "blue")],
)
def test_the_queue_is_that_of_the_job_unless_the_annotation_names_one(
    queue: str, annotation: str | None, expected: str
) -> None:
    annotations = {"paddlepaddle.org/queue": annotation}
    assert the_job(volcano_job(annotations=annotations, spec={"queue": queue})).queue == expected


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"annotations": {"paddlepaddle.org/max-instance": None}}, "max-instance is missing"),
        ({"annotations": {"paddlepaddle.org/task": "worker"}}, "the tasks are pserver, trainer; write the name"),
        ({"tasks": [task("a", 1), task("b", 1)]}, "has the tasks a, b; set annotation paddlepaddle.org/task"),
        ({"tasks": [task(name, 1) for name in ("a", "b", "c", "trainer")]}, "has 4 tasks"),
        ({"tasks": []}, "the job has no tasks"),
        ({"tasks": [task("ps", 10_001), task("trainer", 1)]}, "task ps has 10001 replicas; edl plans at most 10000"),
        ({"tasks": [task("trainer", 2**31 - 1)]}, "task trainer has 2147483647 replicas; edl plans at most 10000"),
        ({"spec": {"plugins": {"svc": [], "pytorch": ["--master=a"]}}}, "plugin pytorch writes the number of pods"),
        (
            {"tasks": [task("trainer", 8, **PARTITIONS)]},
            "a partition of task trainer is 4 pods; edl resizes by single",
        ),
        ({"tasks": [task("pserver", 2), task("trainer", 4, **PARTITIONS)]}, "a partition of task trainer is 4 pods"),
        (
            {"spec": {"networkTopology": {"mode": "hard", "highestTierAllowed": 1}}},
            "spec.networkTopology is hard up to tier 1, so Volcano keeps all pods of the job in one HyperNode",
        ),
        ({"spec": {"networkTopology": {"highestTierName": "rack"}}}, "spec.networkTopology is hard up to tier rack"),
        ({"spec": {"networkTopology": {"highestTierAllowed": 0}}}, "spec.networkTopology is hard up to tier 0"),
        ({"status": {"taskStatusCount": {"trainer": {"phase": {"Succeeded": 1}}}}}, "so the job is finishing"),
        ({"tasks": [task("trainer", 3, cpu="")]}, "request neither cpu nor memory"),
        ({"annotations": recorded(5), "managedFields": managed("vcctl")}, "vcctl set replicas of task trainer to 3"),
    ],
)
def test_what_cannot_be_resized_is_refused_in_words(change: dict[str, Any], words: str) -> None:
    assert words in problem_of(volcano_job(**change))


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"tasks": [task("a", 3)]},
        {"tasks": [task("trainer", 3, partitionPolicy={"totalPartitions": 3, "partitionSize": 1})]},
        {"tasks": [task("pserver", 8, **PARTITIONS), task("trainer", 3)]},
        {"tasks": [task("a", 1), task("b", 3)], "annotations": {"paddlepaddle.org/task": "b"}},
        {"tasks": [task("launcher", 1), task("ps", 1), task("trainer", 3)]},
        {"spec": {"plugins": {"svc": [], "env": [], "ssh": []}}},
        {"spec": {"networkTopology": {"mode": "soft", "highestTierAllowed": 1}}},
        {"spec": {"networkTopology": {"mode": "hard"}}},
        {"status": {"taskStatusCount": {"pserver": {"phase": {"Succeeded": 1}}}}},
        {"annotations": recorded(3), "managedFields": managed("edl")},
        {"status": {"state": {"phase": "Completed"}}, "annotations": {"paddlepaddle.org/max-instance": "x"}},
    ],
)
def test_what_can_be_resized_has_no_problem(change: dict[str, Any]) -> None:
    assert problem_of(volcano_job(**change)) == ""


@pytest.mark.parametrize(
    ("phase", "finished", "suspended"),
    [("Running", False, False), ("Completing", True, False), ("Failed", True, False), ("Aborted", False, True)],
)
def test_a_job_that_ends_or_is_suspended_gets_no_pods(phase: str, finished: bool, suspended: bool) -> None:
    job = the_job(volcano_job(status={"state": {"phase": phase}}))
    assert (job.finished, job.suspended, job.is_schedulable) == (finished, suspended, phase == "Running")


def test_the_gang_keeps_the_other_tasks_and_the_minimum() -> None:
    assert sizes(resized(volcano_job(), 6)) == (4, [(2, 2), (6, 2)])
    assert sizes(resized(volcano_job(), 2)) == (4, [(2, 2), (2, 2)])


def test_the_gang_never_becomes_larger_than_its_owner_made_it() -> None:
    assert sizes(resized(volcano_job(spec={"minAvailable": 1}), 6)) == (1, [(2, 2), (6, 2)])


def test_a_task_without_a_minimum_of_its_own_gets_none() -> None:
    bare = [
        {key: value for key, value in task(name, 2).items() if key != "minAvailable"} for name in ("p", "trainer")
    ]
    assert sizes(resized(volcano_job(tasks=bare, spec={"minAvailable": 4}), 5)) == (4, [(2, None), (5, None)])


def test_a_job_that_stops_stops_whole_and_gets_back_what_it_had() -> None:
    stopped = resized(volcano_job(), 0)
    assert sizes(stopped) == (0, [(0, 0), (0, 0)])
    job = the_job(stopped)
    assert [(fixed.role, fixed.count) for fixed in job.fixed] == [(Role.PSERVER, 2)], (
        "its capacity is still asked for"
    )
    assert (job.owner_count, job.pods) == (0, ())
    started = resized({**stopped, "metadata": {**stopped["metadata"], "resourceVersion": "8"}}, 3)
    assert sizes(started) == (4, [(2, 2), (3, 2)])
    assert STOPPED not in started["metadata"]["annotations"]


@pytest.mark.parametrize(
    "annotation",
    [
        "{",
        "null",
        '{"minAvailable": Infinity, "tasks": {}}',
        '{"minAvailable": NaN, "tasks": {}}',
        '{"minAvailable": 5, "tasks": {"pserver": [1e300, 2]}}',
        '{"minAvailable": 5, "tasks": {"pserver": [1000000000, 2]}}',
        '{"minAvailable": 5, "tasks": {"pserver": [-5, 2]}}',
        '{"minAvailable": true, "tasks": {"pserver": [2, "2"]}}',
    ],
)
def test_what_a_stopped_job_had_survives_a_broken_annotation(annotation: str) -> None:
    broken = volcano_job(annotations={STOPPED: annotation})
    assert sizes(resized(broken, 3)) == (4, [(2, 2), (3, 2)])
    assert [one.count for one in the_job(broken).fixed] == [2]


def test_surplus_pods_are_marked_before_volcano_deletes_them() -> None:
    request = request_for(volcano_job(), 2)
    assert request.surplus == ("/api/v1/namespaces/ads/pods/ctr-trainer-2",)
    assert request_for(volcano_job(), 5).surplus == ()
    names = [
        path.rpartition("/")[2]
        for path in request_for(volcano_job(annotations={"paddlepaddle.org/min-instance": "1"}), 0).surplus
    ]
    assert sorted(names) == sorted(one["metadata"]["name"] for one in PODS), "a stop takes all of them"
    pod = {**PODS[4], "metadata": {**PODS[4]["metadata"]}}
    marked = json_patch(pod, request.mark)
    assert marked["metadata"]["annotations"]["volcano.sh/job-version"] == "-1"
    assert json_patch(marked, request.unmark) == pod, "the version of the job is 4"


def of_many(name: str = "trainer") -> Object:
    """A job of one task whose owner wrote ten thousand replicas into it."""
    body = volcano_job(annotations={"paddlepaddle.org/min-instance": "1", "paddlepaddle.org/task": name})
    body["spec"]["tasks"] = [{**body["spec"]["tasks"][1], "name": name, "replicas": 10_000}]
    return body


def test_few_pods_are_marked_that_do_not_exist() -> None:
    """Each mark is a request, and a tenant may write any count, again and again."""
    body = of_many()
    action = ResizeWorkload(KEY, "uid-ctr", 10_000, 3, Resize(0.0, 10_000, 3, "AtMax"))
    request = resize_request(action, decoded(body), lambda name: name in {"ctr-trainer-7000", "ctr-trainer-9000"})
    names = [path.rpartition("/")[2] for path in request.surplus]
    assert len(names) == MOST_UNSEEN + 2
    assert names[-2:] == ["ctr-trainer-7000", "ctr-trainer-9000"]


def test_no_name_of_a_task_leads_to_an_object_elsewhere() -> None:
    assert request_for(of_many("x/../../../kube-system/pods/dns"), 3).surplus == ()


def test_a_record_is_read_back() -> None:
    job = the_job(resized(volcano_job(), 6))
    assert job.status is not None
    assert job.status.last_resize == Resize(0.0, 3, 6, "AtMax", None)


def deletion_order(pods: tuple[Pod, ...]) -> list[str]:
    return [pod.name for pod in sorted(pods, key=lambda pod: -(pod.index or 0))]


def test_the_highest_index_goes_first() -> None:
    assert deletion_order(the_job(volcano_job(), *PODS).live_trainers) == [
        "ctr-trainer-2",
        "ctr-trainer-1",
        "ctr-trainer-0",
    ]
