"""What the objects of Kueue say about the jobs that edl sizes, and the sizes that come of it."""

from __future__ import annotations

from typing import Any

import pytest

from edl.controller.planning import plan_snapshot
from edl.kube.translate.kueue.growth import ADMITTED_WITHIN_S, FIRST_PAUSE_S
from edl.kube.translate.snapshot import Translator
from edl.lifecycle.resized_workload import workload_actions
from edl.model.actions import EmitEvent, ResizeWorkload
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.names import JobKey, WorkloadKind
from tests.worlds.kueue.objects import (
    cluster_queue,
    cohort,
    flavor,
    kueue_job,
    local_queue,
    quota,
    resource_groups,
    workload,
)
from tests.worlds.raw_objects import Object, batch_pod, node, take

ROOM = {"status": {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "250"}}}
NODES = (node("n1", **ROOM),)
ALONE = (*NODES, flavor(), cluster_queue("blue", 10), local_queue("blue"))
SHARED = (
    *(*NODES, flavor(), local_queue("blue"), local_queue("green")),
    *(cluster_queue("blue", 10, cohort="all"), cluster_queue("green", 10, cohort="all")),
)
NOW_S = 1000.0


def key(name: str = "train") -> JobKey:
    return JobKey.of(WorkloadKind.BATCH_JOB, "ads", name)


def pods(count: int, job: str = "train") -> list[Object]:
    return [batch_pod(f"{job}-{i}", job=job, ready_at=i) for i in range(count)]


def sizes(snapshot: ClusterSnapshot) -> dict[str, int]:
    """What edl writes for each job: its new count, or the one that it has."""
    plan = plan_snapshot(snapshot, "maxmin", Limits())
    found = {}
    for job in snapshot.jobs:
        actions = workload_actions(job, plan.decision(job.key), 100, NOW_S)
        resized = [action.count for action in actions if isinstance(action, ResizeWorkload)]
        found[job.key.object_name] = resized[0] if resized else job.owner_count or 0
    return found


def problem(*objects: Object) -> str:
    (job,) = take(*objects).jobs
    return job.problem


def refusal(*objects: Object, **more: Any) -> str:
    (job,) = (job for job in take(*objects, **more).jobs if job.key == key())
    return "" if job.refusal is None else job.refusal.message


def running(count: int, name: str = "train", queue: str = "blue", **more: Any) -> tuple[Object, ...]:
    """A Job of so many pods with its admitted Workload and its pods."""
    job = kueue_job(name, queue, size=count, spec={"suspend": False})
    return job, workload(f"w-{name}", count, queue=queue, admitted=count, job=name, **more), *pods(count, name)


def test_a_job_grows_to_its_nominal_quota() -> None:
    snapshot = take(*ALONE, *running(3))
    (job,) = snapshot.jobs
    assert (job.queue, job.kueue and job.kueue.reserved, job.suspended) == ("blue/a", 3, False)
    assert sizes(snapshot) == {"train": 10}


def test_a_reservation_in_a_cluster_queue_that_does_not_exist_ends_no_decision() -> None:
    """Whoever may write the status of a Workload writes any name into it."""
    lost = (kueue_job(size=3), workload("w", 3, queue="none", admitted=3, job="train"), *pods(3))
    other = (kueue_job("other", size=3), workload("w-other", 3, admitted=3, job="other"), *pods(3, "other"))
    assert sizes(take(*ALONE, *lost, *other)) == {"train": 2, "other": 8}, "it waits in its LocalQueue"


