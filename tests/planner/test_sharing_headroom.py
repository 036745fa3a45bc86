"""Room that learned headroom asks for: kept free, and freed by deleting surplus trainers before the pods exist."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edl.model.cluster import ClusterSnapshot
from edl.model.headroom import Headroom
from edl.model.limits import Limits, ServingLimits
from edl.model.status import Reason
from tests.worlds.builders import make_job, make_nodes, make_serving, make_shape, make_snapshot
from tests.worlds.small_clusters import apply_plan, decision_of, free_cores, plan_for, targets, victims, with_status

WHY = "half of the growths are no larger"


def full(pods: int, cpu: float = 4, *, may_delete: bool = True, min_trainers: int = 2) -> ClusterSnapshot:
    """Two nodes of 8 cores, full of 16 trainers of a job; room is asked for pods of that many cores."""
    on = ("n000",) * 8 + ("n001",) * 8
    job = make_job("a", trainers=16, min_trainers=min_trainers, max_trainers=16, on=on)
    asked = Headroom(make_shape(cpu), pods, WHY, may_delete)
    return replace(make_snapshot(make_nodes(2), (with_status(job, admitted=True),)), headroom=(asked,))


def test_trainers_are_deleted_so_that_each_pod_fits_whole_on_a_node() -> None:
    plan = plan_for(full(3))
    (kept,) = plan.headroom
    assert (kept.wanted, kept.held, kept.deleted, kept.reason) == (3, 3, 12, WHY)
    assert len(victims(plan)) == 12
    assert sum(free // 4 for free in free_cores(full(3), plan).values()) >= 3
    assert decision_of(plan, "a").shrink_reason == Reason.SERVING_NEEDS_ROOM


def test_no_trainer_of_a_minimum_is_deleted_for_room() -> None:
    plan = plan_for(full(4, min_trainers=11))
    assert targets(plan) == {"a": 12}
    assert plan.headroom[0].held == 1
    assert not victims(plan_for(full(4, min_trainers=16)))


@pytest.mark.parametrize("pods", [0, 4])
def test_without_leave_no_trainer_is_deleted(pods: int) -> None:
    plan = plan_for(full(pods, may_delete=False))
    assert not victims(plan)
    assert (plan.headroom[0].held, plan.headroom[0].deleted) == (0, 0)


def test_free_room_is_kept_from_growth() -> None:
    job = make_job("a", max_trainers=16)
    world = replace(make_snapshot(make_nodes(2), (job,)), headroom=(Headroom(make_shape(4), 2, WHY),))
    plan = plan_for(world)
    assert targets(plan) == {"a": 8}
    assert plan.headroom[0].held == 2


def test_room_that_is_there_costs_nothing_again() -> None:
    world = full(3)
    plan = plan_for(world)
    after = apply_plan(world, plan)
    again = plan_for(after)
    assert not victims(again)
    assert (again.headroom[0].held, again.headroom[0].deleted) == (3, 0)


def test_a_little_missing_room_costs_no_trainer() -> None:
    """Room for 14 of 15 pods of one core is within the dead band."""
    job = with_status(make_job("a", trainers=2, max_trainers=2, min_trainers=1, on=("n000", "n000")), admitted=True)
    asked = Headroom(make_shape(1), 15, WHY, may_delete=True)
    world = replace(make_snapshot(make_nodes(2), (job,)), headroom=(asked,))
    assert not victims(plan_for(world))
    assert victims(plan_for(replace(world, headroom=(replace(asked, pods=16),))))


def test_serving_that_waits_comes_before_room() -> None:
    world = full(1)
    waiting = make_serving("web", cpu=8)
    plan = plan_for(replace(world, pods=(waiting,)))
    assert plan.serving.placed == 1
    assert plan.headroom[0].held == 1


def test_without_the_flag_the_plan_says_nothing_of_headroom() -> None:
    assert plan_for(replace(full(3), headroom=())).headroom == ()
    assert plan_for(replace(full(3), headroom=()), Limits(serving=ServingLimits(headroom=2))).headroom == ()
