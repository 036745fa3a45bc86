"""Rules that choose namespaces by labels which the files do not have are named, once for each selector."""

from __future__ import annotations

from typing import Any

import yaml

from edl.kube.snapshot_files.saved_cluster import read_snapshot_texts
from tests.worlds.kueue.objects import cluster_queue, local_queue

Object = dict[str, Any]


def pod(name: str, namespace: str, team: str = "", app: str = "web", rule: str = "podAntiAffinity") -> Object:
    term = {
        "labelSelector": {"matchLabels": {"app": "web"}},
        "topologyKey": "kubernetes.io/hostname",
        "namespaceSelector": {"matchLabels": {"team": team}},
    }
    affinity = {rule: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}} if team else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": app}, "uid": f"{namespace}-{name}"},
        "spec": {"containers": [{"name": "c"}], "affinity": affinity},
    }


def namespace(name: str, **labels: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def warnings(*objects: Object) -> list[str]:
    return list(read_snapshot_texts([("now.yaml", yaml.safe_dump_all(objects))]).not_asked())


def test_the_rule_its_pods_and_the_namespaces_are_named_once() -> None:
    pods = [pod("a", "shop", "ml"), pod("b", "shop", "ml"), pod("c", "ads", app="web"), pod("d", "ads", app="db")]
    assert warnings(*pods) == [
        "namespaceSelector team=ml of pod shop/a and 1 other: edl cannot tell what it chooses (the labels of"
        " namespaces ads and shop are not known); an affinity counts their pods as not chosen, and an anti-affinity"
        " as chosen; save the namespaces, too (kubectl get namespaces)"
    ]
    (line,) = warnings(*pods, namespace("shop"))
    assert "(the labels of namespace ads are not known)" in line
    assert warnings(*pods, namespace("shop"), namespace("ads", team="ml")) == []


def test_a_rule_about_pods_that_no_such_namespace_has_is_not_named() -> None:
    assert warnings(pod("a", "shop", "ml", app="db"), pod("d", "ads", app="db")) == []
    assert warnings(pod("a", "shop"), pod("b", "ads")) == []


def test_a_cluster_queue_that_asks_for_unknown_labels_is_named_once() -> None:
    queue = cluster_queue("green", namespaceSelector={"matchLabels": {"team": "ml"}})
    queues = (queue, *(local_queue("green", namespace=name) for name in ("shop", "ads")))
    assert warnings(*queues) == [
        "namespaceSelector of ClusterQueue green: edl cannot tell what it chooses (the labels of namespaces ads and"
        " shop are not known); what waits there counts as if it were chosen; save the namespaces, too (kubectl get"
        " namespaces)"
    ]
    assert warnings(*queues, namespace("shop"), namespace("ads")) == []
    for known in (cluster_queue("green"), cluster_queue("green", namespaceSelector=None)):
        assert warnings(known, *queues[1:]) == []
    assert warnings(*queues, cluster_queue("broken", "ten")) == [], "each job of Kueue says that instead"


def test_the_pods_of_a_job_of_another_kind_are_in_the_namespace_of_the_job() -> None:
    template = pod("", "", "ml")
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "a", "namespace": "shop", "annotations": {"paddlepaddle.org/elastic": "true"}},
        "spec": {"template": {"metadata": {"labels": {"app": "web"}}, "spec": template["spec"]}},
    }
    assert warnings(job, namespace("shop", team="ml")) == []
    (line,) = warnings(job, namespace("default"))
    assert "of job shop/job.batch/a: edl cannot tell what it chooses (the labels of namespace shop are" in line
