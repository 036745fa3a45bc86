"""What a job of Kueue reads: which ClusterQueue is full, and who borrows its quota."""

from __future__ import annotations

from edl.controller.planning import plan_snapshot
from edl.explain.queue_status import kueue_statuses
from edl.model.limits import Limits
from edl.model.plan import ScaleDecision
from edl.model.status import Reason
from tests.kube.translate.kueue.test_kueue_reader import ALONE, SHARED, key, running
from tests.worlds.kueue.objects import kueue_job, workload
from tests.worlds.raw_objects import Object, take


def decision(*objects: Object, name: str = "train") -> ScaleDecision:
    found = plan_snapshot(take(*objects), "maxmin", Limits()).decision(key(name))
    assert found is not None
    return found


def test_a_full_queue_is_named_with_its_flavor() -> None:
    found = decision(*ALONE, *running(10))
    assert found.reason is Reason.QUOTA_REACHED
    assert found.message.endswith("ClusterQueue blue (flavor a) has 0 cores left now; a trainer requests 1 core")
    assert "ClusterQueue blue (flavor a) may use 10 cores now; jobs that edl sizes use 10 cores" in found.details


def test_who_borrows_and_gives_back_is_named() -> None:
    waiting = kueue_job("owner", "green", size=2, spec={"suspend": True})
    found = decision(*SHARED, *running(20), waiting, workload("w-owner", 2, queue="green", job="owner"), name="owner")
    assert "waits for quota of ClusterQueue green (flavor a)" in found.message
    assert "ClusterQueue blue borrows 10 cores and gives back 10 cores" in found.details


def test_what_others_borrow_for_good_is_not_given_back() -> None:
    held = workload("other", 15, queue="green", admitted=15)
    details = decision(*SHARED, *running(5), held).details
    assert "may use 5 cores now, and 20 cores at most" in details
    assert details.endswith("ClusterQueue green borrows 5 cores")


def test_one_who_waits_beside_a_job_is_named() -> None:
    found = decision(*ALONE, *running(3), workload("large", 9))
    assert found.reason is Reason.QUOTA_REACHED
    assert "Workload ads/large waits for 9 cores" in found.message


def test_the_metrics_of_a_cluster_queue_are_those_of_a_queue() -> None:
    view = take(*SHARED, *running(12), workload("other", 4, queue="green", admitted=4))
    ((queue, status),) = kueue_statuses(view, plan_snapshot(view, "maxmin", Limits())).items()
    assert (queue.name, queue.nominal) == ("blue/a", (("cpu", 10_000),))
    assert (status.share, status.used, status.borrowed) == (
        (("cpu", 16_000),),
        (("cpu", 16_000),),
        (("cpu", 6_000),),
    )
    assert (status.running, status.pending) == (1, 0)
