"""Pods whose end no kubelet will confirm: their node is gone, or not ready while they terminate."""

from __future__ import annotations

from dataclasses import replace

from edl.lifecycle.unreachable_pods import unreachable_pods
from tests.worlds.builders import make_job, make_node, make_snapshot


def test_pods_are_unreachable_if_no_kubelet_will_end_them() -> None:
    on = ("well", "down", "gone")
    tolerant = make_job("a", trainers=6, on=on)
    pods = tuple(replace(pod, terminating=i >= 3) for i, pod in enumerate(tolerant.pods))
    nodes = (make_node("well"), make_node("down", ready=False))
    snapshot = make_snapshot(nodes, (replace(tolerant, pods=pods),))
    assert unreachable_pods(snapshot) == {pods[2].uid, pods[4].uid, pods[5].uid}
    gang = make_snapshot(nodes, (replace(tolerant, pods=pods, fault_tolerant=False),))
    assert unreachable_pods(gang) == {pods[2].uid, pods[5].uid}
    unread = replace(snapshot, unread_nodes=("gone",))
    assert unreachable_pods(unread) == {pods[4].uid}, (
        "a node that cannot be parsed is not gone, and its kubelet may work"
    )
