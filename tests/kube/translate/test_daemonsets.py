"""What is kept free for the pods of DaemonSets: of those that come, and not of those that somebody only declares."""

from __future__ import annotations

from math import inf

from edl.kube.translate.daemonsets import COME_WITHIN_S
from edl.kube.translate.snapshot import Translator
from edl.model.times import text_of
from tests.worlds.raw_objects import DAEMON_SET, Object, container, node, pod, take

NOW_S = 1_000_000.0
OWNER = {"kind": "DaemonSet", "name": "logs", "uid": "d", "controller": True}
OLD = {"creationTimestamp": text_of(NOW_S - COME_WITHIN_S), "labels": {"os": "linux"}}
NEW = {**OLD, "creationTimestamp": text_of(NOW_S - COME_WITHIN_S + 5)}


def asking(cpu: str, name: str = "greedy") -> Object:
    """A DaemonSet of a tenant for every node."""
    template = {"spec": {"containers": [container(cpu)]}}
    return {"kind": "DaemonSet", "metadata": {"name": name, "namespace": "mallory"}, "spec": {"template": template}}


def kept(*objects: Object) -> list[int]:
    return [found.reserved["cpu"] for found in take(*objects, now_s=NOW_S).nodes]


def waiting(cpu: str, *nodes: str, **metadata: str) -> Object:
    """A pod as the controller of DaemonSets makes it: for one node."""
    fields = [{"key": "metadata.name", "operator": "In", "values": [name]} for name in nodes]
    terms = [{"matchFields": [field]} for field in fields]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    spec = {"affinity": affinity, "containers": [container(cpu)]}
    found = pod("logs-1", namespace="kube-system", owner=OWNER, spec=spec, status={"phase": "Pending"})
    found["metadata"] |= metadata
    return found


def test_a_daemon_set_whose_pods_do_not_come_keeps_nothing_free() -> None:
    """A quota of no pods forbids them, and it may ask for every node."""
    assert kept(asking("4"), node("n1", metadata=OLD), node("n2", metadata=OLD)) == [0, 0]
    assert kept(asking("4"), node("n1", metadata=NEW), node("n2", metadata=OLD)) == [4000, 0]


def test_a_daemon_set_whose_pods_no_node_can_hold_keeps_nothing_free() -> None:
    assert kept(asking("1k"), node("n1", metadata=NEW)) == [0]
    assert kept(waiting("1k", "n1"), node("n1", metadata=OLD)) == [0]


def test_what_a_daemon_pod_requests_is_kept_free_on_the_node_that_it_waits_for() -> None:
    nodes = [node(name, metadata=OLD) for name in ("n1", "n2")]
    assert kept(DAEMON_SET, waiting("2", "n1"), *nodes) == [2000, 0]
    assert kept(DAEMON_SET, waiting("2", "n1", "n2"), *nodes) == [0, 0]
    assert kept(DAEMON_SET, waiting("2"), *nodes) == [0, 0]
    assert kept(DAEMON_SET, waiting("2", "n1", deletionTimestamp=text_of(NOW_S)), *nodes) == [0, 0]


def test_a_pod_that_waits_counts_instead_of_what_its_daemon_set_declares() -> None:
    assert kept(DAEMON_SET, waiting("2", "n1"), node("n1", metadata=NEW)) == [2000]


def test_nothing_is_kept_free_once_a_node_is_no_longer_new() -> None:
    translator = Translator()
    objects = (DAEMON_SET, node(metadata=NEW))
    assert take(*objects, now_s=NOW_S, translator=translator).nodes[0].reserved
    assert translator.valid_until_s == NOW_S + 5
    assert not take(*objects, now_s=NOW_S + 5, translator=translator).nodes[0].reserved
    assert translator.valid_until_s == inf
