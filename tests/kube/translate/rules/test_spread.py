"""Serving pods that spread over nodes and zones: they get what kube-scheduler accepts, one after the other."""

from __future__ import annotations

from typing import Any

import pytest

from edl.explain.places import MORE_LATER
from edl.planner.eligibility import takes
from tests.worlds.rules.device_scenes import device, device_class, slice_of, template, uses
from tests.worlds.rules.scenes import (
    HOSTNAME,
    ZONE,
    Object,
    apart,
    blocked,
    job,
    members,
    near,
    node,
    nodes,
    plan,
    pod,
    snapshot,
    spread,
    victims,
)


def webs(*places: str, **spec: Any) -> list[Object]:
    return [pod(f"web-{number}", on, cpu="1", **spec) for number, on in enumerate(places)]


def by_node(**more: Any) -> Object:
    return {"topologySpreadConstraints": spread(HOSTNAME, app="web", **more)}


FULL = ("n0",) * 6 + ("n1",) * 7 + ("n2",) * 8


def test_a_pod_goes_to_the_emptiest_node_only() -> None:
    """Three nodes with 1, 1 and 0: a fourth pod may go to the third alone, although that costs a trainer."""
    beside = members("t", *["n0"] * 5, *["n1"] * 5, *["n2"] * 8)
    found = plan(nodes(3), webs("n0", "n1", "", **by_node()), job("t", 1, 18), beside)
    assert len(victims(found)) == 1
    assert int(victims(found)[0].rpartition("-")[2]) >= 10


def test_many_pods_fill_level_by_level() -> None:
    found = plan(nodes(3), webs("n0", *[""] * 5, **by_node()), job("t", 1, 40))
    assert (found.serving.placed, found.serving.short) == (5, 0)


def test_a_node_that_takes_no_pod_bounds_the_others() -> None:
    """A cordoned node counts as a domain with no pods: with a skew of 1 the others may have one each."""
    closed = node("n2")
    closed["spec"] = {"unschedulable": True}
    scene: tuple[Any, ...] = (
        *nodes(2),
        closed,
        webs("n0", "n1", "", **by_node()),
        job("t", 1, 40),
        members("t", *["n0"] * 6),
    )
    why = "rule: pods of app=web differ by at most 1 between nodes; node n2 has 0 of them and takes none"
    assert blocked(snapshot(*scene)) == {"web-2": why}
    assert victims(plan(*scene)) == []
    honored = by_node(more={"nodeTaintsPolicy": "Honor"})
    assert blocked(snapshot(*nodes(2), closed, webs("n0", "n1", "", **honored))) == {}


@pytest.mark.parametrize(("skew", "kept"), [(1, {"web-3"}), (2, set())])
def test_the_skew_between_zones_decides(skew: int, kept: set[str]) -> None:
    """Zone a has 2, zone b 1 and takes no more: with a skew of 1 the next pod has no place, with 2 it has."""
    rule = {"topologySpreadConstraints": spread(ZONE, skew, app="web")}
    full = pod("db-0", "n1", cpu="7", labels={"app": "db"})
    closed = node("n1", zone="b")
    closed["spec"] = {"unschedulable": True}
    scene = (node("n0", zone="a"), closed, full, webs("n0", "n0", "n1", "", **rule))
    assert set(blocked(snapshot(*scene))) == kept


def test_too_few_domains_count_as_an_empty_one() -> None:
    rule = {"topologySpreadConstraints": spread(ZONE, more={"minDomains": 3}, app="web")}
    assert set(blocked(snapshot(nodes(2, "ab"), webs("n0", "n1", "", **rule)))) == {"web-2"}
    assert set(blocked(snapshot(nodes(3, "abc"), webs("n0", "n1", "", **rule)))) == set()


def test_two_pods_that_may_not_share_a_zone_get_different_ones() -> None:
    rule = {"affinity": apart(ZONE, app="web")}
    scene = (nodes(6, "abc"), webs("n0", "", "", "", **rule))
    assert set(blocked(snapshot(*scene))) == {"web-3"}
    places = [one.shape.placement.rules for one in snapshot(*scene).waiting_serving if not one.blocked]
    assert len(places) == len(set(places)) == 2


def test_a_constraint_that_only_scores_excludes_nothing() -> None:
    loose = {"topologySpreadConstraints": spread(more={"whenUnsatisfiable": "ScheduleAnyway"}, app="web")}
    assert blocked(snapshot(nodes(1), webs("n0", "n0", "", **loose))) == {}


