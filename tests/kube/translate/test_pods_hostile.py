"""Pods that somebody with one namespace creates to take the trainers of others, or the time of a plan."""

from __future__ import annotations

from typing import Any

import pytest

from tests.worlds.rules.scenes import NO_NODE, ZONE, Object, job, members, nodes, plan, pod, storage, victims

MOST = 2**63 - 1
EARLY = "2026-01-01T00:00:00Z"
TRAINERS = [f"n{i % 10}" for i in range(70)]
HUGE = {"memory": MOST, "cpu": MOST // 1000, "nvidia.com/gpu": MOST, "ephemeral-storage": MOST, "hugepages-2Mi": MOST}


def hostile(name: str, requests: Object, **spec: Any) -> Object:
    """A pod of another tenant that waits; with `nodeName` its author has bound it."""
    amounts = {key: str(amount) for key, amount in requests.items()}
    container = {"name": "c", "image": "x", "resources": {"requests": amounts}}
    conditions = [] if "nodeName" in spec else [NO_NODE]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "mallory", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"containers": [container], **spec},
        "status": {"phase": "Pending", "conditions": conditions},
    }


@pytest.mark.parametrize("where", [{}, {"nodeName": "n0"}, {"nodeName": "gone"}], ids=["waits", "bound", "nowhere"])
@pytest.mark.parametrize("resource", [*HUGE, "all"])
def test_pods_that_request_more_than_there_is_cost_nobody_a_trainer(where: Object, resource: str) -> None:
    requests = HUGE if resource == "all" else {resource: HUGE[resource]}
    pods = [hostile(f"p{number}", requests, **where) for number in range(6)]
    found = plan(nodes(10), job("good", 2, 70), members("good", *TRAINERS), pods)
    assert not victims(found)
    assert found.serving.placed == 0


def test_a_pod_that_wants_no_trainers_in_its_zone_costs_nobody_one() -> None:
    """kube-scheduler looks for victims on one node, and those of the other nodes would keep the pod away."""
    jobs = {"matchExpressions": [{"key": "paddlepaddle.org/job", "operator": "Exists"}]}
    term = {"topologyKey": ZONE, "namespaceSelector": {}, "labelSelector": jobs}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    pods = [hostile(f"p{number}", {"cpu": "1m"}, affinity=affinity) for number in range(3)]
    found = plan(nodes(10, "ab"), job("good", 2, 80), members("good", *TRAINERS), pods)
    assert (found.serving.placed, found.serving.short) == (0, 3)
    assert not victims(found)


@pytest.mark.parametrize("never", [{"cpu": "1000"}, {"nodeSelector": {"no": "where"}}], ids=["too large", "no node"])
def test_pods_that_fit_nowhere_take_no_volume_from_others(never: Object) -> None:
    """They wait for ever, and kube-scheduler binds a volume only to the claim of a pod that it finds a node for."""
    cluster: list[Object | list[Object]] = [
        nodes(4, "ab"),
        storage("ab", waits=True),
        job("good", 2, 40),
        members("good", *["n0", "n1", "n2", "n3"] * 7),
    ]
    honest = [claim("h", "default"), pod("web", cpu="4", volumes=volume_of("h"))]
    evil: list[Object] = [
        each
        for number in range(6)
        for each in (
            claim(f"e{number}", "mallory"),
            pod(f"a{number}", namespace="mallory", volumes=volume_of(f"e{number}"), created=EARLY, **never),
        )
    ]
    alone, beside = plan(*cluster, honest), plan(*cluster, evil, honest)
    assert (alone.serving.placed, beside.serving.placed) == (1, 1)
    assert victims(beside) == victims(alone)


def claim(name: str, namespace: str) -> Object:
    """A claim of the class of volumes made by hand."""
    wants = {"accessModes": ["ReadWriteOnce"], "storageClassName": "by-hand"}
    spec = {**wants, "resources": {"requests": {"storage": "1Gi"}}}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def volume_of(name: str) -> list[Object]:
    """The volumes of a pod that uses a claim."""
    return [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]
