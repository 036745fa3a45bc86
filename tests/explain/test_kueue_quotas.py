"""What a job of Kueue reads: which ClusterQueue is full, and who borrows its quota."""

from __future__ import annotations

from edl.controller.planning import plan_snapshot
from edl.explain.queue_status import kueue_statuses
from edl.model.limits import Limits
from edl.model.plan import ScaleDecision
from edl.model.status import Reason
from tests.kube.translate.kueue.test_kueue_reader import ALONE, SHARED, key, running
from tests.worlds.kueue.objects import kueue_job, own_workload, workload
from tests.worlds.kueue.owned_jobs import owned_batch_job, reference_to
from tests.worlds.raw_objects import Object, take

OF_6 = {"paddlepaddle.org/min-instance": "6"}


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


def base_of(*objects: Object, owned: Object | None = None) -> ScaleDecision:
    """The decision about a job whose Workloads edl makes, in LocalQueue blue; of 2 to 20 pods of 1 cpu."""
    found = plan_snapshot(take(*objects, owned or owned_batch_job()), "maxmin", Limits()).decision(key("train"))
    assert found is not None
    return found


def test_a_new_job_is_told_how_many_pods_its_quota_has_now() -> None:
    found = base_of(*SHARED, workload("other", 4, queue="green", admitted=4))
    assert found.message == (
        "edl makes a Workload for it in LocalQueue blue of Kueue; ClusterQueue blue has unused quota a for 16 pods of"
        " it, and it asks for 2 to 20"
    )


def test_a_new_job_is_told_what_it_waits_for_and_who_gives_it_back() -> None:
    found = base_of(*SHARED, *running(20, "grown", "green"), owned=owned_batch_job(OF_6))
    assert found.message.endswith(
        "; waits for 6 cores of quota a in ClusterQueue blue, which is its own; ClusterQueue green borrows 10 cores"
        " and gives back 6 cores"
    )


def test_a_new_job_is_told_what_it_could_only_borrow() -> None:
    held = workload("own", 9, admitted=9), workload("other", 10, queue="green", admitted=10)
    found = base_of(*SHARED, *held)
    assert found.message.endswith(
        "; waits for 1 core of quota a in ClusterQueue blue, and can only borrow it (nominalQuota 10 cores)"
    )


def test_a_new_job_that_kueue_never_admits_is_told_so() -> None:
    found = base_of(*ALONE, owned=owned_batch_job({"paddlepaddle.org/min-instance": "11"}))
    assert "Workload ads/train needs 11 cores, and ClusterQueue blue has 10 cores at most" in found.message


def test_a_base_that_waits_keeps_the_words_of_kueue_in_its_line() -> None:
    owner = reference_to(owned_batch_job())
    base = own_workload(0, 2, state="waiting", owner=owner, name="train", message="2 more needed")
    found = base_of(*SHARED, *running(20, "grown", "green"), base)
    assert found.message == "Workload ads/train-0 waits in LocalQueue blue of Kueue: 2 more needed"
    assert "; waits for 2 cores of quota a in ClusterQueue blue, which is its own" in found.details
    stopped = own_workload(0, 2, state="waiting", owner=owner, name="train", active=False)
    assert not base_of(*SHARED, stopped).details


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
