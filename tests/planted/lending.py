"""Bugs in what trainers lend, and in what becomes of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from edl.controller.master_monitor.monitor import MasterMonitor
from tests.planted import Right, bug, targets

PLANS = "planner/lending/test_clearing.py"
RESIZES = "lifecycle/lent_cpu/test_running_requests.py"
GUARD, PLAN_GUARD = "lifecycle/lent_cpu/test_guard_of_requests.py", "planner/lending/test_guard.py"


@bug(
    "a trainer lends more than the floor allows",
    at=targets.REQUESTED_MILLI,
    caught_by="model/test_lending.py::test_a_trainer_requests_its_part_rounded_up_and_no_less_than_the_floor",
)
def lend_all(_: Right) -> Right:
    return lambda declared_milli, fraction: int(declared_milli * fraction)


@bug(
    "a trainer is put where serving has taken the room that others lent",
    at=targets.PLACE_BOUND,
    caught_by=f"{PLANS}::test_a_job_starts_in_room_that_nobody_declared",
)
def room_that_serving_took(right: Right) -> Right:
    def wrong(self: Any) -> None:
        right(self)
        self.free += self.lent

    return wrong


@bug(
    "lent room is counted twice",
    at=targets.ROOM_FOR_REQUESTS,
    caught_by=f"{PLANS}::test_lent_room_is_used_once",
)
def count_twice(right: Right) -> Right:
    def wrong(self: Any) -> Any:
        view = right(self)
        if view is not self:
            view.free += view.lent
        return view

    return wrong


@bug(
    "lent CPU is never taken back",
    at=targets.CLEAR_LENT_ROOM,
    caught_by=f"{PLANS}::test_a_trainer_that_lends_for_long_is_deleted_and_starts_where_there_is_room",
)
def forget_to_take_back(_: Right) -> Right:
    return lambda _: frozenset()


@bug(
    "a clearing takes trainers of a job in its cooldown",
    at=targets.MAY_GIVE,
    caught_by=f"{PLANS}::test_a_job_gives_trainers_at_most_once_in_its_cooldown",
)
def clear_at_once(_: Right) -> Right:
    return lambda packing, j, _: packing.count[j] - packing.problem.demands[j].min_trainers


@bug(
    "headroom in lent room keeps no memory",
    at=targets.KEEP_LENT_ROOM,
    caught_by=f"{PLANS}::test_headroom_keeps_memory_although_cpu_is_lent",
)
def headroom_without_memory(_: Right) -> Right:
    return lambda packing, _, count: count if np.any(packing.lent) else 0


@bug(
    "a trainer that lends counts as a small one",
    at=targets.DECLARED_SPEC,
    caught_by="kube/translate/test_lending.py::test_a_trainer_that_lends_has_the_shape_of_its_job_and_requests_less",
)
def count_what_is_requested(_: Right) -> Right:
    return lambda source: source.spec


@bug(
    "a request is raised into room that serving took",
    at=targets.FREE_MILLI,
    caught_by=f"{RESIZES}::test_no_request_is_raised_into_room_that_serving_took",
)
def raise_regardless(right: Right) -> Right:
    return lambda snapshot: Counter(dict.fromkeys(right(snapshot), 10**9))


@bug(
    "a trainer that may lend no more is never given its request back",
    at=targets.THAT_FIT,
    caught_by=f"{RESIZES}::test_a_trainer_that_may_lend_no_more_requests_what_it_declares",
)
def never_give_back(_: Right) -> Right:
    return lambda *_: ()


@bug(
    "one rank of a synchronous job lends alone",
    at=targets.LENDERS,
    caught_by=f"{RESIZES}::test_a_synchronous_job_lends_evenly_or_not_at_all",
)
def lend_alone(right: Right) -> Right:
    return lambda job, *rest: right(replace(job, fault_tolerant=True), *rest)


@bug(
    "the guard lets a trainer lend more than the floor allows",
    at=targets.LENDS_TOO_MUCH,
    caught_by=f"{GUARD}::test_the_guard_finds_what_the_decision_got_wrong[below the floor]",
)
def guard_without_floor(_: Right) -> Right:
    return lambda *_: ""


@bug(
    "the guard lets a request be raised into room that serving took",
    at=targets.EXCEEDS_FREE_CAPACITY,
    caught_by=f"{GUARD}::test_the_guard_finds_what_the_decision_got_wrong[into capacity that serving took]",
)
def guard_without_room(_: Right) -> Right:
    return lambda *_, serving_waits: "" if not serving_waits else "serving pods wait"


@bug(
    "the guard does not miss a request that is never given back",
    at=targets.FORGOTTEN,
    caught_by=f"{GUARD}::test_the_guard_finds_what_the_decision_got_wrong[never given back]",
)
def guard_that_forgets(_: Right) -> Right:
    return lambda *_: ()


@bug(
    "the guard accepts a plan that counts lent room twice",
    at=targets.CHECK_SERVED,
    caught_by=f"{PLAN_GUARD}::test_a_plan_that_counts_lent_room_twice_is_refused",
)
def guard_counts_twice(_: Right) -> Right:
    return lambda *_: ()


@bug(
    "the guard accepts a plan that forgets to take back",
    at=targets.CHECK_CLEARED,
    caught_by=f"{PLAN_GUARD}::test_a_plan_that_forgets_to_take_back_is_refused",
)
def guard_never_clears(_: Right) -> Right:
    return lambda *_: ()


@bug(
    "what a job loses by lending is never learned",
    at=targets.OBSERVE_PRICE,
    caught_by="lifecycle/lent_cpu/test_price.py::test_the_price_is_the_lost_speed_for_each_lent_core[all]",
)
def learn_no_price(_: Right) -> Right:
    return lambda meter, *_: meter


@bug(
    "the price of lending decides nothing",
    at=targets.PRICE_ON_NODE,
    caught_by=f"{PLANS}::test_where_lending_costs_most_is_cleared_first[3.0-n000]",
)
def ignore_prices(_: Right) -> Right:
    return lambda *_: 1.0


@bug(
    "a window of slow trainers moves the price without bound",
    at=targets.PRICE_AT_MOST,
    caught_by="lifecycle/lent_cpu/test_price.py::test_the_price_is_bounded",
)
def price_without_bound(_: float) -> float:
    return float("inf")


@bug(
    "a simulated controller learns no price",
    at=targets.SIMULATED_MASTERS,
    caught_by="sim/test_simulation_lending.py::test_the_controller_learns_what_lending_costs[all]",
)
def call_no_simulated_master(_: Right) -> Right:
    return lambda *_: None


@bug(
    "a simulated controller gives policies what the scenario does not declare",
    at=targets.SIMULATED_VIEW,
    caught_by="sim/test_masters.py::test_a_speed_that_was_measured_stays_with_the_monitor",
)
def show_all_measurements(_: Right) -> Right:
    return MasterMonitor.master_view
