"""Pods of two kinds that may not share a node: each node has many of one kind, or many of the other."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from edl.explain.places import MORE_LATER
from edl.model.plan import ScalePlan
from tests.worlds.rules.scenes import Object, apart, blocked, job, members, nodes, plan, pod, snapshot, victims

WEB = apart(app="web")


def avoiding(name: str, *, low: int = 1, most: int = 24) -> Object:
    """A job whose trainers go to no node with pods of the web."""
    return job(name, low, most, template={"affinity": WEB})


def trainers(found: ScalePlan, name: str) -> Counter[str]:
    (one,) = (decision for decision in found.decisions if decision.job.name == name)
    return Counter(dict(one.nodes))


def webs(count: int, *, app: str = "web", cpu: str = "1", **spec: Any) -> list[Object]:
    return [pod(f"{app}-{number}", cpu=cpu, labels={"app": app}, **spec) for number in range(count)]


def from_trainers_of(name: str) -> Object:
    return apart(**{"paddlepaddle.org/job": name, "paddlepaddle.org/role": "trainer"})


def test_pods_that_trainers_avoid_share_a_free_node_and_nobody_ends() -> None:
    scene = (nodes(4), avoiding("train"), members("train", *["n3"] * 6), webs(8))
    found = plan(*scene)
    assert (found.serving.placed, found.serving.short, victims(found)) == (8, 0, [])
    assert not blocked(snapshot(*scene))
    assert trainers(found, "train") == {"n1": 8, "n2": 8, "n3": 1}


def test_serving_that_avoids_trainers_takes_one_node_of_three_and_the_others_follow() -> None:
    scene = (nodes(3), job("plain"), members("plain", *["n0", "n1", "n2"] * 7))
    lonely = from_trainers_of("plain")
    found = plan(*scene, webs(6, affinity=lonely))
    assert len(victims(found)) == 7
    assert found.serving.placed == 1
    said = blocked(snapshot(*scene, webs(6, affinity=lonely)))
    assert len(said) == 5
    assert all(why.endswith("it fits where those before it go") for why in said.values())
    assert len(victims(plan(*scene, webs(9, affinity=lonely)))) == 14


def test_two_kinds_of_serving_that_avoid_each_other_get_nodes_of_their_own() -> None:
    red = webs(4, app="red", affinity=apart(app="blue"))
    blue = webs(4, app="blue", affinity=apart(app="red"))
    found = plan(nodes(3), job("plain"), members("plain", *["n0", "n1", "n2"] * 7), red, blue)
    assert found.serving.placed == 8
    assert len(victims(found)) <= 8


def test_a_job_that_another_one_avoids_grows_where_it_runs() -> None:
    avoids = job("one", 1, 20, template={"affinity": from_trainers_of("two")})
    running = (members("one", *["n1"] * 8), members("two", "n0", "n2"))
    found = plan(nodes(3), avoids, job("two", 1, 20), *running)
    assert trainers(found, "two") == {"n0": 6, "n2": 7}
    assert victims(found) == []


@pytest.mark.parametrize(("role", "total"), [({"paddlepaddle.org/role": "trainer"}, 23), ({}, 22)])
def test_two_new_jobs_that_avoid_each_other_share_the_nodes(role: Object, total: int) -> None:
    """Without the master of the other job among those that each avoids, and with it; masters use a part of a core."""
    one = job("one", 1, 20, template={"affinity": apart(**{"paddlepaddle.org/job": "two"}, **role)})
    two = job("two", 1, 20, template={"affinity": apart(**{"paddlepaddle.org/job": "one"}, **role)})
    found = plan(nodes(3), one, two)
    first, second = trainers(found, "one"), trainers(found, "two")
    assert not first.keys() & second.keys()
    assert (first + second).total() == total


def test_a_job_that_avoids_one_that_has_all_that_it_wants_gets_the_other_nodes() -> None:
    """In one plan, and not one trainer on each node first."""
    avoids = job("late", 1, 40, template={"affinity": from_trainers_of("early")})
    found = plan(nodes(4), job("early", 1, 4), members("early", *["n0"] * 4), avoids)
    assert trainers(found, "late") == {"n1": 8, "n2": 8, "n3": 8}
    assert victims(found) == []
    (late,) = (decision for decision in found.decisions if decision.job.name == "late")
    assert MORE_LATER not in late.details, "the last node is of the other job"
    assert "even without other jobs" not in late.details


@pytest.mark.parametrize("most", [10, 16])
def test_a_job_that_wants_more_keeps_a_part_of_the_free_nodes(most: int) -> None:
    avoids = job("late", 1, 40, template={"affinity": from_trainers_of("early")})
    found = plan(nodes(4), job("early", 1, most), members("early", *["n0"] * 4), avoids)
    early, late = trainers(found, "early"), trainers(found, "late")
    assert not (early.keys() | {"n0"}) & late.keys()
    assert 4 + early.total() + late.total() >= {10: 26, 16: 31}[most]
    assert victims(found) == []


def test_a_job_for_which_another_one_leaves_a_node_is_told_that_more_follow() -> None:
    avoids = job("late", 1, 40, template={"affinity": from_trainers_of("early")})
    found = plan(nodes(4), job("early", 1, 4), members("early", "n0", "n1", "n2", "n3"), avoids)
    (late,) = (decision for decision in found.decisions if decision.job.name == "late")
    assert late.target >= 1
    assert late.details.endswith(MORE_LATER)
