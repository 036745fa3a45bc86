"""Changes of the spec of a job: its size, its resources, its suspension and its end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from edl.lifecycle.status import is_over
from edl.model.actions import CreatePod, DeleteJob, EnsurePodGroup, PatchStatus
from edl.model.job_policies import JobAction, JobEvent
from edl.model.jobs import RolePolicy
from edl.model.names import Role
from edl.model.pods import PodPhase
from edl.model.status import JobPhase, JobStatus, Reason
from tests.worlds.builders import make_job, make_shape
from tests.worlds.job_by_spec import MASTER, PSERVERS, Life, fault_tolerant, gang
from tests.worlds.job_by_target import KEY


def trainers(life: Life) -> set[str]:
    return {p.name for p in life.job.live_trainers}


# --- Gangs: all pods start or none


@pytest.mark.parametrize("fields", [{"fault_tolerant": False, "fixed": (PSERVERS,)}, {"gang": True}])
def test_a_gang_starts_whole_or_not_at_all(fields: dict[str, Any]) -> None:
    job = make_job("a", min_trainers=3, max_trainers=3)
    life = Life(replace(job, **{"fixed": (MASTER, PSERVERS), **fields}), wanted=3)
    life.room = 2
    life.settle(3)
    assert not life.names, "two of three trainers fit: none starts"
    assert life.phase is JobPhase.PENDING
    life.room = 3
    life.round()
    assert len(trainers(life)) == 3
    assert {"a-pserver-0", "a-pserver-1"} <= life.names


def test_only_the_minimum_has_to_start_whole() -> None:
    life = fault_tolerant(gang=True)
    life.wanted, life.room = 6, 1
    life.round()
    assert life.created() == ["a-trainer-4"]


def test_without_a_gang_each_pod_is_created_as_soon_as_it_fits() -> None:
    life = Life(replace(make_job("a", min_trainers=3, max_trainers=3), fixed=(MASTER, PSERVERS)), wanted=3)
    life.room = 1
    life.round()
    assert life.created() == ["a-master-0", "a-pserver-0", "a-trainer-0"]


def test_the_pod_group_is_created_before_the_pods_and_only_for_gangs() -> None:
    for asked in (False, True):
        life = Life(replace(make_job("a", min_trainers=2, max_trainers=2), gang=asked), wanted=2)
        life.round()
        kinds = [type(a) for a in life.actions]
        assert (EnsurePodGroup in kinds) is asked
        assert not asked or kinds.index(EnsurePodGroup) < kinds.index(CreatePod)


def test_masters_and_pservers_come_before_trainers() -> None:
    life = Life(replace(make_job("a", min_trainers=2, max_trainers=4), fixed=(MASTER, PSERVERS)))
    life.round()
    roles = [a.role for a in life.actions if isinstance(a, CreatePod)]
    assert roles == [Role.MASTER, Role.PSERVER, Role.PSERVER, *[Role.TRAINER] * 4]


# --- Changes while it runs


def test_a_lower_maximum_deletes_trainers_and_counts_no_failure() -> None:
    life = fault_tolerant(backoff_limit=0)
    life.edit(max_trainers=3)
    life.settle()
    assert len(trainers(life)) == 3
    assert life.phase is JobPhase.RUNNING
    assert life.status.failures == 0
    assert life.status.last_resize is not None
    assert (life.status.last_resize.from_count, life.status.last_resize.to_count) == (4, 3)


def test_changed_resources_apply_to_new_pods_only() -> None:
    life = fault_tolerant()
    before = life.uids
    life.edit(trainer=make_shape(2))
    life.settle()
    assert life.uids == before
    life.world.drop(KEY, "a-trainer-0")
    life.settle()
    assert life.world.pods(KEY)["a-trainer-0"].shape == make_shape(2)


@pytest.mark.parametrize("count", [1, 3])
def test_pservers_follow_their_count_while_trainers_run_on(count: int) -> None:
    life = fault_tolerant()
    before = {p.uid for p in life.job.live_trainers}
    life.edit(fixed=(MASTER, replace(PSERVERS, count=count)))
    life.settle()
    assert {n for n in life.names if "pserver" in n} == {f"a-pserver-{i}" for i in range(count)}
    assert {p.uid for p in life.job.live_trainers} == before
    assert life.phase is JobPhase.RUNNING


@pytest.mark.parametrize("size", [2, 4])
def test_a_gang_whose_size_changes_restarts_and_counts_no_failure(size: int) -> None:
    life = gang(backoff_limit=0)
    before = life.uids
    life.wanted = size
    life.edit(min_trainers=size, max_trainers=size)
    life.settle(12)
    assert trainers(life) == {f"a-trainer-{i}" for i in range(size)}
    assert not before & life.uids
    assert life.phase is JobPhase.RUNNING
    assert life.status.failures == 0


def test_a_gang_whose_trainers_must_make_way_starts_anew_whole() -> None:
    life = gang()
    before = life.uids
    life.settle(1, victims=("a-trainer-1",), shrink_reason=Reason.SERVING_NEEDS_ROOM.value)
    life.settle()
    assert not before & life.uids
    assert life.phase is JobPhase.RUNNING
    assert life.event_reasons.count("Restarting") == 1
    assert any("ServingNeedsRoom" in e.message for e in life.world.events if e.reason == "Restarting")


def test_a_replaced_trainer_of_a_gang_takes_the_rank_of_the_lost_one() -> None:
    life = gang(policies=(RolePolicy(Role.TRAINER, JobEvent.POD_FAILED, JobAction.RESTART_POD),))
    life.world.finish(KEY, "a-trainer-1", 1)
    life.round()
    assert life.created() == [], "its name is still in use"
    life.settle()
    assert trainers(life) == {"a-trainer-0", "a-trainer-1", "a-trainer-2"}


def test_a_gang_that_replaces_single_trainers_completes_when_every_rank_has_finished() -> None:
    life = gang(policies=(RolePolicy(Role.TRAINER, JobEvent.POD_FAILED, JobAction.RESTART_POD),))
    life.world.finish(KEY, "a-trainer-0")
    life.settle(2)
    life.world.finish(KEY, "a-trainer-1", 1)
    life.settle()
    assert trainers(life) == {"a-trainer-1", "a-trainer-2"}
    life.finish_all(Role.TRAINER)
    life.settle()
    assert life.phase is JobPhase.SUCCEEDED


def test_an_edit_that_makes_a_running_job_invalid_fails_it_for_good() -> None:
    life = fault_tolerant()
    life.edit(problem="min-instance 9 exceeds max-instance 6; lower min-instance")
    life.settle()
    assert (life.phase, life.status.reason, life.names) == (JobPhase.FAILED, "InvalidSpec", set())
    life.edit(problem="")
    life.settle()
    assert life.phase is JobPhase.FAILED


# --- Marks, suspension and the end


def test_a_deletion_that_was_stated_but_not_carried_out_is_carried_out() -> None:
    life = fault_tolerant()
    life.world.change(KEY, "a-trainer-2", intent=Reason.SERVING_NEEDS_ROOM.value)
    uid = life.uid("a-trainer-2")
    life.settle()
    assert uid not in life.uids
    assert len(trainers(life)) == 4


def test_a_pause_stops_the_clock_of_the_deadline() -> None:
    life = fault_tolerant(active_deadline_s=100)
    life.now_s += 50
    life.edit(suspended=True)
    life.settle(3)
    assert life.status.start_s is None
    life.now_s += 500
    life.edit(suspended=False)
    life.settle()
    assert life.phase is JobPhase.RUNNING
    life.now_s += 200
    life.settle()
    assert life.status.reason == "DeadlineExceeded"


def test_the_end_is_stored_before_any_pod_goes() -> None:
    life = fault_tolerant(active_deadline_s=10)
    life.now_s += 100
    pods = life.uids
    life.round()
    assert life.phase is JobPhase.FAILED
    assert life.uids == pods
    assert life.deleted() == []
    life.settle(2)
    assert not life.names


def test_an_ended_job_without_a_ttl_is_kept() -> None:
    life = fault_tolerant()
    life.finish_all(Role.TRAINER)
    life.settle()
    life.now_s += 10**7
    life.round()
    assert life.actions == ()


def test_a_ttl_of_0_deletes_the_job_once_its_end_is_stored() -> None:
    life = fault_tolerant(ttl_s=0)
    life.finish_all(Role.TRAINER)
    life.round()
    assert life.phase is JobPhase.SUCCEEDED
    life.round()
    assert any(isinstance(a, DeleteJob) for a in life.actions)


# --- The status


def test_every_written_status_says_which_spec_it_answers() -> None:
    life = fault_tolerant()
    life.edit(max_trainers=5)
    life.settle()
    life.edit(suspended=True)
    life.settle()
    life.edit(suspended=False)
    life.settle()
    life.finish_all(Role.TRAINER)
    life.settle()
    life.edit(max_trainers=7)
    life.settle()
    assert life.phase is JobPhase.SUCCEEDED
    assert life.status.observed_generation == life.job.generation
    written = [w.status for w in life.world.writes if isinstance(w, PatchStatus)]
    assert all({c.observed_generation for c in s.conditions} == {s.observed_generation} for s in written)
    assert sorted({s.observed_generation for s in written}) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "forged",
    [
        {"phase": JobPhase.FAILED},
        {"completion_s": 77.0},
        {"reason": "X", "explanation": "X", "selector": "X"},
        {"conditions": ()},
        {"observed_generation": 10**9},
    ],
)
def test_what_a_user_wrote_into_the_status_is_recomputed(forged: dict[str, Any]) -> None:
    life = fault_tolerant()
    before, pods = life.status, life.uids
    life.forge(**forged)
    life.settle(3)
    assert replace(life.status, conditions=()) == replace(before, conditions=())
    assert [(c.type, c.status, c.reason) for c in life.status.conditions] == [
        (c.type, c.status, c.reason) for c in before.conditions
    ]
    assert life.uids == pods


def test_a_status_with_nothing_but_a_phase_is_accepted() -> None:
    job = make_job("a", min_trainers=1, max_trainers=1)
    assert is_over(replace(job, status=JobStatus(phase=JobPhase.SUCCEEDED)))
    assert not is_over(replace(job, status=JobStatus(phase=JobPhase.RUNNING)))


@pytest.mark.parametrize("make", [fault_tolerant, gang])
def test_no_failure_is_counted_for_what_others_or_we_take_away(make: Any) -> None:
    life: Life = make(backoff_limit=0)
    for disruption in ("PreemptionByScheduler", "EvictionByEvictionAPI", "DeletionByTaintManager", "DeletionByPodGC"):
        name = sorted(trainers(life))[0]
        life.world.change(KEY, name, phase=PodPhase.FAILED, exit_code=137, ready=False, disruption=disruption)
        life.settle(12)
        assert life.phase is JobPhase.RUNNING
    assert life.status.failures == 0
