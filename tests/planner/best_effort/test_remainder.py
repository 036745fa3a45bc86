"""Trainers that request neither cpu nor memory: they count as one pod each, and give way first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from edl.explain.decision import decide
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.limits import Limits, Quota, ServingLimits
from edl.model.names import JobKey
from edl.model.plan import ScaleDecision, ScalePlan
from edl.model.resources import QosClass
from edl.model.status import Condition, JobStatus, Reason, Resize
from edl.planner.policies.registry import policy_named
from tests.worlds.builders import make_job, make_node, make_serving, make_snapshot


def free_rider(name: str, **fields: Any) -> Job:
    """A job whose trainers request nothing."""
    return replace(make_job(name, cpu=0, memory_gib=0, **fields), qos=QosClass.BEST_EFFORT)


def plan_of(snapshot: ClusterSnapshot, limits: Limits | None = None) -> ScalePlan:
    return decide(snapshot, policy_named(""), limits or Limits())


def of(plan: ScalePlan, name: str) -> ScaleDecision:
    found = plan.decision(JobKey("default", name))
    assert found is not None
    return found


def test_counts_as_one_pod_and_takes_what_the_others_leave() -> None:
    nodes = (make_node("n1", 4, pods=6), make_node("n2", 4, pods=6))
    plan = plan_of(make_snapshot(nodes, (free_rider("a", max_trainers=20), make_job("b"))))
    assert (of(plan, "b").target, of(plan, "b").reason) == (8, Reason.INSUFFICIENT_CAPACITY)
    assert (of(plan, "a").target, of(plan, "a").reason) == (4, Reason.INSUFFICIENT_CAPACITY)
    assert of(plan, "a").message.startswith("4 of 20: the number of pods is full on all 2 nodes")


def test_its_surplus_goes_before_a_trainer_with_requests_when_serving_needs_a_pod() -> None:
    nodes = (make_node("n1", 8, pods=6),)
    running = free_rider("a", trainers=3, on=("n1",)), make_job("b", trainers=3, on=("n1",), max_trainers=3)
    plan = plan_of(make_snapshot(nodes, running, (make_serving("s", cpu=1),)))
    assert (of(plan, "b").target, of(plan, "b").victims) == (3, ())
    assert (of(plan, "a").target, of(plan, "a").victims) == (2, ("a-trainer-2",))
    assert of(plan, "a").shrink_reason == Reason.SERVING_NEEDS_ROOM
    assert of(plan, "a").message == "2 of 10: yields 1 trainer to serving"
    assert plan.serving.placed == 1


def test_its_surplus_makes_room_for_the_minimum_of_a_new_job_and_says_for_whom() -> None:
    running = free_rider("a", trainers=6, on=("n1",))
    plan = plan_of(make_snapshot((make_node("n1", 8, pods=6),), (running, make_job("b", min_trainers=2))))
    assert of(plan, "b").admitted
    assert of(plan, "a").shrink_reason == Reason.ADMITTED
    assert of(plan, "a").message.startswith(f"{of(plan, 'a').target} of 10: yields")
    assert "default/b" in of(plan, "a").message
    assert (of(plan, "a").target, of(plan, "b").target) == (1, 5)


def test_its_minimum_waits_behind_every_job_with_requests_whatever_its_priority() -> None:
    running = free_rider("a", trainers=4, on=("n1",), min_trainers=4, tier=9, age_s=500.0)
    whole = replace(running, status=JobStatus(conditions=(Condition("Admitted", "True", "Admitted", "", 0.0),)))
    plan = plan_of(make_snapshot((make_node("n1", 8, pods=5),), (whole, make_job("b", min_trainers=2, tier=-5))))
    assert of(plan, "b").admitted
    assert not of(plan, "a").admitted
    assert len(of(plan, "a").victims) == 4


def test_a_trainer_that_need_not_go_stays_where_it_is() -> None:
    nodes = (make_node("n1", 8, pods=4), make_node("n2", 8, pods=4))
    running = free_rider("a", trainers=3, on=("n1",), max_trainers=3)
    plan = plan_of(make_snapshot(nodes, (running, make_job("b", min_trainers=4, max_trainers=4))))
    assert (of(plan, "a").target, of(plan, "a").victims) == (3, ())
    assert dict(of(plan, "b").nodes) == {"n2": 4}


def test_a_running_trainer_takes_the_place_of_one_that_must_leave_its_node() -> None:
    """The trainer of the minimum goes, the surplus elsewhere stays: nobody is started for it."""
    nodes = (make_node("n1", 8, pods=2), make_node("n2", 1, pods=4))
    running = free_rider("a", trainers=4, on=("n1", "n2"), min_trainers=1, max_trainers=4)
    plan = plan_of(make_snapshot(nodes, (running,), (make_serving("s", cpu=3), make_serving("t", cpu=3))))
    assert plan.serving.placed == 2
    assert set(of(plan, "a").victims) == {"a-trainer-0", "a-trainer-2"}
    assert dict(of(plan, "a").nodes) in ({}, {"n2": 2})


def test_no_trainer_goes_for_room_that_is_only_kept() -> None:
    running = free_rider("a", trainers=4, on=("n1",), max_trainers=4)
    serving = make_serving("s", cpu=1, node="n1")
    plan = plan_of(
        make_snapshot((make_node("n1", 8, pods=5),), (running,), (serving,)),
        Limits(serving=ServingLimits(headroom=2)),
    )
    assert (of(plan, "a").target, of(plan, "a").victims) == (4, ())


def test_it_starts_none_in_room_that_is_kept() -> None:
    running = free_rider("a", trainers=1, on=("n1",), max_trainers=9)
    serving = make_serving("s", cpu=1, node="n1")
    plan = plan_of(
        make_snapshot((make_node("n1", 8, pods=6),), (running,), (serving,)),
        Limits(serving=ServingLimits(headroom=2)),
    )
    assert of(plan, "a").target == 3


def test_it_does_not_grow_at_once_after_it_yielded_to_serving() -> None:
    status = JobStatus(last_resize=Resize(990.0, 5, 2, Reason.SERVING_NEEDS_ROOM.value))
    running = replace(free_rider("a", trainers=2, on=("n1",), max_trainers=5), status=status)
    plan = plan_of(make_snapshot((make_node("n1", 8),), (running,)))
    assert (of(plan, "a").target, of(plan, "a").reason) == (2, Reason.COOLDOWN)


def test_quotas_of_pods_count_and_jobs_with_requests_have_them_first() -> None:
    running = free_rider("a", trainers=5, on=("n1",))
    limits = Limits(quotas=(Quota("default", (("pods", 6),), best_effort=True),))
    plan = plan_of(make_snapshot((make_node("n1"),), (running, make_job("b", max_trainers=4))), limits)
    assert (of(plan, "b").target, of(plan, "a").target) == (4, 2)
    assert of(plan, "a").reason == Reason.QUOTA_REACHED


def test_two_of_them_share_what_is_left_and_a_running_one_gives_within_the_dead_band() -> None:
    running = free_rider("a", trainers=10, on=("n1",), max_trainers=10)
    plan = plan_of(make_snapshot((make_node("n1", 8, pods=10),), (running, free_rider("b"))))
    assert (of(plan, "a").target, of(plan, "b").target) == (5, 5)
    cooling = JobStatus(last_resize=Resize(990.0, 11, 10, "InsufficientCapacity", voluntary_s=990.0))
    held = replace(running, status=cooling)
    plan = plan_of(make_snapshot((make_node("n1", 8, pods=10),), (held, free_rider("b"))))
    assert (of(plan, "a").target, of(plan, "b").target) == (9, 1)


def test_a_pinned_one_and_one_beyond_its_maximum_end_with_their_number() -> None:
    pinned = free_rider("a", trainers=5, on=("n1",), pinned=3)
    large = free_rider("b", trainers=5, on=("n1",), max_trainers=2)
    plan = plan_of(make_snapshot((make_node("n1"),), (pinned, large)))
    assert (of(plan, "a").target, of(plan, "a").reason) == (3, Reason.PINNED)
    assert (of(plan, "b").target, of(plan, "b").reason) == (2, Reason.AT_MAX)


def test_an_unbound_trainer_keeps_its_planned_node() -> None:
    job = free_rider("a", trainers=3, on=("n1",), max_trainers=3)
    pods = tuple(replace(p, node="", planned="n2") if p.index == 2 else p for p in job.pods)
    nodes = (make_node("n1", pods=9), make_node("n2", pods=2))
    plan = plan_of(make_snapshot(nodes, (replace(job, pods=pods), make_job("b", max_trainers=2))))
    assert (of(plan, "a").target, of(plan, "a").victims, of(plan, "a").nodes) == (3, (), ())


def test_a_trainer_that_goes_for_a_job_while_serving_is_in_its_grace_goes_for_the_job() -> None:
    running = free_rider("a", trainers=6, on=("n1",))
    jobs = (running, make_job("b", min_trainers=2, max_trainers=2))
    limits = Limits(serving=ServingLimits(grace_s=60.0))
    plan = plan_of(make_snapshot((make_node("n1", 8, pods=6),), jobs, (make_serving("s", cpu=1),)), limits)
    assert (of(plan, "a").target, of(plan, "a").shrink_reason) == (4, Reason.ADMITTED)
    assert of(plan, "a").message.startswith("4 of 10: yields 2 trainers to default/b")
