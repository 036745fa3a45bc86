"""Which Workloads of Kueue a TrainingJob has, and what may run of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from edl.lifecycle.desired_state import desired_state
from edl.lifecycle.kueue.workloads import MOST_SURPLUS, digest_of
from edl.model.actions import (
    Action,
    ChangeWorkloads,
    CreatePod,
    DeletePod,
    EmitEvent,
    PatchStatus,
    Report,
    ReportWorkloads,
)
from edl.model.jobs import FixedPods, Job
from edl.model.names import Role
from edl.model.pods import PodPhase
from edl.model.quota_trees import KueueState, OwnedWorkload
from edl.model.status import JobPhase, JobStatus
from tests.worlds.builders import make_job, make_shape
from tests.worlds.job_by_target import decision

SLOTS = [(role, f"n{i}") for role in Role for i in range(20)]


def own(index: int = 0, trainers: int = 1, **more: Any) -> OwnedWorkload:
    """An admitted Workload."""
    fields: dict[str, Any] = {"is_reserved": True, "is_admitted": True, "digest": "d"} | more
    return OwnedWorkload(f"w{index}", f"uid-w{index}", index, trainers, **fields)


def waiting(index: int = 0, trainers: int = 1, **more: Any) -> OwnedWorkload:
    return own(index, trainers, is_reserved=False, is_admitted=False, **more)


def evicted(index: int = 0, trainers: int = 1, **more: Any) -> OwnedWorkload:
    return own(index, trainers, evicted="Preempted", message="an owner came", **more)


def with_state(job: Job, **state: Any) -> Job:
    assert job.kueue is not None
    return replace(job, kueue=replace(job.kueue, **state))


def job_of(trainers: int, *workloads: OwnedWorkload, low: int = 2, high: int = 10, **more: Any) -> Job:
    job = make_job("a", trainers=trainers, min_trainers=low, max_trainers=high, on=("n1",), **more)
    return replace(job, kueue=KueueState("blue", "trainer", is_owned=True, workloads=workloads))


def actions_of(job: Job, target: int | None) -> tuple[Action, ...]:
    plan = None if target is None else decision(job, target)
    return desired_state(job, plan, SLOTS, 1000.0)[1]


def created(actions: tuple[Action, ...]) -> int:
    return sum(isinstance(a, CreatePod) and a.role is Role.TRAINER for a in actions)


def ended(actions: tuple[Action, ...]) -> set[str]:
    return {a.pod for a in actions if isinstance(a, DeletePod)}


def made(actions: tuple[Action, ...]) -> dict[int, int]:
    return {one.index: one.trainers for a in actions if isinstance(a, ChangeWorkloads) for one in a.new}


def gone(actions: tuple[Action, ...]) -> set[str]:
    return {name for a in actions if isinstance(a, ChangeWorkloads) for name, _ in a.gone}


def told(actions: tuple[Action, ...]) -> dict[str, Report]:
    return {one.name: one.report for a in actions if isinstance(a, ReportWorkloads) for one in a.reports}


def line(job: Job, target: int | None) -> str:
    plan = None if target is None else decision(job, target)
    return desired_state(job, plan, SLOTS, 1000.0)[0].explanation


def test_a_new_job_asks_for_its_base_and_creates_nothing() -> None:
    actions = actions_of(job_of(0), 5)
    assert (made(actions), created(actions)) == ({0: 2}, 0)


def test_a_base_that_waits_holds_the_job_back_whatever_the_plan_says() -> None:
    job = job_of(0, waiting(trainers=2))
    assert job.kueue is not None
    job = with_state(job, workloads=(waiting(trainers=2, digest=digest_of(job, job.kueue)),))
    assert [a for a in actions_of(job, 5) if not isinstance(a, PatchStatus | EmitEvent)] == []
    assert "waits in LocalQueue blue of Kueue" in line(job, 5)


def test_a_base_that_waits_is_made_anew_if_the_job_asks_for_something_else() -> None:
    assert gone(actions_of(job_of(0, waiting(trainers=2, digest="old")), 5)) == {"w0"}


def test_an_admitted_base_lets_the_minimum_run_and_the_plan_asks_for_more() -> None:
    actions = actions_of(job_of(0, own(trainers=2, flavors=(("trainer", ("a", "b")),))), 5)
    assert (created(actions), made(actions)) == (2, {1: 1, 2: 1, 3: 1})
    assert {a.flavors for a in actions if isinstance(a, CreatePod)} == {("a", "b")}


def test_a_reserved_base_waits_for_its_checks() -> None:
    job = job_of(0, own(trainers=2, is_admitted=False))
    assert created(actions_of(job, 5)) == 0
    assert "waits for its admission checks" in line(job, 5)


def test_a_trainer_is_created_for_each_admitted_workload_and_for_no_other() -> None:
    actions = actions_of(job_of(2, own(trainers=2), own(1), waiting(2), own(3)), 6)
    assert (created(actions), made(actions)) == (2, {4: 1})


def test_what_kueue_takes_back_lets_no_trainer_run() -> None:
    assert created(actions_of(job_of(3, own(trainers=2), own(1), evicted(2)), 4)) == 0


def test_a_trainer_that_still_ends_holds_its_quota() -> None:
    job = job_of(4, own(trainers=2), own(1), own(2))
    pods = tuple(replace(pod, terminating=pod.index == 3) for pod in job.pods)
    assert created(actions_of(replace(job, pods=pods), 4)) == 0


@pytest.mark.parametrize("target", [6, None])
def test_as_many_trainers_end_as_kueue_has_taken_back(target: int | None) -> None:
    job = job_of(6, own(trainers=2), own(1), evicted(2), own(3), evicted(4))
    actions = actions_of(job, target)
    assert ended(actions) == {"a-trainer-4", "a-trainer-5"}
    assert (created(actions), made(actions), gone(actions)) == (0, {}, set())


def test_what_kueue_has_taken_back_is_deleted_as_soon_as_a_pod_is_gone() -> None:
    job = job_of(5, own(trainers=2), own(1), evicted(2), own(3), evicted(4))
    pods = tuple(replace(pod, terminating=pod.index == 4) for pod in job.pods)
    assert gone(actions_of(replace(job, pods=pods), 6)) == {"w4"}
    assert gone(actions_of(replace(job, pods=pods[:4]), 6)) == {"w2", "w4"}


def test_a_plan_from_before_an_eviction_does_not_ask_for_it_again() -> None:
    assert made(actions_of(job_of(4, own(trainers=2), own(1), own(2)), 4)) == {}


def test_a_smaller_target_ends_trainers_first_and_their_workloads_later() -> None:
    workloads = own(trainers=2), own(1), own(2), own(3)
    job = job_of(5, *workloads)
    plan = decision(job, 3, victims=("a-trainer-3", "a-trainer-4"))
    _, actions = desired_state(job, plan, SLOTS, 1000.0)
    assert (ended(actions), gone(actions)) == ({"a-trainer-3", "a-trainer-4"}, set())
    assert gone(actions_of(job_of(4, *workloads), 3)) == {"w3"}
    assert gone(actions_of(job_of(3, *workloads), 3)) == {"w2", "w3"}


def test_of_those_that_are_not_needed_those_that_wait_go_first() -> None:
    assert gone(actions_of(job_of(3, own(trainers=2), waiting(1), own(2)), 3)) == {"w1"}


def test_an_evicted_base_ends_all_pods_and_is_released_once_none_is_left() -> None:
    job = job_of(3, evicted(trainers=2), own(1))
    actions = actions_of(job, 3)
    assert ended(actions) == {"a-trainer-0", "a-trainer-1", "a-trainer-2"}
    assert (told(actions), gone(actions)) == ({}, set())
    assert "Kueue has evicted Workload default/w0: an owner came" in line(job, 3)
    actions = actions_of(job_of(0, evicted(trainers=2), own(1)), 3)
    assert (told(actions), gone(actions), created(actions)) == ({"w0": Report.RELEASED}, {"w1"}, 0)


def test_a_released_base_waits_in_peace() -> None:
    job = job_of(0, evicted(trainers=2, is_reserved=False, is_admitted=False))
    assert [a for a in actions_of(job, 3) if not isinstance(a, PatchStatus | EmitEvent)] == []
    assert "waits in LocalQueue blue" in line(job, 3)


def test_a_stopped_workload_stays_and_none_is_asked_for_in_its_place() -> None:
    stopped = evicted(1, is_active=False)
    assert ended(actions_of(job_of(3, own(trainers=2), stopped), None)) == {"a-trainer-2"}
    actions = actions_of(job_of(2, own(trainers=2, is_ready=True), stopped), 5)
    assert (told(actions), gone(actions), made(actions)) == ({"w1": Report.RELEASED}, set(), {})


def test_the_pods_that_are_ready_are_told_once() -> None:
    job = job_of(3, own(trainers=2), own(1), own(2))
    assert told(actions_of(job, 4)) == {"w0": Report.READY, "w1": Report.READY}
    ready = own(trainers=2, is_ready=True), own(1), own(2, is_ready=True)
    assert told(actions_of(job_of(3, *ready), 4)) == {}


def test_a_base_is_ready_with_its_master() -> None:
    fixed = (FixedPods(Role.MASTER, make_shape(0.5), 1),)
    assert told(actions_of(job_of(2, own(trainers=2), fixed=fixed), 2)) == {}


def test_a_suspended_job_leaves_the_queue_once_its_pods_are_gone() -> None:
    job = replace(job_of(2, own(trainers=2), waiting(1)), suspended=True)
    assert (len(ended(actions_of(job, None))), gone(actions_of(job, None))) == (2, set())
    assert gone(actions_of(replace(job, pods=()), None)) == {"w0", "w1"}


def test_an_ended_job_finishes_its_base_and_deletes_the_others() -> None:
    job = job_of(2, own(trainers=2), own(1))
    done = replace(job, pods=tuple(replace(pod, phase=PodPhase.SUCCEEDED, ready=False) for pod in job.pods))
    over = replace(done, status=JobStatus(phase=JobPhase.SUCCEEDED))
    actions = actions_of(over, None)
    assert (told(actions), gone(actions)) == ({"w0": Report.FINISHED}, {"w1"})
    assert told(actions_of(with_state(over, workloads=(own(is_finished=True),)), None)) == {}


def test_a_job_that_runs_without_admission_keeps_its_pods_and_asks_for_all_of_them() -> None:
    """Somebody has given it to a queue, or has deleted its Workload; the plan knows nothing of its quota."""
    job = job_of(4)
    actions = actions_of(job, 0)
    assert (ended(actions), created(actions), made(actions)) == (set(), 0, {0: 2, 1: 1, 2: 1})
    assert ended(actions_of(job_of(4, waiting(trainers=2), waiting(1), waiting(2)), 0)) == set()
    assert ended(actions_of(job_of(4, own(trainers=2), waiting(1), waiting(2)), None)) == set()


def test_a_workload_that_somebody_deletes_costs_a_trainer() -> None:
    assert ended(actions_of(job_of(4, own(trainers=2), own(2)), 4)) == {"a-trainer-3"}


def test_nothing_happens_while_the_objects_of_kueue_cannot_be_read() -> None:
    job = job_of(3)
    job = with_state(job, is_unknown=True)
    actions = actions_of(job, 0)
    assert (ended(actions), created(actions), made(actions), gone(actions)) == (set(), 0, {}, set())
    assert made(actions_of(replace(job, pods=()), 3)) == {}


def test_a_job_that_may_grow_by_very_many_trainers_has_several_in_each_workload() -> None:
    high = 2 + 2 * MOST_SURPLUS
    found = made(actions_of(job_of(0, own(trainers=2), high=high), 9))
    assert found == {1: 2, 2: 2, 3: 2, 4: 2}


def test_a_job_that_leaves_kueue_keeps_its_pods_and_gives_its_workloads_up() -> None:
    actions = actions_of(with_state(job_of(3, own(trainers=2), waiting(1)), local_queue=""), 5)
    assert (ended(actions), created(actions), made(actions), gone(actions)) == (set(), 2, {}, {"w0", "w1"})


def test_a_job_that_is_not_valid_any_more_leaves_once_its_pods_are_gone() -> None:
    job = replace(with_state(job_of(2, own(trainers=2)), local_queue=""), problem="wrong")
    assert (len(ended(actions_of(job, None))), gone(actions_of(job, None))) == (2, set())
    assert gone(actions_of(replace(job, pods=()), None)) == {"w0"}


def test_a_job_that_is_not_kueues_has_no_workload() -> None:
    job = replace(job_of(0), kueue=None)
    assert created(actions_of(job, 4)) == 4
    assert made(actions_of(job, 4)) == {}


def test_the_base_is_digested_by_what_it_asks_for() -> None:
    job = job_of(0)
    assert job.kueue is not None
    same = digest_of(replace(job, max_trainers=20), job.kueue)
    others = {
        digest_of(replace(job, min_trainers=3), job.kueue),
        digest_of(job, replace(job.kueue, local_queue="green")),
        digest_of(replace(job, trainer=make_shape(2)), job.kueue),
    }
    assert same == digest_of(job, job.kueue)
    assert len(others - {same}) == 3


def test_new_workloads_take_the_lowest_free_indexes() -> None:
    actions = actions_of(job_of(2, own(trainers=2), own(2)), 6)
    (change,) = (a for a in actions if isinstance(a, ChangeWorkloads))
    assert [one.index for one in change.new] == [1, 3, 4]
    assert all(one.digest for one in change.new)
