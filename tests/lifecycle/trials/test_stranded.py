"""A master that no node takes: the trainers go on, and the job says what keeps it from them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edl.controller.planning import plan_snapshot
from edl.lifecycle.trials.stranded import as_stranded
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.names import Role
from edl.model.node_groups import NodeGroup
from edl.model.resources import Placement, Resources, Taint
from edl.model.status import Reason
from tests.worlds.rules.scenes import NO_NODE, Object, bound, job, member, members, nodes, snapshot, storage

ZONE = "topology.kubernetes.io/zone"
TRAINERS = members("own", *["n0"] * 7, *["n1"] * 8)[1:]


def scene(*more: Object, cordoned: bool = True, trainers: list[Object] = TRAINERS) -> ClusterSnapshot:
    """Two nodes of which the first, in the zone of the journal, may be cordoned; a job whose master is gone."""
    there = nodes(2, "ab")
    there[0]["spec"] = {"unschedulable": cordoned}
    journal = bound(storage("a", claim="own-journal-uid-own"), "pv-a0")
    return snapshot(there, journal, job("own", 2, 20), trainers, list(more))


def waiting_master() -> Object:
    found = member("own", "master", 0, "n0")
    del found["spec"]["nodeName"]
    return {**found, "status": {"phase": "Pending", "conditions": [NO_NODE]}}


def test_the_trainers_stay_and_the_job_names_volume_and_zone() -> None:
    for found in (scene(), scene(waiting_master())):
        seen = as_stranded(found.jobs[0], found.nodes)
        assert seen.refusal is not None
        assert seen.refusal.reason is Reason.UNSCHEDULABLE
        assert seen.refusal.allowed == 15
        why = "volume pv-a0 of claim own-journal-uid-own is in zone a, and no node there takes it"
        assert seen.refusal.message == f"its master waits for a node: {why}"
        assert not any(pod.role is Role.MASTER for pod in seen.pods), "nobody frees capacity for it"


def test_a_master_that_some_node_takes_is_planned() -> None:
    found = scene(cordoned=False)
    assert as_stranded(found.jobs[0], found.nodes) is found.jobs[0]


def test_a_job_whose_master_runs_is_left_alone() -> None:
    found = scene(member("own", "master", 0, "n0"))
    assert as_stranded(found.jobs[0], found.nodes) is found.jobs[0]


def test_a_job_without_trainers_waits_as_any_other() -> None:
    found = scene(trainers=[])
    assert as_stranded(found.jobs[0], found.nodes) is found.jobs[0]


def selecting(found: ClusterSnapshot, zone: str) -> ClusterSnapshot:
    """The same where the master has no volume, and its own template binds it to a zone."""
    own = found.jobs[0]
    placement = Placement(node_selector=((ZONE, zone),))
    fixed = tuple(replace(one, shape=replace(one.shape, placement=placement)) for one in own.fixed)
    return replace(found, jobs=(replace(own, fixed=fixed),))


@pytest.mark.parametrize(
    ("zone", "why"),
    [
        ("a", "each node that its template allows is cordoned, tainted or not ready: n0"),
        ("c", "no node has what its selector or its affinity requires"),
    ],
)
def test_trainers_stay_whatever_keeps_the_master_from_each_node(zone: str, why: str) -> None:
    for found in (selecting(scene(), zone), selecting(scene(waiting_master()), zone)):
        decision = plan_snapshot(found, "", Limits()).decisions[0]
        assert (decision.target, decision.victims) == (15, ())
        assert decision.message == f"15 of 20: its master waits for a node: {why}"


def test_a_job_goes_on_as_planned_once_a_node_takes_the_master() -> None:
    assert plan_snapshot(selecting(scene(), "b"), "", Limits()).decisions[0].fixed_nodes


def test_a_master_for_which_a_node_may_come_is_planned() -> None:
    found = selecting(scene(), "a")
    group = NodeGroup("more", Resources.of({"cpu": 8000}), ((ZONE, "a"),))
    assert as_stranded(found.jobs[0], found.nodes, (group,)) is found.jobs[0]
    tainted = replace(group, taints=(Taint("own", "", "NoSchedule"),))
    assert as_stranded(found.jobs[0], found.nodes, (tainted,)) is not found.jobs[0]
