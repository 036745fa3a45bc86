"""What a job could have at most, where a node has become smaller than what runs there.

The reports are NVIDIA/k8s-device-plugin 58 and 1228: allocatable falls below what pods use, and no pod ends.
"""

from __future__ import annotations

import pytest

from tests.worlds.rules.scenes import Object, job, members, node, nodes, plan, victims


def shrunk(**allocatable: str) -> Object:
    found = node("n0")
    found["status"]["allocatable"] |= allocatable
    return found


CPU_SHRINKS = [{"cpu": cpu} for cpu in ("7", "4", "2", "0")]


@pytest.mark.parametrize("allocatable", [*CPU_SHRINKS, {"memory": "3Gi"}, {"memory": "0"}, {"pods": "5"}])
def test_a_node_that_shrinks_ends_nobody_and_costs_no_slot_elsewhere(allocatable: Object) -> None:
    found = plan(shrunk(**allocatable), nodes(2)[1:], job("t", low=2), members("t", *["n0"] * 7))
    (decision,) = found.decisions
    assert (decision.current, decision.target, victims(found)) == (7, 15, [])
    assert decision.message.startswith("15 of 40: cpu is full on ")


def test_pods_of_two_jobs_on_such_a_node_count_for_their_own_job() -> None:
    scene = [shrunk(cpu="2"), *nodes(3)[1:], job("a", high=20), job("b", high=20)]
    found = plan(scene, members("a", *["n0"] * 3), members("b", *["n0"] * 3))
    assert (sum(one.target for one in found.decisions), victims(found)) == (22, [])
