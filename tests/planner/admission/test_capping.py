"""What a job could have at most, where a node has become smaller than what runs there.

The reports are NVIDIA/k8s-device-plugin 58 and 1228: allocatable falls below what pods use, and no pod ends.
"""

from __future__ import annotations

import pytest

from edl.planner.admission import capping
from tests.worlds.rules.scenes import Object, job, member, members, node, nodes, plan, pod, victims


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


@pytest.mark.parametrize(("gpus_of_master", "placed"), [("0", 0), ("1", 1)])
def test_a_master_is_in_the_way_on_its_node_only_if_it_requests_what_is_missing_there(
    gpus_of_master: str, placed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its job costs a packing of its own then."""
    apart = []
    monkeypatch.setattr(capping, "_beside_bound", lambda _, demand: apart.append(demand.index))
    gpu = {"nvidia.com/gpu": "1"}
    scene = [node("n0"), node("n1")]
    for one, gpus in zip(scene, ("0", "8"), strict=True):
        one["status"]["allocatable"]["nvidia.com/gpu"] = gpus
    lost = pod("lost", "n0", cpu="0")
    lost["spec"]["containers"][0]["resources"] = {"requests": gpu, "limits": gpu}
    trained, master = job("t"), member("t", "master", 0, "n0")
    asked = (trained["spec"]["trainer"], master["spec"]["containers"][0])
    for holder, count in zip(asked, ("1", gpus_of_master), strict=True):
        for amounts in (holder["resources"]["requests"], holder["resources"].setdefault("limits", {})):
            amounts |= {"nvidia.com/gpu": count}
    plan(scene, lost, trained, master)
    assert len(apart) == placed
