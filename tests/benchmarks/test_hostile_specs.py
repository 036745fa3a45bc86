"""No object of a short search makes a decision take many steps; the search goes on from what is worst."""

from __future__ import annotations

import sys
from collections import Counter
from random import Random
from types import FrameType

import pytest

from benchmarks.hostile_specs import World, search
from tests.worlds.hostile.drawn import KINDS, Genes, changed, drawn, objects_of

NODES, TRIES = 20, {1: 30, 10: 8}
MOST_CALLS = {1: 600_000, 10: 1_000_000}
"""Calls of functions in one decision; the worst object of this search takes 520,620."""


def calls_of(world: World, genes: Genes, count: int) -> int:
    """How many functions the decision calls, without a deadline; a plan that broke a rule would raise."""
    objects, calls = world.decode(genes, count), 0

    def note(_: FrameType, event: str, __: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    snapshot = world.snapshot(objects)
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        plan = world.decide(snapshot)
    finally:
        sys.setprofile(before)
    assert not plan.cut
    assert "honest" in {decision.job.name for decision in plan.decisions}
    return calls


@pytest.mark.parametrize("count", [1, 10])
def test_no_object_of_a_short_search_takes_many_steps(count: int) -> None:
    world = World(NODES, deadline_s=3600.0)
    world.decide(world.snapshot(world.decode(Genes("TrainingJob", {}), 1)))  # imports what a decision needs
    found = search(lambda genes: calls_of(world, genes, count), Random(3), lambda tried: tried < TRIES[count])  # noqa: S311
    assert found[0].cost <= MOST_CALLS[count], found[0].genes
    assert found[0].cost > 2_000


def test_a_search_goes_on_from_what_was_worst() -> None:
    def cost(genes: Genes) -> float:
        return float(sum(len(value) for value in genes.fields.values() if isinstance(value, list)) + genes.running)

    first, again = (search(cost, Random(5), lambda tried: tried < 150) for _ in range(2))  # noqa: S311
    assert first == again
    assert first[0].cost > 1100
    assert [found.cost for found in first] == sorted((found.cost for found in first), reverse=True)


def test_objects_of_each_kind_are_read_and_many_are_valid() -> None:
    world, random, valid = World(20), Random(7), Counter[str]()  # noqa: S311
    for _ in range(150):
        genes = changed(drawn(random), random)
        assert objects_of(genes, 3, 20) == objects_of(genes, 3, 20)
        jobs = world.snapshot(world.decode(genes, 1)).jobs
        valid[genes.kind] += all(not job.problem for job in jobs)
    assert {kind for kind, count in valid.items() if count >= 3} == set(KINDS)
