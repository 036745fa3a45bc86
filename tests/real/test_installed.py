"""The controller as its users install it: one `kubectl create -f`, two replicas, an upgrade that no job notices.

The tests of this module are one story in their order: installed, at work, upgraded; `test_removal` removes it.
"""

from __future__ import annotations

import functools
import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.real.cluster.images import BASE_IMAGE
from tests.real.cluster.running import RealCluster
from tests.real.mission import DEPLOYMENT, NAMESPACE, Journal

Object = dict[str, Any]
SELECTOR = "app.kubernetes.io/name=edl"
JOB = "steady"
TRAINERS = 4
INQUIRY = re.compile(
    r't=\S+\+0000 lvl=dbug msg="Cluster\.InquiryResource done" resource="\{NodeCount:2 GPURequest:0 GPULimit:0 '
    r"GPUTotal:0 CPURequestMilli:\d+ CPULimitMilli:\d+ CPUTotalMilli:\d+ MemoryRequestMega:\d+ "
    r"MemoryLimitMega:\d+ MemoryTotalMega:\d+ "
    r"Nodes:\{NodesCPUIdleMilli:map\[node-1:\d+ node-2:\d+\] NodesMemoryFreeMega:map\[node-1:\d+ node-2:\d+\]\}\}\""
)


def job() -> Object:
    """A job whose trainers only wait, in containers that run as nobody."""
    amounts = {"cpu": "50m", "memory": "32Mi"}
    wait = {"name": "trainer", "command": ["sh", "-c", "trap exit TERM; while :; do sleep 1 & wait $!; done"]}
    return {
        "apiVersion": "paddlepaddle.org/v1",
        "kind": "TrainingJob",
        "metadata": {"name": JOB, "namespace": "default"},
        "spec": {
            "image": BASE_IMAGE,
            "fault_tolerant": True,
            "trainer": {
                "min-instance": 2,
                "max-instance": TRAINERS,
                "resources": {"requests": amounts, "limits": amounts},
                "template": {"spec": {"containers": [wait]}},
            },
        },
    }


@pytest.fixture(scope="module")
def installed(controller: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """The controller, and a volume for the journal of the job that it gets."""
    journal = Journal(controller, tmp_path_factory.mktemp("installed") / "journal")
    yield controller
    journal.remove()


def replicas(cluster: RealCluster) -> list[Object]:
    return cluster.kube.list("pods", NAMESPACE, labels=SELECTOR)


def pods(cluster: RealCluster) -> list[Object]:
    return cluster.kube.list("pods", "default", labels=f"paddlepaddle.org/job={JOB}")


def is_running(pod: Object) -> bool:
    return pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]


def names_and_uids(cluster: RealCluster) -> set[tuple[str, str]]:
    """The job's pods that run."""
    return {(p["metadata"]["name"], p["metadata"]["uid"]) for p in pods(cluster) if is_running(p)}


def is_complete(cluster: RealCluster) -> bool:
    """Whether the master and every trainer run."""
    expected = {f"{JOB}-master-0", *(f"{JOB}-trainer-{index}" for index in range(TRAINERS))}
    return {name for name, _ in names_and_uids(cluster)} == expected


def test_two_replicas_are_ready_on_two_nodes(installed: RealCluster) -> None:
    deployed = installed.kube.get("deployments", "training-job-controller", NAMESPACE)
    assert deployed["status"]["readyReplicas"] == 2
    assert {pod["spec"]["nodeName"] for pod in replicas(installed)} == {"node-1", "node-2"}


def test_the_security_context_holds(installed: RealCluster) -> None:
    pod = replicas(installed)[0]["metadata"]["name"]
    assert installed.exec(pod, "id", "-u", namespace=NAMESPACE).strip() == "65532"
    refused = installed.exec(pod, "sh", "-c", "touch /opt/edl/x /here 2>&1 || true", namespace=NAMESPACE)
    assert refused.count("Read-only file system") == 2
    capabilities = installed.exec(pod, "grep", "CapEff", "/proc/1/status", namespace=NAMESPACE)
    assert int(capabilities.split()[1], 16) == 0
    assert installed.exec(pod, "grep", "Seccomp:", "/proc/1/status", namespace=NAMESPACE).split()[1] == "2"


def test_the_network_policy_is_accepted(installed: RealCluster) -> None:
    policies = installed.kube.list("networkpolicies", NAMESPACE)
    assert [policy["metadata"]["name"] for policy in policies] == ["training-job-controller"]


