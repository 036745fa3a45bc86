"""Jobs and PyTorchJobs whose Workloads edl makes, beside the real Kueue with the integrations of both kinds."""

from __future__ import annotations

import pytest

from tests.kueue.owned_jobs import OwnedScene, true_of
from tests.kueue.programs import WORKLOADS

pytestmark = pytest.mark.cluster("Kueue runs on a real control plane only")
KINDS = pytest.mark.parametrize("own_scene", ["jobs", "pytorchjobs"], indirect=True)


@KINDS
@pytest.mark.parametrize("reclaim", ["Never", "LowerPriority", "Any"])
def test_a_job_grows_into_idle_quota_and_gives_it_back_to_an_owner_pod_by_pod(
    own_scene: OwnedScene, reclaim: str
) -> None:
    here = own_scene
    here.queue("blue", 4, reclaim=reclaim)
    here.queue("green", 6, reclaim=reclaim)
    here.own("train", "blue", 2, 20)
    here.wait_trainers(train=10)
    assert not here.made_by_kueue("train"), "Kueue's integration leaves the job alone"
    before = here.trainers("train")
    here.submit("owner", "green", 5, elastic=False)
    here.wait_trainers(train=5)
    here.wait_sizes(owner=5)
    after = here.trainers("train")
    assert after.items() <= before.items(), "nobody started again"
    here.remove("owner")
    here.wait_trainers(train=10)
    assert after.items() <= here.trainers("train").items()


@KINDS
def test_a_job_waits_suspended_until_kueue_admits_it(own_scene: OwnedScene) -> None:
    here = own_scene
    here.queue("blue", 4)
    here.submit("first", "blue", 4, elastic=False)
    here.wait_sizes(first=4)
    here.own("train", "blue", 2, 20)
    here.wait(lambda: here.workloads_of("train"), "its base waits")
    assert here.is_suspended("train")
    assert not here.pods_of("train")
    here.remove("first")
    here.wait_trainers(train=4)
    here.wait(
        lambda: all("PodsReady" in true_of(one) for one in here.workloads_of("train").values()), "Kueue is told"
    )


@KINDS
def test_a_job_of_a_higher_priority_takes_the_place_and_the_job_is_suspended_and_requeued(
    own_scene: OwnedScene,
) -> None:
    here = own_scene
    here.queue("blue", 6)
    here.own("train", "blue", 4, 20, priority="low")
    here.wait_trainers(train=6)
    here.submit("high", "blue", 4, elastic=False, priority="high")
    here.wait_sizes(high=4)
    here.wait(lambda: not here.pods_of("train"), "the base is evicted as a whole")
    assert here.is_suspended("train")
    here.wait(lambda: "QuotaReserved" not in true_of(here.base("train")), "its quota is free")
    here.remove("high")
    here.wait_trainers(train=6)
    assert not here.is_suspended("train")


@KINDS
def test_its_pods_run_on_the_nodes_of_the_flavor_and_after_an_eviction_on_those_of_another(
    own_scene: OwnedScene,
) -> None:
    here = own_scene
    here.flavors({"small": "4", "large": "6"})
    here.own("train", "blue", 3, 20)
    here.wait_trainers(train=4)
    assert {pod["spec"]["nodeName"] for pod in here.pods_of("train")} == {"kueue-0"}
    here.submit("high", "blue", 4, elastic=False, priority="high", nodes={"kubernetes.io/hostname": "kueue-0"})
    here.wait_sizes(high=4)
    here.wait_trainers(train=6)
    assert {pod["spec"]["nodeName"] for pod in here.pods_of("train")} == {"kueue-1"}


@KINDS
def test_a_stopped_job_gives_everything_back_and_runs_again_once_it_may(own_scene: OwnedScene) -> None:
    here = own_scene
    here.queue("blue", 6)
    here.own("train", "blue", 2, 20)
    here.wait_trainers(train=6)
    name = here.base("train")["metadata"]["name"]
    here.stop_workload(name, active=False)
    here.wait(lambda: not here.pods_of("train"), "no pod is left")
    here.wait(lambda: "QuotaReserved" not in true_of(here.base("train")), "the quota is free")
    here.stop_workload(name, active=True)
    here.wait_trainers(train=6)


def test_a_job_that_is_created_running_is_suspended_until_kueue_admits_it(owned: OwnedScene) -> None:
    owned.queue("blue", 4)
    owned.submit("first", "blue", 4, elastic=False)
    owned.wait_sizes(first=4)
    owned.own("train", "blue", 2, 20, suspend=False)
    owned.wait(lambda: owned.is_suspended("train") and not owned.pods_of("train"), "edl suspends it")
    owned.remove("first")
    owned.wait_trainers(train=4)


