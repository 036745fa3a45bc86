"""Who reaches the pods of jobs where the policies of deploy/job-network are applied."""

from __future__ import annotations

from typing import Any

import pytest

from edl.api import pods, priorities
from edl.api.v1 import parse_job
from edl.install.job_network import job_network
from edl.install.objects import COMPONENT_LABELS, NAMESPACE
from edl.model.names import Role
from tests.worlds.hostile.manifests import make_manifest

Labels = dict[str, str]


def labels_of(role: Role) -> Labels:
    """The labels of a pod of a job, as edl creates it."""
    body = make_manifest()
    body["metadata"] |= {"uid": "0123", "namespace": "ads"}
    classes = priorities.PRIORITY_CLASSES
    pod = pods.pod_manifest(parse_job(body), role, 0, default_master_image="edl", priority_classes=classes)
    found: Labels = pod["metadata"]["labels"]
    return found


def chooses(selector: dict[str, Any], labels: Labels) -> bool:
    """Whether a label selector chooses an object with these labels; the operators of these policies alone."""
    found = [labels.get(key) == value for key, value in selector.get("matchLabels", {}).items()]
    for wanted in selector.get("matchExpressions", ()):
        if wanted["operator"] == "Exists":
            found.append(wanted["key"] in labels)
        else:
            assert wanted["operator"] == "In"
            found.append(labels.get(wanted["key"]) in wanted["values"])
    return all(found)


def reaches(source: Labels, namespace: str, target: Labels, port: int) -> bool:
    """Whether a pod may open a connection to a pod of namespace `ads`, as the API describes policies."""
    policies = [body["spec"] for body in job_network() if chooses(body["spec"]["podSelector"], target)]
    if not policies:
        return True
    return any(
        _is_named(peer, source, namespace)
        and (port in {one["port"] for one in rule.get("ports", ())} or "ports" not in rule)
        for policy in policies
        for rule in policy["ingress"]
        for peer in rule["from"]
    )


def _is_named(peer: dict[str, Any], source: Labels, namespace: str) -> bool:
    if "namespaceSelector" in peer:
        return chooses(peer["namespaceSelector"], {"kubernetes.io/metadata.name": namespace})
    return namespace == "ads" and chooses(peer["podSelector"], source)


@pytest.mark.parametrize(
    ("source", "namespace", "to_master", "to_trainer"),
    [
        (labels_of(Role.TRAINER), "ads", True, True),
        (labels_of(Role.MASTER), "ads", True, True),
        (COMPONENT_LABELS, NAMESPACE, True, False),
        ({"app": "web"}, "ads", False, False),
        (labels_of(Role.TRAINER), "other", False, False),
        (labels_of(Role.MASTER), "other", False, False),
    ],
    ids=["trainer", "master", "controller", "serving", "trainer of another namespace", "master of another namespace"],
)
def test_only_pods_of_jobs_of_the_namespace_and_the_controller_reach_them(
    source: Labels, namespace: str, *, to_master: bool, to_trainer: bool
) -> None:
    assert reaches(source, namespace, labels_of(Role.MASTER), 8080) is to_master
    for port in (7164, 29500, 8080):
        assert reaches(source, namespace, labels_of(Role.TRAINER), port) is to_trainer
    assert not reaches(source, namespace, labels_of(Role.MASTER), 22), "nothing else of a master is open"


def test_other_pods_of_the_namespace_are_as_before() -> None:
    assert reaches({}, "other", {"app": "web"}, 80)
