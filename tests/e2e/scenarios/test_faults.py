"""Faults in a cluster, and the state that they must lead to."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.faults.faults import after, hang
from tests.e2e.faults.proxy import FaultProxy
from tests.e2e.worlds import facts
from tests.e2e.worlds.controller_process import ControllerProcess
from tests.e2e.worlds.harness import World
from tests.e2e.worlds.jobs import training_job
from tests.e2e.worlds.pod_log import PodLog

SOME = 30
LEAVES_A_LOST_NODE_SOON = {
    "tolerations": [
        {"key": f"node.kubernetes.io/{state}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 2}
        for state in ("not-ready", "unreachable")
    ]
}


def nodes_of(here: World, job: str) -> set[str]:
    """The nodes that hold live trainers of a job."""
    return {pod["spec"]["nodeName"] for pod in facts.trainers(here.pods(), job) if pod["spec"].get("nodeName")}


def orphans(here: World) -> list[str]:
    """Pods of training jobs that no longer exist, and names that two pods claim to be."""
    owners = {job["metadata"]["uid"] for job in here.kube.list("tj")}
    return [
        pod["metadata"]["name"]
        for pod in here.pods()
        if facts.JOB_LABEL in (pod["metadata"].get("labels") or {})
        and not any(ref["uid"] in owners for ref in pod["metadata"].get("ownerReferences") or [])
    ]


@pytest.mark.cluster("kubectl drain")
def test_a_drained_node_is_left_and_refilled_when_it_comes_back(control_plane: Callable[..., ControlPlane]) -> None:
    here = World(control_plane(mix="small", pod_delete_s=1.0))
    with here.controller:
        here.submit(training_job("a", min_trainers=4, max_trainers=60))
        here.wait_full(40)
        full = here.counts()["a"]
        drained = "small-1"
        here.kube.kubectl("drain", drained, "--force", "--ignore-daemonsets", "--delete-emptydir-data", timeout_s=90)
        here.kube.wait_until(lambda: drained not in nodes_of(here, "a"), 20, "no trainer is left on the drained node")
        here.wait_full(30)
        assert here.counts()["a"] == full - 8, "the eight slots of the node are gone, and no other"
        here.kube.kubectl("uncordon", drained)
        here.kube.wait_until(lambda: here.running("a") == full, 40, "training takes the node back")
        here.wait_full(20)
        assert not orphans(here)


def test_a_lost_node_costs_its_trainers_and_nothing_else(control_plane: Callable[..., ControlPlane]) -> None:
    plane = control_plane(mix="small", pod_delete_s=1.0)
    here = World(plane)
    with here.controller:
        job = training_job(
            "a", min_trainers=2, max_trainers=12, trainer={"template": {"spec": LEAVES_A_LOST_NODE_SOON}}
        )
        here.submit(job)
        here.kube.wait_until(lambda: here.running("a") == 12, 40, "it grows to its maximum")
        lost = sorted(nodes_of(here, "a"))[0]
        doomed = {p["metadata"]["uid"] for p in here.pods() if p["spec"].get("nodeName") == lost}
        plane.lose_node(lost)
        here.kube.wait_until(
            lambda: not doomed & {p["metadata"]["uid"] for p in here.pods() if is_trainer(p)},
            60,
            "the trainers of the lost node are gone although no kubelet confirms it",
        )
        here.kube.wait_until(lambda: here.running("a") == 12, 40, "they are replaced elsewhere")
        assert lost not in nodes_of(here, "a")
        assert not orphans(here)
        plane.recover_node(lost)
        assert here.counts()["a"] == 12


def is_trainer(pod: dict[str, object]) -> bool:
    """True for a trainer."""
    metadata = pod["metadata"]
    assert isinstance(metadata, dict)
    return (metadata.get("labels") or {}).get(facts.ROLE_LABEL) == "trainer"


def test_an_evicted_trainer_is_replaced_and_not_counted_as_a_failure(
    control_plane: Callable[..., ControlPlane],
) -> None:
    here = World(control_plane(mix="small", pod_delete_s=1.0))
    with here.controller, PodLog(here.kube) as log:
        here.submit(training_job("a", min_trainers=2, max_trainers=4, backoffLimit=0))
        here.kube.wait_until(lambda: here.running("a") == 4, 30, "it runs at its maximum")
        victim = next(p for p in here.pods() if p["metadata"]["name"] == "a-trainer-1")
        evict(here, "a-trainer-1")
        here.kube.wait_until(
            lambda: victim["metadata"]["uid"] not in {p["metadata"]["uid"] for p in here.pods()}, 15, "it goes"
        )
        here.kube.wait_until(lambda: here.running("a") == 4, 20, "it is replaced")
        assert log.causes() == {"EvictionByEvictionAPI": 1}, "only the evicted one went"
        assert here.kube.get("tj", "a")["status"]["phase"] in {"Running", "Scaling"}


def evict(here: World, pod: str) -> None:
    """Evict a pod by the API that `kubectl drain` uses."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": "default"}}
    here.kube.request("POST", here.kube.resource("pods").path("default", pod, "eviction"), body=body)