@pytest.mark.parametrize("cpu", ["-1", "x"])
@pytest.mark.parametrize("waits", [True, False])
def test_a_workload_that_cannot_be_read_concerns_its_own_job_only(cpu: str, *, waits: bool) -> None:
    """Kueue copies into a Workload what anybody writes into a job of a kind that is checked by nobody."""
    (job, good, *mine), (other, bad, *others) = running(3), running(3, "other")
    if waits:
        bad = workload("w-other", 3, job="other")
        bad["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
    else:
        bad["status"]["admission"]["podSetAssignments"][0]["resourceUsage"] = {"cpu": cpu}
    found = take(*ALONE, job, good, *mine, other, bad, *others)
    assert sizes(found)["train"] == sizes(take(*ALONE, job, good, *mine))["train"] == 10
    assert [("w-other" in one.problem, bool(one.problem)) for one in found.jobs] == [(True, True), (False, False)]


def test_a_workload_of_another_namespace_that_names_the_job_takes_no_quota_from_it() -> None:
    forged = workload("forged", 9, queue="none", admitted=9, job="train", at=5)
    forged["metadata"]["namespace"] = "mallory"
    assert sizes(take(*ALONE, *running(3), forged)) == {"train": 10}


def test_a_job_borrows_what_its_cohort_leaves_up_to_the_limits() -> None:
    assert sizes(take(*SHARED, *running(3))) == {"train": 20}
    limits = ([quota(10, borrowing=4)], [quota(10, lending=2)])
    for mine, theirs, expected in ((limits[0], [quota(10)], 14), ([quota(10)], limits[1], 12)):
        queues = (
            cluster_queue("blue", cohort="all", resourceGroups=resource_groups(a=mine)),
            cluster_queue("green", cohort="all", resourceGroups=resource_groups(a=theirs)),
        )
        assert sizes(take(*NODES, flavor(), local_queue("blue"), *queues, *running(3))) == {"train": expected}


def test_a_cohort_has_quota_of_its_own_and_a_parent() -> None:
    objects = (
        *NODES,
        *(flavor(), local_queue("blue"), cluster_queue("blue", 4, cohort="team")),
        cohort("team", parentName="firm", resourceGroups=resource_groups(a=[quota(2, borrowing=3)])),
        cohort("firm", resourceGroups=resource_groups(a=[quota(20)])),
    )
    assert sizes(take(*objects, *running(3))) == {"train": 9}


def test_what_others_hold_is_not_there() -> None:
    assert sizes(take(*ALONE, *running(3), workload("other", 4, admitted=4))) == {"train": 6}
    borrowed = workload("other", 15, queue="green", admitted=15)
    assert sizes(take(*SHARED, *running(3), borrowed)) == {"train": 5}, "also what the lender cannot take back"
    assert sizes(take(*ALONE, *running(3), workload("other", 2, admitted=6))) == {"train": 8}, (
        "a size that was lowered"
    )
    ended = {"conditions": [{"type": "Finished", "status": "True"}]}
    assert sizes(take(*ALONE, *running(3), workload("other", 4, status=ended))) == {"train": 10}


def test_a_borrower_gives_back_in_the_decision_in_which_an_owner_waits() -> None:
    assert sizes(take(*SHARED, *running(20), workload("owner", 7, queue="green"))) == {"train": 13}


def test_a_wish_to_borrow_is_no_claim_and_stops_growth() -> None:
    waiting = workload("large", 12, queue="green")
    assert sizes(take(*SHARED, *running(12), waiting)) == {"train": 12}
    assert "Workload ads/large waits for 12 cores" in refusal(*SHARED, *running(12), waiting)


@pytest.mark.parametrize(
    "waiting",
    [
        workload("low", 7, queue="green", priority=-1),
        workload("huge", 21, queue="green"),
        workload("stopped", 7, queue="green", active=False),
        workload("nowhere", 7, queue="red"),
    ],
)
def test_who_is_less_important_or_can_never_be_admitted_stops_no_growth(waiting: Object) -> None:
    assert not refusal(*SHARED, *running(3), waiting)


def test_a_size_grows_only_into_what_nobody_has_reserved() -> None:
    """The owner is a job of edl too: it grows once the borrower's reservation is smaller."""
    before = take(*SHARED, *running(18), *running(2, "owner", "green"))
    assert sizes(before) == {"train": 10, "owner": 2}
    job = kueue_job("train", size=10)
    after = take(*SHARED, job, workload("w", 10, admitted=18, job="train"), *pods(10), *running(2, "owner", "green"))
    assert sizes(after) == {"train": 10, "owner": 10}


def test_a_job_that_kueue_has_suspended_waits_and_asks_for_what_there_is() -> None:
    job = kueue_job(size=20, spec={"suspend": True})
    snapshot = take(*ALONE, job, workload("w", 20, job="train", at=999), workload("other", 4, admitted=4))
    assert not snapshot.jobs[0].suspended
    assert sizes(snapshot) == {"train": 6}
    full = take(*ALONE, job, workload("w", 20, job="train", at=999), workload("other", 9, admitted=9))
    assert sizes(full) == {"train": 2}, "its minimum: what Kueue will admit first"


def test_a_job_whose_workload_is_stopped_is_suspended() -> None:
    job = kueue_job(spec={"suspend": True})
    assert take(*ALONE, job, workload("w", 3, job="train", active=False)).jobs[0].suspended


def test_a_job_that_runs_keeps_its_minimum_whatever_the_quota_is() -> None:
    objects = (*NODES, flavor(), cluster_queue("blue", 1), local_queue("blue"))
    assert sizes(take(*objects, *running(6))) == {"train": 2}


def test_a_size_that_is_not_admitted_in_time_is_taken_back_and_tried_again_later() -> None:
    translator = Translator()
    old = {"kueue.x-k8s.io/workload-slice-replacement-for": "ads/w"}
    slices = workload("w", 4, admitted=4, job="train"), workload("w2", 9, job="train", at=998, annotations=old)
    objects = (*ALONE, kueue_job(size=9, spec={"suspend": False}), *slices, *pods(9))
    early = take(*objects, now_s=1002.0, translator=translator)
    assert (early.jobs[0].refusal, translator.valid_until_s) == (None, 998 + ADMITTED_WITHIN_S)
    late = take(*objects, now_s=1003.0, translator=translator)
    assert sizes(late) == {"train": 4}
    assert "Kueue did not admit 9 trainers within 5 s" in (
        late.jobs[0].refusal.message if late.jobs[0].refusal else ""
    )
    assert translator.valid_until_s == 1003.0 + FIRST_PAUSE_S
    back = (*ALONE, kueue_job(size=4, spec={"suspend": False}), slices[0], *pods(4))
    assert sizes(take(*back, now_s=1003.0 + FIRST_PAUSE_S - 1, translator=translator)) == {"train": 4}
    assert sizes(take(*back, now_s=1003.0 + FIRST_PAUSE_S, translator=translator)) == {"train": 10}


def test_a_size_that_kueue_admits_after_it_was_taken_back_gives_the_next_one_more_time() -> None:
    """Otherwise edl asks and takes back without end beside a Kueue that needs more than 5 s."""
    translator = Translator()
    old = {"kueue.x-k8s.io/workload-slice-replacement-for": "ads/w"}
    held, asked = workload("w", 4, admitted=4, job="train"), kueue_job(size=9, spec={"suspend": False})
    w2 = workload("w2", 9, job="train", at=998, annotations=old)
    assert sizes(take(*ALONE, asked, held, w2, *pods(9), now_s=1003.0, translator=translator)) == {"train": 4}
    lowered = kueue_job(size=4, spec={"suspend": False})
    admitted = workload("w2", 9, admitted=9, job="train", at=998)
    take(*ALONE, lowered, admitted, *pods(4), now_s=1004.0, translator=translator)
    shrunk = workload("w2", 4, admitted=9, job="train", at=998)
    assert sizes(take(*ALONE, lowered, shrunk, *pods(4), now_s=1005.0, translator=translator)) == {"train": 10}
    w3 = workload("w3", 9, job="train", at=1006, annotations=old)
    again = (*ALONE, asked, shrunk, w3, *pods(9))
    early = take(*again, now_s=1006.0 + ADMITTED_WITHIN_S, translator=translator)
    assert (early.jobs[0].refusal, translator.valid_until_s) == (None, 1006.0 + 2 * ADMITTED_WITHIN_S)
    late = take(*again, now_s=1006.0 + 2 * ADMITTED_WITHIN_S, translator=translator)
    assert sizes(late) == {"train": 4}
    assert late.jobs[0].refusal is not None
    assert "did not admit 9 trainers within 10 s" in late.jobs[0].refusal.message


def test_no_size_is_raised_beside_one_that_kueue_may_be_admitting() -> None:
    old = {"kueue.x-k8s.io/workload-slice-replacement-for": "ads/w"}
    held, running_4 = workload("w", 4, admitted=4, job="train"), kueue_job(size=4, spec={"suspend": False})
    waiting = workload("w2", 4, job="train", at=998, annotations=old)
    assert sizes(take(*ALONE, running_4, held, *pods(4), now_s=1000.0)) == {"train": 10}
    assert sizes(take(*ALONE, running_4, held, waiting, *pods(4), now_s=1000.0)) == {"train": 4}
    translator = Translator()
    take(*ALONE, running_4, held, waiting, *pods(4), now_s=1000.0, translator=translator)
    assert translator.valid_until_s == 998 + ADMITTED_WITHIN_S
    left = take(*ALONE, running_4, held, waiting, *pods(4), now_s=998 + ADMITTED_WITHIN_S)
    assert sizes(left) == {"train": 10}, "Kueue has left it waiting"
    asked = kueue_job(size=6, spec={"suspend": False})
    assert sizes(take(*ALONE, asked, held, *pods(4))) == {"train": 6}, "Kueue has not made its Workload yet"
    lowered = kueue_job(size=3, spec={"suspend": False})
    assert sizes(take(*ALONE, lowered, held, *pods(4))) == {"train": 3}, "Kueue has not lowered its Workload yet"
    first = kueue_job(size=3, spec={"suspend": True})
    assert sizes(take(*ALONE, first, workload("w", 3, job="train", at=999))) == {"train": 3}, "it grows once it runs"
    small = kueue_job(size=1, spec={"suspend": True})
    assert sizes(take(*ALONE, small, workload("w", 1, job="train", at=999))) == {"train": 2}, "its minimum"


def test_a_workload_that_asks_for_more_than_was_admitted_is_lowered_to_that() -> None:
    """Kueue lets all of them run."""
    job = kueue_job(size=6, spec={"suspend": False})
    objects = (*ALONE, job, workload("w", 6, admitted=4, job="train"), *pods(6))
    assert sizes(take(*objects)) == {"train": 4}
    assert "Kueue admitted 4 trainers, but its Workload asks for 6, and that many may run" in refusal(*objects)
    ended = {"reclaimablePods": [{"name": "main", "count": 2}]}
    reclaimed = workload("w", 6, admitted=6, job="train", status=ended)
    assert not refusal(*ALONE, job, reclaimed, *pods(6)), "the others have ended"


def test_the_nodes_of_a_flavor_are_those_of_a_job_that_waits() -> None:
    nodes = node("n1", metadata={"labels": {"gpu": "a"}}), node("n2", metadata={"labels": {"gpu": "b"}})
    groups = resource_groups(a=[quota(1)], b=[quota(10)])
    objects = (*nodes, flavor("a", gpu="a"), flavor("b", gpu="b"), local_queue("blue"))
    job = kueue_job(size=20, spec={"suspend": True})
    snapshot = take(*objects, cluster_queue("blue", resourceGroups=groups), job)
    assert snapshot.jobs[0].queue == "blue/b", "flavor a never has what its minimum needs"
    assert snapshot.jobs[0].trainer.placement.node_selector == (("gpu", "b"),)
    assert sizes(snapshot) == {"train": 8}, "what the node of the flavor has"


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ((kueue_job(annotations={"kueue.x-k8s.io/elastic-job": None}),), "starts it anew whenever its size changes"),
        ((kueue_job(annotations={"kueue.x-k8s.io/elastic-job-scale-up-strategy": "partial"}),), "is partial"),
        ((kueue_job(annotations={"kueue.x-k8s.io/job-min-parallelism": "2"}),), "forbids every other size"),
        ((kueue_job(annotations={"paddlepaddle.org/queue": "q"}),), "names a queue of edl"),
        ((kueue_job(pod={}),), "have no scheduling gate kueue.x-k8s.io/elastic-job"),
        ((kueue_job(queue="red"),), "LocalQueue red of namespace ads does not exist"),
        ((kueue_job(queue="red"), local_queue("red")), "names a ClusterQueue that does not exist"),
    ],
)
def test_what_edl_does_not_size_is_refused_in_words(objects: tuple[Object, ...], expected: str) -> None:
    assert expected in problem(*ALONE, *objects)


