"""Bugs in the headroom that learns, and in what becomes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from tests.planted import Right, bug, targets

LEARNER = "headroom/test_learner.py"
ADVISOR = "headroom/test_advisor.py"
SHARING = "planner/test_sharing_headroom.py"


@bug(
    "the part of growths that is covered ignores what a waiting pod costs",
    at=targets.HEADROOM_LEVEL,
    caught_by=f"{LEARNER}::test_room_is_kept_as_soon_as_it_costs_less_than_waiting",
)
def ignore_the_cost(_: Right) -> Right:
    return cast("Right", property(lambda _: 0.5))


@bug(
    "growth is counted from the tick in which it happens only",
    at=targets.GROWTH_OBSERVE,
    caught_by="headroom/test_growth.py::test_a_step_is_seen_from_each_tick_of_the_window_before_it",
)
def look_one_tick_ahead(right: Right) -> Right:
    return lambda self, at_s, count, window: right(self, at_s, count, min(1, window))


@bug(
    "trainers are deleted for room in every plan",
    at=targets.HEADROOM_MAY_DELETE,
    caught_by=f"{ADVISOR}::test_deletions_for_room_pause",
)
def never_pause(_: Right) -> Right:
    return lambda _self, _now_s: True


@bug(
    "room is kept from growth only, and no trainer makes way for it",
    at=targets.KEEP_LEARNED_ROOM,
    caught_by=f"{SHARING}::test_trainers_are_deleted_so_that_each_pod_fits_whole_on_a_node",
)
def delete_nobody(right: Right) -> Right:
    def wrong(packing: Any) -> Any:
        learned = packing.problem.learned
        timid = tuple((shape, replace(wish, may_delete=False)) for shape, wish in learned)
        object.__setattr__(packing.problem, "learned", timid)
        try:
            return right(packing)
        finally:
            object.__setattr__(packing.problem, "learned", learned)

    return wrong


@bug(
    "trainers of a minimum make way for room",
    at=targets.SURPLUS_FOR_ROOM,
    caught_by=f"{SHARING}::test_no_trainer_of_a_minimum_is_deleted_for_room",
)
def take_minimums(_: Right) -> Right:
    return lambda packing: dict(packing.count)


@bug(
    "the load of two weeks never changes its regime",
    at=targets.LOAD_OF_DAY,
    caught_by="sim/importers/test_azure_llm.py::test_nights_are_quiet_and_the_regime_changes",
)
def repeat_the_first_day(right: Right) -> Right:
    return lambda at_s: right(at_s % 86_400)


@bug(
    "foresight sees no rise before it comes",
    at=targets.FORESIGHT,
    caught_by="sim/test_simulation_victims.py::test_room_that_is_made_before_the_pods_exist_ends_the_wait",
)
def see_nothing(right: Right) -> Right:
    return lambda self, at_s, pods, window: right(self, at_s, pods, -10 * window)
