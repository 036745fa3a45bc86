"""A job that is stopped soon after its start waits before the next one, and longer each time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial

import pytest

from edl.controller.pauses.undone_starts import FIRST_S, LONGEST_S, UndoneStarts
from edl.explain.decision import decide
from edl.model.actions import CreatePod, ResizeWorkload
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.names import JobKey
from edl.model.plan import ScalePlan
from edl.model.quota_trees import KueueState
from edl.planner.policies.registry import policy_named
from tests.worlds.builders import make_job, make_nodes, make_snapshot
from tests.worlds.job_owner import make_batch
from tests.worlds.simulated_cluster import World
from tests.worlds.simulated_controller import Living

STARTED, STOPPED = make_batch("train", 3, low=3), make_batch("train", 0, low=3)
HALF_AN_HOUR_S = 1800


def at(job: Job) -> ClusterSnapshot:
    return make_snapshot(make_nodes(1, cpu=8), (job,))


def plan(job: Job, *, admitted: bool) -> ScalePlan:
    made = decide(at(job), policy_named("maxmin"), Limits())
    decisions = tuple(replace(d, admitted=admitted) for d in made.decisions)
    return replace(made, decisions=decisions)


def undone(starts: UndoneStarts, now_s: float, *, after_s: float, job: Job = STARTED) -> None:
    """Start the job and stop it again."""
    starts.note(at(replace(job, owner_count=0)), plan(job, admitted=True), now_s)
    starts.note(at(job), plan(job, admitted=False), now_s + after_s)


def held(starts: UndoneStarts, now_s: float, job: Job = STOPPED) -> str:
    """What keeps the job from a start; empty if nothing does."""
    (seen,) = starts.apply(at(job), now_s).jobs
    return seen.refusal.message if seen.refusal is not None else ""


def test_a_start_that_was_undone_delays_the_next_one_and_says_so() -> None:
    starts = UndoneStarts()
    undone(starts, 0.0, after_s=4.0)
    assert held(starts, 5.0) == "waits 10 s before it starts again: its last start was undone after 4 s"
    assert starts.next_end_s(5.0) == 4.0 + FIRST_S
    assert held(starts, 4.0 + FIRST_S) == ""
    (seen,) = starts.apply(at(STOPPED), 5.0).jobs
    (decision,) = decide(at(seen), policy_named("maxmin"), Limits()).decisions
    assert (decision.reason, decision.target) == ("MinUnsatisfied", 0)


def test_each_further_one_delays_twice_as_long_up_to_a_limit() -> None:
    starts, now_s, pauses = UndoneStarts(), 0.0, []
    for _ in range(10):
        undone(starts, now_s, after_s=2.0)
        pauses.append(starts.next_end_s(now_s) - now_s - 2.0)
        now_s = starts.next_end_s(now_s)
    assert pauses[:4] == [10.0, 20.0, 40.0, 80.0]
    assert pauses[-1] == LONGEST_S


def test_a_start_that_lasts_ends_it() -> None:
    starts = UndoneStarts()
    undone(starts, 0.0, after_s=2.0)
    for now_s in (20.0, 90.0):
        starts.note(at(STARTED), plan(STARTED, admitted=True), now_s)
    starts.note(at(STARTED), plan(STARTED, admitted=False), 100.0)
    assert held(starts, 100.5) == ""
    undone(starts, 200.0, after_s=2.0)
    assert starts.next_end_s(203.0) == 202.0 + FIRST_S, "the first pause again"


def test_a_new_spec_of_a_training_job_waits_for_nothing() -> None:
    starts, stopped = UndoneStarts(), make_job("train", min_trainers=3)
    starts.note(at(stopped), plan(stopped, admitted=True), 0.0)
    starts.note(at(make_job("train", trainers=3, min_trainers=3)), plan(stopped, admitted=False), 2.0)
    assert held(starts, 3.0, stopped)
    assert held(starts, 3.0, replace(stopped, generation=2)) == ""


def test_a_resize_by_edl_is_no_new_spec_of_a_workload() -> None:
    starts = UndoneStarts()
    undone(starts, 0.0, after_s=2.0)
    assert held(starts, 3.0, replace(STOPPED, generation=2))


def test_what_ran_before_and_what_never_had_pods_were_no_starts_that_were_undone() -> None:
    starts = UndoneStarts()
    starts.note(at(STARTED), plan(STARTED, admitted=False), 0.0)
    assert held(starts, 1.0) == ""
    starts.note(at(STOPPED), plan(STOPPED, admitted=True), 2.0)
    starts.note(at(STOPPED), plan(STOPPED, admitted=False), 3.0)
    assert held(starts, 4.0) == ""


def test_a_plan_without_a_decision_for_the_job_says_nothing_about_it() -> None:
    starts = UndoneStarts()
    starts.note(at(STOPPED), plan(STOPPED, admitted=True), 0.0)
    starts.note(at(STARTED), replace(plan(STARTED, admitted=True), decisions=()), 1.0)
    assert held(starts, 2.0) == ""


@pytest.fixture
def living() -> Iterator[Living]:
    with closing(Living(make_nodes(2, cpu=4))) as made:
        yield made


def play(living: Living, *, seconds: int, every_s: int) -> None:
    """A large serving pod comes and goes for a few seconds each."""
    for number in range(seconds // every_s):
        living.do(partial(World.serve, name=f"w{number}", cpu=4))
        for _ in range(5):
            living.step()
        living.do(lambda world: world.serving.clear())
        for _ in range(every_s - 5):
            living.step()


def test_a_workload_is_not_started_and_stopped_all_the_time(living: Living) -> None:
    living.do(partial(World.add, job=make_batch("train", 0, low=6, high=8)))
    living.settle()
    play(living, seconds=HALF_AN_HOUR_S, every_s=30)
    resizes = [a for a in living.world.writes if isinstance(a, ResizeWorkload)]
    assert 2 <= len(resizes) <= 20


def test_nor_is_a_training_job(living: Living) -> None:
    job = make_job("ours", min_trainers=6, max_trainers=8)
    living.do(partial(World.add, job=job))
    living.settle()
    play(living, seconds=HALF_AN_HOUR_S, every_s=30)
    made = [a for a in living.world.writes if isinstance(a, CreatePod) and a.job == JobKey("default", "ours")]
    assert 6 <= len(made) <= 20 * 8


def test_one_that_nobody_stops_is_not_held_back() -> None:
    starts = UndoneStarts()
    undone(starts, 0.0, after_s=4.0, job=replace(STARTED, keeps_minimum=True))
    assert held(starts, 5.0, replace(STOPPED, keeps_minimum=True)) == ""


def test_a_job_of_kueue_is_not_held_back_because_kueue_starts_and_stops_it() -> None:
    starts, state = UndoneStarts(), KueueState("blue", "main")
    undone(starts, 0.0, after_s=4.0, job=replace(STARTED, kueue=state))
    assert held(starts, 5.0, replace(STOPPED, kueue=state)) == ""
