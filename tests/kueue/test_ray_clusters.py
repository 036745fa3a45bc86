"""RayClusters and RayJobs of the real KubeRay that the real Kueue admits."""

from __future__ import annotations

import pytest

from tests.kueue.ray_clusters import RAY_JOBS, RayScene

pytestmark = pytest.mark.cluster("Kueue and KubeRay run on a real control plane only")


def test_a_ray_cluster_borrows_what_is_idle_gives_it_back_to_an_owner_and_borrows_again(ray: RayScene) -> None:
    ray.queue("blue", 4)
    ray.queue("green", 6)
    ray.ray("train", "blue", 2, 20)
    ray.wait_workers("train", 9)
    before, head = ray.ray_running("train"), ray.ray_running("train", "head")
    ray.submit("owner", "green", 5, elastic=False)
    ray.wait_workers("train", 4)
    ray.wait_sizes(owner=5)
    after = ray.ray_running("train")
    assert after.items() <= before.items(), "nobody started again"
    ray.remove("owner")
    ray.wait_workers("train", 9)
    assert after.items() <= ray.ray_running("train").items()
    assert ray.ray_running("train", "head") == head


def test_kueue_suspends_a_ray_cluster_for_a_higher_priority_and_it_grows_once_it_runs_again(ray: RayScene) -> None:
    ray.queue("blue", 6)
    ray.ray("train", "blue", 3, 20)
    ray.wait_workers("train", 5)
    ray.submit("high", "blue", 4, elastic=False, priority="high")
    ray.wait_sizes(high=4)
    ray.wait(lambda: not ray.ray_pods("train", "head") and not ray.ray_pods("train", "worker"), "KubeRay ends all")
    assert ray.spec_of("train")["suspend"] is True
    ray.wait(lambda: ray.replicas("train") == 3, "edl asks for no more than its minimum while it waits")
    ray.remove("high")
    ray.wait_workers("train", 5)
    assert ray.spec_of("train")["suspend"] is False


def test_the_cluster_of_a_ray_job_in_a_queue_is_refused_and_runs_as_kueue_has_counted_it(ray: RayScene) -> None:
    ray.queue("blue", 10)
    ray.ray_job("night", "blue", 2, 6)
    running = "Kueue admits the RayJob, and KubeRay makes its cluster"
    ray.wait(lambda: len(ray.ray_running(ray.cluster_of("night"))) == 2, running)  # the name changes until then
    name = ray.cluster_of("night")
    ray.wait(lambda: "NotResized" in ray.said(name), "an event says why")
    assert "Kueue counts the workers in RayJob night, not in its cluster" in ray.said(name)["NotResized"]
    assert ray.replicas(name) == 2


def test_the_cluster_of_a_ray_job_without_a_queue_is_resized_and_a_suspended_one_begins_anew(ray: RayScene) -> None:
    ray.ray_job("night", "", 2, 6)
    ray.wait(lambda: ray.cluster_of("night"), "KubeRay makes its cluster")
    first = ray.cluster_of("night")
    ray.wait_workers(first, 6)
    assert ray.kube.get(RAY_JOBS, "night", ray.name)["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["replicas"] == 2
    ray.kube.patch(RAY_JOBS, "night", {"spec": {"suspend": True}}, ray.name)
    ray.wait(lambda: not ray.kube.list("pods", ray.name, labels="ray.io/cluster"), "KubeRay deletes the cluster")
    ray.kube.patch(RAY_JOBS, "night", {"spec": {"suspend": False}}, ray.name)
    ray.wait(lambda: ray.cluster_of("night") not in {"", first}, "KubeRay makes another cluster")
    ray.wait_workers(ray.cluster_of("night"), 6)
