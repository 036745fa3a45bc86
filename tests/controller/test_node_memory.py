"""Groups that rest, and nodes that have been idle for long enough."""

from __future__ import annotations

from dataclasses import replace

from edl.controller.node_memory import LONGEST_PAUSE_S, NodeMemory
from edl.model.cluster import ClusterSnapshot, NodeRequest
from edl.model.limits import Limits, NodeLimits
from edl.model.names import JobKey
from edl.model.node_groups import NodeGroup
from edl.model.pods import Pod
from tests.worlds.builders import make_job, make_node, make_resources, make_shape, make_snapshot

SPOT = NodeGroup("spot", make_resources(4, 32, pods=110), (("pool", "spot"),), limit=4, come_s=120.0)
LIMITS = Limits(nodes=NodeLimits(expected=(SPOT,), drain_idle_s=60.0))


def at(now_s: float, snapshot: ClusterSnapshot) -> ClusterSnapshot:
    return replace(snapshot, observed_at_s=now_s)


def asking(since_s: float, node: str = "") -> ClusterSnapshot:
    pod = Pod("default", "a-node-0", "u", make_shape(3), node=node, created_s=since_s)
    found = make_snapshot(nodes=(), jobs=(make_job("a"),))
    return replace(found, node_requests=(NodeRequest(JobKey("default", "a"), "spot", pod),))


def test_without_groups_the_snapshot_is_the_same_object() -> None:
    snapshot = asking(0.0)
    assert NodeMemory(Limits()).update(snapshot) is snapshot


def test_a_group_rests_once_it_is_late_and_twice_as_long_the_next_time() -> None:
    memory, none = NodeMemory(LIMITS), make_snapshot(nodes=())
    assert memory.update(at(1299.0, asking(1000.0))).resting_groups == ()
    assert memory.update(at(1300.0, asking(1000.0))).resting_groups == (("spot", 1600.0),)
    assert memory.update(at(1599.0, none)).resting_groups == (("spot", 1600.0),)
    assert memory.update(at(1600.0, none)).resting_groups == ()
    assert memory.update(at(2000.0, asking(1700.0))).resting_groups == (("spot", 2600.0),)


def test_a_rest_has_a_longest_time() -> None:
    memory, now_s = NodeMemory(LIMITS), 1000.0
    for _ in range(8):
        (_, until_s) = memory.update(at(now_s, asking(now_s - SPOT.give_up_s))).resting_groups[0]
        assert until_s - now_s <= LONGEST_PAUSE_S
        last_s, now_s = until_s - now_s, until_s
    assert last_s == LONGEST_PAUSE_S


def test_a_node_that_came_ends_the_rest_and_the_growth_of_its_time() -> None:
    memory = NodeMemory(LIMITS)
    memory.update(at(1300.0, asking(1000.0)))
    assert memory.update(at(1310.0, asking(1000.0, node="s"))).resting_groups == ()
    assert memory.update(at(2000.0, asking(1700.0))).resting_groups == (("spot", 2300.0),)


def test_a_node_is_emptied_once_it_has_been_idle_without_a_break() -> None:
    memory = NodeMemory(LIMITS)
    idle = make_snapshot(nodes=(make_node("s", 4, labels={"pool": "spot"}),))
    busy = replace(idle, pods=(Pod("web", "api", "u", make_shape(1), node="s"),))
    assert memory.update(at(1000.0, idle)).idle_nodes == ()
    assert memory.update(at(1059.0, idle)).idle_nodes == ()
    assert memory.update(at(1060.0, idle)).idle_nodes == ("s",)
    assert memory.update(at(1061.0, busy)).idle_nodes == ()
    assert memory.update(at(1120.0, idle)).idle_nodes == ()
    assert memory.update(at(1180.0, idle)).idle_nodes == ("s",)


def test_without_drain_idle_s_no_node_is_emptied() -> None:
    memory = NodeMemory(replace(LIMITS, nodes=replace(LIMITS.nodes, drain_idle_s=0.0)))
    idle = make_snapshot(nodes=(make_node("s", 4, labels={"pool": "spot"}),))
    memory.update(at(1000.0, idle))
    assert memory.update(at(9000.0, idle)).idle_nodes == ()


def test_a_group_that_the_operator_takes_away_and_brings_back_starts_anew() -> None:
    memory, late = NodeMemory(LIMITS), at(1300.0, asking(1000.0))
    assert memory.update(late).resting_groups == (("spot", 1600.0),)
    memory.use(Limits())
    assert memory.update(late) is late
    memory.use(LIMITS)
    assert memory.update(at(1301.0, make_snapshot(nodes=()))).resting_groups == ()
