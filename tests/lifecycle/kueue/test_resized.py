"""What a workload may keep whose Workloads edl makes, and what becomes of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from edl.lifecycle.kueue.resized import SEEN_WITHIN_S
from edl.lifecycle.resized_workload import workload_actions
from edl.model.actions import Action, EmitEvent, Report, ResizeWorkload
from edl.model.jobs import Job
from edl.model.names import JobKey, WorkloadKind
from edl.model.quota_trees import KueueState, OwnedWorkload
from edl.model.status import JobPhase, JobStatus, Reason, Resize, Unseen
from tests.lifecycle.kueue.test_workloads import evicted, gone, made, own, told, waiting, with_state
from tests.worlds.builders import make_job
from tests.worlds.job_by_target import decision

STARTED = JobStatus(last_resize=Resize(0.0, 0, 2, "AtMax"))


def job_of(pods: int, *workloads: OwnedWorkload, **more: Any) -> Job:
    """A Job of 2 to 10 pods that edl has started, and of which some run."""
    job = make_job("a", trainers=pods, min_trainers=2, max_trainers=10, on=("n1",))
    state = KueueState("blue", "trainer", is_owned=True, workloads=workloads)
    fields: dict[str, Any] = {"kueue": state, "owner_count": pods, "status": STARTED}
    return replace(job, key=JobKey.of(WorkloadKind.BATCH_JOB, "ads", "a"), **(fields | more))


def actions_of(job: Job, target: int | None, **more: Any) -> tuple[Action, ...]:
    plan = None if target is None else decision(job, target, **more)
    return workload_actions(job, plan, 20, 1000.0)


def count_of(actions: tuple[Action, ...]) -> int | None:
    found = [a.count for a in actions if isinstance(a, ResizeWorkload)]
    return found[0] if found else None


def said(actions: tuple[Action, ...]) -> str:
    return " ".join(f"{a.reason} {a.message}" for a in actions if isinstance(a, EmitEvent))


def test_a_new_job_asks_for_its_base_and_stays_suspended() -> None:
    actions = actions_of(job_of(0, status=None), 5)
    assert (made(actions), count_of(actions)) == ({0: 2}, None)


def test_a_job_that_runs_before_its_base_is_admitted_is_suspended() -> None:
    actions = actions_of(job_of(3, waiting(trainers=2), status=None), None)
    assert count_of(actions) == 0
    assert said(actions).startswith("QuotaReached edl changes the number of pods from 3 to 0: ")


def test_an_admitted_base_starts_the_job_with_the_minimum_and_asks_for_more() -> None:
    actions = actions_of(job_of(0, own(trainers=2, flavors=(("trainer", ("a", "b")),))), 5)
    assert (count_of(actions), made(actions)) == (2, {1: 1, 2: 1, 3: 1})
    (resize,) = (a for a in actions if isinstance(a, ResizeWorkload))
    assert resize.flavors == ("a", "b"), "the nodes of its flavors"


def test_the_count_follows_what_is_admitted_and_no_more() -> None:
    actions = actions_of(job_of(2, own(trainers=2), own(1), waiting(2), own(3)), 6)
    assert (count_of(actions), made(actions)) == (4, {4: 1})
    (resize,) = (a for a in actions if isinstance(a, ResizeWorkload))
    assert resize.flavors == (), "the template of a job that runs does not change"


@pytest.mark.parametrize("target", [6, None])
def test_what_kueue_has_taken_back_lowers_the_count_and_is_deleted_once_pods_are_gone(target: int | None) -> None:
    workloads = own(trainers=2), own(1), evicted(2), own(3), evicted(4)
    actions = actions_of(job_of(6, *workloads), target)
    assert (count_of(actions), gone(actions), made(actions)) == (4, set(), {})
    assert "QuotaReached edl changes the number of pods from 6 to 4: Kueue admits 4 pods of it" in said(actions)
    assert gone(actions_of(job_of(4, *workloads), target)) == {"w2", "w4"}


def test_a_pod_that_still_ends_holds_its_quota() -> None:
    job = job_of(5, own(trainers=2), own(1), evicted(2), evicted(3), owner_count=3)
    pods = tuple(replace(pod, terminating=pod.index in {3, 4}) for pod in job.pods)
    actions = actions_of(replace(job, pods=pods), 5)
    assert (count_of(actions), gone(actions)) == (None, set())


def test_quota_is_held_for_pods_that_the_controller_of_the_job_is_about_to_make() -> None:
    workloads = own(trainers=2), own(1), own(2)
    actions = actions_of(job_of(0, *workloads, owner_count=4), 3)
    assert (count_of(actions), gone(actions)) == (3, set())
    assert gone(actions_of(job_of(0, *workloads, owner_count=3), 3)) == {"w2"}
    base = evicted(trainers=2)
    assert told(actions_of(job_of(0, base, owner_count=2), 3)) == {}
    assert told(actions_of(job_of(0, base, owner_count=0), 3)) == {"w0": Report.RELEASED}


def unseen_of(actions: tuple[Action, ...]) -> Unseen | None:
    (resize,) = (a.resize for a in actions if isinstance(a, ResizeWorkload))
    return resize.unseen


def after(count: int, until_s: float) -> JobStatus:
    return JobStatus(last_resize=Resize(999.0, count, 2, "AtMax", unseen=Unseen(count, until_s)))


def test_a_count_whose_pods_were_not_made_holds_its_quota_after_a_lower_one_is_written() -> None:
    """The controller of the job may be making them by the older count at that moment."""
    workloads = own(trainers=2), own(1), evicted(2), evicted(3)
    lowered = actions_of(job_of(3, *workloads, owner_count=5), 5)
    assert (count_of(lowered), unseen_of(lowered)) == (3, Unseen(5, 1000.0 + SEEN_WITHIN_S))
    assert unseen_of(actions_of(job_of(5, *workloads), 5)) is None, "all are there, to be counted until they end"
    held = job_of(3, *workloads, status=after(5, 1000.5))
    assert gone(actions_of(held, 3)) == set()
    assert gone(actions_of(replace(held, status=after(5, 1000.0)), 3)) == {"w2", "w3"}
    assert gone(actions_of(replace(held, status=after(5, 9000.0)), 3)) == {"w2", "w3"}, "edl writes no such time"
    assert gone(actions_of(replace(held, status=after(4, 1000.5)), 3)) == {"w3"}, "for one"


def test_a_base_is_not_released_while_pods_of_a_job_that_was_just_suspended_may_come() -> None:
    suspended = actions_of(job_of(0, evicted(trainers=2), owner_count=2), 3)
    assert (count_of(suspended), unseen_of(suspended)) == (0, Unseen(2, 1000.0 + SEEN_WITHIN_S))
    held = job_of(0, evicted(trainers=2), status=after(2, 1000.5))
    assert told(actions_of(held, 3)) == {}
    assert told(actions_of(replace(held, status=after(2, 1000.0)), 3)) == {"w0": Report.RELEASED}


def test_the_highest_count_is_remembered_until_its_time_is_over() -> None:
    workloads = own(trainers=2), own(1), own(2), own(3)
    lower = actions_of(job_of(2, *workloads, owner_count=4, status=after(5, 1000.5)), 3)
    assert unseen_of(lower) == Unseen(5, 1000.0 + SEEN_WITHIN_S)
    higher = job_of(2, *workloads, owner_count=2, status=after(5, 1000.5))
    assert unseen_of(actions_of(higher, 4)) == Unseen(5, 1000.5)
    assert unseen_of(actions_of(higher, 5)) is None
    assert unseen_of(actions_of(replace(higher, status=after(5, 999.5)), 4)) is None


def test_a_growth_waits_for_the_end_of_pods_that_still_hold_quota() -> None:
    job = job_of(4, own(trainers=2), own(1), own(2), owner_count=2)
    pods = tuple(replace(pod, terminating=pod.index in {2, 3}) for pod in job.pods)
    assert count_of(actions_of(replace(job, pods=pods), 4)) is None
    assert count_of(actions_of(replace(job, pods=pods[:3]), 4)) == 3
    assert count_of(actions_of(replace(job, pods=pods[:2]), 4)) == 4


def test_an_evicted_base_suspends_the_job_and_is_released_once_no_pod_is_left() -> None:
    actions = actions_of(job_of(3, evicted(trainers=2), own(1)), 3)
    assert (count_of(actions), gone(actions), told(actions)) == (0, set(), {})
    assert "Kueue has evicted Workload ads/w0: an owner came" in said(actions)
    actions = actions_of(job_of(0, evicted(trainers=2), own(1)), None)
    assert (count_of(actions), gone(actions), told(actions)) == (None, {"w1"}, {"w0": Report.RELEASED})


@pytest.mark.parametrize("started", [True, False])
def test_a_deleted_base_stops_no_job_that_edl_has_started(started: bool) -> None:
    actions = actions_of(job_of(3, status=STARTED if started else None), 5)
    assert count_of(actions) == (None if started else 0)
    assert made(actions) == {0: 2, 1: 1}, "and it is made anew, with one for the third pod"


def test_nothing_changes_while_the_objects_of_kueue_cannot_be_read() -> None:
    assert actions_of(with_state(job_of(3), is_unknown=True), 5) == ()


def test_of_its_sizes_it_has_the_largest_that_is_admitted() -> None:
    workloads = own(trainers=2), own(1), own(2), own(3)
    assert count_of(actions_of(job_of(2, *workloads, sizes=(2, 4, 8)), 8)) == 4
    assert count_of(actions_of(job_of(2, own(trainers=2), sizes=(4, 8)), 8)) is None, "an earlier minimum runs on"


def test_a_plan_that_stops_the_job_suspends_it_and_keeps_its_base() -> None:
    actions = actions_of(job_of(3, own(trainers=2), own(1)), 0, admitted=False, reason=Reason.MIN_UNSATISFIED)
    assert (count_of(actions), gone(actions)) == (0, set())
    actions = actions_of(job_of(0, own(trainers=2), own(1)), 0, admitted=False, reason=Reason.MIN_UNSATISFIED)
    assert (count_of(actions), gone(actions)) == (None, {"w1"})


def test_pods_that_are_ready_are_told() -> None:
    assert told(actions_of(job_of(3, own(trainers=2), own(1)), 3)) == {"w0": Report.READY, "w1": Report.READY}


@pytest.mark.parametrize("phase", [JobPhase.SUCCEEDED, JobPhase.FAILED])
def test_a_job_that_has_ended_leaves_the_queue_once_its_pods_have(phase: JobPhase) -> None:
    status = JobStatus(phase=phase, reason="Complete")
    running = job_of(2, own(trainers=2), own(1), finished=True, status=status)
    assert actions_of(running, None) == ()
    ended = actions_of(replace(running, pods=()), None)
    assert (gone(ended), told(ended)) == ({"w1"}, {"w0": Report.FINISHED})


def test_a_job_that_edl_does_not_resize_keeps_its_workloads_until_its_pods_are_gone() -> None:
    problem = "somebody sets the count"
    running = actions_of(job_of(3, own(trainers=2), own(1), problem=problem), 5)
    assert [type(a) for a in running] == [EmitEvent]
    assert gone(actions_of(job_of(0, own(trainers=2), own(1), problem=problem), None)) == {"w0", "w1"}


def test_a_job_that_is_finishing_keeps_its_base_until_it_has_ended() -> None:
    job = job_of(0, own(trainers=2, is_ready=True), problem="a pod has succeeded", finishing=True)
    assert [type(a) for a in actions_of(job, None)] == [EmitEvent]


def test_a_job_that_leaves_kueue_has_its_workloads_deleted() -> None:
    job = with_state(job_of(3, own(trainers=2), own(1)), local_queue="")
    actions = actions_of(job, 3)
    assert (count_of(actions), gone(actions)) == (None, {"w0", "w1"})


def test_a_job_that_is_deleted_is_left_to_garbage_collection() -> None:
    assert actions_of(job_of(3, own(trainers=2), own(1), deleting=True), 3) == ()
