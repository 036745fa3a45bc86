from __future__ import annotations

from typing import Any

import pytest

from edl.sandbox.scheduler.filters import AFFINITY, PORTS, explain, refusal_for_good, shortages
from tests.sandbox.scheduler.builders import make_node, make_pod, view, views

TAINT = {"key": "gpu", "value": "a", "effect": "NoSchedule"}


def refusal(pod_spec: dict[str, Any], **node: Any) -> str:
    return refusal_for_good(view("p", **pod_spec), views([make_node("n", **node)])[0])


def test_a_node_takes_what_fits_beside_its_pods() -> None:
    (node,) = views([make_node("n", "4")], make_pod("other", "3", node="n"))
    assert shortages(view("p", "1"), node) == []
    assert shortages(view("p", "1001m"), node) == ["Insufficient cpu"]


def test_a_finished_pod_holds_nothing() -> None:
    done = {**make_pod("done", "4", node="n"), "status": {"phase": "Succeeded"}}
    assert shortages(view("p", "4"), views([make_node("n", "4")], done)[0]) == []


def test_an_init_container_counts_where_it_is_larger() -> None:
    init = [{"name": "i", "resources": {"requests": {"cpu": "3"}}}]
    assert view("p", "1", initContainers=init).request["cpu"] == 3000
    assert view("p", "4", initContainers=init).request["cpu"] == 4000


def test_a_node_has_a_limited_number_of_pods() -> None:
    others = [make_pod(f"o{place}", "1m", node="n") for place in range(10)]
    assert shortages(view("p", "1m"), views([make_node("n")], *others)[0]) == ["Too many pods"]


def test_a_host_port_is_held_once() -> None:
    port = [{"containerPort": 80, "hostPort": 80}]
    (node,) = views([make_node("n")], make_pod("other", node="n", ports=port))
    assert shortages(view("p", ports=port), node) == [PORTS]
    assert shortages(view("p", ports=[{"containerPort": 80, "hostPort": 81}]), node) == []


def test_a_taint_must_be_tolerated() -> None:
    assert refusal({}, taints=[TAINT]) == "node(s) had untolerated taint {gpu: a}"
    for toleration in ({"operator": "Exists"}, {"key": "gpu", "value": "a"}, {"key": "gpu", "operator": "Exists"}):
        assert refusal({"tolerations": [toleration]}, taints=[TAINT]) == ""
    assert refusal({"tolerations": [{"key": "gpu", "value": "b"}]}, taints=[TAINT]) != ""
    assert refusal({}, taints=[{**TAINT, "effect": "PreferNoSchedule"}]) == ""


def test_a_cordoned_node_takes_nothing() -> None:
    assert refusal({}, unschedulable=True) == "node(s) were unschedulable"


@pytest.mark.parametrize(
    ("operator", "values", "fits"),
    [
        ("In", ["a", "b"], True),
        ("In", ["b"], False),
        ("NotIn", ["b"], True),
        ("Exists", [], True),
        ("DoesNotExist", [], False),
    ],
)
def test_required_node_affinity(operator: str, values: list[str], fits: bool) -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": operator, "values": values}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    spec = {"affinity": {"nodeAffinity": required}}
    assert refusal(spec, labels={"zone": "a"}) == ("" if fits else AFFINITY)


def test_node_selector_and_field_of_the_name() -> None:
    assert refusal({"nodeSelector": {"zone": "a"}}, labels={"zone": "b"}) == AFFINITY
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    assert refusal({"affinity": {"nodeAffinity": required}}) == ""


def test_the_message_counts_reasons() -> None:
    reasons = ["Insufficient cpu", "Insufficient memory", "Insufficient cpu"]
    assert explain(3, reasons) == "0/3 nodes are available: 1 Insufficient memory, 2 Insufficient cpu."
    assert explain(0, []) == "no nodes available to schedule pods"
