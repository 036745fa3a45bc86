"""TrainingJobs that the real Kueue admits: edl makes their Workloads, and Kueue takes trainers back one by one."""

from __future__ import annotations

import pytest

from tests.kueue.programs import CLUSTER_QUEUES, WORKLOADS
from tests.kueue.scene import Scene, true_of
from tests.kueue.training_jobs import TrainingScene
from tests.worlds.kueue.objects import API

LABEL = {"kueue.x-k8s.io/queue-name": "blue"}
pytestmark = pytest.mark.cluster("Kueue runs on a real control plane only")


@pytest.mark.parametrize("reclaim", ["Never", "LowerPriority", "Any"])
def test_a_job_grows_into_idle_quota_and_gives_it_back_to_an_owner_one_by_one(
    there: TrainingScene, reclaim: str
) -> None:
    there.queue("blue", 4, reclaim=reclaim)
    there.queue("green", 6, reclaim=reclaim)
    there.train("train", "blue", 2, 20)
    there.wait_trainers(train=10)
    before = there.trainers("train")
    there.submit("owner", "green", 5, elastic=False)
    there.wait_trainers(train=5)
    there.wait_sizes(owner=5)
    after = there.trainers("train")
    assert after.items() <= before.items(), "nobody started again"
    there.remove("owner")
    there.wait_trainers(train=10)
    assert after.items() <= there.trainers("train").items()


def test_a_job_waits_until_kueue_admits_it_and_has_no_pod_before(there: TrainingScene) -> None:
    there.queue("blue", 4)
    there.submit("first", "blue", 4, elastic=False)
    there.wait_sizes(first=4)
    there.train("train", "blue", 2, 20)
    there.wait(lambda: "waits in LocalQueue blue of Kueue: " in there.line("train"), "the status says why")
    assert "insufficient" in there.line("train"), "in Kueue's words"
    assert not there.pods_of("train")
    there.remove("first")
    there.wait_trainers(train=4)
    there.wait(
        lambda: all("PodsReady" in true_of(one) for one in there.workloads_of("train").values()), "Kueue is told"
    )


def test_a_job_whose_queue_does_not_cover_a_resource_says_so_until_it_does(there: TrainingScene) -> None:
    Scene.queue(there, "blue", 6)
    there.train("train", "blue", 2, 20)
    there.wait(lambda: "does not cover memory, so Kueue never admits" in there.line("train"), "the status says why")
    assert not there.pods_of("train")
    there.cover("blue", 6)
    there.wait_trainers(train=6)


def test_a_job_in_a_queue_with_a_flavor_that_does_not_exist_says_so_until_it_does(there: TrainingScene) -> None:
    there.queue("blue", 6)
    full, missing = there.full("blue"), f"{there.name}-missing"
    (group,) = there.kube.get(CLUSTER_QUEUES, full, "")["spec"]["resourceGroups"]
    resources = [{"name": name, "nominalQuota": 0} for name in group["coveredResources"]]
    groups = [{**group, "flavors": [*group["flavors"], {"name": missing, "resources": resources}]}]
    there.kube.patch(CLUSTER_QUEUES, full, {"spec": {"resourceGroups": groups}}, "")
    there.train("train", "blue", 2, 20)
    words = f"{full} is inactive (Can't admit new workloads: references missing ResourceFlavor(s): {missing}.)"
    there.wait(lambda: words in there.line("train"), "the status says why")
    there.kube.create({"apiVersion": API, "kind": "ResourceFlavor", "metadata": {"name": missing}, "spec": {}})
    there.wait_trainers(train=6)


def test_a_stopped_job_gives_everything_back_and_runs_again_once_it_may(there: TrainingScene) -> None:
    there.queue("blue", 6)
    there.train("train", "blue", 2, 20)
    there.wait_trainers(train=6)
    name = there.base("train")["metadata"]["name"]
    there.stop_workload(name, active=False)
    there.wait(lambda: not there.pods_of("train"), "no pod is left")
    there.wait(lambda: "QuotaReserved" not in true_of(there.base("train")), "the quota is free")
    there.wait(lambda: "is stopped (spec.active is false)" in there.line("train"), "the status says why")
    there.submit("other", "blue", 6, elastic=False)
    there.wait_sizes(other=6)
    there.stop_workload(name, active=True)
    there.remove("other")
    there.wait_trainers(train=6)


def test_a_job_of_a_higher_priority_takes_the_place_and_the_job_is_requeued(there: TrainingScene) -> None:
    there.queue("blue", 6)
    there.train("train", "blue", 4, 20, priority="low")
    there.wait_trainers(train=6)
    there.submit("high", "blue", 4, elastic=False, priority="high")
    there.wait_sizes(high=4)
    there.wait(lambda: not there.pods_of("train"), "the base is evicted as a whole")
    there.remove("high")
    there.wait_trainers(train=6)


def test_a_job_that_ends_leaves_the_queue(there: TrainingScene) -> None:
    there.queue("blue", 6)
    there.train("train", "blue", 2, 20)
    there.wait_trainers(train=6)
    there.kube.patch("trainingjobs", "train", {"spec": {"suspend": True}}, there.name)
    there.wait(lambda: not there.workloads_of("train"), "it holds nothing")
    there.submit("other", "blue", 6, elastic=False)
    there.wait_sizes(other=6)
    there.kube.patch("trainingjobs", "train", {"spec": {"suspend": False}}, there.name)
    there.remove("other")
    there.wait_trainers(train=6)