def test_pods_of_an_older_revision_are_not_counted_with_match_label_keys() -> None:
    rule = {"topologySpreadConstraints": spread(more={"matchLabelKeys": ["hash"]}, app="web")}
    old = pod("web-0", "n0", cpu="1", labels={"app": "web", "hash": "1"}, **rule)
    new = [pod(f"web-{n}", "", cpu="1", labels={"app": "web", "hash": "2"}, **rule) for n in (1, 2)]
    assert plan(node("n0"), node("n1"), old, new, job("t", 1, 40)).serving.placed == 2


def test_pods_go_to_zones_in_which_they_have_their_ports() -> None:
    """Two nodes in zone a, one in b: of three pods with a port of the host, zone a takes two."""
    containers = [{"name": "c", "image": "x", "ports": [{"containerPort": 80, "hostPort": 80}]}]
    more: Object = {"topologySpreadConstraints": spread(ZONE, app="web"), "containers": containers}
    three = [node("n0", zone="a"), node("n1", zone="a"), node("n2", zone="b")]
    assert plan(three, webs("", "", "", "", **more)).serving.placed == 3
    taken = pod("proxy", "n1", cpu="1", containers=containers)
    assert plan(three, taken, webs("", "", "", "", **more)).serving.placed == 2


def test_pods_go_to_zones_in_which_they_have_their_devices() -> None:
    """Zone a has one device and zone b three: with a skew of 2 three pods run in b once one runs in a."""
    three = [node("n0", zone="a"), node("n1", zone="a"), node("n2", zone="b")]
    devices = [device_class(), template(), slice_of("n1", device("gpu-0"))]
    devices.append(slice_of("n2", *(device(f"gpu-{number}") for number in range(3))))
    more: Object = {"topologySpreadConstraints": spread(ZONE, 2, app="web"), **uses()}
    assert plan(three, devices, webs("", "", "", "", **more)).serving.placed == 4


def test_pods_for_which_a_zone_has_no_room_make_none_in_the_others() -> None:
    """Zone a is full of serving: pods of a rule over zones get one more in b, whoever leaves."""
    full = pod("db-0", "n0", cpu="8")
    found = plan(nodes(2, "ab"), full, webs("", "", "", topologySpreadConstraints=spread(ZONE, app="web")))
    assert (found.serving.placed, found.serving.short) == (1, 2)


def test_a_node_in_no_zone_takes_pods_that_avoid_their_like_and_the_zones_take_one() -> None:
    places = [node("n0", zone="a"), node("n1", cpu="4"), node("n2", zone="a")]
    webs_apart = [pod(f"web-{number}", affinity=apart(ZONE, app="web")) for number in range(4)]
    assert plan(places, webs_apart).serving.placed == 2


def test_a_pod_on_a_node_in_no_zone_is_near_nobody() -> None:
    """So the first pod of a group that must share a zone may begin in any."""
    places = [node("n0", zone="a"), node("n1")]
    first, second = (pod(f"web-{n}", on, cpu="1", affinity=near(ZONE, app="web")) for n, on in enumerate(("n1", "")))
    assert plan(places, first, second).serving.placed == 1
    other = pod("other-0", cpu="1", affinity=near(ZONE, app="web"))
    assert plan(places, first, other).serving.placed == 0


def test_a_spread_over_other_pods_does_not_bound_those_that_have_it() -> None:
    """It counts the database: with a skew of 2 the empty nodes take as many pods of web as they have room for."""
    rule = spread(HOSTNAME, 2, app="db")
    full = [pod(f"db-{number}", "n0", cpu="1") for number in range(3)]
    found = plan(nodes(2), full, webs(*[""] * 6, topologySpreadConstraints=rule))
    assert (found.serving.placed, found.serving.short) == (6, 0)
    alone = snapshot(nodes(2), full, webs("", topologySpreadConstraints=rule))
    assert [one.name for one in alone.nodes if takes(one, alone.waiting_serving[0].shape.placement)] == ["n1"]


