"""GPU jobs: pieces of GPUs on several nodes are no whole, GPU and CPU trainers share nodes, and racks hold a job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.kube import KubeError
from tests.e2e.control_plane.nodes import NodeSpec, make_nodes
from tests.e2e.worlds import facts
from tests.e2e.worlds.harness import World
from tests.e2e.worlds.jobs import training_job

Object = dict[str, Any]
WITHIN_S = 90.0
GPU, OLD_GPU, RACK = "nvidia.com/gpu", "alpha.kubernetes.io/nvidia-gpu", "example.com/rack"


def gpu_nodes(count: int, gpus: int, *, cpu: str = "16", prefix: str = "gpu", rack: str = "") -> tuple[NodeSpec, ...]:
    labels = {RACK: rack} if rack else {}
    return make_nodes(count, cpu=cpu, memory="64Gi", prefix=prefix, extra={GPU: str(gpus)}, labels=labels)


def gpu_job(name: str, low: int, high: int, gpus: int, *, resource: str = GPU, **spec: Any) -> Object:
    amounts = {"cpu": "1", "memory": "1Gi", resource: str(gpus)}
    trainer = {"resources": {"requests": amounts, "limits": amounts}}
    return training_job(name, min_trainers=low, max_trainers=high, trainer=trainer, **spec)


def other_pod(name: str, node: str, gpus: int, *, cpu: str = "1") -> Object:
    """A pod of somebody else that holds GPUs of a node."""
    resources = {"requests": {"cpu": cpu, GPU: str(gpus)}, "limits": {GPU: str(gpus)}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "containers": [{"name": "main", "image": "example/other", "resources": resources}],
        },
    }


def explanation(here: World, job: str) -> str:
    return str((here.kube.get("trainingjobs", job).get("status") or {}).get("explanation"))


def wait_running(here: World, job: str, count: int) -> None:
    here.kube.wait_until(lambda: here.running(job) == count, WITHIN_S, f"job {job} has {count} trainers")


def wait_explained(here: World, job: str, words: str) -> None:
    here.kube.wait_until(lambda: words in explanation(here, job), WITHIN_S, f"job {job} says {words!r}")


def nodes_of(here: World, job: str) -> list[str]:
    """The node of each live trainer."""
    return sorted(pod["spec"].get("nodeName", "") for pod in facts.trainers(here.pods(), job))


def test_four_and_four_free_gpus_are_no_eight(control_plane: Callable[..., ControlPlane]) -> None:
    here = World(control_plane(nodes=gpu_nodes(2, 8)))
    for i in range(2):
        here.kube.create(other_pod(f"other-{i}", f"gpu-{i}", 4))
    here.kube.wait_until(
        lambda: all(facts.is_running(pod) for pod in here.pods()), WITHIN_S, "the pods of others run"
    )
    with here.controller:
        here.submit(gpu_job("whole", 1, 2, 8))
        wait_explained(here, "whole", "a trainer requests 8 nvidia.com/gpu, and other pods leave at most 4")
        assert facts.trainers(here.pods(), "whole") == []
        here.kube.delete("pods", "other-1")
        wait_running(here, "whole", 1)
        assert nodes_of(here, "whole") == ["gpu-1"]


def test_gpu_and_cpu_trainers_share_the_nodes(control_plane: Callable[..., ControlPlane]) -> None:
    """No CPU trainer keeps a GPU from work, and no GPU trainer goes where there is none."""
    nodes = (*gpu_nodes(2, 4, cpu="8"), *make_nodes(1, cpu="8", prefix="cpu"))
    here = World(control_plane(nodes=nodes))
    with here.controller:
        here.submit(training_job("cpus", min_trainers=1, max_trainers=24))
        wait_explained(here, "cpus", "of 24")
        here.submit(gpu_job("gpus", 8, 8, 1))
        wait_running(here, "gpus", 8)
        here.wait_full(WITHIN_S)
        assert nodes_of(here, "gpus") == ["gpu-0"] * 4 + ["gpu-1"] * 4
        assert set(nodes_of(here, "cpus")) == {"cpu-0", "gpu-0", "gpu-1"}


def test_the_gpu_name_of_2017_is_read_as_that_of_today(control_plane: Callable[..., ControlPlane]) -> None:
    here = World(control_plane(nodes=gpu_nodes(1, 4)))
    with here.controller:
        here.submit(gpu_job("old", 1, 4, 2, resource=OLD_GPU))
        wait_running(here, "old", 2)
        for pod in facts.trainers(here.pods(), "old"):
            resources = pod["spec"]["containers"][0]["resources"]
            assert {name: resources["limits"].get(name) for name in (OLD_GPU, GPU)} == {OLD_GPU: None, GPU: "2"}


@pytest.fixture
def racks(control_plane: Callable[..., ControlPlane]) -> World:
    """Two racks of two nodes with four GPUs each."""
    nodes = [gpu_nodes(2, 4, prefix=f"r{rack}", rack=f"rack-{rack}") for rack in (1, 2)]
    return World(control_plane(nodes=tuple(node for both in nodes for node in both)))


def racks_of(here: World, job: str) -> set[str]:
    return {name[:2] for name in nodes_of(here, job)}


def test_trainers_stay_in_one_rack_from_their_first_to_their_last(racks: World) -> None:
    here, topology = racks, {"key": RACK, "mode": "Required"}
    with here.controller:
        here.submit(gpu_job("one", 5, 16, 1, topology=topology))
        wait_running(here, "one", 8)
        (home,) = racks_of(here, "one")
        wait_explained(here, "one", f"(its rack rack-{home[1]})")
        here.submit(gpu_job("two", 5, 8, 1, topology=topology))
        wait_running(here, "two", 8)
        assert racks_of(here, "one") | racks_of(here, "two") == {"r1", "r2"}
        for pod in facts.trainers(here.pods(), "one"):
            required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            wanted = {"key": RACK, "operator": "In", "values": [f"rack-{home[1]}"]}
            assert required["nodeSelectorTerms"] == [{"matchExpressions": [wanted]}]
        here.submit(gpu_job("three", 4, 8, 1, topology=topology))
        wait_explained(here, "three", "needs 4 trainers in one rack; the best, rack-")
        assert here.running("one") >= 5
        assert here.running("two") >= 5
        here.withdraw("one")
        wait_running(here, "three", 8)
        assert racks_of(here, "three") == {home}
        assert here.running("two") == 8


def pods_of(here: World, job: str, role: str) -> list[Object]:
    """The pods of a role that have a node and are not terminating."""
    labels = {"paddlepaddle.org/job": job, "paddlepaddle.org/role": role}
    return [
        pod
        for pod in here.pods()
        if labels.items() <= pod["metadata"].get("labels", {}).items()
        and pod["spec"].get("nodeName")
        and not facts.is_terminating(pod)
    ]


def test_pservers_are_in_the_rack_of_their_trainers(racks: World) -> None:
    """The first rack has more GPUs and no room for both pservers, so the job gets the second one."""
    here = racks
    pserver = {"min-instance": 2, "max-instance": 2, "resources": {"requests": {"cpu": "12", "memory": "1Gi"}}}
    for name, node, gpus, cpu in (("a", "r1-0", 0, "5"), ("b", "r2-0", 1, "1"), ("c", "r2-1", 1, "1")):
        here.kube.create(other_pod(name, node, gpus, cpu=cpu))
    here.kube.wait_until(
        lambda: all(facts.is_running(pod) for pod in here.pods()), WITHIN_S, "the pods of others run"
    )
    with here.controller:
        here.submit(gpu_job("one", 2, 8, 1, topology={"key": RACK, "mode": "Required"}, pserver=pserver))
        wait_running(here, "one", 6)
        assert racks_of(here, "one") == {"r2"}
        first = pods_of(here, "one", "pserver")
        assert sorted(pod["spec"]["nodeName"] for pod in first) == ["r2-0", "r2-1"]
        here.kube.delete("pods", "one-pserver-0")
        here.kube.wait_until(
            lambda: (
                {p["metadata"]["uid"] for p in pods_of(here, "one", "pserver")}
                - {p["metadata"]["uid"] for p in first}
                and len(pods_of(here, "one", "pserver")) == 2
            ),
            WITHIN_S,
            "the pserver is replaced",
        )
        assert sorted(pod["spec"]["nodeName"] for pod in pods_of(here, "one", "pserver")) == ["r2-0", "r2-1"]
        for pod in pods_of(here, "one", "pserver"):
            required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            wanted = {"key": RACK, "operator": "In", "values": ["rack-2"]}
            assert required["nodeSelectorTerms"] == [{"matchExpressions": [wanted]}]
        here.submit(gpu_job("two", 4, 8, 1, topology={"key": RACK, "mode": "Required"}, pserver=pserver))
        wait_explained(
            here, "two", "needs 4 trainers and 2 pservers in one rack, and no rack has capacity for all pservers"
        )


def test_a_job_that_runs_keeps_its_topology(racks: World) -> None:
    here = racks
    with here.controller:
        here.submit(gpu_job("one", 2, 4, 1, topology={"key": RACK, "mode": "Required"}))
        wait_running(here, "one", 4)
        here.kube.wait_until(
            lambda: here.kube.get("trainingjobs", "one")["status"]["phase"] == "Running", WITHIN_S, "it runs"
        )
        with pytest.raises(KubeError, match="topology cannot change while the job has pods"):
            here.kube.patch("trainingjobs", "one", {"spec": {"topology": {"mode": "Preferred"}}})


def test_a_preference_for_one_rack_costs_no_trainer(racks: World) -> None:
    here = racks
    with here.controller:
        here.submit(gpu_job("some", 2, 4, 1, topology={"key": RACK, "mode": "Preferred"}))
        wait_running(here, "some", 4)
        (home,) = racks_of(here, "some")
        here.submit(gpu_job("all", 2, 12, 1, topology={"key": RACK}))
        wait_running(here, "all", 12)
        assert here.running("some") == 4
        assert racks_of(here, "some") == {home}
