"""Trainers that are evicted ahead of a plan, and how that plan is merged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from edl.controller.allotment import serving_needing_capacity
from edl.controller.pending_writes import Lane
from edl.model.actions import CreatePod, DeletePod, Outcome, Result
from edl.model.plan import ScaleDecision
from edl.model.pods import OVERDUE_S, Pod
from edl.model.status import Reason
from tests.controller.core.core_stage import A, CoreStage, at_rest, of_type
from tests.controller.loop_stage import plan_of
from tests.worlds.builders import make_serving

FIRST, SECOND = (replace(make_serving(name), tried=True) for name in ("first", "second"))


def serving(*pods: Pod) -> CoreStage:
    """Two jobs of four trainers, and pods that wait."""
    stage = CoreStage()
    for name in ("a", "b"):
        stage.add(name, 4, max_trainers=8)
    stage.settle({"a": 4, "b": 4})
    stage.make_needs()
    stage.plan({"a": 4, "b": 4})
    stage.send()
    stage.serving = pods
    stage.see()
    return stage


def evict(stage: CoreStage, targets: dict[str, int], awaited: str = "serving-first") -> None:
    """Evict trainers ahead of a plan."""
    view = stage.core.assumed()
    made = plan_of(view, {"a": 4, "b": 4} | targets, Reason.SERVING_NEEDS_ROOM)
    losing: list[ScaleDecision] = [d for d in made.decisions if d.victims]
    stage.core.amended(losing, view, frozenset({awaited}))


def test_trainers_end_at_once_and_other_jobs_keep_what_they_are_granted() -> None:
    stage = serving(FIRST)
    stage.serving = ()
    stage.plan({"a": 4, "b": 6})
    stage.serving = (FIRST,)
    stage.see()
    evict(stage, {"a": 3})
    writes = stage.take()
    assert [action.job for action in of_type(DeletePod, writes)] == [A]
    assert writes[0].lane is Lane.EVICT
    assert len(of_type(CreatePod, writes)) == 2, "the pod is known now, so surplus is not held back for it"


def test_a_plan_that_was_being_made_keeps_what_was_evicted_meanwhile() -> None:
    stage = serving(FIRST)
    view = stage.begin()
    evict(stage, {"a": 3})
    sent = stage.take(1)
    stage.publish(view, {"a": 6, "b": 6}, awaited=frozenset())
    assert of_type(DeletePod, sent)
    created = of_type(CreatePod, stage.take())
    assert {action.job.name for action in created} == {"b"}, "the job that gives way gets nothing of that plan"


def test_what_was_evicted_and_not_sent_is_sent_after_the_plan_was_published() -> None:
    stage = serving(FIRST)
    view = stage.begin()
    evict(stage, {"a": 2})
    stage.publish(view, {"a": 4, "b": 4}, awaited=frozenset())
    assert len(of_type(DeletePod, stage.send())) == 2


def test_a_plan_evicts_nobody_again_for_a_pod_that_was_helped_while_it_was_made() -> None:
    stage = serving(FIRST)
    view = stage.begin()
    evict(stage, {"a": 3})
    stage.publish(view, {"a": 4, "b": 3}, Reason.SERVING_NEEDS_ROOM)
    assert [action.job for action in of_type(DeletePod, stage.send())] == [A]


def test_but_never_twice_in_a_row_are_the_evictions_of_a_plan_left_out() -> None:
    stage = serving(FIRST)
    for _ in range(2):
        view = stage.begin()
        evict(stage, {"a": 3})
        stage.publish(view, {"a": 4, "b": 3}, Reason.SERVING_NEEDS_ROOM)
    assert "b" in {action.job.name for action in of_type(DeletePod, stage.send())}


def test_a_pod_that_the_plan_left_out_is_not_taken_for_known() -> None:
    stage = serving(FIRST, SECOND)
    view = stage.begin()
    evict(stage, {"a": 3})
    stage.publish(view, {"a": 4, "b": 3}, Reason.SERVING_NEEDS_ROOM)
    assert stage.core.allotments.known == {"serving-first"}


@pytest.mark.parametrize("goes", [True, False])
def test_no_trainer_ends_for_pods_that_do_not_wait_any_more(goes: bool) -> None:
    stage = serving(FIRST)
    evict(stage, {"a": 2})
    assert len(of_type(DeletePod, stage.take(1))) == 1
    stage.serving = () if goes else (replace(FIRST, nominated="n000"),)
    stage.see()
    assert stage.core.has_needless_evictions()
    assert not of_type(DeletePod, stage.take())


def test_trainers_end_for_a_pod_that_is_nominated_to_a_node_whose_pods_do_not_end() -> None:
    """kube-scheduler names no other node for such a pod, so what the plan frees elsewhere must be freed."""
    stage = serving()
    ends_by_s = stage.clock.at_s - OVERDUE_S - 1
    going = replace(make_serving("going", cpu=12), node="n001", terminating=True, ends_by_s=ends_by_s)
    stage.serving = (replace(make_serving("first", cpu=6), nominated="n001"), going)
    stage.see()
    evict(stage, {"a": 2})
    assert not stage.core.has_needless_evictions()
    assert len(of_type(DeletePod, stage.send())) == 2


def test_trainers_still_end_if_one_of_the_pods_waits() -> None:
    stage = serving(FIRST, SECOND)
    view = stage.core.assumed()
    made = plan_of(view, {"a": 2, "b": 4}, Reason.SERVING_NEEDS_ROOM)
    stage.core.amended([d for d in made.decisions if d.victims], view, frozenset({FIRST.uid, SECOND.uid}))
    stage.serving = (SECOND,)
    stage.see()
    assert len(of_type(DeletePod, stage.send())) == 2


def deletes_the_last_plans_victim(stage: CoreStage) -> None:
    assert of_type(DeletePod, stage.send())


def is_deleting_the_last_plans_victim(stage: CoreStage) -> None:
    for write in stage.take():
        if not of_type(DeletePod, [write]):
            stage.end(write)
    assert of_type(DeletePod, stage.core.under_way.writes)


def loses_a_trainer_to_kube_scheduler(stage: CoreStage) -> None:
    stage.world.preempt(A, "a-trainer-3")
    stage.see()


LOSSES = (
    deletes_the_last_plans_victim,
    is_deleting_the_last_plans_victim,
    loses_a_trainer_to_kube_scheduler,
)


@pytest.mark.parametrize("ahead_of_a_plan", [True, False])
@pytest.mark.parametrize("loses", LOSSES)
@pytest.mark.parametrize("reason", [Reason.SERVING_NEEDS_ROOM, Reason.INSUFFICIENT_CAPACITY])
def test_a_job_keeps_its_minimum_if_trainers_end_while_others_are_chosen(
    loses: Callable[[CoreStage], None], reason: Reason, *, ahead_of_a_plan: bool
) -> None:
    stage = serving(FIRST)
    stage.alter(A, min_trainers=3)
    stage.settle({"a": 4, "b": 4})
    stage.plan({"a": 3, "b": 4}, Reason.SERVING_NEEDS_ROOM)
    view = stage.begin()
    plan = plan_of(view, {"a": 3, "b": 4}, reason)
    chosen = replace(plan.decisions[0], victims=("a-trainer-0",))
    loses(stage)
    if ahead_of_a_plan:
        stage.core.amended([chosen], view, serving_needing_capacity(view))
    else:
        plan = replace(plan, decisions=(chosen, *plan.decisions[1:]))
        stage.core.published(plan, awaited=serving_needing_capacity(view))
    assert not of_type(DeletePod, stage.send())


def test_a_job_that_was_edited_while_trainers_were_found_gives_none() -> None:
    stage = serving(FIRST)
    view = stage.core.assumed()
    made = plan_of(view, {"a": 2, "b": 4}, Reason.SERVING_NEEDS_ROOM)
    stage.alter(A, generation=2)
    stage.core.amended([d for d in made.decisions if d.victims], view, frozenset({FIRST.uid}))
    assert not of_type(DeletePod, stage.send())


def test_evictions_come_before_everything_else() -> None:
    stage = serving(FIRST)
    stage.add("new")
    stage.see()
    evict(stage, {"a": 3})
    assert stage.take(1)[0].lane is Lane.EVICT


def test_a_job_at_its_minimum_may_start_a_trainer_again_elsewhere() -> None:
    stage = serving()
    stage.alter(A, min_trainers=4)
    stage.settle({"a": 4, "b": 4})
    view = stage.begin()
    plan = plan_of(view, {"a": 4, "b": 4})
    moved = replace(plan.decisions[0], victims=("a-trainer-0",), nodes=(("n001", 1),), shrink_reason="AtMax")
    stage.core.published(replace(plan, decisions=(moved, *plan.decisions[1:])))
    assert [action.pod for action in of_type(DeletePod, stage.send())] == ["a-trainer-0"]


@pytest.mark.parametrize("reason", ["InsufficientCapacity", "AtMax"])
def test_no_trainer_ends_because_of_a_creation_under_way_that_is_then_refused(reason: str) -> None:
    stage = at_rest(trainers=3)
    stage.alter(A, min_trainers=3)
    stage.plan({"a": 4})
    writes = stage.take()
    (creation,) = (write for write in writes if of_type(CreatePod, [write]))
    for write in writes:
        if write is not creation:
            stage.end(write)
    for write in stage.take():
        stage.end(write)
    view = stage.begin()
    plan = plan_of(view, {"a": 3}, reason)
    stage.core.published(replace(plan, decisions=(replace(plan.decisions[0], victims=("a-trainer-0",)),)))
    for write in stage.take():
        stage.end(write)
    stage.core.ended(creation, [Outcome(creation.actions[0], Result.REFUSED, "Forbidden", "no")])
    stage.send()
    assert stage.count(A) == 3
