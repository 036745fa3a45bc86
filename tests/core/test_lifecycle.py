"""The life of a job: what it is told and done to, from its pods, the plan and the time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edl.core.lifecycle import (
    Action,
    CreatePod,
    DeleteJob,
    DeletePod,
    EmitEvent,
    EnsureSecret,
    EnsureService,
    MarkPod,
    Outcome,
    PatchStatus,
    Surroundings,
    as_planned,
    desired_state,
    is_over,
)
from edl.core.model import (
    FixedPods,
    Job,
    JobKey,
    JobPhase,
    PodPhase,
    Reason,
    Resize,
    Role,
)
from edl.core.plan import ScaleDecision
from tests.builders import make_job, make_shape
from tests.fakes import PodWorld

KEY = JobKey("default", "a")
FIXED = (FixedPods(Role.MASTER, make_shape(0.25), 1), FixedPods(Role.PSERVER, make_shape(0.5), 2))


def decision(
    job: Job,
    target: int,
    *,
    admitted: bool = True,
    reason: Reason = Reason.ADMITTED,
    victims: tuple[str, ...] = (),
    shrink_reason: str = "",
) -> ScaleDecision:
    return ScaleDecision(
        job=job.key,
        generation=job.generation,
        current=len(job.live_trainers),
        target=target,
        minimum=job.min_trainers,
        maximum=job.max_trainers,
        admitted=admitted,
        reason=reason,
        message="as planned",
        victims=victims,
        shrink_reason=shrink_reason,
    )


class Story:
    """One job in a small world, round after round."""

    def __init__(self, job: Job, now_s: float = 1000.0) -> None:
        self.world = PodWorld()
        self.world.add(job)
        self.key = job.key
        self.now_s = now_s
        self.around = Surroundings()
        self.actions: tuple[Action, ...] = ()

    @property
    def job(self) -> Job:
        return self.world.jobs[self.key]

    def phase(self) -> JobPhase:
        assert self.job.status is not None
        return self.job.status.phase

    @property
    def names(self) -> set[str]:
        return {pod.name for pod in self.job.pods}

    def told(self) -> list[str]:
        return [event.reason for event in self.world.events]

    def round(self, target: int, *, starts: int = 99, hold: bool = False, **given: Any) -> list[Outcome]:
        """One round in which the plan wants that many trainers and that many pods of each role have room."""
        places: Sequence[tuple[Role, str]] = [(role, f"n{i:03d}") for role in Role for i in range(starts)]
        plan = None if hold else decision(as_planned(self.job), target, **given)
        _, self.actions = desired_state(self.job, plan, places, self.now_s, self.around)
        return [self.world.apply(action) for action in self.actions]

    def settle(self, target: int, rounds: int = 6, **given: Any) -> None:
        """Rounds until nothing moves."""
        for _ in range(rounds):
            self.now_s += 1
            self.round(target, **given)
            self.world.step()


def story(minimum: int = 2, maximum: int = 6, *, fixed: tuple[FixedPods, ...] = FIXED, **fields: Any) -> Story:
    return Story(replace(make_job("a", minimum=minimum, maximum=maximum, fixed=fixed), **fields))


def running(minimum: int = 2, maximum: int = 6, *, target: int = 4, **fields: Any) -> Story:
    here = story(minimum, maximum, **fields)
    here.settle(target)
    assert here.phase() is JobPhase.RUNNING
    return here


def gang(size: int = 3, **fields: Any) -> Story:
    fixed = (FixedPods(Role.PSERVER, make_shape(0.5), 1),)
    return running(size, size, target=size, fixed=fixed, fault_tolerant=False, **fields)


def test_admission_makes_what_pods_need_then_the_pods_then_says_so() -> None:
    here = story()
    here.round(4)
    kinds = [type(a) for a in here.actions]
    assert kinds.index(EnsureService) < kinds.index(EnsureSecret) < kinds.index(CreatePod) < kinds.index(PatchStatus)
    assert here.names == {
        "a-master-0", "a-pserver-0", "a-pserver-1", *(f"a-trainer-{i}" for i in range(4))
    }  # fmt: skip
    assert here.told() == ["Admitted", "ScaledUp"]
    assert "2 -> 4" in here.world.events[1].message


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


def test_only_what_has_room_now_is_created() -> None:
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


def test_named_victims_go_with_the_reason_stated_and_nothing_grows_beside_them() -> None:
    here = running()
    here.round(3, victims=("a-trainer-1",), shrink_reason=Reason.SERVING_NEEDS_ROOM.value)
    pod = here.world.pods(KEY)["a-trainer-1"]
    assert pod.terminating
    assert pod.intent == "ServingNeedsRoom"
    assert not [a for a in here.actions if isinstance(a, CreatePod)]
    assert here.job.status is not None
    assert here.job.status.last_resize == Resize(here.now_s, 4, 3, "ServingNeedsRoom")
    assert here.told()[-1] == "ScaledDown"


def test_a_trainer_that_makes_way_and_starts_elsewhere_is_told() -> None:
    here = running()
    here.round(4, victims=("a-trainer-1",), shrink_reason=Reason.ADMITTED.value)
    assert here.told()[-1] == "Moved"
    here.settle(4)
    assert here.told().count("Moved") == 1
    assert len(here.job.live_trainers) == 4


def test_a_job_that_is_not_admitted_has_no_pods() -> None:
    here = running()
    here.settle(0, admitted=False, reason=Reason.MIN_UNSATISFIED, rounds=2)
    assert not here.names
    assert here.phase() is JobPhase.PENDING
    assert here.told()[-1] == "ScaledDown"


def test_without_a_plan_a_job_stays_as_it_is() -> None:
    here = running()
    before = here.names
    here.world.drop(KEY, "a-trainer-3")
    here.round(0, hold=True)
    assert here.names == before - {"a-trainer-3"}
    assert here.phase() in {JobPhase.RUNNING, JobPhase.SCALING}


def test_without_a_plan_a_job_that_is_not_admitted_keeps_pods_that_it_still_has() -> None:
    here = story()
    here.world.add(make_job("a", trainers=2, minimum=2, on=("",)))
    here.round(0, hold=True)
    assert len(here.names) == 2


def test_a_failed_trainer_is_counted_once_then_replaced() -> None:
    here = running()
    here.world.finish(KEY, "a-trainer-1", 1)
    here.round(4)
    assert here.job.status is not None
    assert here.job.status.failures == 1
    assert here.world.pods(KEY)["a-trainer-1"].intent == "PodFailed/1"
    assert "a-trainer-4" in here.names, "the replacement does not wait for the name"
    here.settle(4)
    assert "a-trainer-1" not in here.names
    assert len(here.job.live_trainers) == 4
    assert here.job.status.failures == 1
    assert here.told().count("PodFailed") == 1


def test_a_failure_is_counted_once_even_if_the_status_is_lost_after_the_mark() -> None:
    here = running()
    here.world.finish(KEY, "a-trainer-1", 1)
    before = here.job.status
    here.round(4)
    here.world.add(replace(here.job, status=before))
    here.round(4)
    assert here.job.status is not None
    assert here.job.status.failures == 1
    assert "a-trainer-1" in here.names, "not deleted before its number is stored"
    here.settle(4)
    assert here.job.status.failures == 1


def test_a_failed_pserver_comes_back_under_its_own_name() -> None:
    here = running()
    here.world.finish(KEY, "a-pserver-1", 137)
    old = here.world.pods(KEY)["a-pserver-1"].uid
    here.settle(4)
    assert here.world.pods(KEY)["a-pserver-1"].uid != old
    assert here.phase() is JobPhase.RUNNING


@pytest.mark.parametrize(
    "fields",
    [
        {"disruption": "PreemptionByScheduler"},
        {"disruption": "EvictionByEvictionAPI"},
        {"disruption": "DeletionByTaintManager"},
        {"disruption": "TerminationByKubelet"},
        {"intent": "ServingNeedsRoom"},
    ],
)
def test_what_others_or_we_did_is_no_failure_of_the_job(fields: dict[str, str]) -> None:
    here = running(backoff_limit=0)
    here.world.change(KEY, "a-trainer-1", phase=PodPhase.FAILED, exit_code=143, ready=False, **fields)
    here.settle(4)
    assert here.job.status is not None
    assert here.job.status.failures == 0
    assert len(here.job.live_trainers) == 4


def test_too_many_failures_end_the_job_and_keep_the_failed_pods() -> None:
    here = running(backoff_limit=1)
    for i in (0, 1):
        here.world.finish(KEY, f"a-trainer-{i}", 1)
    here.settle(4)
    assert here.phase() is JobPhase.FAILED
    assert here.job.status is not None
    assert here.job.status.reason == "BackoffLimitExceeded"
    assert here.names == {"a-trainer-0", "a-trainer-1"}
    assert here.told()[-1] == "PodFailed"
    assert "Failed" in here.told()


def test_the_deadline_ends_the_job() -> None:
    here = running(active_deadline_s=100)
    here.now_s += 200
    here.settle(4, rounds=2)
    assert here.phase() is JobPhase.FAILED
    assert here.job.status is not None
    assert here.job.status.reason == "DeadlineExceeded"
    assert not here.names


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
    assert here.told()[-1] == "Succeeded"


def test_a_finishing_job_is_planned_as_what_is_left_of_it() -> None:
    here = running(minimum=3)
    for i in (0, 1):
        here.world.finish(KEY, f"a-trainer-{i}")
    planned = as_planned(here.job)
    assert (planned.min_trainers, planned.max_trainers) == (2, 2)


def test_the_last_trainer_lost_before_it_finished_is_replaced_even_much_later() -> None:
    here = running(minimum=1, target=2)
    here.world.finish(KEY, "a-trainer-0")
    here.world.preempt(KEY, "a-trainer-1")
    here.round(1, starts=0)
    here.world.step()
    here.round(1, starts=0)
    assert here.phase() is not JobPhase.SUCCEEDED
    here.settle(1)
    assert len(here.job.live_trainers) == 1
    here.world.finish(KEY, here.job.live_trainers[0].name)
    here.settle(1)
    assert here.phase() is JobPhase.SUCCEEDED


def test_a_trainer_that_exits_0_because_it_was_told_to_go_has_not_finished() -> None:
    here = running()
    here.world.change(KEY, "a-trainer-3", phase=PodPhase.SUCCEEDED, intent="ServingNeedsRoom", ready=False)
    here.settle(4)
    assert here.phase() is JobPhase.RUNNING
    assert len(here.job.live_trainers) == 4


def test_the_time_after_the_end_deletes_the_job() -> None:
    here = running(ttl_s=60)
    for i in range(4):
        here.world.finish(KEY, f"a-trainer-{i}")
    here.settle(4)
    assert here.phase() is JobPhase.SUCCEEDED
    here.now_s += 100
    here.round(0)
    assert [type(a) for a in here.actions] == [DeleteJob]


def test_suspension_ends_every_pod_and_resumption_begins_anew() -> None:
    here = running()
    here.world.add(replace(here.job, suspended=True))
    here.settle(0, rounds=2, admitted=False, reason=Reason.SUSPENDED)
    assert not here.names
    assert here.phase() is JobPhase.SUSPENDED
    here.world.add(replace(here.job, suspended=False))
    here.settle(4)
    assert here.phase() is JobPhase.RUNNING
    assert here.told().count("Admitted") == 2


def test_an_invalid_job_fails_without_pods_and_a_new_generation_is_judged_afresh() -> None:
    here = story(problem="min-instance 4 exceeds max-instance 2; lower min-instance")
    here.round(0, admitted=False, reason=Reason.INVALID_SPEC)
    assert here.phase() is JobPhase.FAILED
    assert not here.names
    assert is_over(here.job)
    here.world.add(replace(here.job, problem="", generation=2))
    assert not is_over(here.job)
    here.settle(4)
    assert here.phase() is JobPhase.RUNNING


def test_a_job_being_deleted_is_left_alone() -> None:
    here = running()
    here.world.add(replace(here.job, deleting=True))
    here.round(6)
    assert here.actions == ()


def test_preemption_by_the_scheduler_is_a_resize_for_serving_told_once() -> None:
    here = running()
    for i in (2, 3):
        here.world.preempt(KEY, f"a-trainer-{i}")
    here.now_s += 1
    here.round(2, reason=Reason.INSUFFICIENT_CAPACITY)
    stamp = here.now_s
    for _ in range(3):
        here.now_s += 1
        here.round(2, reason=Reason.INSUFFICIENT_CAPACITY)
    here.settle(2, reason=Reason.INSUFFICIENT_CAPACITY)
    assert here.job.status is not None
    assert here.job.status.last_resize == Resize(stamp, 4, 2, "ServingNeedsRoom")
    assert here.told().count("Preempted") == 1
    assert "ScaledDown" not in here.told()


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


def test_a_shrink_for_the_share_of_another_is_remembered_through_other_resizes() -> None:
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


def test_pods_that_no_kubelet_will_end_are_deleted_by_force() -> None:
    here = running()
    here.world.change(KEY, "a-trainer-1", terminating=True)
    uid = here.world.pods(KEY)["a-trainer-1"].uid
    here.around = Surroundings(lost=frozenset({uid}))
    here.round(4)
    forced = [a for a in here.actions if isinstance(a, DeletePod) and a.force]
    assert [(a.pod, a.pod_uid) for a in forced] == [("a-trainer-1", uid)]
    assert "a-trainer-1" not in here.names


def test_a_gang_restarts_whole_when_one_pod_fails() -> None:
    here = gang()
    before = {p.uid for p in here.job.pods}
    here.world.finish(KEY, "a-trainer-1", 1)
    here.settle(3, rounds=8)
    assert here.phase() is JobPhase.RUNNING
    assert not before & {p.uid for p in here.job.pods}
    assert here.job.status is not None
    assert here.job.status.failures == 1
    assert here.told().count("Restarting") == 1


def test_a_gang_does_not_start_anew_before_the_last_pod_is_gone() -> None:
    here = gang()
    here.world.change(KEY, "a-pserver-0", terminating=True, disruption="EvictionByEvictionAPI")
    here.round(3)
    assert all(p.terminating for p in here.job.pods)
    here.world.drop(KEY, "a-trainer-0")
    here.round(3)
    assert not [a for a in here.actions if isinstance(a, CreatePod)]
    here.settle(3)
    assert here.phase() is JobPhase.RUNNING
    assert here.job.status is not None
    assert here.job.status.failures == 0, "an eviction is not charged"


def test_a_gang_whose_pod_vanished_unseen_restarts_too() -> None:
    here = gang()
    before = {p.uid for p in here.job.pods}
    here.world.drop(KEY, "a-trainer-2")
    here.settle(3, rounds=8)
    assert not before & {p.uid for p in here.job.pods}


def test_a_gang_fails_after_its_limit_of_restarts() -> None:
    here = gang(backoff_limit=1)
    for _ in range(2):
        here.world.finish(KEY, "a-trainer-1", 1)
        here.settle(3, rounds=8)
    assert here.phase() is JobPhase.FAILED
    assert {p.phase for p in here.job.pods} <= {PodPhase.FAILED}


def test_a_gang_completes_with_its_trainers_and_its_pservers_go() -> None:
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
    assert here.phase() is JobPhase.RUNNING, "nobody is started anew to finish beside those that have"


def test_trouble_makes_the_job_degraded_once() -> None:
    here = running()
    here.around = Surroundings(trouble=("Forbidden", "pods is forbidden: exceeded quota"))
    here.settle(4, rounds=3)
    assert here.job.status is not None
    degraded = here.job.status.condition("Degraded")
    assert degraded is not None
    assert (degraded.status, degraded.reason) == ("True", "Forbidden")
    assert here.told().count("Forbidden") == 1


def test_a_condition_keeps_its_time_until_it_flips() -> None:
    here = running()
    assert here.job.status is not None
    before = {c.type: c.since_s for c in here.job.status.conditions}
    here.settle(5)
    after = {c.type: c.since_s for c in here.job.status.conditions}
    for kind in ("Admitted", "Running", "Degraded", "Complete", "Failed"):
        assert after[kind] == before[kind]


def test_a_rested_job_is_not_written_to() -> None:
    here = running()
    writes = len(here.world.writes)
    here.settle(4, rounds=20)
    assert len(here.world.writes) == writes


def test_a_forged_phase_of_an_ended_job_changes_nothing() -> None:
    here = running(backoff_limit=0)
    here.world.finish(KEY, "a-trainer-0", 1)
    here.settle(4)
    assert here.job.status is not None
    here.world.add(replace(here.job, status=replace(here.job.status, phase=JobPhase.RUNNING)))
    assert is_over(here.job)


MOVES = ("fail", "succeed", "preempt", "evict", "vanish", "step", "lose")


@st.composite
def lives(draw: st.DrawFn) -> tuple[Story, list[tuple[str, int, int, bool]]]:
    minimum = draw(st.integers(1, 3))
    tolerant = draw(st.booleans())
    maximum = minimum if not tolerant else draw(st.integers(minimum, 6))
    fixed = FIXED if tolerant else FIXED[1:]
    here = story(minimum, maximum, fixed=fixed, fault_tolerant=tolerant, backoff_limit=draw(st.integers(0, 3)))
    steps = st.tuples(st.sampled_from(MOVES), st.integers(0, 7), st.integers(minimum, maximum), st.booleans())
    return here, draw(st.lists(steps, max_size=25))


def happen(here: Story, move: str, which: int) -> None:
    pods = here.job.pods
    if move == "step" or not pods:
        here.world.step()
        return
    pod = pods[which % len(pods)]
    if not pod.is_live or not pod.node:
        return
    if move == "fail":
        here.world.finish(KEY, pod.name, 1)
    elif move == "succeed" and pod.role is Role.TRAINER:
        here.world.finish(KEY, pod.name, 0)
    elif move == "preempt":
        here.world.preempt(KEY, pod.name)
    elif move == "evict":
        here.world.change(KEY, pod.name, terminating=True, disruption="EvictionByEvictionAPI", ready=False)
    elif move == "vanish":
        here.world.drop(KEY, pod.name)
    elif move == "lose":
        here.around = Surroundings(lost=frozenset({pod.uid}))


@settings(max_examples=300, deadline=None)
@given(lives())
def test_whatever_happens_the_rules_hold_and_the_job_comes_to_rest(
    life: tuple[Story, list[tuple[str, int, int, bool]]],
) -> None:
    here, moves = life
    ended: JobPhase | None = None
    for move, which, target, hold in moves:
        here.now_s += 1
        happen(here, move, which)
        outcomes = here.round(target, hold=hold)
        assert all(o.is_ok for o in outcomes), "no name is used twice, no pod taken for another"
        assert len(here.job.live_trainers) <= here.job.max_trainers
        if ended is not None:
            assert here.phase() is ended
        ended = here.phase() if here.phase().is_final else None
    here.around = Surroundings()
    target = here.job.max_trainers
    here.settle(target, rounds=15)
    writes = len(here.world.writes)
    here.settle(target, rounds=3)
    assert len(here.world.writes) == writes, "at rest nothing is written"
    if not here.phase().is_final:
        assert here.phase() is JobPhase.RUNNING


@settings(max_examples=200, deadline=None)
@given(lives())
def test_saying_it_twice_gives_the_same_status(life: tuple[Story, list[tuple[str, int, int, bool]]]) -> None:
    here, moves = life
    for move, which, target, _ in moves:
        happen(here, move, which)
        plan = decision(as_planned(here.job), target)
        first, actions = desired_state(here.job, plan, (), here.now_s, here.around)
        again, more = desired_state(replace(here.job, status=first), plan, (), here.now_s + 7, here.around)
        if not any(isinstance(a, MarkPod) for a in actions):
            assert again == first
            assert not [a for a in more if isinstance(a, PatchStatus | EmitEvent)]
        here.round(target)


def test_conditions_are_all_there_from_the_first_status_on() -> None:
    here = story()
    here.round(4)
    assert here.job.status is not None
    assert [c.type for c in here.job.status.conditions] == [
        "Admitted", "Running", "Resizing", "Degraded", "Complete", "Failed"
    ]  # fmt: skip
    assert all(c.reason and c.message for c in here.job.status.conditions)
