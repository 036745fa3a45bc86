"""`batch/v1` Jobs as workloads: what is read, what is refused in words, and what is written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from edl.errors import ConflictError
from edl.kube.translate.snapshot import ClusterObjects, Translator
from edl.kube.workloads.annotations import RECORD
from edl.kube.workloads.batch_jobs import GANG, BatchJobs
from edl.kube.workloads.resize import resize_request
from edl.model.actions import ResizeWorkload
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.names import JobKey, WorkloadKind
from edl.model.status import Resize
from tests.worlds.raw_objects import Object, batch_job, batch_pod, container, decoded, job, node, pod, take, the_job

KEY = JobKey.of(WorkloadKind.BATCH_JOB, "ads", "train")
RANKS = {"paddlepaddle.org/indexes": "ranks"}
INDEXED = {"completionMode": "Indexed", "completions": 3}


def problem_of(obj: Object) -> str:
    return BatchJobs().problem(decoded(obj))


def order_of(job: Job) -> list[str]:
    """The names of the live pods in the order in which the Job controller deletes them."""
    return [pod.name for pod in sorted(job.live_trainers, key=lambda pod: -(pod.index or 0))]


def recorded(to: int) -> Object:
    record = {"time": "2026-01-01T00:00:00Z", "from": 3, "to": to, "reason": "ServingNeedsRoom"}
    return {RECORD: json.dumps(record)}


def managed(manager: str) -> list[Object]:
    return [{"manager": manager, "operation": "Update", "fieldsV1": {"f:spec": {"f:parallelism": {}}}}]


def ranks_with(**spec: Any) -> Object:
    """A Job of ranks with further fields."""
    return {"annotations": RANKS, "spec": {**INDEXED, "backoffLimitPerIndex": 1, **spec}}


def owned_by(kind: str) -> list[Object]:
    return [{"apiVersion": "example.com/v1", "kind": kind, "name": "night", "uid": "u", "controller": True}]


def test_a_job_that_asks_is_read_with_its_pods() -> None:
    job = the_job(batch_job(), batch_pod("a", ready_at=1), batch_pod("b", ready_at=2))
    assert (job.key, job.bounds, job.owner_count) == (KEY, (2, 6), 3)
    assert str(job.key) == "ads/job.batch/train"
    assert job.trainer.request["cpu"] == 1000
    assert not job.may_lend(5)
    assert len(job.live_trainers) == 2


@pytest.mark.parametrize("value", [None, "false"])
def test_a_job_that_does_not_ask_is_none_of_ours(value: str | None) -> None:
    snapshot = take(batch_job(annotations={"paddlepaddle.org/elastic": value}), batch_pod("a", ready_at=1))
    assert not snapshot.jobs
    assert [pod.name for pod in snapshot.pods] == ["a"]


def test_pods_of_a_job_that_edl_does_not_resize_are_still_its_own() -> None:
    snapshot = take(batch_job(annotations={"paddlepaddle.org/max-instance": "x"}), batch_pod("a", ready_at=1))
    assert [job.problem for job in snapshot.jobs] == [
        problem_of(batch_job(annotations={"paddlepaddle.org/max-instance": "x"}))
    ]
    assert ([pod.name for pod in snapshot.jobs[0].pods], snapshot.pods) == (["a"], ())


def test_pods_change_sides_with_the_annotation() -> None:
    translator, pods = Translator(), (batch_pod("a", ready_at=1),)
    assert take(batch_job(), *pods, translator=translator).pods == ()
    left = take(batch_job(annotations={"paddlepaddle.org/elastic": "false"}), *pods, translator=translator)
    assert ([pod.name for pod in left.pods], left.jobs) == (["a"], ())
    assert take(batch_job(), *pods, translator=translator).pods == ()


def test_pods_that_are_sorted_between_snapshots_stay_with_their_job() -> None:
    translator, source = Translator(), decoded(batch_job())
    pods = [decoded(batch_pod("a", ready_at=1))]

    def snapshot() -> ClusterSnapshot:
        return translator.snapshot(
            now_s=0.0, objects=ClusterObjects(nodes=(), pods=pods, jobs=(), workloads=[(BatchJobs(), source)])
        )

    first = snapshot()
    translator.sort_pods(at_most=100)
    assert snapshot().jobs[0] is first.jobs[0]


def test_a_training_job_and_a_job_may_have_one_name() -> None:
    assert [str(one.key) for one in take(batch_job(name="ctr"), job()).jobs] == ["ads/ctr", "ads/job.batch/ctr"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"annotations": {"paddlepaddle.org/elastic": "yes"}}, 'is "yes"; write "true" or "false"'),
        ({"annotations": {"paddlepaddle.org/max-instance": None}}, "max-instance is missing"),
        ({"annotations": {"paddlepaddle.org/max-instance": "many"}}, "write a whole number from 1"),
        ({"annotations": {"paddlepaddle.org/min-instance": "0"}}, "write a whole number from 1"),
        ({"annotations": {"paddlepaddle.org/min-instance": "7"}}, "min-instance 7 exceeds"),
        ({"annotations": {"paddlepaddle.org/queue": "A b"}}, "write the name of a queue"),
        ({"annotations": RANKS}, "needs spec.completionMode Indexed"),
        ({"spec": INDEXED}, "may be ranks or items"),
        ({"spec": {**INDEXED, "completions": 9}, "annotations": RANKS}, "differs from spec.completions 9"),
        ({"spec": {**INDEXED, "completions": None}, "annotations": RANKS}, "differs from spec.completions (not set)"),
        ({"spec": INDEXED, "annotations": {"paddlepaddle.org/indexes": "x"}}, 'write "ranks" or "items"'),
        ({"spec": {"completions": 1}}, "min-instance 2 exceeds spec.completions 1"),
        ({"status": {"succeeded": 1}}, "so it is finishing"),
        ({"spec": INDEXED, "annotations": RANKS, "status": {"succeeded": 1}}, "so it is finishing"),
        ({"spec": {"managedBy": "kueue.x-k8s.io/multikueue"}}, "spec.managedBy is kueue"),
        ({"ownerReferences": owned_by("JobSet")}, "it belongs to JobSet night, which decides on its pods; remove"),
        (
            {"annotations": {GANG: "3"}},
            f"annotation {GANG} is 3, so no pod starts while there are fewer, and paddlepaddle.org/min-instance is 2",
        ),
        (
            {"spec": {"template": {"spec": {"nodeName": "n1", "containers": [container("1")]}}}},
            "its pods have spec.nodeName n1, so no scheduler places them",
        ),
        (ranks_with(maxFailedIndexes=3), "spec.maxFailedIndexes needs 3 completions, and the API server accepts no"),
        (ranks_with(successPolicy={"rules": [{"succeededCount": 3}]}), "spec.successPolicy needs 3 completions"),
        (
            ranks_with(successPolicy={"rules": [{"succeededIndexes": "0"}, {"succeededIndexes": "0-1,3,x"}]}),
            "spec.successPolicy needs 4 completions, and the API server accepts no fewer, but paddlepaddle.org/min",
        ),
        ({"labels": {"kueue.x-k8s.io/queue-name": "q"}}, "gives it to Kueue, which starts it anew"),
        ({"spec": {"template": {"spec": {"containers": [container()]}}}}, "request neither cpu nor memory"),
        ({"annotations": recorded(4), "managedFields": managed("keda")}, "keda set spec.parallelism to 3"),
    ],
)
def test_what_cannot_be_resized_is_refused_in_words(change: dict[str, Any], words: str) -> None:
    assert words in problem_of(batch_job(**change))


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"spec": INDEXED, "annotations": RANKS},
        {"spec": {**INDEXED, "parallelism": 0}, "annotations": RANKS},
        {"spec": INDEXED, "annotations": {"paddlepaddle.org/indexes": "items"}},
        {"spec": {**INDEXED, "completions": 9}},
        {"spec": {"completions": 9}, "status": {"succeeded": 4}},
        {"annotations": recorded(3), "managedFields": managed("edl")},
        {"managedFields": managed("kubectl-create")},
        {"spec": {"managedBy": "kubernetes.io/job-controller"}},
        {"ownerReferences": owned_by("CronJob")},
        {"ownerReferences": owned_by("Workflow")},
        {"annotations": {GANG: "2"}},
        {"annotations": {GANG: "many"}},
        ranks_with(maxFailedIndexes=2, successPolicy={"rules": [{"succeededIndexes": "0-1", "succeededCount": 1}]}),
        {**ranks_with(maxFailedIndexes=3), "annotations": {"paddlepaddle.org/indexes": "items"}},
    ],
)
def test_what_can_be_resized_has_no_problem(change: dict[str, Any]) -> None:
    assert problem_of(batch_job(**change)) == ""


def test_the_writer_that_took_the_count_gives_it_back_with_the_record() -> None:
    taken = batch_job(annotations=recorded(4), managedFields=managed("keda"))
    assert f"remove annotation {RECORD}" in problem_of(taken)
    del taken["metadata"]["annotations"][RECORD]
    assert problem_of(taken) == ""


def test_remaining_completions_bound_the_pods() -> None:
    left = the_job(batch_job(spec={"completions": 9}, status={"succeeded": 5}))
    assert left.bounds == (2, 4)
    last = the_job(batch_job(spec={"completions": 9}, status={"succeeded": 8}))
    assert last.bounds == (1, 1)


def test_an_ended_job_gets_nothing_and_has_no_problem() -> None:
    for kind in ("Complete", "Failed", "FailureTarget"):
        ended = the_job(batch_job(status={"succeeded": 3, "conditions": [{"type": kind, "status": "True"}]}))
        assert (ended.finished, ended.problem, ended.is_schedulable) == (True, "", False)


def test_the_completions_that_are_left_are_the_last_size() -> None:
    asks = {"paddlepaddle.org/sizes": "2,4,8", "paddlepaddle.org/max-instance": "8"}

    def sizes(succeeded: int) -> tuple[int, ...]:
        spec = {"completions": 8, "parallelism": 8}
        return the_job(batch_job(annotations=asks, spec=spec, status={"succeeded": succeeded})).sizes

    assert [sizes(n) for n in (0, 3, 4, 5, 6)] == [(2, 4, 8), (2, 4, 5), (2, 4), (2, 3), (2,)]


def test_a_job_that_has_all_its_completions_is_about_to_end() -> None:
    done = the_job(batch_job(spec={"completions": 3}, status={"succeeded": 3}))
    assert (done.finished, done.problem, done.is_schedulable) == (True, "", False)


def test_a_suspended_job_is_suspended() -> None:
    assert the_job(batch_job(spec={"suspend": True})).suspended


def test_pods_are_deleted_in_the_order_of_the_job_controller() -> None:
    found = the_job(
        batch_job(spec={"parallelism": 7}),
        batch_pod("old", ready_at=1),
        batch_pod("young", ready_at=9),
        batch_pod("restarted", ready_at=1, status={"containerStatuses": [{"name": "c", "restartCount": 3}]}),
        batch_pod("unready"),
        batch_pod("starting", status={"phase": "Pending"}),
        batch_pod("unbound", status={"phase": "Pending"}, spec={"nodeName": None}),
    )
    assert order_of(found) == ["unbound", "starting", "unready", "young", "restarted", "old"]


def test_of_ranks_the_highest_goes_first() -> None:
    def ranked(rank: int, ready_at: int) -> Object:
        mark = {"annotations": {"batch.kubernetes.io/job-completion-index": str(rank)}}
        return batch_pod(f"r{rank}", ready_at=ready_at, metadata=mark)

    obj = batch_job(spec=INDEXED, annotations=RANKS)
    assert order_of(the_job(obj, ranked(0, 9), ranked(1, 1), ranked(2, 2))) == ["r2", "r1", "r0"]


def test_pods_beyond_the_count_are_on_their_way_out() -> None:
    job = the_job(batch_job(spec={"parallelism": 1}), batch_pod("old", ready_at=1), batch_pod("young", ready_at=9))
    assert [pod.name for pod in job.live_trainers] == ["old"]
    assert [pod.name for pod in job.pods if pod.terminating] == ["young"]


def test_pods_of_another_kind_of_job_are_not_taken() -> None:
    volcano = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "train", "uid": "uid-train"}
    snapshot = take(batch_job(), pod("v", owner=volcano))
    assert (snapshot.jobs[0].pods, [one.name for one in snapshot.pods]) == ((), ["v"])


def test_pods_show_what_admission_adds() -> None:
    bigger = batch_pod("a", ready_at=1, spec={"containers": [container("2", "1Gi")]})
    assert the_job(batch_job(), bigger).trainer.request["cpu"] == 2000


def test_a_quantity_that_cannot_be_read_leaves_the_job_out() -> None:
    broken = batch_job(spec={"template": {"spec": {"containers": [container("x1")]}}})
    assert take(broken, node()).jobs == ()


def resize(before: int = 3, count: int = 5, uid: str = "uid-train") -> ResizeWorkload:
    return ResizeWorkload(KEY, uid, before, count, Resize(0.0, before, count, "AtMax", 0.0))


def test_the_patch_names_the_version_and_records_the_resize() -> None:
    request = resize_request(resize(), decoded(batch_job()))
    patch = request.patch
    assert isinstance(patch, dict)
    assert (request.path, request.surplus) == ("/apis/batch/v1/namespaces/ads/jobs/train", ())
    assert patch["spec"] == {"parallelism": 5}
    assert (patch["metadata"]["uid"], patch["metadata"]["resourceVersion"]) == ("uid-train", "7")
    record = json.loads(patch["metadata"]["annotations"][RECORD])
    assert (record["from"], record["to"], record["reason"]) == (3, 5, "AtMax")
    read = the_job(batch_job(annotations=patch["metadata"]["annotations"], spec={"parallelism": 5}))
    assert read.status is not None
    assert read.status.last_resize == Resize(0.0, 3, 5, "AtMax", 0.0)


@pytest.mark.parametrize(("count", "spec"), [(2, {"parallelism": 2, "completions": 2}), (0, {"parallelism": 0})])
def test_of_ranks_completions_move_too_but_never_to_zero(count: int, spec: Object) -> None:
    patch = resize_request(resize(count=count), decoded(batch_job(spec=INDEXED, annotations=RANKS))).patch
    assert isinstance(patch, dict)
    assert patch["spec"] == spec


@pytest.mark.parametrize(
    ("action", "found"),
    [
        (resize(), None),
        (resize(uid="uid-other"), batch_job()),
        (resize(before=2), batch_job()),
        (resize(), batch_job(annotations={"paddlepaddle.org/elastic": "false"})),
        (resize(), batch_job(status={"succeeded": 1})),
        (resize(), batch_job(annotations={"paddlepaddle.org/max-instance": "4"})),
        (resize(), batch_job(spec={"completions": 9}, status={"succeeded": 5})),
        (resize(), batch_job(spec={"suspend": True})),
        (resize(), batch_job(status={"conditions": [{"type": "Complete", "status": "True"}]})),
    ],
)
def test_a_job_that_has_changed_is_not_written(action: ResizeWorkload, found: Object | None) -> None:
    with pytest.raises(ConflictError):
        resize_request(action, None if found is None else decoded(found))