def has_inquiry(cluster: RealCluster, replica: str) -> bool:
    return INQUIRY.search(cluster.kubectl("logs", "-n", NAMESPACE, replica)) is not None


def test_the_log_of_each_replica_says_what_the_cluster_has(installed: RealCluster) -> None:
    for pod in replicas(installed):
        name = pod["metadata"]["name"]
        installed.kube.wait_until(
            functools.partial(has_inquiry, installed, name),
            30,
            f"{name} says the line",
        )


def test_a_job_runs_in_containers(installed: RealCluster) -> None:
    installed.kube.create(job())
    installed.kube.wait_until(lambda: is_complete(installed), 90, "the master and four trainers run")
    installed.kube.wait_until(
        lambda: (
            installed.kubectl("get", "tj", JOB).splitlines()[1].split()[:6] == [JOB, "Running", "2", "4", "4", "4"]
        ),
        30,
        "kubectl says so",
    )


class Watch:
    """`kubectl get pods -w` of the job, so that nothing that happens in between is missed."""

    def __init__(self, cluster: RealCluster, file: Path) -> None:
        selector = f"paddlepaddle.org/job={JOB}"
        command = [str(cluster.workdir / "bin" / "kubectl"), "--kubeconfig", str(cluster.kubeconfig)]
        command += ["get", "pods", "-l", selector, "-w", "--output-watch-events", "-o", "json"]
        self._file = file
        with file.open("wb") as out:
            self._process = subprocess.Popen(command, stdout=out)

    def events(self) -> list[tuple[str, Object]]:
        """(type, pod) of all that happened until now."""
        text, found, decoder = self._file.read_text(), [], json.JSONDecoder()
        at = 0
        while at < len(text.rstrip()):
            event, at = decoder.raw_decode(text, at)
            found.append((event["type"], event["object"]))
            at += len(text[at:]) - len(text[at:].lstrip())
        return found

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()


def test_an_upgrade_of_the_controller_disturbs_no_job(installed: RealCluster, tmp_path: Path) -> None:
    installed.kube.wait_until(lambda: is_complete(installed), 60, "the job runs")
    before, old = names_and_uids(installed), {pod["metadata"]["uid"] for pod in replicas(installed)}
    watch = Watch(installed, tmp_path / "watch")
    try:
        began = time.monotonic()
        installed.kubectl("rollout", "restart", "-n", NAMESPACE, DEPLOYMENT)
        installed.kubectl("rollout", "status", "-n", NAMESPACE, DEPLOYMENT, "--timeout=120s", timeout_s=150)
        print(f"rolled over in {time.monotonic() - began:.1f} s")
        installed.kube.wait_until(
            lambda: not old & {p["metadata"]["uid"] for p in replicas(installed)}, 60, "old gone"
        )
        # The new leader is at work when it replaces a trainer that somebody else deletes.
        assert names_and_uids(installed) == before
        unnoticed = len(watch.events())
        assert unnoticed >= len(before), "the watch saw each pod"
        installed.kube.delete("pods", f"{JOB}-trainer-1", grace_s=0)
        installed.kube.wait_until(
            lambda: is_complete(installed) and names_and_uids(installed) != before, 60, "replaced"
        )
        changed = {name for name, _ in before ^ names_and_uids(installed)}
        assert changed == {f"{JOB}-trainer-1"}
        for kind, pod in watch.events()[:unnoticed]:
            assert (pod["metadata"]["name"], pod["metadata"]["uid"]) in before
            assert kind in {"ADDED", "MODIFIED"}
            assert is_running(pod)
    finally:
        watch.stop()


def test_a_deleted_job_leaves_nothing(installed: RealCluster) -> None:
    installed.kubectl("delete", "tj", JOB, timeout_s=90)
    installed.kube.wait_until(lambda: not pods(installed), 60, "the job's pods are gone")
    kinds = ("services", "secrets", "persistentvolumeclaims")
    owned = "the job's services, secrets and claims are gone"
    installed.kube.wait_until(lambda: not [o for kind in kinds for o in of_job(installed, kind)], 90, owned)


def of_job(cluster: RealCluster, kind: str) -> list[Object]:
    """Objects that the job owns."""
    found = cluster.kube.list(kind, "default")
    return [o for o in found if any(owner["name"] == JOB for owner in o["metadata"].get("ownerReferences") or ())]
