"""Bugs in what keeps the pods of a job together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tests.planted import Right, bug, targets

PROPERTIES = "planner/topology/test_topology_properties.py"
GATHERING = "planner/topology/test_gathering.py"
CHOICES = "planner/topology/test_choices.py"


@bug(
    "trainers in two racks pass the check of a plan",
    at=targets.CHECK_DOMAINS,
    caught_by=f"{PROPERTIES}::test_a_plan_over_two_racks_is_refused",
)
def any_racks(_: Right) -> Right:
    return lambda *_: ()


@bug(
    "the room of a node without the label counts for a rack",
    at=targets.OFFERS,
    caught_by=f"{CHOICES}::test_a_domain_that_holds_the_minimum_comes_before_one_that_does_not",
)
def more_than_there_is(right: Right) -> Right:
    return lambda *args: [
        offer._replace(free=offer.free + 16, alone=offer.alone + 16, surplus=offer.surplus + 16)
        for offer in right(*args)
    ]


@bug(
    "the room of terminating trainers is forgotten, so that the choice of rack changes while they end",
    at=targets.TERMINATING_ROOM,
    caught_by=f"{CHOICES}::test_room_of_terminating_trainers_is_free_for_the_choice",
)
def terminating_forgotten(right: Right) -> Right:
    return lambda problem: np.zeros_like(right(problem))


@bug(
    "the bound holds only for the racks that were chosen",
    at=targets.WITHOUT_DOMAINS,
    caught_by="planner/topology/test_search.py::test_the_bound_allows_every_rack",
)
def bound_of_one_choice(_: Right) -> Right:
    return lambda packing: packing


@bug(
    "new trainers do not require their rack, so kube-scheduler may bind them elsewhere",
    at=targets.REQUIRE_DOMAINS,
    caught_by="lifecycle/test_domains.py::test_a_trainer_requires_the_domain_of_its_planned_node",
)
def no_requirement(_: Right) -> Right:
    def wrong(actions: Any, *_: Any) -> tuple[Any, ...]:
        return tuple(actions)

    return wrong


@bug(
    "pservers may be in another rack than their trainers",
    at=targets.PLACED_IN_DOMAIN,
    caught_by=f"{PROPERTIES}::test_pservers_are_in_the_rack_of_their_trainers_and_the_best_choice_of_racks_is_found",
)
def pservers_anywhere(right: Right) -> Right:
    return lambda choices, job, assignment: replace(right(choices, job, assignment), fixed=job.fixed)


@bug(
    "a rack counts as large enough although its pservers take the room of the minimum",
    at=targets.COUNT_BESIDE,
    caught_by=f"{CHOICES}::test_a_domain_holds_a_job_only_with_its_pservers",
)
def pservers_need_no_room(right: Right) -> Right:
    return lambda free, trainer, pserver, _: right(free, trainer, pserver, 0)


@bug(
    "trainers that come together end all at once, so their job falls below its minimum",
    at=targets.GATHERED_PART,
    caught_by=f"{GATHERING}::test_a_job_at_its_minimum_and_one_moves_one_trainer_at_a_time",
)
def all_at_once(right: Right) -> Right:
    return lambda outside, _: right(outside, sum(map(len, outside.values())))


@bug(
    "trainers come together again before the last move has paid",
    at=targets.MAY_GATHER,
    caught_by=f"{GATHERING}::test_a_job_whose_trainers_are_young_waits",
)
def at_any_time(_: Right) -> Right:
    return lambda *_: True
