"""What a plan does in the situations that matter, one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edl.core.model import (
    PODS,
    ClusterSnapshot,
    Condition,
    FixedPods,
    Job,
    JobStatus,
    Node,
    PodPhase,
    Reason,
    Resize,
    Resources,
    Role,
)
from edl.core.plan import Limits, ScalePlan
from edl.core.policy import POLICIES, policy_named
from edl.errors import ConfigError, PlanError
from tests.core.worlds import (
    apply_plan,
    decision_of,
    later,
    make_job,
    make_node,
    make_nodes,
    make_resources,
    make_serving,
    make_shape,
    make_snapshot,
    plan_for,
    targets,
    victims,
    with_jobs,
    with_pods,
)

RESERVED = make_resources(0.38)


def nodes_of_2017() -> tuple[Node, ...]:
    """The surrogate of the 133 nodes of the 2017 experiment: 69 of 12 cores, 63 of 24, 1 of 8."""
    sizes = [12] * 69 + [24] * 63 + [8]
    nodes = (make_node(f"n{i:03d}", cpu, 8 * cpu) for i, cpu in enumerate(sizes))
    return tuple(replace(node, reserved=RESERVED) for node in nodes)


def job_of_2017(name: str, created_s: float = 0.0) -> Job:
    fixed = (FixedPods(Role.PSERVER, make_shape(4, 5), 10), FixedPods(Role.MASTER, make_shape(1, 1), 1))
    job = make_job(name, minimum=2, maximum=60, cpu=5, memory_gib=8, fixed=fixed)
    return replace(job, created_s=created_s)


def jain(plan: ScalePlan) -> float:
    shares = [(d.target - d.minimum) / (d.maximum - d.minimum) for d in plan.decisions]
    return sum(shares) ** 2 / (len(shares) * sum(share**2 for share in shares))


def with_status(job: Job, *, resize: Resize | None = None, admitted: bool | None = None, since_s: float = 0.0) -> Job:
    word = {True: "True", False: "False"}
    conditions = () if admitted is None else (Condition("Admitted", word[admitted], "", "", since_s),)
    return replace(job, status=JobStatus(conditions=conditions, last_resize=resize, start_s=1.0))


# The experiment of 2017


def test_twenty_jobs_reach_the_integer_optimum_of_the_2017_cluster() -> None:
    plan = plan_for(make_snapshot(nodes_of_2017(), tuple(job_of_2017(f"j{i:02d}") for i in range(20))))
    assert sum(targets(plan).values()) == 254
    assert set(targets(plan).values()) == {12, 13}
    assert plan.certificate.gap < 1e-6


def test_jobs_that_arrive_one_by_one_reach_it_too_and_share_fairly() -> None:
    world = make_snapshot(nodes_of_2017())
    for i in range(20):
        world = with_jobs(world, job_of_2017(f"j{i:02d}", world.observed_at_s))
        plan = plan_for(world)
        assert jain(plan) >= 0.95
        world = later(apply_plan(world, plan), 10)
    assert sum(targets(plan).values()) >= 252
    assert victims(plan_for(world)) == []


# Serving


def two_full_nodes() -> ClusterSnapshot:
    """8 trainers of one core on each of two nodes."""
    return make_snapshot(make_nodes(2), (make_job("a", trainers=16, maximum=16, on=("n000", "n001")),))


def test_the_fewest_trainers_die_and_all_on_one_node() -> None:
    plan = plan_for(with_pods(two_full_nodes(), make_serving("s", cpu=3)))
    dead = set(victims(plan))
    assert len(dead) == 3
    assert len({p.node for p in two_full_nodes().jobs[0].pods if p.name in dead}) == 1
    assert decision_of(plan, "a").reason is Reason.SERVING_NEEDS_ROOM
    assert decision_of(plan, "a").shrink_reason == Reason.SERVING_NEEDS_ROOM
    assert (plan.serving.waiting, plan.serving.placed, plan.serving.short) == (1, 1, 0)


def test_a_death_that_makes_room_for_two_is_preferred() -> None:
    big = make_job("big", trainers=1, cpu=6, on=("n000",), minimum=0)
    small = make_job("small", trainers=2, cpu=4, on=("n001",), minimum=0)
    plan = plan_for(with_pods(make_snapshot(make_nodes(2), (big, small)), *(make_serving(f"s{i}") for i in range(2))))
    assert victims(plan) == ["big-trainer-0"]


def test_nobody_dies_for_serving_that_fits_into_free_room() -> None:
    world = make_snapshot(make_nodes(2), (make_job("a", trainers=8, maximum=16, on=("n000",)),))
    plan = plan_for(with_pods(world, make_serving("s", cpu=3)))
    assert victims(plan) == []
    assert targets(plan) == {"a": 13}


def test_nobody_dies_for_a_nominated_pod_and_its_room_is_not_given_away() -> None:
    world = make_snapshot(make_nodes(1), (make_job("a", trainers=4, maximum=8, on=("n000",)),))
    plan = plan_for(with_pods(world, make_serving("s", cpu=3, nominated="n000")))
    assert victims(plan) == []
    assert targets(plan) == {"a": 5}
    assert plan.serving.waiting == 0


def test_nobody_dies_twice_while_kube_scheduler_preempts_for_a_nominated_pod() -> None:
    plan = plan_for(with_pods(two_full_nodes(), make_serving("s", cpu=3, nominated="n000")))
    assert victims(plan) == []


def test_nobody_dies_for_serving_that_no_empty_node_could_hold() -> None:
    plan = plan_for(with_pods(two_full_nodes(), make_serving("s", cpu=9)))
    assert victims(plan) == []
    assert (plan.serving.waiting, plan.serving.placed, plan.serving.short) == (1, 0, 1)


def test_pods_of_negative_priority_and_gated_ones_do_not_count_as_serving() -> None:
    low = replace(make_serving("low", cpu=3), priority=-1)
    gated = replace(make_serving("gated", cpu=3), gated=True)
    plan = plan_for(with_pods(two_full_nodes(), low, gated))
    assert victims(plan) == []
    assert plan.serving.waiting == 0


def test_a_young_serving_pod_kills_nobody_until_kube_scheduler_has_tried() -> None:
    limits = Limits(serving_grace_s=30.0)
    young = make_serving("s", cpu=3)
    assert victims(plan_for(with_pods(two_full_nodes(), young), limits)) == []
    assert len(victims(plan_for(with_pods(two_full_nodes(), replace(young, tried=True)), limits))) == 3
    assert len(victims(plan_for(later(with_pods(two_full_nodes(), young), 20), limits))) == 3


def test_a_young_serving_pod_keeps_free_room_from_growth() -> None:
    world = make_snapshot(make_nodes(1), (make_job("a", trainers=2, on=("n000",)),))
    plan = plan_for(with_pods(world, make_serving("s", cpu=3)), Limits(serving_grace_s=30.0))
    assert targets(plan) == {"a": 5}
    assert plan.serving.placed == 1


def test_the_best_off_job_gives_way_among_equal_counts() -> None:
    jobs = (
        make_job("poor", trainers=3, maximum=10, on=("n000",)),
        make_job("rich", trainers=5, maximum=10, on=("n000",)),
    )
    plan = plan_for(with_pods(make_snapshot(make_nodes(1), jobs), make_serving("s", cpu=2)))
    assert targets(plan) == {"poor": 3, "rich": 3}


def test_pods_not_yet_running_die_first_then_the_highest_index() -> None:
    job = make_job("a", trainers=8, maximum=8, on=("n000",))
    starting = tuple(replace(p, phase=PodPhase.PENDING) if p.index == 3 else p for p in job.pods)
    world = make_snapshot(make_nodes(1), (replace(job, pods=starting),))
    plan = plan_for(with_pods(world, make_serving("s", cpu=2)))
    assert victims(plan) == ["a-trainer-3", "a-trainer-7"]


def test_when_serving_eats_all_surplus_the_youngest_job_of_the_lowest_tier_goes_whole() -> None:
    jobs = (
        make_job("old", trainers=2, minimum=2, cpu=2, on=("n000",), age_s=50),
        make_job("young", trainers=2, minimum=2, cpu=2, on=("n000",), age_s=10),
        make_job("high", trainers=2, minimum=2, cpu=2, on=("n000",), age_s=1, tier=1),
    )
    world = make_snapshot(make_nodes(1, cpu=12), jobs)
    plan = plan_for(with_pods(world, make_serving("s", cpu=3)))
    assert {d.job.name for d in plan.decisions if d.admitted} == {"old", "high"}
    assert sorted(victims(plan)) == ["young-trainer-0", "young-trainer-1"]
    assert decision_of(plan, "young").reason is Reason.SERVING_NEEDS_ROOM


def test_a_minimum_moves_elsewhere_rather_than_keep_serving_waiting() -> None:
    selected = make_node("n0", 4, labels={"pool": "web"})
    world = make_snapshot((selected, make_node("n1", 4)), (make_job("a", trainers=4, minimum=4, on=("n0",)),))
    pod = make_serving("s", cpu=2)
    shape = replace(pod.shape, placement=replace(pod.shape.placement, node_selector=(("pool", "web"),)))
    plan = plan_for(with_pods(world, replace(pod, shape=shape)))
    decision = decision_of(plan, "a")
    assert len(decision.victims) == 2
    assert decision.target >= 4
    assert dict(decision.nodes)["n1"] >= 2


# Admission


def test_older_jobs_come_first_and_higher_tiers_before_them() -> None:
    jobs = [
        make_job(name, minimum=4, age_s=age, tier=tier) for name, age, tier in (("a", 9, 0), ("b", 5, 0), ("c", 1, 1))
    ]
    plan = plan_for(make_snapshot(make_nodes(1), tuple(jobs)))
    assert {d.job.name for d in plan.decisions if d.admitted} == {"a", "c"}
    assert decision_of(plan, "b").reason is Reason.MIN_UNSATISFIED


def test_a_younger_job_passes_a_head_that_does_not_fit_until_the_head_has_waited() -> None:
    running = make_job("r", trainers=4, minimum=4, maximum=4, on=("n000",), age_s=900)
    head, small = make_job("head", minimum=6, age_s=500), make_job("small", minimum=2, age_s=1)
    world = make_snapshot(make_nodes(1), (running, head, small))
    assert decision_of(plan_for(world), "small").admitted
    waited = plan_for(later(world, 200))
    assert not decision_of(waited, "small").admitted
    assert "behind default/head" in decision_of(waited, "small").message


def test_the_wait_of_a_head_counts_from_its_un_admission() -> None:
    running = make_job("r", trainers=4, minimum=4, maximum=4, on=("n000",), age_s=9000)
    head = with_status(make_job("head", minimum=6, age_s=8000), admitted=False, since_s=900)
    world = make_snapshot(make_nodes(1), (running, head, make_job("small", minimum=2, age_s=1)))
    assert decision_of(plan_for(world), "small").admitted


def test_a_job_that_could_never_fit_says_what_is_missing_and_holds_nobody_back() -> None:
    world = make_snapshot(make_nodes(2), (make_job("huge", cpu=9, age_s=5000), make_job("a", minimum=2, maximum=2)))
    plan = plan_for(world)
    decision = decision_of(plan, "huge")
    assert decision.reason is Reason.UNSCHEDULABLE
    assert "9 cores" in decision.message
    assert "8 cores" in decision.message
    assert decision_of(plan, "a").admitted


def test_a_waiting_job_takes_surplus_but_never_the_place_of_an_equal() -> None:
    running = make_job("r", trainers=8, minimum=6, maximum=8, on=("n000",), age_s=10)
    fits = plan_for(make_snapshot(make_nodes(1), (running, make_job("new", minimum=2, maximum=2, age_s=900))))
    assert targets(fits) == {"new": 2, "r": 6}
    waits = plan_for(make_snapshot(make_nodes(1), (running, make_job("new", minimum=3, age_s=900))))
    assert targets(waits) == {"new": 0, "r": 8}


def test_a_higher_tier_takes_the_place_of_a_lower_one() -> None:
    running = make_job("r", trainers=8, minimum=6, maximum=8, on=("n000",), age_s=10)
    plan = plan_for(make_snapshot(make_nodes(1), (running, make_job("new", minimum=3, maximum=3, tier=1))))
    assert targets(plan) == {"new": 3, "r": 0}
    assert len(decision_of(plan, "r").victims) == 8


def test_a_job_needs_all_of_its_fixed_pods() -> None:
    fixed = (FixedPods(Role.PSERVER, make_shape(4), 2), FixedPods(Role.MASTER, make_shape(1), 1))
    job = make_job("a", minimum=1, maximum=9, fixed=fixed)
    assert not decision_of(plan_for(make_snapshot(make_nodes(1), (job,))), "a").admitted
    plan = plan_for(make_snapshot(make_nodes(2), (job,)))
    assert decision_of(plan, "a").target == 7
    assert sorted(role for role, _ in decision_of(plan, "a").fixed_nodes) == [Role.MASTER, Role.PSERVER, Role.PSERVER]


def test_a_job_below_its_minimum_is_raised_to_it_from_the_surplus_of_others() -> None:
    jobs = (
        make_job("low", trainers=1, minimum=3, maximum=3, on=("n000",)),
        make_job("rich", trainers=7, minimum=1, maximum=8, on=("n000",)),
    )
    plan = plan_for(make_snapshot(make_nodes(1), jobs))
    assert targets(plan) == {"low": 3, "rich": 5}


def test_a_job_below_its_minimum_goes_whole_where_nobody_has_surplus() -> None:
    jobs = (
        make_job("low", trainers=2, minimum=3, maximum=3, on=("n000",), age_s=100),
        make_job("whole", trainers=6, minimum=6, maximum=6, on=("n000",)),
    )
    plan = plan_for(make_snapshot(make_nodes(1), jobs))
    assert targets(plan) == {"low": 0, "whole": 6}
    assert len(decision_of(plan, "low").victims) == 2


# Jobs that get nothing, and jobs that get a number


def test_invalid_suspended_finished_and_deleted_jobs_get_nothing_and_the_rest_is_planned() -> None:
    running = make_job("d", trainers=2, on=("n000",))
    jobs = (
        replace(make_job("a"), problem="min-instance 4 exceeds max-instance 2"),
        replace(make_job("b", trainers=1, on=("n000",)), suspended=True),
        replace(make_job("c", trainers=1, on=("n000",)), finished=True),
        replace(running, deleting=True),
        make_job("e", maximum=3),
    )
    plan = plan_for(make_snapshot(make_nodes(1), jobs))
    assert targets(plan) == {"a": 0, "b": 0, "c": 0, "d": 0, "e": 3}
    assert [d.reason for d in plan.decisions] == [
        Reason.INVALID_SPEC,
        Reason.SUSPENDED,
        Reason.FINISHED,
        Reason.FINISHED,
        Reason.AT_MAX,
    ]
    assert decision_of(plan, "a").message == "min-instance 4 exceeds max-instance 2"
    assert decision_of(plan, "b").victims == ("b-trainer-0",)
    assert decision_of(plan, "d").victims == ("d-trainer-0", "d-trainer-1")


def test_finished_pods_of_a_finished_job_are_no_victims() -> None:
    job = make_job("a", trainers=2, on=("n000",))
    pods = (replace(job.pods[0], phase=PodPhase.SUCCEEDED), job.pods[1])
    plan = plan_for(make_snapshot(make_nodes(1), (replace(job, pods=pods, finished=True),)))
    assert decision_of(plan, "a").victims == ("a-trainer-1",)
    assert decision_of(plan, "a").current == 1


@pytest.mark.parametrize(("has", "pinned"), [(2, 5), (7, 3), (4, 4)])
def test_a_pinned_job_gets_exactly_that_count(has: int, pinned: int) -> None:
    job = make_job("a", trainers=has, pinned=pinned, on=("n000",))
    decision = decision_of(plan_for(make_snapshot(make_nodes(1), (job,))), "a")
    assert decision.target == pinned
    assert decision.reason is Reason.PINNED


def test_a_lowered_maximum_shrinks_at_once() -> None:
    plan = plan_for(make_snapshot(make_nodes(1), (make_job("a", trainers=6, maximum=4, on=("n000",)),)))
    assert decision_of(plan, "a").victims == ("a-trainer-4", "a-trainer-5")
    assert decision_of(plan, "a").reason is Reason.AT_MAX


# Nodes


@pytest.mark.parametrize("closed", [make_node("n0", 8, ready=False), make_node("n0", 8, cordoned=True)])
def test_trainers_on_a_closed_node_stay_and_nothing_new_goes_there(closed: Node) -> None:
    nodes = (closed, make_node("n1", 4))
    plan = plan_for(make_snapshot(nodes, (make_job("a", trainers=3, maximum=10, on=("n0",)),)))
    decision = decision_of(plan, "a")
    assert decision.victims == ()
    assert decision.target == 7
    assert decision.nodes == (("n1", 4),)


def test_trainers_of_a_node_that_is_gone_count_until_they_are_gone() -> None:
    plan = plan_for(make_snapshot(make_nodes(1), (make_job("a", trainers=3, maximum=5, on=("gone",)),)))
    assert decision_of(plan, "a").current == 3
    assert decision_of(plan, "a").target == 5
    assert decision_of(plan, "a").victims == ()


def test_foreign_and_reserved_room_is_not_given_away() -> None:
    node = replace(make_node("n0", 8), reserved=make_resources(0.5))
    plan = plan_for(make_snapshot((node,), (make_job("a", maximum=10),), (make_serving("s", cpu=3, node="n0"),)))
    assert targets(plan) == {"a": 4}


def test_the_pod_count_devices_and_host_ports_are_resources() -> None:
    job = make_job("a", maximum=10)
    ported = replace(job.trainer, request=job.trainer.request + Resources.of({"hostport/TCP/80": 1}))
    gpu = replace(job.trainer, request=job.trainer.request + Resources.of({"nvidia.com/gpu": 1}))
    assert targets(plan_for(make_snapshot((make_node("n0", pods=3),), (job,)))) == {"a": 3}
    assert targets(plan_for(make_snapshot(make_nodes(2), (replace(job, trainer=ported),)))) == {"a": 2}
    refused = decision_of(plan_for(make_snapshot(make_nodes(2), (replace(job, trainer=gpu),))), "a")
    assert refused.reason is Reason.UNSCHEDULABLE
    assert "nvidia.com/gpu" in refused.message


def test_terminating_trainers_hold_no_room_in_the_plan() -> None:
    job = make_job("a", trainers=8, maximum=8, on=("n000",))
    dying = replace(job, pods=tuple(replace(p, terminating=p.index == 0) for p in job.pods))
    plan = plan_for(make_snapshot(make_nodes(1), (dying,)))
    assert decision_of(plan, "a").current == 7
    assert decision_of(plan, "a").target == 8


# Pods of ours on their way to a node


def unbound(job: Job, planned: str, phase: PodPhase = PodPhase.PENDING) -> Job:
    pods = tuple(replace(p, node="", planned=planned, phase=phase, started_s=None) for p in job.pods)
    return replace(job, pods=pods)


def test_unbound_trainers_count_and_keep_their_room() -> None:
    job = unbound(make_job("a", trainers=3, maximum=5), "n001")
    plan = plan_for(make_snapshot(make_nodes(2, cpu=3), (job,)))
    decision = decision_of(plan, "a")
    assert (decision.current, decision.target, decision.victims) == (3, 5, ())
    assert decision.nodes == (("n000", 2),)


def test_an_unbound_trainer_that_serving_displaces_goes_elsewhere_or_dies_first() -> None:
    waiting = unbound(make_job("new", trainers=1, minimum=1, maximum=1, cpu=3), "n000")
    running = make_job("r", trainers=1, minimum=1, maximum=1, cpu=3, on=("n001",))
    serving = make_serving("s", cpu=4)
    world = with_pods(make_snapshot((make_node("n000", 4), make_node("n001", 6)), (waiting, running)), serving)
    plan = plan_for(world)
    assert victims(plan) == []
    assert targets(plan) == {"new": 1, "r": 1}


def test_an_unbound_trainer_with_no_room_left_is_the_first_victim() -> None:
    running = make_job("a", trainers=3, maximum=8, on=("n000",))
    late = replace(running.pods[2], node="", planned="n000", phase=PodPhase.PENDING)
    world = make_snapshot(make_nodes(1, cpu=4), (replace(running, pods=(*running.pods[:2], late)),))
    plan = plan_for(with_pods(world, make_serving("s", cpu=2, node="n000")))
    assert victims(plan) == ["a-trainer-2"]


# Growth


def test_growth_stops_at_the_part_of_the_total_that_is_desired() -> None:
    world = make_snapshot(make_nodes(2, cpu=10), (make_job("a", minimum=1, maximum=30),))
    decision = decision_of(plan_for(world, Limits(max_load_desired=0.8)), "a")
    assert decision.target == 16
    assert "--max-load-desired 0.8" in decision.message


def test_the_desired_part_does_not_stop_a_minimum() -> None:
    world = make_snapshot(make_nodes(1, cpu=10), (make_job("a", minimum=9, maximum=30),))
    assert targets(plan_for(world, Limits(max_load_desired=0.5))) == {"a": 9}


def test_headroom_for_serving_is_kept_from_growth() -> None:
    world = make_snapshot(make_nodes(2), (make_job("a", maximum=30),), (make_serving("s", cpu=3, node="n000"),))
    assert targets(plan_for(world)) == {"a": 13}
    assert targets(plan_for(world, Limits(serving_headroom=2))) == {"a": 7}


def shrunk_for_serving(age_s: float) -> ClusterSnapshot:
    resize = Resize(1000.0 - age_s, 6, 3, Reason.SERVING_NEEDS_ROOM)
    job = with_status(make_job("a", trainers=3, minimum=1, maximum=8, on=("n000",)), resize=resize, admitted=True)
    return make_snapshot(make_nodes(1), (job,))


def test_a_job_that_gave_way_to_serving_waits_before_it_grows() -> None:
    held = decision_of(plan_for(shrunk_for_serving(10)), "a")
    assert held.target == 3
    assert held.reason is Reason.COOLDOWN
    assert "20 s" in held.message
    assert targets(plan_for(shrunk_for_serving(31))) == {"a": 8}


def test_its_minimum_is_restored_all_the_same() -> None:
    world = shrunk_for_serving(10)
    raised = replace(world.jobs[0], min_trainers=5)
    assert targets(plan_for(with_jobs(world, raised))) == {"a": 5}


# Staying


def unequal(*, poor: int, rich: int, resize: Resize | None = None) -> ClusterSnapshot:
    jobs = (
        with_status(make_job("poor", trainers=poor, maximum=9, on=("n000",)), admitted=True),
        with_status(make_job("rich", trainers=rich, maximum=9, on=("n000",)), resize=resize, admitted=True),
    )
    return make_snapshot(make_nodes(1, cpu=poor + rich), jobs)


def test_a_running_job_is_shrunk_for_another_where_much_is_gained() -> None:
    assert targets(plan_for(unequal(poor=1, rich=7))) == {"poor": 4, "rich": 4}


def test_but_not_for_a_little_and_not_in_its_cooldown() -> None:
    wide = [replace(job, max_trainers=41) for job in unequal(poor=9, rich=11).jobs]
    assert targets(plan_for(make_snapshot(make_nodes(1, cpu=20), tuple(wide)))) == {"poor": 9, "rich": 11}
    cooling = plan_for(unequal(poor=1, rich=7, resize=Resize(970.0, 8, 7, Reason.INSUFFICIENT_CAPACITY, 970.0)))
    assert targets(cooling) == {"poor": 1, "rich": 7}
    assert decision_of(cooling, "poor").reason is Reason.COOLDOWN
    assert "30 s" in decision_of(cooling, "poor").message


@pytest.mark.parametrize(
    "resize",
    [
        Resize(990.0, 6, 7, Reason.INSUFFICIENT_CAPACITY),
        Resize(990.0, 8, 7, Reason.SERVING_NEEDS_ROOM),
        Resize(990.0, 8, 7, Reason.ADMITTED),
        Resize(990.0, 8, 7, Reason.SERVING_NEEDS_ROOM, 939.0),
    ],
    ids=["growth", "serving", "an admission", "long after a voluntary shrink"],
)
def test_only_a_shrink_for_the_share_of_another_starts_the_cooldown(resize: Resize) -> None:
    assert targets(plan_for(unequal(poor=1, rich=7, resize=resize))) == {"poor": 4, "rich": 4}


def test_a_cooldown_goes_on_when_the_job_gives_way_to_serving() -> None:
    resize = Resize(990.0, 8, 7, Reason.SERVING_NEEDS_ROOM, 970.0)
    assert targets(plan_for(unequal(poor=1, rich=7, resize=resize))) == {"poor": 1, "rich": 7}


def test_the_plan_that_admits_a_job_shares_anew_whatever_the_cooldown() -> None:
    rich = with_status(
        make_job("rich", trainers=12, maximum=12, on=("n000",)),
        resize=Resize(990.0, 13, 12, Reason.INSUFFICIENT_CAPACITY, 990.0),
        admitted=True,
    )
    plan = plan_for(make_snapshot(make_nodes(1, cpu=12), (rich, make_job("new", maximum=12))))
    assert targets(plan) == {"new": 6, "rich": 6}


def test_a_maximum_beyond_the_cluster_buys_nothing() -> None:
    jobs = (make_job("greedy", maximum=10000), make_job("modest", maximum=12))
    assert targets(plan_for(make_snapshot(make_nodes(1, cpu=12), jobs))) == {"greedy": 6, "modest": 6}


# Policies, certificate, failure


def test_static_policies_hold_jobs_at_a_bound() -> None:
    world = make_snapshot(make_nodes(1), (make_job("a", minimum=2, maximum=5, trainers=3, on=("n000",)),))
    assert targets(plan_for(world, policy="static-min")) == {"a": 2}
    assert targets(plan_for(world, policy="static-max")) == {"a": 5}
    assert plan_for(world, policy="static-max").policy == "static-max"


def test_an_unknown_policy_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=", ".join(sorted(POLICIES))):
        policy_named("best")


def test_an_empty_cluster_and_an_idle_one_have_a_plan() -> None:
    assert plan_for(make_snapshot(())).decisions == ()
    assert plan_for(make_snapshot((), (make_job("a"),))).decisions[0].reason is Reason.UNSCHEDULABLE
    assert plan_for(make_snapshot(make_nodes(1))).certificate.gap == 0


def test_a_decision_that_takes_too_long_is_none() -> None:
    with pytest.raises(PlanError, match="last plan"):
        plan_for(make_snapshot(make_nodes(1), (make_job("a"),)), Limits(deadline_s=0.0))


def test_prices_name_what_is_scarce() -> None:
    plan = plan_for(make_snapshot(make_nodes(2), (make_job("a", maximum=30), make_job("b", maximum=30))))
    kinds = {price.kind: price for price in plan.prices}
    assert kinds["shape"].resource == "cpu"
    assert kinds["shape"].price > 0
    assert kinds["class"].name == "n000 and 1 node like it"
    assert PODS not in {price.resource for price in plan.prices}


# Odd inputs


def test_a_role_without_pods_and_a_template_that_changed_since_are_planned_around() -> None:
    none = (FixedPods(Role.PSERVER, make_shape(2), 0),)
    assert targets(plan_for(make_snapshot(make_nodes(1), (make_job("a", maximum=3, fixed=none),)))) == {"a": 3}
    start = make_snapshot(
        make_nodes(1), (make_job("a", maximum=3, fixed=(FixedPods(Role.PSERVER, make_shape(2), 1),)),)
    )
    running = apply_plan(start, plan_for(start)).jobs[0]
    changed = replace(running, trainer=make_shape(2), fixed=(FixedPods(Role.PSERVER, make_shape(3), 1),))
    decision = decision_of(plan_for(make_snapshot(make_nodes(1), (changed,))), "a")
    assert (decision.current, decision.target, decision.victims, decision.fixed_nodes) == (3, 3, (), ())


def test_a_node_that_others_overcommit_keeps_its_trainers_and_gets_none() -> None:
    world = make_snapshot(
        make_nodes(1), (make_job("a", trainers=6, on=("n000",)),), (make_serving("s", node="n000"),)
    )
    assert decision_of(plan_for(world), "a").victims == ()
    assert targets(plan_for(world)) == {"a": 6}


def test_pods_that_differ_from_their_template_by_now_do_not_confuse_the_plan() -> None:
    fixed = (FixedPods(Role.MASTER, make_shape(0.25, 0.25), 1),)
    job = make_job("a", minimum=2, maximum=6, fixed=fixed)
    empty = make_snapshot(make_nodes(2), (job,))
    started = apply_plan(empty, plan_for(empty))
    changed = replace(
        started,
        jobs=tuple(
            replace(j, pods=tuple(replace(p, shape=make_shape(0.5, 0.5)) for p in j.pods)) for j in started.jobs
        ),
    )
    decision = decision_of(plan_for(changed), "a")
    assert (decision.current, decision.target, decision.victims) == (6, 6, ())


def test_absurd_requests_of_bound_pods_do_not_add_up_to_room() -> None:
    absurd = (2**63 - 1) / 2**30 - 1
    bound = tuple(make_serving(f"s{i}", cpu=0, memory_gib=absurd, node="n000") for i in range(2))
    plan = plan_for(make_snapshot(make_nodes(1), (make_job("a"),), bound))
    assert decision_of(plan, "a").target == 0


@pytest.mark.parametrize(("resized_after_s", "taken"), [(0.0, 1), (3.0, 0)], ids=["arriving", "arrived"])
def test_only_an_arriving_job_takes_for_a_small_difference(resized_after_s: float, taken: int) -> None:
    """One trainer of eleven is less than the dead band; a job that has grown since its admission waits for more."""
    admitted = Condition("Admitted", "True", "Admitted", "", 990.0)
    status = JobStatus(conditions=(admitted,), last_resize=Resize(990.0 + resized_after_s, 1, 5, "Admitted"))
    old = make_job("a", trainers=7, minimum=1, maximum=12, on=("n000",))
    new = make_job("b", trainers=5, minimum=1, maximum=12, on=("n000",))
    starting = replace(new.pods[-1], started_s=None, phase=PodPhase.PENDING)
    new = replace(new, pods=(*new.pods[:-1], starting), status=status)
    settled = replace(old, status=JobStatus(conditions=(replace(admitted, since_s=0.0),)))
    plan = plan_for(make_snapshot(make_nodes(1, cpu=12), (settled, new)))
    assert len(victims(plan)) == taken