def test_a_job_whose_trainers_fail_says_so_until_its_limit_ends_it(
    control_plane: Callable[..., ControlPlane],
) -> None:
    here = World(control_plane(mix="small", pod_delete_s=1.0))
    with here.controller:
        here.submit(training_job("a", min_trainers=2, max_trainers=4, backoffLimit=1))
        fail_one(here)
        here.kube.wait_until(partial(is_degraded, here, "1 pod failure"), 60, "it says that a pod failed")
        assert here.kube.get("tj", "a")["status"]["reason"] == "PodFailed", "it does not look complete"
        fail_one(here)
        here.kube.wait_until(lambda: here.kube.get("tj", "a")["status"]["phase"] == "Failed", 60, "the job fails")
        assert here.kube.get("tj", "a")["status"]["reason"] == "BackoffLimitExceeded"


def fail_one(here: World) -> None:
    """Let a trainer of job `a` fail once all four run."""
    here.kube.wait_until(lambda: here.running("a") == 4, 60, "it runs at its maximum")
    first = min(pod["metadata"]["name"] for pod in here.pods() if is_trainer(pod) and facts.is_running(pod))
    here.kube.annotate("pods", first, exit_code="1")


def is_degraded(here: World, failures: str) -> bool:
    """True if condition Degraded of job `a` says how a trainer failed, and how many pods have failed."""
    conditions = (here.kube.get("tj", "a").get("status") or {}).get("conditions") or ()
    message = next((str(one["message"]) for one in conditions if one["type"] == "Degraded"), "")
    return "exited with code 1" in message and f"{failures} so far" in message


def test_a_controller_killed_in_the_middle_of_a_scale_up_is_continued_by_the_next(
    control_plane: Callable[..., ControlPlane],
) -> None:
    here = World(control_plane(mix="twenty", pod_delete_s=1.0))
    with PodLog(here.kube, {"a": 2, "b": 2}) as log:
        with (
            FaultProxy(here.controller.kubeconfig) as proxy,
            proxy.fault(after(SOME, hang), "POST", "/pods$") as creations,
            ControllerProcess(proxy.kubeconfig, here.plane.workdir) as first,
        ):
            here.submit(training_job("a", min_trainers=2, max_trainers=100))
            here.submit(training_job("b", min_trainers=2, max_trainers=100))
            here.kube.wait_until(lambda: len(creations) > SOME, 30, "some of the trainers exist, others do not")
            first.kill()
        with here.controller:
            here.wait_full(60)
            shares = here.fulfilments()
            assert facts.jain(list(shares.values())) >= 0.95, f"{shares}"
            assert not orphans(here)
            names = [p["metadata"]["name"] for p in here.pods()]
            assert len(names) == len(set(names))
        assert all(log.most[job] <= 100 for job in ("a", "b"))


def test_a_job_deleted_in_the_middle_of_its_scale_up_leaves_nothing(
    control_plane: Callable[..., ControlPlane],
) -> None:
    here = World(control_plane(mix="twenty", pod_delete_s=1.0))
    with here.controller:
        here.submit(training_job("a", min_trainers=2, max_trainers=150))
        here.kube.wait_until(lambda: here.counts()["a"] >= 10, 30, "some of its trainers exist", poll_s=0.01)
        here.withdraw("a")
        here.kube.wait_until(lambda: not here.pods(), 90, "no pod is left")
        assert not orphans(here)