@pytest.mark.parametrize("stopped", ["ClusterQueue", "LocalQueue"])
def test_a_queue_that_is_stopped_admits_no_size(stopped: str) -> None:
    hold: dict[str, Any] = {"stopPolicy": "HoldAndDrain"}
    queue = cluster_queue("blue", 10, **(hold if stopped == "ClusterQueue" else {}))
    local = local_queue("blue", **(hold if stopped == "LocalQueue" else {}))
    objects = (*NODES, flavor(), queue, local)
    assert sizes(take(*objects, *running(3))) == {"train": 3}
    assert "is stopped" in refusal(*objects, *running(3))
    assert sizes(take(*objects, kueue_job(size=9, spec={"suspend": True}))) == {"train": 2}


def test_a_job_that_is_refused_counts_as_somebody_elses() -> None:
    job = kueue_job("odd", annotations={"kueue.x-k8s.io/elastic-job": None})
    assert sizes(take(*ALONE, *running(3), job, workload("w-odd", 4, admitted=4, job="odd")))["train"] == 6


def test_a_quantity_that_cannot_be_read_stops_all_sizes() -> None:
    broken = cluster_queue("red", "ten")
    snapshot = take(*ALONE, *running(3), broken)
    plan = plan_snapshot(snapshot, "maxmin", Limits())
    (event,) = workload_actions(snapshot.jobs[0], plan.decision(key()), 100, NOW_S)
    assert isinstance(event, EmitEvent)
    assert "an object of Kueue cannot be read" in event.message
