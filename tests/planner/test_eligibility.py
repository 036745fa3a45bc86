from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edl.model.cluster import Node
from edl.model.resources import NodeRule, NodeTerm, Placement, Requirement, Taint, Toleration
from edl.planner.eligibility import Eligibility, is_selected, takes, takes_each
from tests.worlds.builders import make_node

NODE = make_node("n0", labels={"pool": "gpu", "size": "8"})
GPU_TAINT = Taint("gpu", "yes", "NoSchedule")


def tainted(effect: str) -> Node:
    return replace(NODE, taints=(GPU_TAINT._replace(effect=effect),))


def test_a_ready_node_without_taints_takes_anybody() -> None:
    assert takes(NODE, Placement())


def test_a_node_that_is_not_ready_takes_nobody_whatever_is_tolerated() -> None:
    assert not takes(replace(NODE, ready=False), Placement(tolerations=(Toleration(operator="Exists"),)))


@pytest.mark.parametrize(
    ("effect", "taken"), [("NoSchedule", False), ("NoExecute", False), ("PreferNoSchedule", True)]
)
def test_only_repelling_taints_repel(effect: str, taken: bool) -> None:
    assert takes(tainted(effect), Placement()) is taken


@pytest.mark.parametrize(
    ("toleration", "taken"),
    [
        (Toleration("gpu", "Equal", "yes", "NoSchedule"), True),
        (Toleration("gpu", "", "yes"), True),
        (Toleration("gpu", "Exists"), True),
        (Toleration("", "Exists"), True),
        (Toleration("gpu", "Equal", "no"), False),
        (Toleration("cpu", "Exists"), False),
        (Toleration("gpu", "Exists", "", "NoExecute"), False),
        (Toleration("", "Equal", "yes"), False),
        (Toleration("gpu", "Gt", "yes"), False),
    ],
)
def test_a_toleration_must_match_key_value_and_effect(toleration: Toleration, taken: bool) -> None:
    assert takes(tainted("NoSchedule"), Placement(tolerations=(toleration,))) is taken


@pytest.mark.parametrize(
    ("taint", "operator", "value", "taken"),
    [
        ("950", "Gt", "900", True),
        ("900", "Gt", "900", False),
        ("-5", "Lt", "0", True),
        ("5", "Lt", "-5", False),
        ("0950", "Gt", "900", False),
        ("950", "Gt", "+900", False),
        ("", "Lt", "900", False),
        ("gold", "Gt", "900", False),
    ],
)
def test_a_toleration_compares_integers(*, taint: str, operator: str, value: str, taken: bool) -> None:
    graded = replace(NODE, taints=(Taint("sla", taint, "NoSchedule"),))
    assert takes(graded, Placement(tolerations=(Toleration("sla", operator, value, "NoSchedule"),))) is taken


def test_a_cordon_is_a_taint_that_can_be_tolerated() -> None:
    cordoned = replace(NODE, cordoned=True)
    assert not takes(cordoned, Placement())
    assert takes(cordoned, Placement(tolerations=(Toleration("node.kubernetes.io/unschedulable", "Exists"),)))


def test_a_node_selector_needs_every_label() -> None:
    assert takes(NODE, Placement(node_selector=(("pool", "gpu"), ("size", "8"))))
    assert not takes(NODE, Placement(node_selector=(("pool", "gpu"), ("size", "9"))))


@pytest.mark.parametrize(
    ("requirement", "holds"),
    [
        (Requirement("pool", "In", ("cpu", "gpu")), True),
        (Requirement("pool", "In", ("cpu",)), False),
        (Requirement("absent", "In", ("",)), False),
        (Requirement("pool", "NotIn", ("cpu",)), True),
        (Requirement("absent", "NotIn", ("cpu",)), True),
        (Requirement("pool", "NotIn", ("gpu",)), False),
        (Requirement("pool", "Exists"), True),
        (Requirement("pool", "DoesNotExist"), False),
        (Requirement("absent", "DoesNotExist"), True),
        (Requirement("size", "Gt", ("7",)), True),
        (Requirement("size", "Lt", ("7",)), False),
        (Requirement("pool", "Gt", ("7",)), False),
        (Requirement("size", "Near", ("7",)), False),
        (Requirement("absent", "NotIn"), False),
        (Requirement("size", "Gt", ("+7",)), True),
        (Requirement("size", "Gt", ("-7",)), True),
        (Requirement("size", "Gt", ("7", "1")), False),
        (Requirement("size", "Gt"), False),
        (Requirement("size", "Gt", (" 7",)), False),
        (Requirement("size", "Lt", ("1_0",)), False),
        (Requirement("size", "Lt", ("9" * 5000,)), False),
        (Requirement("absent", "Lt", ("7",)), False),
    ],
)
def test_each_operator_reads_labels_as_the_scheduler_does(requirement: Requirement, holds: bool) -> None:
    assert takes(NODE, Placement(required=(NodeTerm(expressions=(requirement,)),))) is holds