def test_two_jobs_share_what_is_idle(there: TrainingScene) -> None:
    there.queue("blue", 10)
    there.train("train", "blue", 2, 20)
    there.wait_trainers(train=10)
    before = there.trainers("train")
    there.train("other", "blue", 2, 20)
    there.wait(lambda: abs(len(there.trainers("train")) - len(there.trainers("other"))) <= 1, "they share")
    assert sum(len(there.trainers(name)) for name in ("train", "other")) <= 10
    assert there.trainers("train").items() <= before.items(), "nobody started again"


def test_a_workload_that_a_person_stops_or_deletes_costs_one_trainer(there: TrainingScene) -> None:
    there.queue("blue", 6)
    there.train("train", "blue", 2, 6)
    there.wait_trainers(train=6)
    first = next(name for name in there.workloads_of("train") if name.endswith("-1"))
    there.stop_workload(first, active=False)
    there.wait_trainers(train=5)
    there.wait(lambda: "QuotaReserved" not in true_of(there.workloads_of("train")[first]), "its quota is free")
    there.stop_workload(first, active=True)
    there.wait_trainers(train=6)
    before = there.trainers("train")
    there.kube.delete(WORKLOADS, first, there.name)
    there.wait(lambda: len(there.trainers("train")) == 5, "one trainer ends")
    there.wait_trainers(train=6)
    assert len(before.items() & there.trainers("train").items()) == 5


def test_pods_run_on_the_nodes_of_the_flavors_that_kueue_chose(there: TrainingScene) -> None:
    """The master fits into the first flavor, and the minimum of trainers does not."""
    there.flavors({"small": "1250m", "large": "6"})
    there.train("train", "blue", 2, 20)
    there.wait_trainers(train=6)
    nodes = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in there.pods_of("train")}
    assert nodes.pop("train-master-0") == "kueue-0"
    assert set(nodes.values()) == {"kueue-1"}


def test_a_label_on_a_job_that_runs_ends_no_trainer(there: TrainingScene) -> None:
    there.queue("blue", 6)
    there.train("train", "", 2, 5)
    there.wait(lambda: len(there.trainers("train")) == 5, "it runs without Kueue")
    before = there.trainers("train")
    there.kube.patch("trainingjobs", "train", {"metadata": {"labels": LABEL}}, there.name)
    there.wait_trainers(train=5)
    assert there.trainers("train") == before


def test_what_kueue_takes_back_while_edl_is_down_ends_once_it_is_back(there: TrainingScene) -> None:
    there.queue("blue", 4, reclaim="Any")
    there.queue("green", 6, reclaim="Any")
    there.train("train", "blue", 2, 20)
    there.wait_trainers(train=10)
    before = there.trainers("train")
    there.cluster.world.controller.kill()
    there.submit("owner", "green", 4, elastic=False)
    there.wait(lambda: there.admitted("train") == 6, "Kueue takes four trainers back")
    assert there.trainers("train") == before
    there.cluster.world.controller.start()
    there.wait_trainers(train=6)
    there.wait_sizes(owner=4)
    assert there.trainers("train").items() <= before.items()


def test_a_deleted_job_leaves_nothing(there: TrainingScene) -> None:
    there.queue("blue", 6)
    there.train("train", "blue", 2, 20)
    there.wait_trainers(train=6)
    there.kube.delete("trainingjobs", "train", there.name)
    there.wait(lambda: not there.pods_of("train") and not there.workloads_of("train"), "nothing is left")
    there.submit("other", "blue", 6, elastic=False)
    there.wait_sizes(other=6)


def test_kueue_that_is_down_delays_growth_and_loses_nothing(there: TrainingScene) -> None:
    there.queue("blue", 8)
    there.submit("fixed", "blue", 4, elastic=False)
    there.wait_sizes(fixed=4)
    there.train("train", "blue", 2, 8)
    there.wait_trainers(train=4)
    before = there.trainers("train")
    there.cluster.kueue.stop()
    there.remove("fixed")
    there.wait_sizes(fixed=0)
    assert there.trainers("train") == before
    there.cluster.kueue.start()
    there.wait_trainers(train=8)
    assert before.items() <= there.trainers("train").items()


def test_a_job_that_is_not_ready_in_time_is_requeued_and_one_that_is_stays(there: TrainingScene) -> None:
    there.queue("blue", 12)
    kueue = there.cluster.kueue
    kueue.stop()
    kueue.start(waitForPodsReady={"timeout": "4s", "requeuingStrategy": {"backoffBaseSeconds": 1}})
    try:
        there.train("ready", "blue", 2, 6)
        there.train("never", "blue", 2, 6, nodes={"no": "such-node"})
        there.wait_trainers(ready=6)
        there.wait(lambda: there.base("never")["status"].get("requeueState", {}).get("count"), "it was not ready")
        there.wait(lambda: "QuotaReserved" in true_of(there.base("never")), "it is admitted once more")
        assert not there.pods_of("never")
        assert all("Evicted" not in true_of(one) for one in there.workloads_of("ready").values())
        there.wait_trainers(ready=6)
    finally:
        kueue.stop()
        kueue.start()