def test_a_workload_that_a_person_deletes_costs_one_pod_and_a_deleted_base_none(owned: OwnedScene) -> None:
    owned.queue("blue", 6)
    owned.own("train", "blue", 2, 6)
    owned.wait_trainers(train=6)
    before = owned.trainers("train")
    first = next(name for name in owned.workloads_of("train") if name.endswith("-1"))
    owned.kube.delete(WORKLOADS, first, owned.name)
    owned.wait(lambda: len(owned.trainers("train")) == 5, "one pod ends")
    owned.wait_trainers(train=6)
    assert len(before.items() & owned.trainers("train").items()) == 5
    before = owned.trainers("train")
    owned.kube.delete(WORKLOADS, owned.base("train")["metadata"]["name"], owned.name)
    owned.wait_trainers(train=6)
    assert owned.trainers("train") == before


def test_what_kueue_takes_back_while_edl_is_down_ends_once_it_is_back(owned: OwnedScene) -> None:
    owned.queue("blue", 4, reclaim="Any")
    owned.queue("green", 6, reclaim="Any")
    owned.own("train", "blue", 2, 20)
    owned.wait_trainers(train=10)
    before = owned.trainers("train")
    owned.cluster.world.controller.kill()
    owned.submit("owner", "green", 4, elastic=False)
    owned.wait(lambda: owned.admitted("train") == 6, "Kueue takes four pods back")
    assert owned.trainers("train") == before
    owned.cluster.world.controller.start()
    owned.wait_trainers(train=6)
    owned.wait_sizes(owner=4)
    assert owned.trainers("train").items() <= before.items()


def test_a_job_that_ends_or_is_deleted_leaves_the_queue(owned: OwnedScene) -> None:
    owned.queue("blue", 6)
    owned.own("train", "blue", 2, 20)
    owned.wait_trainers(train=6)
    for name in owned.trainers("train"):
        owned.kube.annotate("pods", name, owned.name, exit_code="0")
    owned.wait(lambda: not owned.workloads_of("train"), "its base is finished, the others are deleted")
    owned.own("other", "blue", 2, 20)
    owned.wait_trainers(other=6)
    owned.remove_owned("other")
    owned.wait(lambda: not owned.pods_of("other") and not owned.workloads_of("other"), "nothing is left")


def test_a_job_that_is_not_ready_in_time_is_requeued_and_one_that_is_stays(owned: OwnedScene) -> None:
    owned.queue("blue", 12)
    kueue = owned.cluster.kueue
    kueue.stop()
    kueue.start(waitForPodsReady={"timeout": "4s", "requeuingStrategy": {"backoffBaseSeconds": 1}})
    try:
        owned.own("ready", "blue", 2, 6)
        owned.own("never", "blue", 2, 6, nodes={"no": "such-node"})
        owned.wait_trainers(ready=6)
        owned.wait(lambda: owned.base("never")["status"].get("requeueState", {}).get("count"), "it was not ready")
        owned.wait(lambda: "QuotaReserved" in true_of(owned.base("never")), "it is admitted once more")
        assert all("Evicted" not in true_of(one) for one in owned.workloads_of("ready").values())
        owned.wait_trainers(ready=6)
    finally:
        kueue.stop()
        kueue.start()


def test_a_job_to_which_kueue_gives_its_default_queue_is_not_managed_twice(owned: OwnedScene) -> None:
    """Kueue adds its label to every new Job of a namespace with a LocalQueue of that name."""
    owned.queue("default", 6)
    owned.own("train", "default", 2, 20)
    owned.wait(lambda: "NotResized" in owned.said("train"), "edl says why it leaves the job to Kueue")
    assert "so Kueue makes a Workload for it" in owned.said("train")["NotResized"]
    owned.wait(lambda: len(owned.trainers("train")) == 2, "Kueue runs it as it is")
    assert not owned.workloads_of("train")


def test_a_job_that_kueue_manages_without_a_queue_is_left_to_it(owned: OwnedScene) -> None:
    owned.queue("blue", 6)
    kueue = owned.cluster.kueue
    kueue.stop()
    selector = {"matchLabels": {"kubernetes.io/metadata.name": owned.name}}
    kueue.start(manageJobsWithoutQueueName=True, managedJobsNamespaceSelector=selector)
    try:
        owned.own("train", "blue", 2, 20)
        owned.wait(lambda: "NotResized" in owned.said("train"), "edl says why it leaves the job to Kueue")
        assert "Kueue manages the job itself (manageJobsWithoutQueueName)" in owned.said("train")["NotResized"]
        owned.wait(lambda: not owned.workloads_of("train"), "edl makes nothing that Kueue would delete")
        assert owned.is_suspended("train")
    finally:
        owned.remove_owned("train")
        kueue.stop()
        kueue.start()
