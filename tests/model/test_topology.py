"""Domains as requirements of a shape, and back."""

from __future__ import annotations

import pytest

from edl.model.resources import NodeTerm, Placement, Requirement
from edl.model.topology import Topology, TopologyMode, domain_of, in_any_domain, in_domain
from tests.worlds.builders import make_shape

RACK = Topology("example.com/rack", TopologyMode.REQUIRED, "r1")
IN_RACK = Requirement("example.com/rack", "In", ("r1",))
IN_SOME = Requirement("example.com/rack", "Exists")
ZONE = Requirement("zone", "In", ("z",))
NAME = Requirement("metadata.name", "In", ("n1",))


@pytest.mark.parametrize(
    ("required", "pinned", "relaxed"),
    [
        ((), (NodeTerm((IN_RACK,)),), (NodeTerm((IN_SOME,)),)),
        ((NodeTerm((ZONE,)),), (NodeTerm((ZONE, IN_RACK)),), (NodeTerm((ZONE, IN_SOME)),)),
        (
            (NodeTerm((ZONE,)), NodeTerm((), (NAME,))),
            (NodeTerm((ZONE, IN_RACK)), NodeTerm((IN_RACK,), (NAME,))),
            (NodeTerm((ZONE, IN_SOME)), NodeTerm((IN_SOME,), (NAME,))),
        ),
        ((NodeTerm(),), (NodeTerm(),), (NodeTerm(),)),  # a term that selects no node
    ],
)
def test_each_alternative_gets_the_requirement(
    required: tuple[NodeTerm, ...], pinned: tuple[NodeTerm, ...], relaxed: tuple[NodeTerm, ...]
) -> None:
    shape = make_shape(placement=Placement(required=required))
    assert in_domain(shape, RACK).placement.required == pinned
    assert in_any_domain(shape, RACK).placement.required == relaxed
    assert in_any_domain(in_domain(shape, RACK), RACK).placement.required == relaxed
    assert in_domain(shape, RACK).request == shape.request


def test_without_a_domain_no_node_will_do() -> None:
    assert Topology("rack", TopologyMode.REQUIRED).pin == Requirement("rack", "In", ())


def test_a_node_without_the_label_is_in_no_domain() -> None:
    assert domain_of((("rack", "r1"),), "rack") == "r1"
    assert domain_of((("zone", "z"),), "rack") == ""


def test_a_domain_is_called_by_the_name_of_the_label() -> None:
    assert RACK.word == "rack"
    assert Topology("rack", TopologyMode.REQUIRED).word == "rack"
