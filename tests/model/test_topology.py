"""Domains as requirements of a shape, and back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edl.model.resources import NodeTerm, Placement, Requirement
from edl.model.topology import (
    Level,
    Slices,
    Topology,
    TopologyMode,
    home_of,
    in_any_domain,
    in_domain,
    path_of,
    slice_of,
    with_labels,
)
from tests.worlds.builders import make_job, make_shape

RACK = replace(Topology.of("example.com/rack", TopologyMode.REQUIRED), domain=("r1",))
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
    assert Topology.of("rack", TopologyMode.REQUIRED).pins == (Requirement("rack", "In", ()),)


def test_a_node_without_the_label_is_in_no_domain() -> None:
    assert path_of((("rack", "r1"),), ("rack",)) == ("r1",)
    assert path_of((("zone", "z"),), ("rack",)) == ()
    assert path_of((("rack", ""),), ("rack",)) == ()


def test_a_domain_is_called_by_the_name_of_the_label() -> None:
    assert RACK.word == "rack"
    assert Topology.of("rack", TopologyMode.REQUIRED).word == "rack"


PREFERRED, REQUIRED = TopologyMode.PREFERRED, TopologyMode.REQUIRED
TREE = Topology((Level("x/block", PREFERRED), Level("x/rack", REQUIRED), Level("host", PREFERRED)))


def test_a_domain_is_named_by_the_labels_of_all_wider_levels_too() -> None:
    """A rack label that occurs in two blocks names two racks, and a node without a block is in no rack."""
    labels = (("x/block", "b2"), ("x/rack", "r1"))
    assert path_of(labels, TREE.keys[:2]) == ("b2", "r1")
    assert path_of((("x/rack", "r1"),), TREE.keys[:2]) == ()
    assert TREE.said(("b2", "r1")) == "rack r1 of block b2"
    assert TREE.said(()) == "no rack"


def test_the_required_level_fixes_all_wider_ones_and_leaves_the_narrower_ones() -> None:
    chosen = replace(TREE, domain=("b2", "r1"))
    assert (TREE.depth, TREE.is_required, TREE.is_preferred, TREE.word) == (2, True, True, "rack")
    assert chosen.pins == (Requirement("x/block", "In", ("b2",)), Requirement("x/rack", "In", ("r1",)))
    shape = make_shape()
    exist = (NodeTerm((Requirement("x/block", "Exists"), Requirement("x/rack", "Exists"))),)
    assert in_domain(shape, chosen).placement.required == (NodeTerm(chosen.pins),)
    assert in_any_domain(in_domain(shape, chosen), chosen).placement.required == exist


def test_trainers_of_slices_need_the_labels_of_their_level_and_pservers_do_not() -> None:
    slices = Topology((Level("x/block", REQUIRED), Level("x/rack", PREFERRED)), Slices(4, 2), ("b1",))
    shape = make_shape()
    block, rack = Requirement("x/block", "In", ("b1",)), Requirement("x/rack", "Exists")
    assert in_domain(shape, slices).placement.required == (NodeTerm((block, rack)),)
    assert in_domain(shape, slices.of_pservers).placement.required == (NodeTerm((block,)),)
    relaxed = in_any_domain(in_domain(shape, slices), slices).placement.required
    assert relaxed == (NodeTerm((Requirement("x/block", "Exists"), rack)),)
    assert (slices.pinned_depth, slices.slice_word, slices.word) == (2, "rack", "block")


def test_a_preference_alone_requires_nothing() -> None:
    shape = make_shape(placement=Placement(required=(NodeTerm((ZONE,)),)))
    topology = Topology.of("x/rack", PREFERRED)
    assert in_domain(shape, topology) == shape
    assert in_any_domain(shape, topology) == shape


def test_the_home_of_pods_is_where_most_with_a_node_are() -> None:
    labels = {"n1": (("rack", "a"),), "n2": (("rack", "b"),), "n3": ()}
    pods = make_job("job", trainers=3, on=("n1", "n2", "n2")).pods
    assert home_of(pods, labels, ("rack",)) == ("b",)
    waiting = tuple(replace(pod, node="", planned=pod.node) for pod in pods)
    assert home_of((pods[0], *waiting), labels, ("rack",)) == ("a",)
    assert home_of(waiting, labels, ("rack",)) == ("b",)
    assert home_of(make_job("job", trainers=1, on=("n3",)).pods, labels, ("rack",)) == ()


def test_a_trainer_belongs_to_the_slice_of_its_number() -> None:
    assert [slice_of(index, 4) for index in (0, 3, 4, 11, None)] == [0, 0, 1, 2, 0]


def test_a_label_is_required_beside_what_a_shape_requires() -> None:
    shape = make_shape(placement=Placement(required=(NodeTerm((ZONE,)),)))
    required = with_labels(shape, (("rack", "r1"), ("block", "b"))).placement.required
    assert required == (NodeTerm((ZONE, Requirement("rack", "In", ("r1",)), Requirement("block", "In", ("b",)))),)
