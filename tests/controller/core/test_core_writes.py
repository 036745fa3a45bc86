"""In which order writes are sent, and when the writes of a job are computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from edl.controller.due_jobs import JOBS_AT_ONCE
from edl.controller.pending_writes import STATUS_EVERY, Lane
from edl.controller.status_pace import DEBOUNCE_S
from edl.lifecycle.data_progress import MasterView
from edl.lifecycle.node_watch import NodeWatch
from edl.model.actions import (
    CreatePod,
    DeletePod,
    EmitEvent,
    EnsureService,
    MarkPod,
    Outcome,
    PatchStatus,
    ProbePod,
    Result,
)
from edl.model.cluster import AvoidedNode, ResourceQuota
from edl.model.names import JobKey, Role
from edl.model.pods import PodPhase
from edl.model.resources import Resources
from tests.controller.core.core_stage import A, B, CoreStage, at_rest, of_type
from tests.worlds.builders import make_job
from tests.worlds.fakes import Compared

FEW = 6
"""Writes."""


# --- When a job is looked at


CHANGES: dict[str, Callable[[CoreStage], object]] = {
    "the job": lambda stage: stage.alter(A, max_trainers=4),
    "its pods": lambda stage: stage.world.drop(A, "a-trainer-1"),
    "its allotment": lambda stage: stage.plan({"a": 1}),
    "what may start": lambda stage: stage.plan({"a": 3}),
    "a lost pod": lambda stage: setattr(stage, "lost", frozenset({"default-a-t0"})),
    "the priority classes": lambda stage: setattr(stage, "missing", ("edl-trainer",)),
    "the time": lambda stage: stage.wait(300.0),
    "what is known of nodes": lambda stage: stage.core.watch(NodeWatch(avoided=(AvoidedNode("x", 0.0, (B,)),))),
    "what its master says": lambda stage: stage.core.look_at(("uid-default-a",)),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_job_at_rest_is_looked_at_again_once_something_has_changed(what: str) -> None:
    stage = at_rest()
    looked_at = stage.core.looked_at
    stage.see()
    stage.take()
    assert stage.core.looked_at == looked_at
    CHANGES[what](stage)
    stage.see()
    stage.take()
    assert stage.core.looked_at > looked_at


def test_what_concerns_another_job_changes_nothing() -> None:
    stage = at_rest("a", "b")
    looked_at = stage.core.looked_at
    stage.plan({"a": 2, "b": 3})
    stage.take()
    assert stage.core.looked_at == looked_at + 1


def test_a_group_of_changes_is_looked_at_once() -> None:
    stage = at_rest()
    looked_at = stage.core.looked_at
    for most in range(3, 9):
        stage.alter(A, max_trainers=most, generation=most)
    stage.take()
    assert stage.core.looked_at == looked_at + 1


def test_between_two_writes_a_few_jobs_are_looked_at() -> None:
    stage = CoreStage()
    for number in range(20):
        stage.add(f"j{number:02}")
    stage.see()
    stage.core.take()
    assert stage.core.looked_at == JOBS_AT_ONCE
    assert stage.core.has_more


def test_a_job_that_has_changed_is_looked_at_before_those_of_a_new_plan() -> None:
    names = [f"j{number:02}" for number in range(3 * JOBS_AT_ONCE)]
    stage = at_rest(*names, trainers=1)
    stage.plan(dict.fromkeys(names, 9))
    stage.world.finish(JobKey("default", names[-1]), f"{names[-1]}-trainer-0", 1)
    stage.see()
    assert [write.actions[0].job.name for write in stage.take(1)] == names[-1:]


def test_pods_that_start_as_foreseen_are_no_reason_to_look_at_once() -> None:
    stage = at_rest(trainers=1)
    stage.plan({"a": 5})
    for write in stage.take():
        stage.end(write)
    stage.send()
    looked_at = stage.core.looked_at
    for index in range(1, 5):
        stage.world.change(A, f"a-trainer-{index}", phase=PodPhase.RUNNING, node="n000", ready=True)
        stage.see()
        assert not stage.take()
        stage.wait(0.1)
    assert stage.core.looked_at <= looked_at + 2
    stage.wait(0.2)
    told = of_type(PatchStatus, stage.send())
    assert [action.status.trainer.ready for action in told] == [5], "one status for all of them"
    assert stage.core.next_look_s() > stage.clock.at_s


def test_a_job_that_breaks_the_code_is_reported_and_stops_no_other() -> None:
    stage = at_rest("a", "b")
    stage.alter(A, fixed=(None,))
    stage.world.finish(B, "b-trainer-0", 1)
    assert of_type(MarkPod, stage.send())
    assert [line for line in stage.recorder.failures if line.startswith("job default/a")]


def test_jobs_that_go_together_are_not_compared_with_all_others() -> None:
    stage, count = CoreStage(), 100
    for number in range(count):
        stage.world.add(make_job(f"j{number}", namespace=Compared("n")))
    stage.see()
    stage.world.jobs = dict(list(stage.world.jobs.items())[: count // 2])
    snapshot = stage.snapshot()
    Compared.times = 0
    stage.core.seen(snapshot, frozenset())
    assert Compared.times < 10 * count


# --- Order


def test_the_lanes_come_in_their_order() -> None:
    stage = at_rest("a", "b", "c")
    stage.add("new", min_trainers=1)
    stage.world.finish(B, "b-trainer-0", 1)
    stage.plan({"a": 1, "b": 2, "c": 4, "new": 1}, "InsufficientCapacity")
    lanes = [write.lane for write in stage.take(7)]
    assert lanes == sorted(lanes)
    assert lanes[:3] == [Lane.REPORT, Lane.END, Lane.END]


def test_every_eighth_write_is_a_status_while_there_is_growth() -> None:
    stage = at_rest("a", "b", "c")
    stage.plan({"a": 20, "b": 2, "c": 2})
    for key in (B, JobKey("default", "c")):
        stage.alter(key, generation=2)
    stage.plan({"a": 20, "b": 2, "c": 2})
    lanes = [write.lane for write in stage.take(2 * STATUS_EVERY)]
    assert [number for number, lane in enumerate(lanes, 1) if lane is Lane.STATUS] == [STATUS_EVERY, 2 * STATUS_EVERY]


def test_the_status_of_a_job_that_has_lost_pods_comes_before_growth() -> None:
    stage = at_rest("a", "b")
    stage.plan({"a": 20, "b": 2})
    stage.world.drop(B, "b-trainer-1")
    stage.see()
    stage.wait(DEBOUNCE_S)
    stage.plan({"a": 20, "b": 2})
    assert [write.lane for write in stage.take(2)] == [Lane.LOSS, Lane.SURPLUS]


def test_hundreds_of_new_jobs_of_one_namespace_delay_others_by_a_few_writes_only() -> None:
    stage = CoreStage()
    for number in range(200):
        stage.world.add(make_job(f"many-{number:03}", namespace="mallory"))
    stage.see()
    stage.wait(1.0)
    stage.take(FEW)
    stage.add("honest", min_trainers=1)
    stage.see()
    stage.wait(1.0)
    mine = [write for write in stage.take(FEW) if write.actions[0].job.name == "honest"]
    assert Lane.REPORT in {write.lane for write in mine}
    for write in mine:
        stage.end(write)
    stage.plan({"honest": 1})
    mine = [write for write in stage.take(FEW) if write.actions[0].job.name == "honest"]
    assert {Lane.BASE, Lane.MINIMUM} & {write.lane for write in mine}, "what its pods need, or they themselves"
    assert any(write.lane is Lane.REPORT for write in stage.take(FEW)), "the others have their turns"


def test_jobs_take_turns() -> None:
    stage = at_rest("a", "b")
    stage.plan({"a": 5, "b": 5})
    created = of_type(CreatePod, stage.take(6))
    assert [action.job.name for action in created] == ["a", "b"] * 3


# --- One thing after the other


def test_a_failed_pod_is_marked_then_counted_then_deleted() -> None:
    stage = at_rest()
    stage.world.finish(A, "a-trainer-0", 1)
    sent = [type(action) for action in stage.send()]
    assert [kind for kind in sent if kind is not EmitEvent][:3] == [MarkPod, PatchStatus, DeletePod]


def test_while_a_status_or_a_need_is_under_way_nothing_is_computed_for_its_job() -> None:
    stage = at_rest("a", "b")
    stage.alter(A, generation=2)
    stage.plan({"a": 4, "b": 2})
    writes = [write for write in stage.take() if write.lane in {Lane.BASE, Lane.STATUS}]
    need, status = (write for write in writes if not of_type(ProbePod, [write]))
    looked_at = stage.core.looked_at
    stage.world.drop(A, "a-trainer-0")
    for write in (need, status):
        stage.see()
        assert not stage.take()
        assert stage.core.looked_at == looked_at
        stage.end(write)
    stage.take()
    assert stage.core.looked_at == looked_at + 1


def test_no_job_is_locked_for_ever_by_a_write_that_ended_somehow() -> None:
    for result in Result:
        stage = at_rest()
        stage.alter(A, generation=2)
        stage.plan({"a": 2})
        write = next(write for write in stage.take() if of_type(PatchStatus, [write]))
        stage.core.ended(write, [Outcome(write.actions[0], result, "Why", "so")])
        stage.wait(310.0)
        assert of_type(PatchStatus, stage.send()) or result.name in {"DONE", "UNCHANGED"}


# --- Asking the API server


def test_a_new_job_is_asked_about_once_and_again_after_an_edit() -> None:
    stage = at_rest()
    stage.add("b", max_trainers=3)
    stage.see()
    assert stage.core.unprobed() == {"uid-default-b"}
    assert stage.core.is_unprobed("uid-default-b")
    assert len(of_type(ProbePod, stage.take())) == 1
    assert stage.core.namespaces_of(stage.core.under_way.probes()) == {"default"}
    stage = at_rest("a", "b", trainers=1)
    stage.alter(B, generation=2)
    probes = [write for write in stage.take() if of_type(ProbePod, [write])]
    assert len(probes) == 1
    stage.end(probes[0])
    assert not stage.core.unprobed()
    assert not of_type(ProbePod, stage.send())


def test_a_job_that_ran_before_this_controller_is_not_asked_about() -> None:
    stage = at_rest()
    other = CoreStage(world=stage.world)
    assert not of_type(ProbePod, other.send())


def test_nobody_is_asked_about_pods_that_a_full_quota_would_reject() -> None:
    stage = CoreStage()
    stage.add("a", max_trainers=3)
    full = ResourceQuota("default", "q", (("pods", 0),))
    stage.core.seen(replace(stage.snapshot(), resource_quotas=(full,)), frozenset())
    assert not stage.core.unprobed()
    assert not of_type(ProbePod, stage.take())


# --- Assumed


def test_a_plan_is_made_of_the_cluster_as_it_will_be() -> None:
    stage = at_rest(trainers=3)
    stage.plan({"a": 1})
    ended = of_type(DeletePod, stage.take())
    assert len(ended) == 2
    view = stage.core.plan_begins()
    assert len(view.jobs[0].live_trainers) == 1
    stage = at_rest(trainers=1)
    stage.plan({"a": 3})
    stage.take()
    view = stage.core.plan_begins()
    assert [pod.planned for pod in view.jobs[0].pods[1:]] == ["n000", "n000"]
    assert all(pod.shape.request == view.jobs[0].trainer.request != Resources() for pod in view.jobs[0].pods)
    assert {pod.role for pod in view.jobs[0].pods} == {Role.TRAINER}


def test_a_master_that_is_given_up_is_a_reason_to_look() -> None:
    stage = at_rest()
    stage.master_view = MasterView(is_given_up=True)
    stage.core.look_at(("uid-default-a",))
    looked_at = stage.core.looked_at
    stage.take()
    assert stage.core.looked_at == looked_at + 1


def test_the_end_of_a_deadline_is_a_time_to_look() -> None:
    stage = at_rest()
    status = stage.world.jobs[A].status
    assert status is not None
    assert status.start_s is not None
    stage.alter(A, active_deadline_s=int(stage.clock.at_s - status.start_s + 30))
    stage.send()
    assert 28.0 <= stage.core.next_look_s() - stage.clock.at_s <= 30.0
    stage.wait(31.0)
    assert of_type(PatchStatus, stage.send())[0].status.phase.is_final


def test_an_answer_about_an_older_spec_ends_no_pause_that_the_server_asked_for() -> None:
    stage = CoreStage()
    stage.add("a")
    stage.see()
    old = next(write for write in stage.take() if of_type(ProbePod, [write]))
    stage.alter(A, generation=2)
    stage.core.ended(old, [Outcome(old.actions[0], Result.FAILED, "TooManyRequests", "429", retry_after_s=30.0)])
    assert not stage.backoff.allows("uid-default-a", CreatePod, stage.clock.at_s + 29.0)
    assert stage.backoff.allows("uid-default-a", CreatePod, stage.clock.at_s + 30.0)


@pytest.mark.parametrize("result", [Result.UNCHANGED, Result.REFUSED, Result.FAILED])
def test_an_answer_about_pods_of_an_older_spec_says_nothing_about_the_present_one(result: Result) -> None:
    stage = CoreStage()
    stage.add("a")
    stage.see()
    old = next(write for write in stage.take() if of_type(ProbePod, [write]))
    stage.alter(A, generation=2)
    stage.core.ended(old, [Outcome(old.actions[0], result, "Why", "so")])
    assert stage.core.unprobed() == {"uid-default-a"}
    stage.wait(2.0)
    assert len(of_type(ProbePod, stage.send())) == 1
    assert not stage.core.unprobed()


def test_what_pods_of_an_older_spec_need_is_made_again_for_the_present_one() -> None:
    stage = CoreStage()
    stage.add("a")
    stage.send()
    stage.plan({"a": 1})
    writes = stage.take()
    old = next(write for write in writes if of_type(EnsureService, [write]))
    for write in writes:
        if write is not old:
            stage.end(write)
    stage.alter(A, generation=2)
    stage.end(old)
    stage.wait(2.0)
    stage.plan({"a": 1})
    assert len(of_type(EnsureService, stage.send())) == 1
