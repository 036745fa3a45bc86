"""Pods that avoid each other by zone, in zones that are free of both: each zone is given to one of them."""

from __future__ import annotations

from collections import Counter
from itertools import product
from random import Random
from typing import Any

import pytest

from edl.model.plan import ScaleDecision, ScalePlan
from tests.worlds.rules.scenes import (
    HOSTNAME,
    ZONE,
    Object,
    apart,
    blocked,
    job,
    members,
    node,
    nodes,
    plan,
    pod,
    snapshot,
    victims,
)

TRAINERS = {"paddlepaddle.org/role": "trainer"}


def of(found: ScalePlan, name: str) -> ScaleDecision:
    return next(one for one in found.decisions if one.job.name == name)


def zones_of(found: ScalePlan, name: str, objects: list[Object]) -> set[str]:
    zones = {one["metadata"]["name"]: one["metadata"]["labels"][ZONE] for one in objects if one["kind"] == "Node"}
    return {zones[place] for place, _ in of(found, name).nodes}


def avoiding(name: str, other: str, **more: Any) -> Object:
    return job(name, template={"affinity": apart(ZONE, **{"paddlepaddle.org/job": other})}, **more)


def tenant(name: str, number: int, key: str = ZONE, cpu: str = "1") -> Object:
    term = {
        "labelSelector": {"matchExpressions": [{"key": "tenant", "operator": "Exists"}]},
        "mismatchLabelKeys": ["tenant"],
        "topologyKey": key,
    }
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return pod(f"{name}-{number}", cpu=cpu, labels={"tenant": name}, affinity=affinity)


@pytest.mark.parametrize("zones", ["ab", "abc"])
def test_two_jobs_that_avoid_each_other_begin_in_zones_of_their_own(zones: str) -> None:
    here = nodes(2 * len(zones), zones)
    found = plan(here, avoiding("a", "b"), job("b"))
    places = [zones_of(found, name, here) for name in "ab"]
    assert places[0].isdisjoint(places[1])
    assert places[0] | places[1] == set(zones)
    assert min(of(found, name).target for name in "ab") >= 15


def test_in_a_single_zone_the_first_of_two_jobs_runs_and_the_other_is_told_why() -> None:
    found = plan(nodes(2, "a"), avoiding("a", "b"), job("b"))
    assert (of(found, "a").target, of(found, "b").target) == (15, 0)
    assert "others may not share a zone with pods of paddlepaddle.org/job=b" in of(found, "b").details
    found = plan(nodes(2, "a"), avoiding("a", "b"), job("b", priority=1))
    assert (of(found, "a").target, of(found, "b").target) == (0, 15)


def test_a_job_that_cannot_start_keeps_nobody_from_a_zone() -> None:
    here = nodes(4, "ab")
    found = plan(here, avoiding("a", "b", low=33), job("b"))
    assert (of(found, "a").target, of(found, "b").target) == (0, 31)
    found = plan(here, avoiding("a", "b", suspend=True), job("b"))
    assert of(found, "b").target == 31


def test_a_job_that_an_earlier_plan_did_not_admit_keeps_nobody_from_a_zone() -> None:
    here = nodes(2, "a")
    waits = {**avoiding("a", "b"), "status": {"phase": "Pending", "conditions": [{"type": "Admitted"}]}}
    waits["status"]["conditions"][0] |= {"status": "False", "reason": "QuotaReached"}
    assert of(plan(here, waits, job("b")), "b").target > 0
    assert of(plan(here, avoiding("a", "b"), job("b")), "b").target == 0


def test_a_new_job_beyond_its_quota_keeps_nobody_from_a_zone() -> None:
    here = nodes(2, "a")
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small", "namespace": "default"},
        "spec": {"hard": {"requests.cpu": "12"}},
        "status": {"hard": {"requests.cpu": "12"}, "used": {"requests.cpu": "0"}},
    }
    late = job("b", 2)
    assert (of(plan(here, avoiding("a", "b", low=14), late), "b").target) == 0
    found = plan(here, avoiding("a", "b", low=14), late, quota)
    assert (of(found, "a").target, of(found, "b").target) == (0, 11)


def test_a_job_at_its_maximum_takes_no_further_zone() -> None:
    here = nodes(6, "abc")
    found = plan(here, avoiding("a", "b", high=2), job("b"))
    assert (of(found, "a").target, of(found, "b").target) == (2, 31)


def test_zones_in_which_pods_run_stay_with_them() -> None:
    here = nodes(6, "abc")
    found = plan(here, avoiding("a", "b"), job("b"), members("b", "n0", "n3"))
    assert "a" not in zones_of(found, "a", here)
    assert zones_of(found, "a", here).isdisjoint(zones_of(found, "b", here))
    assert of(found, "b").target >= 15


