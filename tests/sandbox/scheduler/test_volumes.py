"""A pod whose volume is in one zone runs there or waits, with kube-scheduler's words."""

from __future__ import annotations

from typing import Any

from edl.sandbox.scheduler.preemption import NO_VICTIMS, NOT_HELPFUL, Preemption, find_preemption, refusal_note
from edl.sandbox.scheduler.view import pod_view
from edl.sandbox.scheduler.volumes import ELSEWHERE, NO_ZONE, refusal_by_volumes, volume_rules
from tests.sandbox.scheduler.builders import make_node, make_pod, views
from tests.worlds.rules.scenes import ZONE, bound, storage

Object = dict[str, Any]
USES = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
NODES = [make_node("n0", labels={ZONE: "a"}), make_node("n1", labels={ZONE: "b"}), make_node("n2")]


def refused(objects: list[Object]) -> dict[str, str]:
    """Why which nodes refuse a pod that uses the claim."""
    claims = [one for one in objects if one["kind"] == "PersistentVolumeClaim"]
    volumes = [one for one in objects if one["kind"] == "PersistentVolume"]
    rules = volume_rules(make_pod("p", volumes=USES), claims, volumes)
    found = {node.name: refusal_by_volumes(rules, node) for node in views(NODES)}
    return {name: why for name, why in found.items() if why}


def test_a_volume_of_one_zone_keeps_its_pod_there() -> None:
    assert refused(bound(storage("a"), "pv-a0")) == {"n1": ELSEWHERE, "n2": ELSEWHERE}


def test_an_old_volume_is_in_the_zone_of_its_label_and_on_nodes_without_one() -> None:
    objects = bound(storage("a"), "pv-a0")
    volume = next(one for one in objects if one["kind"] == "PersistentVolume")
    del volume["spec"]["nodeAffinity"]
    volume["metadata"]["labels"] = {ZONE: "b"}
    assert refused(objects) == {"n0": NO_ZONE}


def test_a_folder_of_the_sandbox_is_everywhere() -> None:
    objects = [one for one in bound(storage("a"), "pvc-uid") if one["kind"] != "PersistentVolume"]
    assert refused(objects) == {}


def test_nobody_ends_where_the_volume_is_not() -> None:
    nodes = views(NODES[:2], *(make_pod(f"low-{on}", "4", node=on) for on in ("n0", "n1")))
    high = pod_view(make_pod("high", "4", priority=10))
    found = find_preemption(high, nodes, {"n0": ELSEWHERE})
    assert found == Preemption("n1", nodes[1].pods)
    assert find_preemption(high, nodes, {"n0": ELSEWHERE, "n1": ELSEWHERE}) is None
    low = pod_view(make_pod("low", "4"))
    assert f"1 {NO_VICTIMS}, 1 {NOT_HELPFUL}" in refusal_note(low, nodes, {"n0": ELSEWHERE})
