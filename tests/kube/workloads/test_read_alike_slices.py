"""Pods that are of use only together, as the hosts of a TPU slice are: no resize takes some of them away."""

from __future__ import annotations

import pytest

from edl.kube.workloads.batch_jobs import BatchJobs
from edl.kube.workloads.ray_clusters import RayClusters
from edl.kube.workloads.volcano_jobs import VolcanoJobs
from tests.worlds.raw_objects import Object, batch_job, decoded, ray_cluster, ray_group, task, volcano_job

SLICE = "cloud.google.com/gke-tpu-topology"


def host(topology: object, chips: str = "4") -> Object:
    """The template of a pod that asks for chips on nodes of a slice."""
    container = {"name": "c", "resources": {"requests": {"cpu": "1", "google.com/tpu": chips}}}
    return {"spec": {"nodeSelector": {SLICE: topology}, "containers": [container]}}


def problems(template: Object) -> list[str]:
    """What each kind of workload says of its pods."""
    return [
        BatchJobs().problem(decoded(batch_job(spec={"template": template}))),
        VolcanoJobs().problem(decoded(volcano_job(tasks=[{**task("trainer", 3), "template": template}]))),
        RayClusters().problem(decoded(ray_cluster(groups=[{**ray_group(), "template": template}]))),
    ]


@pytest.mark.parametrize(
    ("topology", "chips", "sum_of_chips"), [("4x4", "4", 16), ("2x2x2", "4", 8), ("2x4", "1", 8)]
)
def test_hosts_of_a_slice_are_refused_in_words(topology: str, chips: str, sum_of_chips: int) -> None:
    for problem in problems(host(topology, chips)):
        assert f"hosts of a TPU slice: {SLICE} {topology} has {sum_of_chips} chips" in problem
        assert f"requests {chips}" in problem


@pytest.mark.parametrize(
    ("topology", "chips"),
    [("2x2", "4"), ("2x4", "8"), ("1x1", "1"), ("", "4"), ("big", "4"), ("4x", "4"), (7, "8"), ("9" * 5000, "4")],
)
def test_a_slice_of_one_host_is_a_pod_like_any_other(topology: object, chips: str) -> None:
    assert problems(host(topology, chips)) == ["", "", ""]


def test_pods_on_such_nodes_that_ask_for_no_chips_are_pods_like_any_other() -> None:
    assert problems(host("4x4", "0")) == ["", "", ""]
