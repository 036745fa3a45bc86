"""Pods that may not be beside others, or must be: the sandbox's scheduler obeys as kube-scheduler does."""

from __future__ import annotations

from typing import Any

from edl.sandbox.scheduler.neighbours import APART, KEPT_AWAY, NEAR, SPREAD, refusal_between
from edl.sandbox.scheduler.preemption import find_preemption
from edl.sandbox.scheduler.view import NodeView, PodView, pod_view
from tests.sandbox.scheduler.builders import make_node, make_pod, views
from tests.worlds.rules.scenes import ZONE, apart, near, spread

Object = dict[str, Any]
HOST = {name: {"kubernetes.io/hostname": name, ZONE: zone} for name, zone in (("n0", "a"), ("n1", "a"), ("n2", "b"))}


def labelled(name: str, app: str, **more: Any) -> Object:
    found = make_pod(name, **more)
    found["metadata"]["labels"] = {"app": app}
    return found


def cluster(*pods: Object) -> list[NodeView]:
    return views([make_node(name, labels=labels) for name, labels in HOST.items()], *pods)


def refused(pod: Object, *others: Object) -> dict[str, str]:
    """Why which nodes refuse a pod."""
    nodes = cluster(*others)
    found = {node.name: refusal_between(the(pod), node, nodes) for node in nodes}
    return {name: why for name, why in found.items() if why}


def the(pod: Object) -> PodView:
    return pod_view(pod)


def test_pods_that_avoid_their_like_take_one_node_each() -> None:
    web = [labelled(f"w{i}", "web", node=on, affinity=apart(app="web")) for i, on in enumerate(("n0", ""))]
    assert refused(web[1], web[0]) == {"n0": KEPT_AWAY}
    assert refused(web[1], labelled("old", "web", node="n2")) == {"n2": APART}


def test_pods_apart_by_zone_leave_the_whole_zone_to_the_first() -> None:
    web = labelled("w", "web", affinity=apart(ZONE, app="web"))
    assert refused(web, labelled("old", "web", node="n1")) == {"n0": APART, "n1": APART}


def test_a_pod_near_another_goes_to_its_domain_and_the_first_of_its_kind_anywhere() -> None:
    beside = labelled("b", "b", affinity=near(app="cache"))
    assert refused(beside, labelled("c", "cache", node="n1")) == {"n0": NEAR, "n2": NEAR}
    assert refused(beside) == dict.fromkeys(HOST, NEAR)
    assert refused(labelled("first", "own", affinity=near(app="own"))) == {}


def test_pods_spread_over_zones_go_to_the_emptiest() -> None:
    even = labelled("w", "web", topologySpreadConstraints=spread(ZONE, app="web"))
    assert refused(even, labelled("old", "web", node="n1")) == {"n0": SPREAD, "n1": SPREAD}
    assert refused(even) == {}


def test_a_pod_preempts_the_pod_that_it_avoids_if_that_is_less_important() -> None:
    web = labelled("w", "web", priority=5, affinity=apart(app="batch"))
    low = [labelled(f"low-{name}", "batch", node=name) for name in HOST]
    found = find_preemption(the(web), cluster(*low))
    assert found is not None
    assert [victim.key[1] for victim in found.victims] == [f"low-{found.node}"]
    high = [labelled(f"high-{name}", "batch", node=name, priority=9) for name in HOST]
    assert find_preemption(the(web), cluster(*high)) is None
