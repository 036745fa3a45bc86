"""The published sample of KubeRay, resized by edl beside the real operator."""

from __future__ import annotations

import pytest

from tests.e2e.worlds.jobs import serving, training_job
from tests.kuberay.scene import NAME, Scene

pytestmark = pytest.mark.cluster("KubeRay runs on a real control plane only")


def test_the_sample_grows_to_the_bound_of_its_group_yields_to_serving_and_grows_again(here: Scene) -> None:
    here.kube.create(here.sample())
    here.wait_workers(5)
    before, head = here.workers(), here.heads()
    here.kube.create(serving(replicas=4, cpu="1", memory="1Gi"))
    here.wait(lambda: here.world.ready_serving() == 4, "the serving pods are ready")
    here.wait_workers(3)
    assert "ServingNeedsRoom" in here.events()
    after = here.workers()
    assert after.items() <= before.items(), "nobody started again"
    assert set(here.group()["scaleStrategy"]["workersToDelete"]) == set(before) - set(after), "those that edl named"
    here.kube.scale("deployments", "web", 0)
    here.wait_workers(5)
    assert after.items() <= here.workers().items()
    assert here.heads() == head, "the head runs on"


def test_a_cluster_whose_minimum_does_not_fit_is_suspended_and_resumed(here: Scene) -> None:
    here.kube.create(here.sample(min_instance="4"))
    here.wait_workers(5)
    here.kube.create(serving(replicas=5, cpu="1", memory="1Gi"))
    here.wait(lambda: here.world.ready_serving() == 5, "serving leaves less than its minimum")
    here.wait(lambda: not here.pods("head") and not here.pods("worker"), "its head is of no use alone")
    assert here.spec()["suspend"] is True
    here.kube.scale("deployments", "web", 0)
    here.wait_workers(5)
    assert (len(here.heads()), here.spec()["suspend"]) == (1, False)


def test_a_cluster_that_its_owner_suspends_is_left_alone_until_it_is_resumed(here: Scene) -> None:
    here.kube.create(here.sample())
    here.wait_workers(5)
    here.patch({"spec": {"suspend": True}})
    here.wait(lambda: not here.pods("head") and not here.pods("worker"), "KubeRay ends its pods")
    here.world.submit(training_job("other", min_trainers=1, max_trainers=7))
    here.wait(lambda: here.world.running("other") == 7, "its capacity is used, beside the master of the other job")
    assert here.spec()["suspend"] is True
    here.world.withdraw("other")
    here.patch({"spec": {"suspend": False}})
    here.wait_workers(5)
    assert "NotResized" not in here.events()


def test_rays_own_autoscaler_is_refused_in_words(here: Scene) -> None:
    here.kube.create(here.sample(spec={"enableInTreeAutoscaling": True}))
    here.wait(lambda: "NotResized" in here.events(), "an event says why")
    assert "spec.enableInTreeAutoscaling is true" in here.events()["NotResized"]
    assert here.group()["replicas"] == 1
    here.patch({"spec": {"enableInTreeAutoscaling": False}})
    here.wait_workers(5)


def test_a_count_that_somebody_else_writes_is_left_to_them_and_given_back(here: Scene) -> None:
    here.kube.create(here.sample())
    here.wait_workers(5)
    here.patch([{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": 2}])
    here.wait(lambda: "NotResized" in here.events(), "an event names the other writer")
    assert "set replicas of group workergroup to 2 after edl had set it to 5" in here.events()["NotResized"]
    here.wait_workers(2)
    here.patch({"metadata": {"annotations": {"paddlepaddle.org/last-resize": None}}})
    here.wait_workers(5)


def test_an_operator_that_is_killed_in_mid_resize_ends_the_named_workers_when_it_is_back(here: Scene) -> None:
    here.kube.create(here.sample())
    here.wait_workers(5)
    before = here.workers()
    here.kuberay.stop()
    here.kube.create(serving(replicas=4, cpu="1", memory="1Gi"))
    here.wait(lambda: here.group()["replicas"] == 3, "edl lowers the count")
    named = set(here.group()["scaleStrategy"]["workersToDelete"])
    assert len(named) == 2
    assert here.workers() == before, "edl leaves the pods to KubeRay"
    here.kuberay.start()
    here.wait(lambda: here.world.ready_serving() == 4, "the serving pods are ready")
    assert here.workers() == {name: uid for name, uid in before.items() if name not in named}


def test_a_ray_cluster_and_a_training_job_share(here: Scene) -> None:
    here.kube.create(here.sample(high=7))
    here.wait_workers(7)
    here.world.submit(training_job("ours", min_trainers=1, max_trainers=7, elasticity={"cooldownSeconds": 0}))
    here.wait(lambda: abs(here.world.running("ours") - 3) <= 1, "the TrainingJob has its share")
    here.wait(lambda: abs(len(here.workers()) - 4) <= 1, f"and {NAME} has its own")
    here.world.withdraw("ours")
    here.wait_workers(7)
