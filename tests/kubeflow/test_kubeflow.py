"""The elastic sample of Kubeflow, resized by edl beside the real training operator."""

from __future__ import annotations

import pytest

from tests.e2e.worlds.jobs import serving, training_job
from tests.kubeflow.scene import Object, Scene

pytestmark = pytest.mark.cluster("the training operator runs on a real control plane only")


def environment(pod: Object) -> dict[str, str]:
    (container,) = pod["spec"]["containers"]
    return {one["name"]: one.get("value", "") for one in container["env"]}


def test_the_sample_grows_to_the_bound_of_its_policy_yields_to_serving_and_grows_again(here: Scene) -> None:
    here.kube.create(here.sample())
    here.wait_workers(6)
    before = here.workers()
    assert {environment(pod)["PET_NNODES"] for pod in here.pods()} == {"2:6"}, "torchrun takes each count between"
    here.kube.create(serving(replicas=5, cpu="1", memory="1Gi"))
    here.wait(lambda: here.world.ready_serving() == 5, "the serving pods are ready")
    here.wait_workers(3)
    assert "ServingNeedsRoom" in here.events()
    after = here.workers()
    assert after.items() <= before.items(), "nobody started again"
    here.kube.scale("deployments", "web", 0)
    here.wait_workers(6)
    assert after.items() <= here.workers().items()
    assert {environment(pod)["PET_NNODES"] for pod in here.pods()} == {"2:6"}
    assert "Failed" not in here.conditions()


def test_sizes_are_kept_beside_the_operator(here: Scene) -> None:
    here.kube.create(here.sample(low=1, high=8, sizes="1,4,8"))
    here.wait_workers(8)
    here.kube.create(serving(replicas=1, cpu="1", memory="1Gi"))
    here.wait_workers(4)
    here.wait(lambda: here.world.ready_serving() == 1, "serving has the capacity of the four")
    assert len(here.workers()) == 4
    here.kube.scale("deployments", "web", 0)
    here.wait_workers(8)


def test_a_job_whose_minimum_does_not_fit_is_suspended_and_resumed(here: Scene) -> None:
    here.kube.create(here.sample(min_instance="4"))
    here.wait_workers(6)
    here.kube.create(serving(replicas=5, cpu="1", memory="1Gi"))
    here.wait(lambda: here.world.ready_serving() == 5, "serving leaves less than its minimum")
    here.wait(lambda: not here.pods(), "the others are of no use alone")
    assert here.spec()["runPolicy"]["suspend"] is True
    here.kube.scale("deployments", "web", 0)
    here.wait_workers(6)
    assert here.spec()["runPolicy"]["suspend"] is False


def test_a_job_that_its_owner_suspends_is_left_alone_until_it_is_resumed(here: Scene) -> None:
    here.kube.create(here.sample())
    here.wait_workers(6)
    here.patch({"spec": {"runPolicy": {"suspend": True}}})
    here.wait(lambda: not here.pods(), "the operator ends its pods")
    here.world.submit(training_job("other", min_trainers=1, max_trainers=7))
    here.wait(lambda: here.world.running("other") == 7, "its capacity is used, beside the master of the other job")
    assert here.spec()["runPolicy"]["suspend"] is True
    here.world.withdraw("other")
    here.patch({"spec": {"runPolicy": {"suspend": False}}})
    here.wait_workers(6)
    assert "NotResized" not in here.events()


def test_what_would_fail_the_job_is_refused_in_words(here: Scene) -> None:
    job = here.sample()
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["restartPolicy"] = "ExitCode"
    here.kube.create(job)
    here.wait(lambda: "NotResized" in here.events(), "an event says why")
    assert "restartPolicy of Worker is ExitCode" in here.events()["NotResized"]
    assert here.replicas() == 2
    here.patch({"spec": {"pytorchReplicaSpecs": {"Worker": {"restartPolicy": "OnFailure"}}}})
    here.wait_workers(6)


def test_a_count_that_somebody_else_scales_is_left_to_them_and_given_back(here: Scene) -> None:
    here.kube.create(here.sample())
    here.wait_workers(6)
    here.kube.scale("pytorchjobs.kubeflow.org", "elastic-example-echo", 3)
    here.wait(lambda: "NotResized" in here.events(), "an event names the other writer")
    assert "set replicas of Worker to 3 after edl had set it to 6" in here.events()["NotResized"]
    here.wait_workers(3)
    here.patch({"metadata": {"annotations": {"paddlepaddle.org/last-resize": None}}})
    here.wait_workers(6)


def test_an_operator_that_is_killed_in_mid_resize_ends_the_highest_indexes_when_it_is_back(here: Scene) -> None:
    here.kube.create(here.sample())
    here.wait_workers(6)
    before = here.workers()
    here.kubeflow.stop()  # its admission would refuse each change of a job now
    here.kube.delete("validatingwebhookconfigurations", "validator.training-operator.kubeflow.org")
    here.kube.create(serving(replicas=4, cpu="1", memory="1Gi"))
    here.wait(lambda: here.replicas() == 4, "edl lowers the count")
    assert here.workers() == before, "edl leaves the pods to the operator"
    here.kubeflow.install_admission()
    here.kubeflow.start()
    here.wait(lambda: here.world.ready_serving() == 4, "the serving pods are ready")
    here.wait_workers(4)
    assert here.workers().items() <= before.items()