def test_trainers_that_avoid_their_master_leave_it_a_zone() -> None:
    master = {"paddlepaddle.org/job": "a", "paddlepaddle.org/role": "master"}
    found = plan(nodes(4, "ab"), job("a", template={"affinity": apart(ZONE, **master)}))
    assert of(found, "a").target == 16


def test_trainers_stay_out_of_the_only_zone_that_a_serving_pod_may_use() -> None:
    here = nodes(4, "ab")
    waits = pod("web-0", cpu="1", affinity=apart(ZONE, **TRAINERS))
    found = plan(here, job("a"), members("a", "n0", "n2"), waits)
    assert (found.serving.placed, victims(found)) == (1, [])
    assert zones_of(found, "a", here) == {"a"}
    assert of(found, "a").target == 15
    full = members("a", *(f"n{number % 4}" for number in range(28)))
    assert "no node is left" in blocked(snapshot(here, job("a"), full, waits))["web-0"]


def test_of_three_kinds_in_two_zones_the_last_waits_with_a_reason_and_nobody_ends_for_it() -> None:
    full = members("j", *(f"n{number % 4}" for number in range(31)))
    waiting = [tenant(name, number) for name in "xyz" for number in range(2)]
    objects: list[Object] = [*nodes(4, "ab"), job("j", 1, 31), *full, *waiting]
    found = plan(objects)
    assert (found.serving.placed, len(victims(found))) == (4, 3)
    marks = blocked(snapshot(objects))
    assert sorted(marks) == ["z-0", "z-1"]
    assert all("may not share a zone with pods of tenant" in why for why in marks.values())


def most_placed(kinds: dict[str, tuple[int, int]], sizes: list[int]) -> int:
    """The most pods that run if each node is of one kind, by trying all."""
    found = 0
    for of_node in product(kinds, repeat=len(sizes)):
        slots = Counter[str]()
        for size, kind in zip(sizes, of_node, strict=True):
            slots[kind] += size // kinds[kind][1]
        found = max(found, sum(min(pods, slots[kind]) for kind, (pods, _) in kinds.items()))
    return found


def test_of_kinds_that_avoid_each_other_by_node_each_gets_nodes_in_its_turn() -> None:
    """Those that come first get all that they need, and all together most of what could run."""
    rng, placed, best = Random(1), 0, 0  # noqa: S311  # no secret
    for _ in range(25):
        sizes = [rng.choice([4, 8, 16]) for _ in range(rng.randint(2, 5))]
        kinds = {name: (rng.randint(1, 6), rng.choice([1, 2, 3])) for name in "xyzw"[: rng.randint(3, 4)]}
        here = [node(f"n{number}", cpu=str(size)) for number, size in enumerate(sizes)]
        waits = [tenant(k, n, HOSTNAME, str(cpu)) for k, (pods, cpu) in kinds.items() for n in range(pods)]
        placed += (now := plan(here, waits).serving.placed)
        best += most_placed(kinds, sizes)
        pods, cpu = kinds["x"]
        assert now >= min(pods, sum(size // cpu for size in sizes))
    assert placed >= 0.8 * best


def test_trainers_end_on_one_node_for_each_kind_that_avoids_the_others() -> None:
    full = members("j", *(f"n{number % 4}" for number in range(31)))
    waiting = [tenant(name, number, HOSTNAME) for name in "xyz" for number in range(2)]
    found = plan(nodes(4), job("j", 1, 31), full, waiting)
    assert (found.serving.placed, len(victims(found))) == (6, 5)
    assert len({int(name.rpartition("-")[2]) % 4 for name in victims(found)}) == 3


def test_a_node_without_the_label_takes_any_number_of_pods_that_avoid_each_other() -> None:
    here = [node("n0", zone="a"), node("n1", zone="b"), node("n2")]
    waiting = [pod(f"w-{number}", cpu="1", labels={"app": "w"}, affinity=apart(ZONE, app="w")) for number in range(5)]
    assert plan(here, *waiting).serving.placed == 5
    assert blocked(snapshot(here, *waiting)) == {}


def test_one_node_is_said_in_the_singular_and_any_namespace_in_words() -> None:
    rule = apart(HOSTNAME, app="w")
    rule["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]["namespaceSelector"] = {}
    waits = pod("w-1", cpu="1", affinity=rule)
    assert blocked(snapshot(nodes(1), pod("w-0", "n0", cpu="1"), waits)) == {
        "w-1": "rule: one pod of app=w in any namespace a node; the node that accepts it has one"
    }
