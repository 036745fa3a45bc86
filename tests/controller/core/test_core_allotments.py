"""What a plan grants is used once, by the job that it was made for, and until the next plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from edl.controller.allotment import Start
from edl.controller.due_jobs import CONFLICT_S
from edl.model.actions import CreatePod, DeletePod, Outcome, PatchStatus, Result
from edl.model.names import Role
from edl.model.status import Reason
from tests.controller.core.core_stage import NODE, A, B, CoreStage, by_job, failed, of_type
from tests.controller.loop_stage import plan_of
from tests.worlds.builders import make_job, make_serving

CHANGES: dict[str, Callable[[CoreStage], object]] = {
    "suspended": lambda stage: stage.alter(A, suspended=True, generation=2),
    "edited": lambda stage: stage.alter(A, max_trainers=9, generation=2),
    "created anew": lambda stage: stage.alter(A, uid="another"),
    "deleted": lambda stage: stage.world.jobs.pop(A),
    "being deleted": lambda stage: stage.alter(A, deleting=True),
}


def growing(trainers: int = 1, **targets: int) -> CoreStage:
    """Jobs of some trainers whose status is as it should be; what they are granted is not."""
    stage = CoreStage()
    for name in targets:
        stage.add(name, trainers, max_trainers=20)
    stage.settle(dict.fromkeys(targets, trainers))
    stage.make_needs()
    return stage


def test_what_a_plan_grants_is_created_once() -> None:
    stage = growing(a=4)
    stage.plan({"a": 4})
    assert len(of_type(CreatePod, stage.send())) == 3
    stage.world.drop(A, "a-trainer-3")
    assert not of_type(CreatePod, stage.send()), "its slot was used"


@pytest.mark.parametrize("how", CHANGES)
@pytest.mark.parametrize("when", ["while a plan is made", "once it is published", "while it is sent"])
def test_a_job_that_has_changed_gets_nothing_of_the_plan(how: str, when: str) -> None:
    stage = growing(a=8)
    view = stage.begin()
    under_way = []
    if when == "while a plan is made":
        CHANGES[how](stage)
        stage.see()
    stage.publish(view, {"a": 8})
    if when == "while it is sent":
        under_way = [write for write in stage.take(3) if isinstance(write.actions[0], CreatePod)]
        assert under_way
    if when != "while a plan is made":
        CHANGES[how](stage)
        stage.see()
    assert not of_type(CreatePod, stage.send())
    for write in under_way:
        stage.end(write)
    assert not of_type(CreatePod, stage.send())


def test_growth_that_was_not_sent_is_void_once_the_next_plan_is_published() -> None:
    stage = growing(a=9)
    stage.plan({"a": 9})
    sent = of_type(CreatePod, stage.take(2))
    assert len(sent) == 2
    view = stage.begin()
    assert len(view.jobs[0].live_trainers) == 3, "those that are being created, and no others"
    stage.publish(view, {"a": 3})
    assert not of_type(CreatePod, stage.take())


def test_a_pod_that_is_created_while_a_plan_is_made_uses_a_slot_of_that_plan() -> None:
    stage = growing(a=4, b=9)
    stage.plan({"a": 4, "b": 1})
    view = stage.begin()
    sent = stage.take(2)
    assert len(of_type(CreatePod, sent)) == 2
    stage.publish(view, {"a": 1, "b": 4})  # it gives three slots of the node to the other job
    created = of_type(CreatePod, stage.take())
    assert by_job(created) == {"b": 1}


def test_no_trainer_ends_that_has_only_the_name_of_a_victim() -> None:
    stage = growing(4, a=4)
    view = stage.begin()
    stage.world.change(A, "a-trainer-3", uid="another")
    stage.see()
    stage.publish(view, {"a": 2})
    assert [action.pod for action in of_type(DeletePod, stage.send())] == ["a-trainer-2"]


def test_without_a_plan_nothing_grows_and_nobody_ends() -> None:
    stage = growing(4, a=4, b=4)
    stage.plan({"a": 2, "b": 6})
    stage.begin()
    stage.core.published(None)
    assert not of_type(CreatePod | DeletePod, stage.send())


def test_a_job_that_ends_pods_creates_none_until_they_are_being_deleted() -> None:
    stage = growing(2, a=4)
    stage.plan({"a": 5})
    stage.lost = frozenset({stage.world.jobs[A].pods[0].uid})
    stage.see()
    writes = stage.take()
    assert of_type(DeletePod, writes)
    assert not of_type(CreatePod, writes)
    stage.core.look_at_all()
    assert not of_type(CreatePod, stage.take())
    for write in writes:
        stage.end(write)
    assert of_type(CreatePod, stage.send())


def test_nor_while_a_deletion_is_under_way_that_may_fail() -> None:
    stage = growing(2, a=4)
    stage.world.finish(A, "a-trainer-0", 1)
    stage.see()
    while not of_type(DeletePod, writes := stage.take(1)):
        stage.end(writes[0])
    stage.plan({"a": 4})
    others = stage.take()
    assert not of_type(CreatePod, others)
    for write in (*others, *writes):
        stage.end(write)
    assert of_type(CreatePod, stage.send())


# --- Answers that are lost


def test_a_creation_without_an_answer_is_asked_again_before_anything_else_and_makes_no_second_pod() -> None:
    stage = growing(a=3)
    stage.plan({"a": 3})
    stage.answer, stage.happens = failed, False
    lost = stage.take(1)[0]
    stage.end(lost)
    stage.answer = lambda _: None
    assert not of_type(CreatePod, stage.take(1)), "the job rests"
    stage.wait(1.1)
    view = stage.begin()
    assert len(view.jobs[0].live_trainers) == 2, "a plan takes it for created"
    stage.publish(view, {"a": 3})
    again = stage.take()
    assert again[0].actions == lost.actions
    for write in again:
        stage.end(write)
    stage.send()
    assert stage.count(A) == 3


@pytest.mark.parametrize("shown", [True, False], ids=["the cache shows it", "the cache does not"])
def test_a_creation_whose_answer_was_lost_never_leads_to_a_trainer_too_many(shown: bool) -> None:
    stage = growing(a=3)
    stage.plan({"a": 3})
    stage.answer, stage.happens = failed, True
    writes = stage.take()
    before = stage.world.jobs[A]
    for write in writes:
        stage.core.ended(write, [failed(action) for action in write.actions])
        stage.world.apply(write.actions[0])
    after = stage.world.jobs[A]
    if not shown:
        stage.world.jobs[A] = before
    stage.see()
    stage.wait(1.1)
    stage.plan({"a": 3})
    sent = of_type(CreatePod, stage.take())
    names = {action.pod_name for action in sent} | {pod.name for pod in after.pods}
    assert len(names) == 3
    assert bool(sent) is not shown


def test_a_refused_creation_gives_its_slot_back() -> None:
    stage = growing(a=2)
    stage.plan({"a": 2})
    stage.answer = lambda a: Outcome(a, Result.CONFLICT, "AlreadyExists", "") if isinstance(a, CreatePod) else None
    assert len(of_type(CreatePod, stage.send())) == 1
    stage.answer = lambda _: None
    stage.wait(CONFLICT_S + 0.01)
    assert len(of_type(CreatePod, stage.send())) == 1
    assert stage.count(A) == 2


def test_a_creation_of_a_former_job_of_that_name_gives_no_slot_back() -> None:
    stage = growing(a=2)
    stage.plan({"a": 2})
    former = next(write for write in stage.take() if of_type(CreatePod, [write]))
    stage.world.add(replace(make_job("a", max_trainers=20), uid="another"))
    stage.see()
    stage.make_needs()
    view = stage.begin()
    plan = plan_of(view, {"a": 3})
    stage.core.published(plan, [Start(A, Role.TRAINER, NODE)])
    created = of_type(CreatePod, stage.send())
    stage.core.ended(former, [Outcome(former.actions[0], Result.CONFLICT, "Conflict", "another job has the name")])
    stage.core.look_at_all()
    created += of_type(CreatePod, stage.send())
    assert [action.index for action in created] == [0], "one slot was granted"


# --- Another controller


def test_after_the_lease_was_lost_nothing_of_the_old_plan_is_left() -> None:
    stage = growing(a=9, b=9)
    stage.plan({"a": 9, "b": 9})
    under_way = stage.take(2)
    view = stage.begin()
    stage.core.stand_down()
    assert not stage.core.allotments.by_job
    stage.publish(view, {"a": 9, "b": 9})
    assert not stage.core.allotments.by_job, "a plan that was being made then counts for nothing"
    for write in under_way:
        stage.end(write)
    assert not of_type(CreatePod | DeletePod, stage.send())
    stage.plan({"a": 3, "b": 1})
    stage.send()
    assert stage.count(A) == 3


# --- Deletions for jobs that have changed


def beneficiary() -> CoreStage:
    """A job of four trainers that is to give two to a new one."""
    stage = growing(4, a=4)
    stage.add("b", min_trainers=2, max_trainers=2)
    stage.see()
    stage.send()
    return stage


GONE: dict[str, Callable[[CoreStage], object]] = {
    "deleted": lambda stage: stage.world.jobs.pop(B),
    "being deleted": lambda stage: stage.alter(B, deleting=True),
    "edited": lambda stage: stage.alter(B, generation=2),
    "created anew": lambda stage: stage.alter(B, uid="another"),
}


@pytest.mark.parametrize("how", GONE)
@pytest.mark.parametrize("when", ["while the plan is made", "once it is published"])
def test_no_trainer_ends_for_a_job_that_has_changed_since(how: str, when: str) -> None:
    stage = beneficiary()
    view = stage.begin()
    for now in ("while the plan is made", "once it is published"):
        if now == when:
            GONE[how](stage)
            stage.see()
        if now == "while the plan is made":
            stage.publish(view, {"a": 2, "b": 2}, Reason.ADMITTED)
            stage.core.look_at_all()
    assert not of_type(DeletePod, stage.send())
    stage.wait(10.0)
    assert not of_type(DeletePod, stage.send()), "until the next plan"


def test_trainers_end_for_serving_although_another_job_has_changed_since() -> None:
    stage = beneficiary()
    stage.serving = (replace(make_serving("web"), tried=True),)
    view = stage.begin()
    stage.world.jobs.pop(B)
    stage.see()
    stage.publish(view, {"a": 2, "b": 2}, Reason.SERVING_NEEDS_ROOM)
    assert len(of_type(DeletePod, stage.send())) == 2


def test_jobs_that_keep_changing_spare_nobody_with_two_plans_in_a_row() -> None:
    stage = beneficiary()
    deleted = []
    for generation in range(2, 6):
        view = stage.begin()
        stage.alter(B, generation=generation)
        stage.publish(view, {"a": 2, "b": 2}, Reason.ADMITTED)
        deleted.append(len(of_type(DeletePod, stage.send())))
    assert deleted[:2] == [0, 2]


def test_a_plan_that_says_the_same_again_is_carried_out_after_one_that_spared() -> None:
    stage = beneficiary()
    stage.plan({"a": 2, "b": 2}, Reason.ADMITTED)
    stage.alter(B, generation=2)
    assert not of_type(DeletePod, stage.send())
    stage.plan({"a": 2, "b": 2}, Reason.ADMITTED)
    assert len(of_type(DeletePod, stage.send())) == 2


def test_the_status_tells_what_is_and_not_what_is_under_way() -> None:
    stage = growing(a=3)
    stage.plan({"a": 3})
    created = [write for write in stage.take() if isinstance(write.actions[0], CreatePod)]
    assert len(created) == 2
    stage.wait(2.0)
    stage.core.look_at_all()
    told = [action.status.trainer for action in of_type(PatchStatus, stage.take())]
    assert all((count.ready, count.pending) == (1, 0) for count in told)


def test_slots_are_on_the_nodes_of_the_plan() -> None:
    stage = growing(a=3)
    stage.plan({"a": 3})
    assert {action.node for action in of_type(CreatePod, stage.send())} == {NODE}
