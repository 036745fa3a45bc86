"""Workloads that edl leaves alone: their pods keep their nodes, and their queue counts them until they are gone."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from edl.controller.planning import plan_snapshot, report_snapshot
from edl.explain.job_text import find_job, print_job_report
from edl.explain.queue_status import queue_statuses
from edl.kube.snapshot_files.saved_cluster import read_snapshot_texts
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits, Quota
from edl.model.names import JobKey, WorkloadKind
from edl.model.plan import ScaleDecision, ScalePlan
from edl.model.queues import QueueStatus
from edl.planner.guard import check
from tests.worlds.raw_objects import (
    Object,
    batch_job,
    batch_pod,
    container,
    job,
    node,
    owned_by,
    pod,
    ray_cluster,
    ray_group,
    ray_pod,
    take,
    task,
    volcano_job,
    volcano_pod,
)

BLUE = {"paddlepaddle.org/queue": "blue"}
RANKS = BLUE | {"paddlepaddle.org/indexes": "ranks"}
SIX = {"completionMode": "Indexed", "completions": 6, "parallelism": 6}
ONE_IS_DONE = {"active": 5, "succeeded": 1, "completedIndexes": "0"}


def queue(cores: int, name: str = "blue", **spec: Any) -> Object:
    return {
        "apiVersion": "paddlepaddle.org/v1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"nominalQuota": {"cpu": cores}, "borrowingLimit": {"cpu": 0}, **spec},
    }


def next_job(low: int = 1, high: int = 9, **metadata: Any) -> Object:
    one = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
    trainer = {"entrypoint": "x", "min-instance": low, "max-instance": high, "resources": one}
    master = {"resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
    spec = {"image": "x", "queue": "blue", "trainer": trainer, "master": master}
    return job("next", uid="uid-next", spec=spec, metadata={"creationTimestamp": "2026-11-27T11:00:00Z"} | metadata)


def ranks(*done: int, count: int = 6) -> list[Object]:
    """The pods of the Job, of which some have succeeded."""
    return [
        batch_pod(
            f"ranks-{index}",
            job="ranks",
            ready_at=None if index in done else 1,
            status={"phase": "Succeeded"} if index in done else {},
            metadata={"annotations": {"batch.kubernetes.io/job-completion-index": str(index)}},
        )
        for index in range(count)
    ]


def the_ranks(status: Object) -> Object:
    return batch_job("ranks", annotations=RANKS, spec=SIX, status=status)


LARGE = node(status={"allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110"}})
FINISHING = [LARGE, queue(6), the_ranks(ONE_IS_DONE), *ranks(0), next_job()]
"""Six ranks in a queue of six cores: one has succeeded, five run."""


def saved(*objects: Object) -> ClusterSnapshot:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", **one} for one in objects]})
    snapshot, unread = read_snapshot_texts([("now.json", text)]).snapshot()
    assert not unread
    return snapshot


def planned(*objects: Object, limits: Limits | None = None) -> tuple[ClusterSnapshot, ScalePlan]:
    snapshot = saved(*objects)
    return snapshot, plan_snapshot(snapshot, "", limits or Limits())


def decision(plan: ScalePlan, name: str) -> ScaleDecision:
    return next(d for d in plan.decisions if d.job.name == name)


def status_of(snapshot: ClusterSnapshot, plan: ScalePlan, name: str = "blue") -> QueueStatus:
    return queue_statuses(snapshot, plan)[name]


def used_cpu(snapshot: ClusterSnapshot, plan: ScalePlan) -> int:
    return dict(status_of(snapshot, plan).used)["cpu"]


def test_ranks_that_finish_count_in_their_queue() -> None:
    snapshot, plan = planned(*FINISHING)
    left, waiting = decision(plan, "job.batch/ranks"), decision(plan, "next")
    assert (left.reason, left.current, left.target, left.victims) == ("Finishing", 5, 5, ())
    assert (waiting.admitted, waiting.reason, waiting.target) == (False, "QuotaReached", 0)
    assert waiting.message == "waits for quota of queue blue"
    assert "of queue blue, pods that edl does not plan use 5 cores of its share of 5.1 cores" in waiting.account
    assert used_cpu(snapshot, plan) == 5000
    assert status_of(snapshot, plan).running == 1


def test_before_one_of_them_has_succeeded_they_count_too() -> None:
    snapshot, plan = planned(LARGE, queue(6), the_ranks({"active": 6}), *ranks(), next_job())
    assert decision(plan, "job.batch/ranks").target + decision(plan, "next").target <= 6
    assert used_cpu(snapshot, plan) <= 6000


def test_what_they_leave_of_their_queue_others_may_use() -> None:
    snapshot, plan = planned(LARGE, queue(9), the_ranks(ONE_IS_DONE), *ranks(0), next_job())
    assert decision(plan, "next").target == 3, "nine less five, less a master"
    assert "the queue has 9 cores of its own, of which whole pods fill 8.1 cores" in decision(plan, "next").account
    assert used_cpu(snapshot, plan) == 8100


def test_a_quota_of_a_file_counts_them_too() -> None:
    objects = [one for one in FINISHING if one["kind"] != "Queue"]
    _, plan = planned(*objects, limits=Limits(quotas=(Quota("blue", (("cpu", 7000),)),)))
    assert decision(plan, "next").target == 1


def test_a_resource_quota_counts_them_once() -> None:
    capped = {
        "kind": "ResourceQuota",
        "metadata": {"name": "all", "namespace": "ads"},
        "spec": {"hard": {"cpu": "8"}},
    }
    objects = [one for one in FINISHING if one["kind"] != "Queue"]
    _, plan = planned(*objects, {"apiVersion": "v1", **capped})
    assert decision(plan, "next").target == 2
    assert "of namespace ads uses 7.1 cores of its quota of 8 cores" in decision(plan, "next").account


def test_what_they_use_is_neither_borrowed_nor_lent_twice() -> None:
    both = [queue(6, borrowingLimit={"cpu": 6}), queue(6, "green", borrowingLimit={"cpu": 6})]
    green = next_job()
    green["spec"]["queue"] = "green"
    snapshot, plan = planned(LARGE, *both, the_ranks(ONE_IS_DONE), *ranks(0), green)
    assert decision(plan, "next").target == 6, "twelve less five, less a master"
    assert used_cpu(snapshot, plan) == 5000


TASKS = {"trainer": {"phase": {"Succeeded": 1, "Running": 2}}}


def test_a_volcano_job_that_finishes_counts_with_all_of_its_tasks() -> None:
    status = {"state": {"phase": "Running"}, "version": 4, "taskStatusCount": TASKS}
    done = {**volcano_pod("ctr-trainer-0"), "status": {"phase": "Succeeded"}}
    names = ("pserver-0", "pserver-1", "trainer-1", "trainer-2")
    pods = [done, *(volcano_pod(f"ctr-{name}") for name in names)]
    snapshot, plan = planned(LARGE, queue(5), volcano_job(annotations=BLUE, status=status), *pods, next_job())
    assert decision(plan, "job.batch.volcano.sh/ctr").reason == "Finishing"
    assert decision(plan, "next").target == 0
    assert used_cpu(snapshot, plan) == 4000


def test_a_ray_cluster_whose_owner_lowers_its_maximum_counts() -> None:
    pods = [ray_pod("ray-head-x", group="headgroup"), *(ray_pod(f"ray-workers-{name}") for name in "abc")]
    cluster = ray_cluster(annotations=BLUE, groups=[ray_group(maxReplicas=5)])
    snapshot, plan = planned(LARGE, queue(5), cluster, *pods, next_job())
    left = decision(plan, "raycluster.ray.io/ray")
    assert (left.reason, left.current, left.target) == ("NotResized", 3, 3)
    assert decision(plan, "next").target == 0
    assert used_cpu(snapshot, plan) == 4000


def test_hosts_of_one_worker_are_not_taken_for_pods_that_go() -> None:
    pods = [ray_pod(f"ray-workers-{name}") for name in "abcdef"]
    (found,) = take(ray_cluster(groups=[ray_group(numOfHosts=2)]), *pods).jobs
    assert (len(found.live_trainers), found.is_left_alone) == (6, True)


def test_an_annotation_that_cannot_be_read_leaves_the_pods_where_they_are() -> None:
    wrong = batch_job("ranks", annotations=BLUE | {"paddlepaddle.org/max-instance": "x"})
    snapshot = take(wrong, *ranks(count=2))
    (found,) = snapshot.jobs
    assert (found.is_left_alone, len(found.kept_by_owner), snapshot.pods) == (True, 2, ())


@pytest.mark.parametrize(
    "wrong",
    [
        {"paddlepaddle.org/max-instance": "x"},
        {"paddlepaddle.org/max-instances": "6"},
        {"paddlepaddle.org/min-instance": "9"},
        {"paddlepaddle.org/sizes": "2,x"},
        {"paddlepaddle.org/elastic": "yes"},
    ],
)
def test_whatever_is_wrong_with_its_other_annotations_a_job_counts_in_its_queue(wrong: Object) -> None:
    snapshot, plan = planned(
        LARGE, queue(6), batch_job("ranks", annotations=BLUE | wrong, spec=SIX), *ranks(), next_job()
    )
    assert (used_cpu(snapshot, plan), decision(plan, "next").target) == (6000, 0)


def test_a_job_that_cannot_be_read_at_all_is_left_out_whatever_else_is_wrong() -> None:
    wrong = {"template": {"spec": {"containers": [container("x1")]}}}
    snapshot = take(batch_job(spec=wrong, annotations={"paddlepaddle.org/max-instance": "x"}), node())
    assert snapshot.jobs == ()


def test_a_job_of_which_nothing_runs_uses_no_quota() -> None:
    waiting = [batch_pod("ranks-0", job="ranks", spec={"nodeName": None}, status={"phase": "Pending"})]
    wrong = batch_job("ranks", annotations=BLUE | {"paddlepaddle.org/max-instance": "x"})
    snapshot, plan = planned(LARGE, queue(6), wrong, *waiting, next_job())
    assert used_cpu(snapshot, plan) == 5100, "all six cores are for the other job: five trainers and a master"


def test_a_pending_pod_of_it_is_no_serving() -> None:
    pending = batch_pod("ranks-6", job="ranks", spec={"nodeName": None}, status={"phase": "Pending"})
    snapshot = saved(LARGE, the_ranks(ONE_IS_DONE), *ranks(0), pending)
    assert snapshot.waiting_serving == ()


def test_its_pods_use_their_node_in_every_plan() -> None:
    small = node(status={"allocatable": {"cpu": "8", "memory": "64Gi", "pods": "110"}})
    snapshot, plan = planned(small, the_ranks(ONE_IS_DONE), *ranks(0), next_job())
    assert decision(plan, "next").target == 2, "eight less five, less a master"
    assert check(snapshot, plan) == ()
    (place,) = decision(plan, "next").nodes
    beyond = replace(decision(plan, "next"), nodes=((place[0], 3),), target=3)
    others = tuple(beyond if d.job == beyond.job else d for d in plan.decisions)
    assert any("overcommitted" in line for line in check(snapshot, replace(plan, decisions=others)))


def test_no_plan_ends_its_pods() -> None:
    snapshot, plan = planned(LARGE, the_ranks(ONE_IS_DONE), *ranks(0))
    (left,) = plan.decisions
    wrong = replace(left, target=4, victims=(snapshot.jobs[0].live_trainers[0].name,), shrink_reason="AtMax")
    assert any("edl leaves it alone" in line for line in check(snapshot, replace(plan, decisions=(wrong,))))


def test_a_running_job_keeps_its_minimum_beside_one_that_somebody_made_too_large() -> None:
    record = json.dumps({"time": "2026-01-01T00:00:00Z", "from": 3, "to": 2, "reason": "AtMax"})
    taken = batch_job("ranks", annotations=BLUE | {"paddlepaddle.org/last-resize": record}, spec={"parallelism": 6})
    labels = {"paddlepaddle.org/job": "next", "paddlepaddle.org/role": "trainer"}
    owner = owned_by("uid-next", "next")
    spec = {"nodeName": "n1", "containers": [container("1", "1Gi")]}
    trainers = [
        pod(f"next-trainer-{n}", labels={**labels, "paddlepaddle.org/index": str(n)}, owner=owner, spec=spec)
        for n in range(4)
    ]
    _, plan = planned(LARGE, queue(8), taken, *ranks(), next_job(low=2), *trainers)
    assert (decision(plan, "next").admitted, decision(plan, "next").target) == (True, 2)


def test_explain_says_how_many_run_and_offers_no_remedy_that_does_not_exist() -> None:
    snapshot = saved(*FINISHING)
    key = find_job(snapshot, "job.batch/ranks", "ads")
    assert key == JobKey.of(WorkloadKind.BATCH_JOB, "ads", "ranks")
    out = io.StringIO()
    print_job_report(report_snapshot(snapshot, key, "", Limits()), snapshot, Console(file=out, width=200))
    first, second, *rest = out.getvalue().splitlines()
    assert first == "ads/job.batch/ranks: 5 now, left as they are (min 2, max 6), Finishing"
    assert "a pod of the Job has succeeded, so it is finishing" in second
    assert not any("What would help" in line for line in rest)


def test_the_table_of_a_plan_has_the_pods_that_stay() -> None:
    _, plan = planned(*FINISHING, batch_job("wrong", annotations={"paddlepaddle.org/max-instance": "x"}))
    assert decision(plan, "job.batch/wrong").reason == "NotResized"
    assert [(d.job.name, d.current, d.target) for d in plan.decisions if not d.admitted] == [
        ("job.batch/ranks", 5, 5),
        ("job.batch/wrong", 0, 0),
        ("next", 0, 0),
    ]


@pytest.mark.parametrize("policy", ["maxmin", "utility", "static-min", "edl-2017"])
def test_every_policy_leaves_it_alone(policy: str) -> None:
    plan = plan_snapshot(saved(LARGE, queue(16), *FINISHING[2:]), policy, Limits())
    left = decision(plan, "job.batch/ranks")
    assert (left.current, left.target, left.victims) == (5, 5, ())


def test_a_task_without_a_name_of_its_own_is_read_too() -> None:
    tasks = [task("a", 1), task("b", 1)]
    pods = [volcano_pod("ctr-a-0"), volcano_pod("ctr-b-0")]
    (found,) = take(volcano_job(tasks=tasks), *pods).jobs
    assert (found.is_left_alone, len(found.kept_by_owner)) == (True, 2)


ORPHANED: Object = {"deletionTimestamp": "2026-11-27T12:00:00Z", "finalizers": ["orphan"]}


def running_trainers(count: int) -> list[Object]:
    owner = {"apiVersion": "paddlepaddle.org/v1", "kind": "TrainingJob", "name": "next", "uid": "uid-next"}
    spec = {"nodeName": "n1", "containers": [container("1", "1Gi")]}
    role = {"paddlepaddle.org/job": "next", "paddlepaddle.org/role": "trainer"}
    return [
        pod(
            f"next-trainer-{number}",
            labels={**role, "paddlepaddle.org/index": str(number)},
            owner={**owner, "controller": True},
            spec=spec,
        )
        for number in range(count)
    ]


@pytest.mark.parametrize(
    ("finalizers", "sentence", "kept"),
    [
        (["orphan"], "the job is being deleted and leaves its pods behind (--cascade=orphan)", 4),
        (["foregroundDeletion"], "the job is being deleted; its pods go too", 0),
    ],
)
def test_pods_that_a_deletion_orphans_stay_and_the_plan_says_so(
    finalizers: list[str], sentence: str, kept: int
) -> None:
    deleted = next_job(deletionTimestamp="2026-11-27T12:00:00Z", finalizers=finalizers)
    other = job("other", uid="uid-other", spec={"image": "x", "trainer": {**next_job()["spec"]["trainer"]}})
    snapshot, plan = planned(node(), deleted, *running_trainers(4), other)
    found = decision(plan, "next")
    assert (found.reason, found.message, found.target) == ("Finished", sentence, kept)
    assert decision(plan, "other").nodes == (("n1", 7 - kept),), "eight less those that stay, less a master"
    assert check(snapshot, plan) == ()


def test_a_workload_that_is_deleted_so_leaves_its_pods_behind() -> None:
    snapshot = take(batch_job("ranks", **ORPHANED), *ranks(count=3))
    (found,) = snapshot.jobs
    assert (found.is_left_alone, len(found.kept_by_owner)) == (True, 3)
