"""Trainers, masters and their rules: a job gets what its rules allow, and others give no more for it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from edl.model.plan import ScaleDecision, ScalePlan
from edl.model.status import Reason
from tests.worlds.rules.scenes import (
    HOSTNAME,
    ZONE,
    Object,
    apart,
    blocked,
    bound,
    job,
    members,
    near,
    nodes,
    plan,
    pod,
    snapshot,
    spread,
    storage,
    victims,
)

PLAIN = members("plain", *["n0"] * 7, *["n1"] * 8, *["n2"] * 8, *["n3"] * 8)
OWN: Object = {"paddlepaddle.org/job": "ruled", "paddlepaddle.org/role": "trainer"}
USES: Object = {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]}


def of(found: ScalePlan, name: str) -> ScaleDecision:
    return next(one for one in found.decisions if one.job.name == name)


def ruled(template: Object, *others: Object, low: int = 2, zones: str = "") -> ScaleDecision:
    """What a new job with a rule gets beside one that fills four nodes; the other gives no more than that."""
    scene: tuple[Any, ...] = (nodes(4, zones), job("plain"), PLAIN, job("ruled", low, 12, template=template), *others)
    found = plan(*scene)
    assert len(victims(found)) == of(found, "ruled").target
    return of(found, "ruled")


@pytest.mark.parametrize(
    ("template", "zones", "places"),
    [
        ({"affinity": apart(**OWN)}, "", [1, 1, 1, 1]),
        ({"affinity": apart(ZONE, **OWN)}, "ab", [1, 1]),
        ({"topologySpreadConstraints": spread(HOSTNAME, 2, **OWN)}, "", [1, 2, 2, 2]),
        ({"topologySpreadConstraints": spread(ZONE, 2, **OWN)}, "ab", [2, 2]),
    ],
)
def test_trainers_get_as_many_slots_as_their_rule_allows(template: Object, zones: str, places: list[int]) -> None:
    assert sorted(count for _, count in ruled(template, zones=zones).nodes) == places


def test_trainers_spread_over_zones_get_their_minimum_at_once_and_grow_with_the_emptiest_zone() -> None:
    template = {"topologySpreadConstraints": spread(ZONE, **OWN)}
    first = ruled(template, low=5, zones="ab")
    assert first.target == 6
    zone = Counter({"n0": "a", "n1": "b", "n2": "a", "n3": "b"}[name] for name, n in first.nodes for _ in range(n))
    assert zone == {"a": 3, "b": 3}
    beside = [*members("ruled", "n0", "n1", *["n0", "n1"] * 2, **template), *members("plain", *["n0"] * 4)]
    later = plan(nodes(4, "ab"), job("plain", 1, 4), job("ruled", 5, 30, template=template), beside)
    assert of(later, "ruled").target == 8, "one more in each zone, as kube-scheduler accepts it"


def test_the_reason_names_the_rule() -> None:
    template = {"affinity": apart(**OWN)}
    running = members("ruled", "n0", "n1", "n2", "n3", **template)
    scene = (nodes(4), job("plain"), members("plain", *["n0"] * 6), job("ruled", 2, 12, template=template), running)
    found = of(plan(*scene), "ruled")
    assert (found.target, found.reason) == (4, Reason.INSUFFICIENT_CAPACITY)
    assert "rule: one trainer of job ruled a node: no more on all 4 nodes that accept its trainers" in found.message


def test_a_job_that_its_rule_never_lets_start_says_which() -> None:
    found = plan(nodes(4, "ab"), job("ruled", 3, 12, template={"affinity": apart(ZONE, **OWN)}))
    fits = "the nodes can hold at most 2 trainers, and its minimum is 3"
    assert of(found, "ruled").message == f"{fits} (rule: one trainer of job ruled a zone)"
    labels = {"paddlepaddle.org/job": "ruled", "paddlepaddle.org/role": "pserver"}
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}}
    template = {"spec": {"affinity": apart(**labels)}}
    pservers = {"min-instance": 3, "max-instance": 3, "resources": resources, "template": template}
    found = plan(nodes(2), job("ruled", 1, 9, pserver=pservers))
    fits = "the nodes can hold at most 2 pservers, and it needs 3"
    assert of(found, "ruled").message == f"{fits} (rule: one pserver of job ruled a node)"


def test_trainers_that_must_be_near_a_pod_get_its_node() -> None:
    cache = pod("cache-0", "n0", cpu="2")
    beside = members("plain", *["n0"] * 5, *["n1"] * 8, *["n2"] * 8, *["n3"] * 8)
    found = plan(nodes(4), cache, job("plain"), beside, job("near", 2, 20, template={"affinity": near(app="cache")}))
    assert of(found, "near").nodes == (("n0", 5),)
    rule = "no other node takes its trainers: it must share a node with a pod of app=cache"
    assert rule in of(found, "near").details
    assert len(victims(found)) == 5


def test_trainers_near_a_pod_that_does_not_run_start_nowhere_and_cost_nothing() -> None:
    scene = (nodes(4), job("plain"), PLAIN, job("near", 2, 20, template={"affinity": near(app="cache")}))
    found = plan(*scene)
    assert victims(found) == []
    assert "and none runs" in of(found, "near").details


def test_trainers_near_each_other_begin_in_one_zone() -> None:
    found = plan(nodes(4, "ab"), job("ruled", 2, 40, template={"affinity": near(ZONE, **OWN)}))
    assert len({"ab"[int(name[1]) % 2] for name, _ in of(found, "ruled").nodes}) == 1


def test_trainers_near_their_own_master_wait_for_no_other_pod() -> None:
    master = {"paddlepaddle.org/job": "ruled", "paddlepaddle.org/role": "master"}
    found = plan(nodes(2), job("ruled", 2, 12, template={"affinity": near(**master)}))
    assert of(found, "ruled").target == 7, "they share one node"
    assert len(of(found, "ruled").nodes) == 1
    runs = members("ruled", "n1")[:1]
    after = plan(nodes(2), job("ruled", 2, 12, template={"affinity": near(**master)}), runs)
    assert dict(of(after, "ruled").nodes) == {"n1": 7}


def test_trainers_with_a_volume_get_slots_in_its_zone() -> None:
    scene = (nodes(4, "ab"), bound(storage("a"), "pv-a0"), job("plain"), PLAIN, job("bound", 4, 24, **USES))
    found = plan(*scene)
    assert {name for name, _ in of(found, "bound").nodes} == {"n0", "n2"}
    rule = "no other node takes its trainers: volume pv-a0 of claim data is in zone a"
    assert rule in of(found, "bound").details
    assert len(victims(found)) == of(found, "bound").target


def test_trainers_of_a_claim_that_one_pod_may_use_are_one() -> None:
    claim = bound(storage("a", mode="ReadWriteOncePod"), "pv-a0")
    found = plan(nodes(4, "aa"), claim, job("alone", 1, 8, template=USES))
    assert of(found, "alone").target == 1


def test_a_serving_pod_that_trainers_avoid_gets_a_node_for_the_fewest_of_them() -> None:
    template = {"affinity": apart(app="web")}
    beside = members("t", *["n0"] * 8, *["n1"] * 7, **template)
    found = plan(nodes(2), job("t", 2, 16, template=template), beside, pod("web-0", cpu="1"))
    assert len(victims(found)) == 7
    assert found.serving.placed == 1


def test_a_serving_pod_that_avoids_trainers_gets_a_node_for_the_fewest_of_them() -> None:
    web = pod("web-0", cpu="1", affinity=apart(**{"paddlepaddle.org/role": "trainer"}))
    found = plan(nodes(2), job("t", 2, 16), members("t", *["n0"] * 8, *["n1"] * 7), web)
    assert len(victims(found)) == 7
    assert found.serving.placed == 1


def test_nobody_ends_for_a_serving_pod_that_trainers_keep_from_every_zone() -> None:
    template = {"affinity": apart(ZONE, app="web")}
    beside = members("t", *["n0"] * 8, *["n1"] * 7, **template)
    scene = (nodes(4, "ab"), job("t", 2, 16, template=template), beside, pod("web-0", cpu="1"))
    assert "others may not share a zone with pods of app=web" in blocked(snapshot(*scene))["web-0"]
    assert victims(plan(*scene)) == []


def test_a_serving_pod_goes_to_the_zone_without_trainers_that_avoid_it() -> None:
    template = {"affinity": apart(ZONE, app="web")}
    beside = members("t", *["n0"] * 8, **template)
    full = [pod("db-0", "n1", cpu="8", labels={"app": "db"}), pod("db-1", "n3", cpu="1", labels={"app": "db"})]
    scene = (nodes(4, "ab"), full, job("t", 2, 8, template=template), beside, pod("web-0", cpu="7"))
    found = plan(*scene)
    assert (victims(found), found.serving.placed) == ([], 1)


def test_trainers_avoid_nodes_of_pods_that_avoid_them() -> None:
    web = [pod("web-0", "n0", cpu="1", affinity=apart(**{"paddlepaddle.org/role": "trainer"}))]
    found = plan(nodes(2), web, job("t", 2, 40))
    assert {name for name, _ in of(found, "t").nodes} == {"n1"}


def test_own_trainers_make_way_for_the_master_in_the_zone_of_its_journal() -> None:
    journal = bound(storage("a", claim="own-journal-uid-own"), "pv-a0")
    trainers = members("own", *["n0"] * 8, *["n1"] * 8)[1:]
    found = of(plan(nodes(2, "ab"), journal, job("own", 2, 20), trainers), "own")
    assert [name for _, name in found.fixed_nodes] == ["n0"]
    assert len(found.victims) == 1
    assert found.victims[0] in {f"own-trainer-{index}" for index in range(8)}
