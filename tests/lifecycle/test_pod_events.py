"""A job whose pods fail, vanish, are evicted and are deleted; the rules hold under any events."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl.lifecycle.desired_state import JobContext, as_planned, desired_state
from edl.lifecycle.status import is_over
from edl.model.actions import CreatePod, DeletePod, EmitEvent, MarkPod, PatchStatus
from edl.model.names import Role
from edl.model.pods import PodPhase
from edl.model.status import JobPhase, Reason, Resize
from tests.worlds.effort import examples
from tests.worlds.job_by_target import FIXED, KEY, Story, decision, gang, running, story

NO_FILE = "python: can't open file '/tmp/x/trian.py': [Errno 2] No such file or directory"
EMPTY = "its termination log is empty; see `edl logs a`"


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
    assert here.event_reasons().count("PodFailed") == 1


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


def test_a_failed_pserver_is_replaced_under_the_same_name() -> None:
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
def test_evictions_and_our_own_deletions_are_not_failures(fields: dict[str, str]) -> None:
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
    assert here.event_reasons()[-1] == "PodFailed"
    assert "Failed" in here.event_reasons()


def test_a_job_with_too_many_failures_reports_how_its_pods_failed() -> None:
    here = running(backoff_limit=0)
    here.world.change(KEY, "a-trainer-1", container_message="Loading\nSegmentation Fault\n")
    here.world.finish(KEY, "a-trainer-1", 139)
    here.settle(4)
    assert here.job.status is not None
    failed = here.job.status.condition("Failed")
    assert failed is not None
    assert failed.message == (
        "the job had 1 pod failure, more than spec.backoffLimit 0: a-trainer-1 exited with code 139 (Segmentation"
        " Fault); `edl logs a` shows more"
    )


@pytest.mark.parametrize(("role", "command"), [("trainer", "edl logs a"), ("pserver", "edl logs a --role pserver")])
def test_a_job_whose_pod_left_no_line_names_the_command_that_shows_its_log_once(role: str, command: str) -> None:
    here = running(backoff_limit=0)
    here.world.finish(KEY, f"a-{role}-1", 3)
    here.settle(4)
    assert here.job.status is not None
    failed = here.job.status.condition("Failed")
    assert failed is not None
    assert failed.message.endswith(f" (its termination log is empty; see `{command}`)")


@pytest.mark.parametrize(
    ("message", "code", "shown"),
    [
        ("the file /data/b is missing\nGeneral Error\n", 1, "1 (the file /data/b is missing)"),
        (
            "Traceback:\nValueError: my own bug\nthe entrypoint exited with code 1: General Error\n",
            1,
            "1 (ValueError: m",
        ),
        (f"{NO_FILE}\n \nthe entrypoint exited with code 2\n", 2, f"2 ({NO_FILE})"),
        ("waiting for 1 running pod (selector a)\nthe entrypoint exited with code 3\n", 3, f"3 ({EMPTY})"),
        ("General Error\n", 1, f"1 (General Error; {EMPTY})"),
        ("", 3, f"3 ({EMPTY})"),
        ("", 127, f"127 (Entrypoint Not Found; {EMPTY})"),
        ("", 143, "143 (killed by signal 15)"),
        ("step 9\n", 137, "137 (Killed: out of memory, or still running at the end of the grace period)"),
        ("bad\n", 134, "134 (killed by signal 6; its last line: bad)"),
        ("Segmentation Fault\n", 139, "139 (Segmentation Fault)"),
        (f"KeyError: {'x' * 300} is missing\n", 1, f"1 (KeyError: {'x' * 87}...{'x' * 89} is missing)"),
        ("Killed\nOOMKilled: raise limits.memory\n", 137, "137 (OOMKilled: raise limits.memory)"),
    ],
)
def test_a_failure_is_reported_with_the_words_that_say_most(message: str, code: int, shown: str) -> None:
    here = running()
    here.world.change(KEY, "a-trainer-1", container_message=message)
    here.world.finish(KEY, "a-trainer-1", code)
    here.settle(4)
    (event,) = [e for e in here.world.events if e.reason == "PodFailed"]
    assert f"a-trainer-1 exited with code {shown}" in event.message
    assert event.message.endswith("; 1 pod failure so far, spec.backoffLimit is 6")


def test_a_pod_that_cannot_start_makes_the_job_degraded_until_it_can() -> None:
    here = running()
    here.world.change(
        KEY, "a-trainer-1", phase=PodPhase.PENDING, ready=False, container_message="its image cannot be pulled"
    )
    here.round(4)
    assert here.job.status is not None
    degraded = here.job.status.condition("Degraded")
    assert degraded is not None
    assert (degraded.status, degraded.reason) == ("True", "PodCannotStart")
    assert degraded.message == "a-trainer-1 cannot start: its image cannot be pulled"
    here.world.change(KEY, "a-trainer-1", phase=PodPhase.RUNNING, ready=True, container_message="")
    here.settle(4)
    degraded = here.job.status.condition("Degraded")
    assert degraded is not None
    assert degraded.status == "False"


def test_the_status_of_a_job_at_its_maximum_names_what_keeps_a_pod_from_starting() -> None:
    here = running(target=6)

    def reasons(reason: Reason = Reason.AT_MAX, *, hold: bool = False) -> tuple[str, str]:
        here.round(6, reason=reason, hold=hold)
        status = here.job.status
        assert status is not None
        admitted = status.condition("Admitted")
        assert admitted is not None
        return status.reason, admitted.reason

    assert reasons() == ("AtMax", "AtMax")
    why = "its image cannot be pulled"
    here.world.change(KEY, "a-trainer-1", phase=PodPhase.PENDING, ready=False, container_message=why)
    assert reasons() == ("PodCannotStart", "AtMax")
    assert reasons(hold=True) == ("PodCannotStart", "AtMax")
    assert reasons(Reason.INSUFFICIENT_CAPACITY) == ("PodCannotStart", "InsufficientCapacity"), (
        "capacity would not help"
    )
    assert reasons(Reason.QUOTA_REACHED) == ("QuotaReached", "QuotaReached"), "what limits the count is named first"
    assert reasons() == ("PodCannotStart", "AtMax")
    here.world.change(KEY, "a-trainer-1", phase=PodPhase.RUNNING, ready=True, container_message="")
    assert reasons(hold=True) == ("AtMax", "AtMax"), "also without a new plan"


def test_the_deadline_ends_the_job() -> None:
    here = running(active_deadline_s=100)
    here.now_s += 200
    here.settle(4, rounds=2)
    assert here.phase() is JobPhase.FAILED
    assert here.job.status is not None
    assert here.job.status.reason == "DeadlineExceeded"
    assert not here.names


def test_the_last_trainer_lost_before_it_finished_is_replaced_even_much_later() -> None:
    here = running(min_trainers=1, target=2)
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


def test_preemption_by_kube_scheduler_is_a_resize_for_serving_and_reported_once() -> None:
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
    assert here.event_reasons().count("Preempted") == 1
    assert "ScaledDown" not in here.event_reasons()


def test_unreachable_pods_are_deleted_by_force() -> None:
    here = running()
    here.world.change(KEY, "a-trainer-1", terminating=True)
    uid = here.world.pods(KEY)["a-trainer-1"].uid
    here.context = JobContext(unreachable=frozenset({uid}))
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
    assert here.event_reasons().count("Restarting") == 1


def test_a_gang_does_not_restart_before_its_last_pod_is_gone() -> None:
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
    assert here.job.status.failures == 0, "an eviction is not a failure"


def test_a_gang_whose_pod_vanished_restarts_too() -> None:
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


def test_a_refusal_makes_the_job_degraded_and_is_reported_once() -> None:
    here = running()
    here.context = JobContext(degraded=("Forbidden", "pods is forbidden: exceeded quota"))
    here.settle(4, rounds=3)
    assert here.job.status is not None
    degraded = here.job.status.condition("Degraded")
    assert degraded is not None
    assert (degraded.status, degraded.reason) == ("True", "Forbidden")
    assert here.event_reasons().count("Forbidden") == 1


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
    min_trainers = draw(st.integers(1, 3))
    tolerant = draw(st.booleans())
    max_trainers = min_trainers if not tolerant else draw(st.integers(min_trainers, 6))
    fixed = FIXED if tolerant else FIXED[1:]
    here = story(
        min_trainers, max_trainers, fixed=fixed, fault_tolerant=tolerant, backoff_limit=draw(st.integers(0, 3))
    )
    steps = st.tuples(
        st.sampled_from(MOVES), st.integers(0, 7), st.integers(min_trainers, max_trainers), st.booleans()
    )
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
        here.context = JobContext(unreachable=frozenset({pod.uid}))


@examples(300)
@given(lives())
def test_under_any_events_the_rules_hold_and_the_job_settles(
    life: tuple[Story, list[tuple[str, int, int, bool]]],
) -> None:
    here, moves = life
    ended: JobPhase | None = None
    for move, which, target, hold in moves:
        here.now_s += 1
        happen(here, move, which)
        outcomes = here.round(target, hold=hold)
        assert all(o.is_ok for o in outcomes), "no name is used twice, and no pod is confused with another"
        assert len(here.job.live_trainers) <= here.job.max_trainers
        if ended is not None:
            assert here.phase() is ended
        ended = here.phase() if here.phase().is_final else None
    here.context = JobContext()
    target = here.job.max_trainers
    here.settle(target, rounds=15)
    writes = len(here.world.writes)
    here.settle(target, rounds=3)
    assert len(here.world.writes) == writes, "a settled job is not written"
    if not here.phase().is_final:
        assert here.phase() is JobPhase.RUNNING


@examples(200)
@given(lives())
def test_the_same_round_twice_gives_the_same_status(life: tuple[Story, list[tuple[str, int, int, bool]]]) -> None:
    here, moves = life
    for move, which, target, _ in moves:
        happen(here, move, which)
        plan = decision(as_planned(here.job), target)
        first, actions = desired_state(here.job, plan, (), here.now_s, here.context)
        again, more = desired_state(replace(here.job, status=first), plan, (), here.now_s + 7, here.context)
        if not any(isinstance(a, MarkPod) for a in actions):
            assert again == first
            assert not [a for a in more if isinstance(a, PatchStatus | EmitEvent)]
        here.round(target)