def test_terms_are_alternatives_and_their_expressions_are_not() -> None:
    yes, no = Requirement("pool", "Exists"), Requirement("pool", "DoesNotExist")
    assert takes(NODE, Placement(required=(NodeTerm((no,)), NodeTerm((yes,)))))
    assert not takes(NODE, Placement(required=(NodeTerm((yes, no)),)))
    assert not takes(NODE, Placement(required=(NodeTerm(),)))


def test_a_field_names_the_node() -> None:
    assert takes(NODE, Placement(required=(NodeTerm(fields=(Requirement("metadata.name", "In", ("n0",)),)),)))
    assert not takes(NODE, Placement(required=(NodeTerm(fields=(Requirement("metadata.name", "In", ("n1",)),)),)))
    assert takes(NODE, Placement(required=(NodeTerm(fields=(Requirement("metadata.name", "NotIn", ("n1",)),)),)))
    both = NodeTerm((Requirement("pool", "DoesNotExist"),), (Requirement("metadata.name", "In", ("n0",)),))
    assert not takes(NODE, Placement(required=(both,)))


def test_selector_and_affinity_must_both_hold() -> None:
    gpu_pool = NodeTerm((Requirement("pool", "In", ("gpu",)),))
    assert takes(NODE, Placement(node_selector=(("size", "8"),), required=(gpu_pool,)))
    assert not takes(NODE, Placement(node_selector=(("size", "9"),), required=(gpu_pool,)))


KEYS, VALUES = st.sampled_from(["pool", "size", "gone"]), st.sampled_from(["gpu", "cpu", "8", "16", ""])
REQUIREMENTS = st.builds(
    Requirement,
    KEYS,
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Odd"]),
    st.lists(VALUES, max_size=3).map(tuple),
)
BY_NAME = st.builds(
    Requirement, st.just("metadata.name"), st.sampled_from(["In", "NotIn"]), st.just(("n1",)) | st.just(())
)
TERMS = st.builds(NodeTerm, st.lists(REQUIREMENTS, max_size=2).map(tuple), st.lists(BY_NAME, max_size=1).map(tuple))
PLACEMENTS = st.builds(
    Placement,
    st.lists(st.tuples(KEYS, VALUES), max_size=1).map(tuple),
    st.lists(TERMS, max_size=2).map(tuple),
    st.lists(st.builds(Toleration, st.sampled_from(["gpu", ""]), st.just("Exists")), max_size=1).map(tuple),
    rules=st.lists(st.builds(NodeRule, st.lists(TERMS, max_size=2).map(tuple), VALUES), max_size=2).map(tuple),
)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(
    labels=st.lists(st.dictionaries(KEYS, VALUES, max_size=2), max_size=5),
    placements=st.lists(PLACEMENTS, min_size=1, max_size=4),
)
def test_all_nodes_judged_at_once_are_judged_as_one_by_one(
    labels: list[dict[str, str]], placements: list[Placement]
) -> None:
    nodes = [
        replace(
            make_node(f"n{i}", labels=have),
            ready=i != 3,
            cordoned=i == 2,
            taints=(GPU_TAINT,) if i % 2 else (),
        )
        for i, have in enumerate(labels)
    ]

    found, judge = takes_each(nodes, placements), Eligibility(nodes)

    assert {p: row.tolist() for p, row in found.items()} == {p: [takes(n, p) for n in nodes] for p in placements}
    for one in placements:
        assert judge.selects(one).tolist() == [is_selected(n, one) for n in nodes]
        broken = [[r for r in one.rules if not is_selected(n, Placement(rules=(r,)))] for n in nodes]
        assert judge.first_broken(one) == [rules[0] if rules else None for rules in broken]


class Names(tuple[str, ...]):
    """Names that nobody may look through for each node anew."""

    __slots__ = ()

    def __contains__(self, value: object) -> bool:
        raise AssertionError(f"{value} is looked up among {len(self)} names")


def test_a_rule_that_names_nodes_is_read_once_for_all_nodes() -> None:
    """5,000 nodes, each looked up among 5,000 names, took two CPU seconds of one decision."""
    term = NodeTerm(fields=(Requirement("metadata.name", "NotIn", Names(("n1", "n2"))),))
    rule = NodeRule((term,), "it is there")
    found = Eligibility([make_node(f"n{i}") for i in range(4)]).first_broken(Placement(rules=(rule,)))
    assert found == [None, rule, rule, None]
