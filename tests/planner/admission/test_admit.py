"""Who runs: what waiting serving pods get, what is deleted for them, and which jobs are admitted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import FixedPods
from edl.model.limits import Limits, ServingLimits
from edl.model.names import Role
from edl.model.pods import PodPhase
from edl.model.resources import Placement, Taint, Toleration
from edl.model.status import Reason
from tests.worlds.builders import make_job, make_node, make_nodes, make_serving, make_shape, make_snapshot
from tests.worlds.small_clusters import decision_of, later, plan_for, targets, victims, with_pods, with_status


def test_a_whole_job_goes_on_if_an_older_one_waits_for_nodes_for_its_pods() -> None:
    older = make_job("older", trainers=3, min_trainers=3, max_trainers=3, cpu=2, on=("n000", "", ""), age_s=50)
    pods = tuple(p if p.node else replace(p, phase=PodPhase.PENDING, ready=False) for p in older.pods)
    whole = make_job("whole", trainers=2, min_trainers=2, max_trainers=2, on=("n000", "n000"))
    plan = plan_for(make_snapshot(make_nodes(1, cpu=6), (replace(older, pods=pods), whole)))
    assert decision_of(plan, "whole").admitted
    assert not decision_of(plan, "older").admitted


@pytest.mark.parametrize("promised", [("n001", "n001"), ("n001", "n001", "n000")])
def test_whole_jobs_go_on_although_kube_scheduler_promised_more_of_their_node_than_there_is(
    promised: tuple[str, ...],
) -> None:
    """It reserves capacity for pods for which it preempts; no proof may say that what runs beside it does not fit."""
    first = make_job("a", trainers=3, min_trainers=3, max_trainers=8, cpu=2, on=("n000", "n000", "n001"))
    broken = make_job("b", trainers=1, min_trainers=2, max_trainers=8, cpu=2, on=("n001",))
    whole = make_job("c", trainers=5, min_trainers=5, max_trainers=5, cpu=0.5, on=("n000",))
    web = (
        make_serving("web", cpu=1, node="n001"),
        *(make_serving(f"s{i}", nominated=n) for i, n in enumerate(promised)),
    )
    plan = plan_for(make_snapshot(make_nodes(2), (first, broken, whole), web))
    assert {d.job.name for d in plan.decisions if d.admitted} == {"a", "c"}
    assert targets(plan)["a"] == 3


def test_a_pserver_that_stays_on_a_node_that_takes_no_new_pods_leaves_the_other_node_to_trainers() -> None:
    shape = make_shape(2)
    job = make_job("a", max_trainers=4, fixed=(FixedPods(Role.PSERVER, shape, 1),))
    pserver = replace(
        make_serving("p", node="n001"), namespace="default", name="a-pserver-0", shape=shape, job=job.key
    )
    job = with_status(replace(job, pods=(replace(pserver, role=Role.PSERVER, index=0),)), admitted=True)
    nodes = (make_node("n000", 3), make_node("n001", 2, cordoned=True))
    assert targets(plan_for(make_snapshot(nodes, (job,)))) == {"a": 3}


# Serving


def two_full_nodes() -> ClusterSnapshot:
    """8 trainers of one core on each of two nodes."""
    return make_snapshot(make_nodes(2), (make_job("a", trainers=16, max_trainers=16, on=("n000", "n001")),))


def test_the_fewest_trainers_are_deleted_and_all_on_one_node() -> None:
    plan = plan_for(with_pods(two_full_nodes(), make_serving("s", cpu=3)))
    deleted = set(victims(plan))
    assert len(deleted) == 3
    assert len({p.node for p in two_full_nodes().jobs[0].pods if p.name in deleted}) == 1
    assert decision_of(plan, "a").reason is Reason.SERVING_NEEDS_ROOM
    assert decision_of(plan, "a").shrink_reason == Reason.SERVING_NEEDS_ROOM
    assert (plan.serving.waiting, plan.serving.placed, plan.serving.short) == (1, 1, 0)


def test_a_death_that_makes_room_for_two_is_preferred() -> None:
    big = make_job("big", trainers=1, cpu=6, on=("n000",), min_trainers=0)
    small = make_job("small", trainers=2, cpu=4, on=("n001",), min_trainers=0)
    plan = plan_for(with_pods(make_snapshot(make_nodes(2), (big, small)), *(make_serving(f"s{i}") for i in range(2))))
    assert victims(plan) == ["big-trainer-0"]


def test_nobody_dies_for_serving_that_fits_into_free_room() -> None:
    world = make_snapshot(make_nodes(2), (make_job("a", trainers=8, max_trainers=16, on=("n000",)),))
    plan = plan_for(with_pods(world, make_serving("s", cpu=3)))
    assert victims(plan) == []
    assert targets(plan) == {"a": 13}


def test_nobody_dies_for_a_nominated_pod_and_its_room_is_not_given_away() -> None:
    world = make_snapshot(make_nodes(1), (make_job("a", trainers=4, max_trainers=8, on=("n000",)),))
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
    limits = Limits(serving=ServingLimits(grace_s=30.0))
    young = make_serving("s", cpu=3)
    assert victims(plan_for(with_pods(two_full_nodes(), young), limits)) == []
    assert len(victims(plan_for(with_pods(two_full_nodes(), replace(young, tried=True)), limits))) == 3
    assert len(victims(plan_for(later(with_pods(two_full_nodes(), young), 20), limits))) == 3


def test_a_young_serving_pod_keeps_free_room_from_growth() -> None:
    world = make_snapshot(make_nodes(1), (make_job("a", trainers=2, on=("n000",)),))
    plan = plan_for(with_pods(world, make_serving("s", cpu=3)), Limits(serving=ServingLimits(grace_s=30.0)))
    assert targets(plan) == {"a": 5}
    assert plan.serving.placed == 1


def test_the_best_off_job_gives_way_among_equal_counts() -> None:
    jobs = (
        make_job("poor", trainers=3, max_trainers=10, on=("n000",)),
        make_job("rich", trainers=5, max_trainers=10, on=("n000",)),
    )
    plan = plan_for(with_pods(make_snapshot(make_nodes(1), jobs), make_serving("s", cpu=2)))
    assert targets(plan) == {"poor": 3, "rich": 3}


def test_pods_not_yet_running_die_first_then_the_highest_index() -> None:
    job = make_job("a", trainers=8, max_trainers=8, on=("n000",))
    starting = tuple(replace(p, phase=PodPhase.PENDING) if p.index == 3 else p for p in job.pods)
    world = make_snapshot(make_nodes(1), (replace(job, pods=starting),))
    plan = plan_for(with_pods(world, make_serving("s", cpu=2)))
    assert victims(plan) == ["a-trainer-3", "a-trainer-7"]


def test_on_a_cluster_too_large_to_search_exactly_minimums_are_spared_too() -> None:
    """60 nodes with 480 trainers, all but the 8 of one job part of a minimum."""
    nodes = tuple(f"n{i:03d}" for i in range(60))
    rigid = make_job("rigid", trainers=472, min_trainers=472, max_trainers=472, on=nodes[:-1])
    loose = make_job("loose", trainers=8, min_trainers=1, max_trainers=8, on=nodes[-1:])
    plan = plan_for(make_snapshot(make_nodes(60), (rigid, loose), (make_serving("s", cpu=3),)))
    assert targets(plan) == {"loose": 5, "rigid": 472}
    assert len(victims(plan)) == 3


def test_and_so_are_trainers_that_run_already() -> None:
    nodes = tuple(f"n{i:03d}" for i in range(60))
    job = make_job("a", trainers=480, max_trainers=480, on=nodes)
    starting = {f"a-trainer-{i}" for i in (37, 97, 157)}  # on n037
    pods = tuple(replace(p, phase=PodPhase.PENDING) if p.name in starting else p for p in job.pods)
    plan = plan_for(make_snapshot(make_nodes(60), (replace(job, pods=pods),), (make_serving("s", cpu=3),)))
    assert set(victims(plan)) == starting


def test_when_serving_eats_all_surplus_the_youngest_job_of_the_lowest_tier_goes_whole() -> None:
    jobs = (
        make_job("old", trainers=2, min_trainers=2, cpu=2, on=("n000",), age_s=50),
        make_job("young", trainers=2, min_trainers=2, cpu=2, on=("n000",), age_s=10),
        make_job("high", trainers=2, min_trainers=2, cpu=2, on=("n000",), age_s=1, tier=1),
    )
    world = make_snapshot(make_nodes(1, cpu=12), jobs)
    plan = plan_for(with_pods(world, make_serving("s", cpu=3)))
    assert {d.job.name for d in plan.decisions if d.admitted} == {"old", "high"}
    assert sorted(victims(plan)) == ["young-trainer-0", "young-trainer-1"]
    assert decision_of(plan, "young").reason is Reason.SERVING_NEEDS_ROOM


def test_a_minimum_moves_elsewhere_rather_than_keep_serving_waiting() -> None:
    selected = make_node("n0", 4, labels={"pool": "web"})
    world = make_snapshot((selected, make_node("n1", 4)), (make_job("a", trainers=4, min_trainers=4, on=("n0",)),))
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
        make_job(name, min_trainers=4, age_s=age, tier=tier)
        for name, age, tier in (("a", 9, 0), ("b", 5, 0), ("c", 1, 1))
    ]
    plan = plan_for(make_snapshot(make_nodes(1), tuple(jobs)))
    assert {d.job.name for d in plan.decisions if d.admitted} == {"a", "c"}
    assert decision_of(plan, "b").reason is Reason.MIN_UNSATISFIED


def test_a_younger_job_passes_a_head_that_does_not_fit_until_the_head_has_waited() -> None:
    running = make_job("r", trainers=4, min_trainers=4, max_trainers=4, on=("n000",), age_s=900)
    head, small = make_job("head", min_trainers=6, age_s=500), make_job("small", min_trainers=2, age_s=1)
    world = make_snapshot(make_nodes(1), (running, head, small))
    assert decision_of(plan_for(world), "small").admitted
    waited = plan_for(later(world, 200))
    assert not decision_of(waited, "small").admitted
    assert "behind default/head" in decision_of(waited, "small").account


def test_the_wait_of_a_head_counts_from_its_un_admission() -> None:
    running = make_job("r", trainers=4, min_trainers=4, max_trainers=4, on=("n000",), age_s=9000)
    head = with_status(make_job("head", min_trainers=6, age_s=8000), admitted=False, since_s=900)
    world = make_snapshot(make_nodes(1), (running, head, make_job("small", min_trainers=2, age_s=1)))
    assert decision_of(plan_for(world), "small").admitted


def test_a_job_that_could_never_fit_says_what_is_missing_and_holds_nobody_back() -> None:
    world = make_snapshot(
        make_nodes(2), (make_job("huge", cpu=9, age_s=5000), make_job("a", min_trainers=2, max_trainers=2))
    )
    plan = plan_for(world)
    decision = decision_of(plan, "huge")
    assert decision.reason is Reason.UNSCHEDULABLE
    assert "9 cores" in decision.account
    assert "8 cores" in decision.account
    assert decision_of(plan, "a").admitted


def test_a_job_that_fits_beside_serving_in_one_way_only_is_not_called_unschedulable() -> None:
    """Trainers of 3 cores fill the node of 8 but for 2 cores: serving must go there, not where it fits best."""
    gang = make_job("a", min_trainers=3, max_trainers=3, cpu=3)
    world = make_snapshot((make_node("n0", 4), make_node("n1", 8)), (gang,), (make_serving("s", cpu=2),))
    assert targets(plan_for(world)) == {"a": 3}


def test_a_job_that_could_not_run_beside_serving_is_unschedulable_and_no_head() -> None:
    """Two serving pods fit, one of them only on the open node; then no node is left for a pserver and a trainer."""
    tainted = [replace(make_node(f"n{i}", 4), taints=(Taint("x", "y", "NoSchedule"),)) for i in (0, 2)]
    tolerant = make_shape(3, 4, Placement(tolerations=(Toleration("x", "Equal", "y", "NoSchedule"),)))
    job = make_job("a", min_trainers=1, max_trainers=2, fixed=(FixedPods(Role.PSERVER, tolerant, 1),))
    serving = (make_serving("w0", memory_gib=2), replace(make_serving("w1"), shape=tolerant))
    nodes = (tainted[0], make_node("n1", 4), tainted[1])
    plan = plan_for(make_snapshot(nodes, (replace(job, trainer=tolerant),), serving))
    assert plan.serving.placed == 2
    assert decision_of(plan, "a").reason is Reason.UNSCHEDULABLE


def test_a_waiting_job_takes_surplus_but_never_the_place_of_an_equal() -> None:
    running = make_job("r", trainers=8, min_trainers=6, max_trainers=8, on=("n000",), age_s=10)
    fits = plan_for(
        make_snapshot(make_nodes(1), (running, make_job("new", min_trainers=2, max_trainers=2, age_s=900)))
    )
    assert targets(fits) == {"new": 2, "r": 6}
    waits = plan_for(make_snapshot(make_nodes(1), (running, make_job("new", min_trainers=3, age_s=900))))
    assert targets(waits) == {"new": 0, "r": 8}


def test_a_higher_tier_takes_the_place_of_a_lower_one() -> None:
    running = make_job("r", trainers=8, min_trainers=6, max_trainers=8, on=("n000",), age_s=10)
    plan = plan_for(make_snapshot(make_nodes(1), (running, make_job("new", min_trainers=3, max_trainers=3, tier=1))))
    assert targets(plan) == {"new": 3, "r": 0}
    assert len(decision_of(plan, "r").victims) == 8


def test_a_job_needs_all_of_its_fixed_pods() -> None:
    fixed = (FixedPods(Role.PSERVER, make_shape(4), 2), FixedPods(Role.MASTER, make_shape(1), 1))
    job = make_job("a", min_trainers=1, max_trainers=9, fixed=fixed)
    assert not decision_of(plan_for(make_snapshot(make_nodes(1), (job,))), "a").admitted
    plan = plan_for(make_snapshot(make_nodes(2), (job,)))
    assert decision_of(plan, "a").target == 7
    assert sorted(role for role, _ in decision_of(plan, "a").fixed_nodes) == [Role.MASTER, Role.PSERVER, Role.PSERVER]


def test_a_job_below_its_minimum_is_raised_to_it_from_the_surplus_of_others() -> None:
    jobs = (
        make_job("low", trainers=1, min_trainers=3, max_trainers=3, on=("n000",)),
        make_job("rich", trainers=7, min_trainers=1, max_trainers=8, on=("n000",)),
    )
    plan = plan_for(make_snapshot(make_nodes(1), jobs))
    assert targets(plan) == {"low": 3, "rich": 5}


def test_a_job_below_its_minimum_goes_whole_where_nobody_has_surplus() -> None:
    jobs = (
        make_job("low", trainers=2, min_trainers=3, max_trainers=3, on=("n000",), age_s=100),
        make_job("whole", trainers=6, min_trainers=6, max_trainers=6, on=("n000",)),
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
        make_job("e", max_trainers=3),
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
    assert decision_of(plan, "a").account == "min-instance 4 exceeds max-instance 2"
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
    plan = plan_for(make_snapshot(make_nodes(1), (make_job("a", trainers=6, max_trainers=4, on=("n000",)),)))
    assert decision_of(plan, "a").victims == ("a-trainer-4", "a-trainer-5")
    assert decision_of(plan, "a").reason is Reason.AT_MAX
