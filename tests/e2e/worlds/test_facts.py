"""The functions by which the end-to-end tests judge edl, on clusters that are known or small enough to try all."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from tests.e2e.control_plane.nodes import load_mix, manifest
from tests.e2e.worlds import facts
from tests.e2e.worlds.hindsight import Moment, best_without_moves

Object = dict[str, Any]
TRAINER = {"cpu": 5000, "memory": 8 * 2**30, "pods": 1}
SERVING = {"cpu": 3000, "memory": 3 * 2**30, "pods": 1}


def make_node(name: str, cpu: str, memory: str = "64Gi", pods: str = "110") -> Object:
    allocatable = {"cpu": cpu, "memory": memory, "pods": pods}
    ready = [{"type": "Ready", "status": "True"}]
    return {
        "metadata": {"name": name},
        "spec": {},
        "status": {"allocatable": allocatable, "conditions": ready},
    }


def make_pod(cpu: int, memory_gib: int, node: str = "", role: str = "") -> Object:
    labels = {facts.JOB_LABEL: "j", facts.ROLE_LABEL: role} if role else {}
    requests = {"cpu": str(cpu), "memory": f"{memory_gib}Gi"}
    return {
        "metadata": {"labels": labels},
        "spec": {"nodeName": node, "containers": [{"resources": {"requests": requests}}]},
        "status": {"phase": "Running"},
    }


def test_a_trainer_that_lends_counts_as_it_declares_and_is_slow_where_a_node_is_overcommitted() -> None:
    lender, other = make_pod(1, 1, "a", "trainer"), make_pod(4, 1, "a")
    lender["metadata"] |= {"name": "lender", "annotations": {facts.DECLARED_CPU: "4"}}
    nodes = [make_node("a", "8"), make_node("b", "8")]
    assert facts.request(facts.as_declared(lender))["cpu"] == 4000
    assert facts.request(lender)["cpu"] == 1000
    assert facts.as_declared(other) is other
    assert facts.slowed(nodes, [lender, other]) == []
    assert facts.slowed(nodes, [lender, other, other]) == ["lender"]


def nodes_2017() -> list[Object]:
    nodes = [manifest(spec, index) for index, spec in enumerate(load_mix("edl2017"))]
    for node in nodes:
        node["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    return nodes


def of_jobs(count: int) -> list[Object]:
    return [make_pod(1, 1, role="master")] * count + [make_pod(4, 5, role="pserver")] * 10 * count


@pytest.mark.parametrize(("serving", "trainers"), [(400, 153), (300, 213), (200, 273), (100, 327)])
def test_the_integer_optimum_of_the_2017_cluster_is_the_known_one(serving: int, trainers: int) -> None:
    anywhere = [make_pod(3, 3, role="repacked too")] * serving
    assert facts.most_trainers(nodes_2017(), of_jobs(6) + anywhere, TRAINER) == trainers


def test_the_integer_optimum_for_twenty_jobs_is_the_known_one() -> None:
    assert facts.most_trainers(nodes_2017(), of_jobs(20), TRAINER) == 254


def test_what_is_not_training_stays_where_it_is() -> None:
    nodes = [make_node("a", "8"), make_node("b", "8")]
    beside = [make_pod(3, 1, "a"), make_pod(3, 1, "b")]
    together = [make_pod(3, 1, "a"), make_pod(3, 1, "a")]
    pserver = [make_pod(4, 1, "a", "pserver")]
    assert facts.most_trainers(nodes, beside + pserver, TRAINER) == 1
    assert facts.most_trainers(nodes, together, TRAINER) == 1
    assert facts.most_trainers(nodes, pserver, TRAINER) == 1
    assert facts.most_trainers(nodes, [], TRAINER) == 2


def test_a_master_stays_once_it_has_a_node() -> None:
    nodes = [make_node("a", "6"), make_node("b", "5")]
    assert facts.most_trainers(nodes, [make_pod(1, 1, role="master")], TRAINER) == 2
    assert facts.most_trainers(nodes, [make_pod(1, 1, "a", "master")], TRAINER) == 2
    assert facts.most_trainers(nodes, [make_pod(1, 1, "b", "master")], TRAINER) == 1


@pytest.mark.parametrize(("node", "part"), [("b", 0.8), ("a", 1.0)])
def test_who_knows_both_moments_places_the_pserver_where_the_worse_of_them_is_best(node: str, part: float) -> None:
    nodes = [make_node("a", "10"), make_node("b", "10")]
    moments = []
    for place in ("a", node):
        pods = [make_pod(2, 1, place), make_pod(3, 1, "a", "pserver")]
        moments.append(Moment(nodes, pods, facts.most_trainers(nodes, pods, TRAINER), weight=5.0))
    assert [moment.most for moment in moments] == [3, 3]
    assert best_without_moves(moments, TRAINER) == pytest.approx(part)


def test_the_least_victims_are_those_of_trying_everything() -> None:
    sizes, trainers = (8, 11, 12, 16), (1, 2, 2, 3)
    nodes = [make_node(f"n{i}", str(cpu)) for i, cpu in enumerate(sizes)]
    pods = [make_pod(5, 1, f"n{i}", "trainer") for i, count in enumerate(trainers) for _ in range(count)]
    for count in range(1, 11):
        tried = [
            sum(ended)
            for ended in product(*(range(have + 1) for have in trainers))
            if sum((cpu - 5 * (have - e)) // 3 for cpu, have, e in zip(sizes, trainers, ended, strict=True)) >= count
        ]
        assert facts.least_victims(nodes, pods, {**SERVING, "memory": 2**30}, count) == min(tried)


def test_more_than_the_cluster_holds_has_no_least_number_of_victims() -> None:
    with pytest.raises(ValueError, match="do not fit even without any trainer"):
        facts.least_victims([make_node("a", "8")], [make_pod(5, 1, "a", "trainer")], SERVING, 3)


def test_the_shortfall_is_the_area_below_the_target() -> None:
    ready = [(0.0, 2), (10.0, 3), (12.0, 5), (14.0, 9)]
    assert facts.shortfall(ready, 5, 8.0, 20.0) == pytest.approx(2 * 3 + 2 * 2)
    assert facts.shortfall(ready, 5, 11.0, 11.5) == pytest.approx(0.5 * 2)
    assert facts.shortfall([], 5, 1.0, 3.0) == pytest.approx(10.0)


def test_utilisation_counts_what_pods_on_nodes_ask_for() -> None:
    nodes = [make_node("a", "8"), make_node("b", "8")]
    pods = [make_pod(5, 1, "a", "trainer"), make_pod(3, 1, "b"), make_pod(3, 1)]
    assert facts.utilisation(nodes, pods) == pytest.approx(0.5)
