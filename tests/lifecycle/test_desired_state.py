"""The undisturbed life of a job, from its admission to its end: its status, its events and the actions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edl.lifecycle.desired_state import as_planned
from edl.lifecycle.status import is_over
from edl.model.actions import CreatePod, DeleteJob, DeletePod, EnsureSecret, EnsureService, PatchStatus
from edl.model.pods import PodPhase
from edl.model.status import JobPhase, Reason, Resize
from tests.worlds.builders import make_job
from tests.worlds.job_by_target import KEY, gang, running, story


def test_admission_creates_the_prerequisites_then_the_pods_then_writes_the_status() -> None:
    here = story()
    here.round(4)
    kinds = [type(a) for a in here.actions]
    assert kinds.index(EnsureService) < kinds.index(EnsureSecret) < kinds.index(CreatePod) < kinds.index(PatchStatus)
    assert here.names == {
        "a-master-0", "a-pserver-0", "a-pserver-1", *(f"a-trainer-{i}" for i in range(4))
    }  # fmt: skip
    assert here.event_reasons() == ["Admitted", "ScaledUp"]
    assert "2 -> 4" in here.world.events[1].message


def test_a_pserver_that_moves_is_deleted_and_created_again() -> None:
    here = running()
    before = len(here.event_reasons())
    here.round(4, moves=("a-pserver-1", "a-pserver-9"))
    assert [(a.pod, a.intent) for a in here.actions if isinstance(a, DeletePod)] == [("a-pserver-1", "Moved")]
    assert here.event_reasons()[before:] == ["Moved"]
    assert here.world.events[-1].message == "edl moves a-pserver-1 to another node, so that more trainers fit"
    here.round(4)
    assert not [a for a in here.actions if isinstance(a, DeletePod | CreatePod)], (
        "edl waits until the old pod is gone"
    )
    here.settle(4)
    assert "a-pserver-1" in here.names
    assert (here.phase(), here.job.status.failures if here.job.status else None) == (JobPhase.RUNNING, 0)


def test_conditions_carry_the_full_account_and_the_status_and_events_the_short_form() -> None:
    here = running()
    short, full = "5 of 6: cpu is full on pool a", "5 of 6: cpu is full on pool a; job default/b holds 9 cores there"
    here.round(5, message=short, details=full)
    assert here.job.status is not None
    admitted = here.job.status.condition("Admitted")
    assert admitted is not None
    assert (here.job.status.explanation, admitted.message) == (short, full)
    assert here.world.events[-1].message == f"4 -> 5 trainers; {short}"
    here.settle(5, message=short, details=full)
    writes = len(here.world.writes)
    here.settle(5, message=short, details=full)
    here.settle(0, hold=True)
    assert len(here.world.writes) == writes, "a round without a plan keeps both texts"


def test_phases_follow_the_pods() -> None:
    here = story()
    here.round(4)
    assert here.phase() is JobPhase.PENDING
    here.round(4)
    assert here.phase() is JobPhase.CREATING
    here.world.step()
    here.round(4)
    assert here.phase() is JobPhase.RUNNING
    here.round(5)
    here.round(5)
    assert here.phase() is JobPhase.SCALING
    here.world.step()
    here.round(5)
    assert here.phase() is JobPhase.RUNNING


def test_only_pods_that_fit_now_are_created() -> None:
    here = story()
    here.round(4, starts=1)
    assert here.names == {"a-master-0", "a-pserver-0", "a-trainer-0"}


def test_a_new_trainer_takes_the_lowest_index_that_no_pod_has() -> None:
    here = running()
    here.world.change(KEY, "a-trainer-1", terminating=True)
    here.world.drop(KEY, "a-trainer-2")
    here.round(4)
    created = [a.pod_name for a in here.actions if isinstance(a, CreatePod)]
    assert created == ["a-trainer-2", "a-trainer-4"]


def test_victims_are_deleted_with_the_reason_and_no_pod_is_created_meanwhile() -> None:
    here = running()
    here.round(3, victims=("a-trainer-1",), shrink_reason=Reason.SERVING_NEEDS_ROOM.value)
    pod = here.world.pods(KEY)["a-trainer-1"]
    assert pod.terminating
    assert pod.intent == "ServingNeedsRoom"
    assert not [a for a in here.actions if isinstance(a, CreatePod)]
    assert here.job.status is not None
    assert here.job.status.last_resize == Resize(here.now_s, 4, 3, "ServingNeedsRoom")
    assert here.event_reasons()[-1] == "ScaledDown"


def test_a_trainer_that_moves_to_another_node_is_reported_once() -> None:
    here = running()
    here.round(4, victims=("a-trainer-1",), shrink_reason=Reason.ADMITTED.value)
    assert here.event_reasons()[-1] == "Moved"
    here.settle(4)
    assert here.event_reasons().count("Moved") == 1
    assert len(here.job.live_trainers) == 4


def test_a_job_that_is_not_admitted_has_no_pods() -> None:
    here = running()
    here.settle(0, admitted=False, reason=Reason.MIN_UNSATISFIED, rounds=2)
    assert not here.names
    assert here.phase() is JobPhase.PENDING
    assert here.event_reasons()[-1] == "ScaledDown"


def test_without_a_plan_a_job_keeps_its_trainers() -> None:
    here = running()
    before = here.names
    here.world.drop(KEY, "a-trainer-3")
    here.round(0, hold=True)
    assert here.names == before - {"a-trainer-3"}
    assert here.phase() in {JobPhase.RUNNING, JobPhase.SCALING}


def test_without_a_plan_a_job_that_is_not_admitted_keeps_pods_that_it_still_has() -> None:
    here = story()
    here.world.add(make_job("a", trainers=2, min_trainers=2, on=("",)))
    here.round(0, hold=True)
    assert len(here.names) == 2


def test_a_job_completes_when_every_live_trainer_exited_0() -> None:
    here = running()
    here.world.finish(KEY, "a-trainer-0")
    here.settle(6)
    assert len(here.job.live_trainers) == 3, "no growth after the first success"
    assert here.phase() is JobPhase.RUNNING
    for i in (1, 2, 3):
        here.world.finish(KEY, f"a-trainer-{i}")
    here.settle(4)
    assert here.phase() is JobPhase.SUCCEEDED
    assert here.names == {f"a-trainer-{i}" for i in range(4)}, "finished trainers stay for their logs"
    assert here.event_reasons()[-1] == "Succeeded"


def test_a_finishing_job_is_planned_without_its_completed_trainers() -> None:
    here = running(min_trainers=3)
    for i in (0, 1):
        here.world.finish(KEY, f"a-trainer-{i}")
    planned = as_planned(here.job)
    assert (planned.min_trainers, planned.max_trainers) == (2, 2)


def test_a_trainer_that_exits_0_because_edl_deletes_it_has_not_completed() -> None:
    here = running()
    here.world.change(KEY, "a-trainer-3", phase=PodPhase.SUCCEEDED, intent="ServingNeedsRoom", ready=False)
    here.settle(4)
    assert here.phase() is JobPhase.RUNNING
    assert len(here.job.live_trainers) == 4


def test_an_ended_job_is_deleted_after_its_ttl() -> None:
    here = running(ttl_s=60)
    for i in range(4):
        here.world.finish(KEY, f"a-trainer-{i}")
    here.settle(4)
    assert here.phase() is JobPhase.SUCCEEDED
    here.now_s += 100
    here.round(0)
    assert [type(a) for a in here.actions] == [DeleteJob]


def test_suspension_deletes_every_pod_and_resumption_starts_the_job_again() -> None:
    here = running()
    here.world.add(replace(here.job, suspended=True))
    here.settle(0, rounds=2, admitted=False, reason=Reason.SUSPENDED)
    assert not here.names
    assert here.phase() is JobPhase.SUSPENDED
    here.world.add(replace(here.job, suspended=False))
    here.settle(4)
    assert here.phase() is JobPhase.RUNNING
    assert here.event_reasons().count("Admitted") == 2


def test_an_invalid_job_fails_without_pods_and_a_new_generation_is_checked_again() -> None:
    here = story(problem="min-instance 4 exceeds max-instance 2; lower min-instance")
    here.round(0, admitted=False, reason=Reason.INVALID_SPEC)
    assert here.phase() is JobPhase.FAILED
    assert not here.names
    assert is_over(here.job)
    here.world.add(replace(here.job, problem="", generation=2))
    assert not is_over(here.job)
    here.settle(4)
    assert here.phase() is JobPhase.RUNNING


def test_a_finalizer_on_a_deleted_job_keeps_none_of_its_pods() -> None:
    here = running()
    here.world.add(replace(here.job, deleting=True))
    here.round(6)
    assert {type(action) for action in here.actions} == {DeletePod}
    here.settle(6)
    assert not here.names, "no pod is left, and none is created"
    here.round(6)
    assert here.actions == ()


def test_pods_that_are_to_outlive_their_job_are_left_alone() -> None:
    here = running()
    here.world.add(replace(here.job, deleting=True, orphans_pods=True))
    here.round(6)
    assert here.actions == ()


def test_other_resizes_do_not_hide_a_shrink_for_another_job() -> None:
    here = running()
    here.settle(3, rounds=1, victims=("a-trainer-3",), shrink_reason=Reason.INSUFFICIENT_CAPACITY.value)
    assert here.job.status is not None
    first = here.job.status.last_resize
    assert first is not None
    assert first.voluntary_s == first.time_s
    here.now_s += 20
    here.settle(2, rounds=1, victims=("a-trainer-2",), shrink_reason=Reason.SERVING_NEEDS_ROOM.value)
    second = here.job.status.last_resize
    assert second is not None
    assert (second.reason, second.voluntary_s) == ("ServingNeedsRoom", first.time_s)
    here.now_s += 100
    here.settle(4)
    third = here.job.status.last_resize
    assert third is not None
    assert (third.to_count, third.voluntary_s) == (4, None)


@pytest.mark.parametrize("reason", [Reason.SERVING_NEEDS_ROOM, Reason.ADMITTED, Reason.AT_MAX, Reason.QUOTA_REACHED])
def test_other_shrinks_are_not_voluntary(reason: Reason) -> None:
    here = running()
    here.settle(3, rounds=1, victims=("a-trainer-3",), shrink_reason=reason.value)
    assert here.job.status is not None
    assert here.job.status.last_resize is not None
    assert (here.job.status.last_resize.to_count, here.job.status.last_resize.voluntary_s) == (3, None)


def test_less_wanted_than_is_on_its_way_is_no_shrink_if_nothing_is_deleted() -> None:
    here = running()
    assert here.job.status is not None
    here.now_s += 100
    here.round(6, starts=0, reason=Reason.INSUFFICIENT_CAPACITY)
    assert here.job.status.trainer.desired == 6
    here.now_s += 1
    here.round(5, starts=0, reason=Reason.INSUFFICIENT_CAPACITY)
    last = here.job.status.last_resize
    assert last is not None
    assert (last.from_count, last.to_count, last.voluntary_s) == (4, 5, None)


@pytest.mark.parametrize("target", [5, 4])
def test_a_lower_target_does_not_replace_a_shrink_that_a_rule_counts_from(target: int) -> None:
    here = running()
    here.settle(3, rounds=1, victims=("a-trainer-3",), shrink_reason=Reason.INSUFFICIENT_CAPACITY.value)
    assert here.job.status is not None
    shrink = here.job.status.last_resize
    here.round(6, starts=0)
    here.round(target, starts=0)
    assert here.job.status.last_resize == shrink


@pytest.mark.parametrize(("node", "is_voluntary"), [("", False), ("n000", True)])
def test_trainers_that_never_reached_a_node_start_no_cooldown(node: str, *, is_voluntary: bool) -> None:
    here = running()
    here.world.change(here.key, "a-trainer-3", node=node)
    here.round(3, victims=("a-trainer-3",), shrink_reason=Reason.INSUFFICIENT_CAPACITY.value)
    assert here.job.status is not None
    assert here.job.status.last_resize is not None
    assert (here.job.status.last_resize.voluntary_s is not None) is is_voluntary


def test_growth_does_not_hide_a_shrink_that_a_rule_still_counts_from() -> None:
    here = running()
    here.settle(3, rounds=1, victims=("a-trainer-3",), shrink_reason=Reason.SERVING_NEEDS_ROOM.value)
    assert here.job.status is not None
    shrink = here.job.status.last_resize
    here.settle(4)
    assert here.job.status.last_resize == shrink
    here.now_s += 100
    here.settle(5)
    assert here.job.status.last_resize is not None
    assert (here.job.status.last_resize.from_count, here.job.status.last_resize.to_count) == (4, 5)


def test_a_gang_completes_with_its_trainers_and_its_pservers_are_deleted() -> None:
    here = gang()
    for i in range(3):
        here.world.finish(KEY, f"a-trainer-{i}")
        here.settle(max(1, 2 - i), rounds=1)
    here.settle(0)
    assert here.phase() is JobPhase.SUCCEEDED
    assert here.names == {f"a-trainer-{i}" for i in range(3)}


def test_a_finishing_job_runs_on_with_less_than_its_minimum() -> None:
    here = running(3, 3, target=3)
    here.world.finish(KEY, "a-trainer-0", 0)
    here.settle(2)
    here.world.finish(KEY, "a-trainer-1", 1)
    here.settle(1)
    assert here.phase() is JobPhase.RUNNING, "a lost trainer is not replaced once others have completed"


def test_a_condition_keeps_its_time_until_it_flips() -> None:
    here = running()
    assert here.job.status is not None
    before = {c.type: c.since_s for c in here.job.status.conditions}
    here.settle(5)
    after = {c.type: c.since_s for c in here.job.status.conditions}
    for kind in ("Admitted", "Running", "Degraded", "Complete", "Failed"):
        assert after[kind] == before[kind]


def test_a_job_that_does_not_change_is_not_written() -> None:
    here = running()
    writes = len(here.world.writes)
    here.settle(4, rounds=20)
    assert len(here.world.writes) == writes


def test_the_first_status_has_every_condition() -> None:
    here = story()
    here.round(4)
    assert here.job.status is not None
    assert [c.type for c in here.job.status.conditions] == [
        "Admitted", "Running", "Resizing", "Degraded", "Complete", "Failed"
    ]  # fmt: skip
    assert all(c.reason and c.message for c in here.job.status.conditions)
