"""Pods whose end no kubelet will confirm: their node is gone, or not ready while they terminate."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from edl.lifecycle.unreachable_pods import unreachable_pods
from edl.model.cluster import Node
from edl.model.resources import CPU, MEMORY, PODS, Resources, Taint
from tests.worlds.builders import make_job, make_node, make_nodes, make_snapshot
from tests.worlds.simulated_cluster import World
from tests.worlds.simulated_controller import Living


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


NOTHING = Resources.of({CPU: 0, MEMORY: 0, PODS: 110})
TROUBLES: dict[str, dict[str, Any]] = {
    "its device plugin or kubelet starts again": {"allocatable": NOTHING},
    "it does not answer": {"ready": False},
    "it is cordoned": {"cordoned": True},
    "an autoscaler wants to remove it": {"taints": (Taint("karpenter.sh/disrupted", "", "NoSchedule"),)},
}


def becomes(node: Node, world: World) -> None:
    world.nodes[node.name] = node
    world.changed.set()


@pytest.mark.parametrize("fault_tolerant", [True, False])
@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_node_that_is_in_trouble_for_seconds_costs_no_job_a_pod(trouble: str, fault_tolerant: bool) -> None:
    """What runs there goes on; nobody moves it, starts a gang again, or says that something is wrong."""
    with closing(Living(make_nodes(3, cpu=4), runs=True)) as living:
        job = replace(make_job("a", min_trainers=8, max_trainers=8), fault_tolerant=fault_tolerant)
        living.do(lambda world: world.add(job))
        for _ in range(10):
            living.step(1.0)
        before, pods = living.world.nodes["n000"], sorted(living.world.pods)
        writes = len(living.world.writes)
        for changed in (TROUBLES[trouble], {}):
            living.do(partial(becomes, replace(before, **changed)))
            for _ in range(5):
                living.step(1.0)
            status = living.status_of(job.key)
            assert (sorted(living.world.pods), status.phase, status.reason) == (pods, "Running", "AtMax")
        assert len(living.world.writes) == writes