def test_a_group_that_must_share_a_node_and_a_zone_begins_on_a_node_of_that_zone() -> None:
    """Most slots has zone a, by its two nodes; the largest node is in zone b."""
    rule = near(HOSTNAME, app="web")
    terms = rule["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    terms += near(ZONE, app="web")["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    places = [node("n0", zone="a", cpu="6"), node("n1", zone="a", cpu="6"), node("n2", zone="b")]
    assert plan(places, webs(*[""] * 10, affinity=rule)).serving.placed == 8


@pytest.mark.parametrize(("more", "count"), [({}, 14), ({"minDomains": 2}, 1)])
def test_a_spread_over_the_only_zone_limits_trainers_only_if_there_must_be_more_zones(
    more: Object, count: int
) -> None:
    own = {"paddlepaddle.org/job": "ruled", "paddlepaddle.org/role": "trainer"}
    spreads = {"topologySpreadConstraints": spread(ZONE, 1, more, **own)}
    (decision,) = plan(nodes(2, "aa"), job("ruled", 1, 14, template=spreads)).decisions
    assert decision.target == count


OWN: Object = {"paddlepaddle.org/job": "ruled", "paddlepaddle.org/role": "trainer"}


@pytest.mark.parametrize("key", [ZONE, HOSTNAME], ids=["zone", "node"])
def test_a_job_that_grows_by_steps_is_not_said_to_have_all_that_fits(key: str) -> None:
    """One more fits in each domain once one runs in each."""
    ruled = job("ruled", 1, 40, template={"topologySpreadConstraints": spread(key, **OWN)})
    (decision,) = plan(nodes(6, "abc"), ruled, members("ruled", "n0", "n1", "n2")).decisions
    assert decision.target == 6
    assert "even without other jobs" not in decision.details
    assert decision.details.endswith("no more on all 6 nodes that accept its trainers; " + MORE_LATER)


def test_a_job_that_a_full_domain_holds_is_not_told_to_wait() -> None:
    ruled = job("ruled", 1, 40, template={"topologySpreadConstraints": spread(ZONE, **OWN)})
    full = pod("db-0", "n1", cpu="7")
    (decision,) = plan(nodes(2, "ab"), ruled, members("ruled", "n0", "n0", "n1"), full).decisions
    assert decision.target == 3
    why = "between zones, and zone b takes no more than 1: no more on all 2 nodes that accept its trainers"
    assert decision.message.endswith(why)
    assert MORE_LATER not in decision.details


@pytest.mark.parametrize("skew", [1, 2])
def test_too_few_zones_for_min_domains_are_named(skew: int) -> None:
    rule = spread(ZONE, skew, {"minDomains": 3}, **OWN)
    ruled = job("ruled", 1, 40, template={"topologySpreadConstraints": rule})
    (decision,) = plan(nodes(4, "ab"), ruled).decisions
    assert decision.target == 2 * skew
    why = f"at most {skew} a zone, because minDomains is 3 and only 2 count"
    assert why in decision.details
    assert MORE_LATER not in decision.details
    web = webs(*[""] * 5, topologySpreadConstraints=spread(ZONE, skew, {"minDomains": 3}, app="web"))
    scene = (nodes(4, "ab"), web)
    assert plan(*scene).serving.placed == 2 * skew
    assert len(blocked(snapshot(*scene))) == 5 - 2 * skew
    assert all(why in said for said in blocked(snapshot(*scene)).values())


@pytest.mark.parametrize("closed", [{"spec": {"taints": [{"key": "own", "effect": "NoSchedule"}]}}, {"labels": {}}])
def test_the_emptiest_zone_is_named_if_it_takes_none(closed: Object) -> None:
    """Its nodes count although no pod may go there, by a taint or by a selector that the rule ignores."""
    open_to = [node(f"n{number}", zone=zone, labels={"pool": "web"}) for number, zone in enumerate("ab")]
    last = node("n2", zone="c", **{"labels": {"pool": "web"}, **closed})
    spreads = spread(ZONE, 1, {"nodeAffinityPolicy": "Ignore"}, app="web")
    ruled = {"topologySpreadConstraints": spreads, "nodeSelector": {"pool": "web"}}
    why = "rule: pods of app=web differ by at most 1 between zones; zone c has 0 of them and takes none"
    assert blocked(snapshot(open_to, last, webs("n0", "n1", "", **ruled))) == {"web-2": why}
    assert blocked(snapshot(open_to, last, webs("n0", "n1", "", "", **ruled))) == {"web-2": why, "web-3": why}


def test_a_rule_is_said_once_whatever_it_asks_of_the_node() -> None:
    full = pod("x-0", "n1", cpu="8")
    waits = pod("web-1", topologySpreadConstraints=spread(ZONE, app="web"))
    scene = (nodes(2, "ab"), webs("n0"), full, job("t"), members("t", *["n0"] * 3), waits)
    assert blocked(snapshot(*scene))["web-1"].count("rule: ") == 1


def test_domains_of_any_label_are_its_values() -> None:
    waits = pod("web-1", topologySpreadConstraints=spread("example.com/rack", app="web"))
    assert "differ by at most 1 between values of example.com/rack" in blocked(snapshot(nodes(2), waits))["web-1"]
