"""The sentences that users read."""

from __future__ import annotations

from edl.core.model import FixedPods, Job, Reason, Role
from tests.core.worlds import (
    decision_of,
    make_job,
    make_node,
    make_nodes,
    make_serving,
    make_shape,
    make_snapshot,
    plan_for,
    with_pods,
)


def message_of(name: str, *jobs: Job, cores: int = 8) -> str:
    world = make_snapshot(make_nodes(1, cpu=cores), jobs)
    return decision_of(plan_for(world), name).message


def test_a_job_at_its_maximum_says_so() -> None:
    assert message_of("a", make_job("a", maximum=6)) == "6 of 6: at its maximum"


def test_a_job_that_is_held_by_a_resource_says_which_and_who_has_it() -> None:
    message = message_of("a", make_job("a", maximum=6), make_job("b", maximum=6))
    assert message == (
        "4 of 6: cpu is full on every node that takes its trainers (1 of 1); default/b holds 3 above its minimum"
    )


def test_a_job_that_has_all_there_is_says_so() -> None:
    assert message_of("a", make_job("a", maximum=60)) == "8 of 60: no more would fit even if no other job ran"


def test_a_pinned_job_says_so() -> None:
    assert message_of("a", make_job("a", pinned=4)) == "4 of 10: pinned to 4 trainers"


def test_a_waiting_job_says_what_it_needs_in_cores_and_gib() -> None:
    fixed = (FixedPods(Role.PSERVER, make_shape(1.5, 2), 2), FixedPods(Role.MASTER, make_shape(0.25, 0.25), 1))
    running = make_job("r", trainers=6, minimum=6, on=("n000",))
    message = message_of("a", running, make_job("a", minimum=2, fixed=fixed))
    assert message == (
        "waits for room: needs 2 trainers, 1 master and 2 pservers (5.25 cores, 6.25 GiB of memory in all)"
    )


def test_a_job_that_gives_way_says_for_what() -> None:
    world = make_snapshot(make_nodes(1), (make_job("a", trainers=8, maximum=9, on=("n000",)),))
    decision = decision_of(plan_for(with_pods(world, make_serving("s", cpu=3))), "a")
    assert decision.message == "5 of 9: gives up 3 trainers to make room for 1 serving pod"


def test_an_unschedulable_job_names_the_pod_the_resource_and_the_largest_node() -> None:
    fixed = (FixedPods(Role.PSERVER, make_shape(2, 64), 1),)
    world = make_snapshot((make_node("n0", 8, 32), make_node("n1", 8, 48)), (make_job("a", fixed=fixed),))
    decision = decision_of(plan_for(world), "a")
    assert decision.reason is Reason.UNSCHEDULABLE
    assert (
        "one pserver asks for 64 GiB of memory, and no node that takes it has more than 48 GiB of memory"
        in decision.message
    )


def test_a_job_whose_pods_fit_only_one_by_one_says_so() -> None:
    message = message_of("a", make_job("a", minimum=9))
    assert "not all of them together" in message


def test_a_job_that_no_node_takes_says_so() -> None:
    world = make_snapshot((make_node("n0", ready=False),), (make_job("a"),))
    assert "no node takes its trainers" in decision_of(plan_for(world), "a").message


def test_trainers_that_make_way_for_an_arrival_die_of_its_admission() -> None:
    running = make_job("a", trainers=8, maximum=8, on=("n000",))
    plan = plan_for(make_snapshot(make_nodes(1), (running, make_job("b", maximum=8))))
    assert decision_of(plan, "a").victims
    assert decision_of(plan, "a").shrink_reason == Reason.ADMITTED


def test_trainers_above_a_lowered_maximum_die_of_that_even_while_a_job_arrives() -> None:
    running = make_job("a", trainers=4, maximum=2, on=("n000",))
    plan = plan_for(make_snapshot(make_nodes(1), (running, make_job("b", maximum=2))))
    assert decision_of(plan, "a").shrink_reason == Reason.AT_MAX


def test_amounts_beyond_all_machines_are_no_room_however_many_ask() -> None:
    limit_gib = (2**63 - 1) / 2**30 - 1
    for minimum in (1, 2, 3, 10):
        huge = make_job("a", minimum=minimum, maximum=10_000, memory_gib=limit_gib)
        decision = decision_of(plan_for(make_snapshot(make_nodes(3), (huge,))), "a")
        assert decision.reason is Reason.UNSCHEDULABLE
        assert "8 EiB of memory" in decision.message
