"""Thousands of rules in each pod, a DaemonSet without pods, readers that do not read: they cost others nothing."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.faults.leading import leading, mallory
from tests.e2e.faults.stage import SMALL, Stage
from tests.e2e.worlds.jobs import batch_job, training_job

Object = dict[str, Any]
pytestmark = pytest.mark.cluster("what the real API server stores, and what its controllers make of it")
PODS, JOBS, TERMS, CONSTRAINTS = 100, 40, 2_500, 1_300
HOSTNAME = "kubernetes.io/hostname"
MOST_MIB = 300.0
OLD_S = 180.0
"""A node is no longer new then, and the job has grown."""


@pytest.fixture
def space(stage: Stage) -> Iterator[str]:
    """The one namespace, whose quota allows pods that nobody schedules, and no pods of a DaemonSet."""
    with mallory(stage) as space:
        yield space


def apart(count: int) -> Object:
    """As many terms of anti-affinity."""
    terms = [{"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"a": f"b{n}"}}} for n in range(count)]
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def spread(count: int) -> Object:
    """As many spread constraints; the API server compares each of a pod with each other one."""
    one = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    return {
        "topologySpreadConstraints": [
            {**one, "topologyKey": f"k{n}", "labelSelector": {"matchLabels": {"a": f"b{n}"}}} for n in range(count)
        ]
    }


def ruled(space: str) -> Iterator[Object]:
    """Suspended jobs of two kinds, and pods that wait."""
    for number in range(JOBS):
        job = training_job(f"ruled-{number}", trainer={"template": {"spec": spread(CONSTRAINTS)}}, suspend=True)
        yield {**job, "metadata": {"name": f"ruled-{number}", "namespace": space}}
        batch = batch_job(f"ruled-{number}", parallelism=1, low=1, high=2, suspend=True)
        batch["spec"]["template"]["spec"] |= apart(1_500)
        batch["metadata"]["namespace"] = space
        yield batch
    for number in range(PODS):
        spec = {"schedulerName": "nobody", "containers": [{"name": "a", "image": "a"}], **apart(TERMS)}
        metadata = {"name": f"ruled-{number}", "namespace": space}
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def test_pods_and_jobs_of_thousands_of_rules_stop_no_controller(stage: Stage, space: str) -> None:
    with stage.without_controller():
        for body in ruled(space):
            stage.here.kube.create(body)
    with leading(stage, stage.account) as leader:
        stage.submit("beside-ruled")
        stage.wait_grown("beside-ruled")
        kube = stage.here.kube
        kube.wait_until(lambda: said(stage, space), 60, "the jobs are told why they are not read")
        leader.assert_led(MOST_MIB)
        print(f"{leader.peak_bytes / 2**20:.0f} MiB")
    stage.assert_only_grown("beside-ruled")


def said(stage: Stage, space: str) -> bool:
    """True once the last job is told what is too much."""
    message = str(stage.condition(f"ruled-{JOBS - 1}", "Failed", space).get("message", ""))
    return f"{CONSTRAINTS} topology spread constraints exceed the 32 that edl reads" in message


def test_a_daemon_set_whose_pods_a_quota_forbids_keeps_no_node_empty(stage: Stage, space: str) -> None:
    kube = stage.here.kube
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none", "namespace": space}}
    kube.create({**quota, "spec": {"hard": {"pods": "0"}}})
    labels = {"app": "never"}
    container = {"name": "a", "image": "a", "resources": {"requests": {"cpu": "3", "memory": "1Gi"}}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    for number in range(20):
        metadata = {"name": f"never-{number}", "namespace": space}
        kube.create({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": spec})
    stage.submit("beside-daemons", **SMALL)
    stage.wait_grown("beside-daemons", timeout_s=OLD_S)
    assert not kube.list("pods", space)
    for number in range(20):
        kube.delete("daemonsets", f"never-{number}", space)


def test_strangers_who_do_not_read_their_answers_take_no_memory(stage: Stage) -> None:
    held = []
    with leading(stage, stage.account) as leader:
        try:
            for _ in range(200):
                with contextlib.suppress(OSError):
                    one = socket.socket()
                    held.append(one)
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                    one.settimeout(1)
                    one.connect(("127.0.0.1", leader.process.port))
                    one.sendall(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 50)
            stage.submit("beside-readers")
            stage.wait_grown("beside-readers")
            leader.assert_led(MOST_MIB)
            print(f"{leader.peak_bytes / 2**20:.0f} MiB")
        finally:
            for one in held:
                one.close()
