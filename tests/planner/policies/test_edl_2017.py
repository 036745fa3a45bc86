"""The 2017 controller as a yardstick: its decisions by hand, and what of them has room."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from edl.explain.sentences import with_comparison_sentences
from edl.model.cluster import ClusterSnapshot, Node
from edl.model.jobs import FixedPods, Job
from edl.model.limits import Limits
from edl.model.names import Role
from edl.model.plan import ScalePlan
from edl.model.pods import Pod, PodPhase
from edl.model.resources import CPU, GPU, PodShape, Resources
from edl.model.status import Reason
from edl.planner.eligibility import takes
from edl.planner.policies import edl_2017
from tests.worlds.builders import make_job, make_node, make_nodes, make_serving, make_shape, make_snapshot
from tests.worlds.effort import examples
from tests.worlds.small_clusters import cores_of, decision_of, running_worlds, targets, victims


def old(nodes: tuple[Node, ...], *jobs: Job, pods: tuple[Pod, ...] = ()) -> ScalePlan:
    world = make_snapshot(nodes, jobs, pods)
    return with_comparison_sentences(edl_2017.Edl2017().plan(world, Limits()), world)


def test_each_job_gets_one_trainer_in_turn_until_97_percent_of_all_cpu_is_asked_for() -> None:
    plan = old(make_nodes(10, cpu=10), make_job("a", max_trainers=90), make_job("b", max_trainers=30))
    assert targets(plan) == {"a": 67, "b": 30}


def test_growth_by_cpu_stops_below_the_whole_and_growth_by_memory_does_not() -> None:
    by_memory = make_job("m", cpu=0.1, memory_gib=8, max_trainers=90)
    assert targets(old(make_nodes(2, cpu=100, memory_gib=40), by_memory)) == {"m": 9}, "it wants more than one left"
    assert targets(old(make_nodes(1, cpu=10), make_job("c", max_trainers=90))) == {"c": 9}


def test_the_least_fulfilled_comes_first_and_the_order_stays() -> None:
    ahead = make_job("a", trainers=3, max_trainers=5, on=("n000",))
    behind = make_job("b", trainers=1, max_trainers=5, on=("n000",))
    assert targets(old(make_nodes(1, cpu=6), ahead, behind)) == {"a": 3, "b": 2}


def test_equals_are_served_by_the_size_of_their_trainers() -> None:
    large, small = make_job("a", cpu=2, trainers=1, on=("n000",)), make_job("b", trainers=1, on=("n000",))
    assert targets(old(make_nodes(1, cpu=5), large, small)) == {"a": 1, "b": 2}


def test_it_counts_room_that_no_node_has() -> None:
    plan = old(make_nodes(3, cpu=10), make_job("a", cpu=6, max_trainers=20), make_job("b", cpu=6, max_trainers=20))
    assert targets(plan) == {"a": 2, "b": 2}
    assert [d.pending for d in plan.decisions] == [0, 1]
    assert dict(decision_of(plan, "b").nodes) == {"n002": 1}
    assert "1 of them fit on no node and stay pending" in decision_of(plan, "b").account


def test_it_counts_nodes_that_take_nobody() -> None:
    plan = old((make_node("n0", 10), make_node("n1", 10, cordoned=True)), make_job("a", max_trainers=90))
    assert targets(plan) == {"a": 19}
    assert decision_of(plan, "a").pending == 9


def test_pods_that_wait_count_and_the_best_off_job_gives_first() -> None:
    better = make_job("a", trainers=8, max_trainers=10, on=("n000",))
    worse = make_job("b", trainers=8, min_trainers=7, max_trainers=17, on=("n001",))
    plan = old(make_nodes(2), better, worse, pods=(make_serving("web", cpu=3),))
    assert targets(plan) == {"a": 5, "b": 7}
    assert victims(plan) == ["a-trainer-5", "a-trainer-6", "a-trainer-7", "b-trainer-7"]
    assert plan.serving.waiting == 1


def test_where_one_must_go_it_is_of_the_best_off() -> None:
    better = make_job("b", trainers=8, max_trainers=10, on=("n000",))
    worse = make_job("a", trainers=8, max_trainers=20, on=("n001",))
    assert targets(old(make_nodes(2), better, worse)) == {"a": 8, "b": 7}


def test_it_frees_totals_and_no_node_so_that_serving_waits_on() -> None:
    nodes = tuple(f"n{i:03d}" for i in range(4))
    jobs = [make_job(f"j{i}", trainers=2, min_trainers=1, max_trainers=2, cpu=4, on=(nodes[i],)) for i in range(4)]
    plan = old(make_nodes(4, cpu=8), *jobs, pods=(make_serving("web", cpu=8),))
    assert len(victims(plan)) == 3, "12 cores are freed, and the pod needs 8"
    assert (plan.serving.waiting, plan.serving.placed, plan.serving.short) == (1, 0, 0)


def test_a_job_shrinks_to_a_lowered_maximum() -> None:
    assert targets(old(make_nodes(1), make_job("a", trainers=4, max_trainers=2, on=("n000",)))) == {"a": 2}


def test_growth_and_shrinking_that_undo_each_other_end() -> None:
    node = make_node("n0", 100, 400)
    node = replace(node, allocatable=node.allocatable + Resources.of({GPU: 10}))
    job = make_job("a", trainers=9, max_trainers=10, on=("n0",))
    shape = PodShape(job.trainer.request + Resources.of({GPU: 1}))
    job = replace(job, trainer=shape, pods=tuple(replace(p, shape=shape) for p in job.pods))
    assert targets(old((node,), job)) == {"a": 9}


def test_only_jobs_whose_trainers_all_run_are_looked_at_unless_one_has_none() -> None:
    whole = make_job("a", trainers=2, max_trainers=4, on=("n000",))
    half = make_job("b", trainers=2, max_trainers=4, on=("n000",))
    half = replace(half, pods=(half.pods[0], replace(half.pods[1], phase=PodPhase.PENDING, node="")))
    assert targets(old(make_nodes(2), whole, half)) == {"a": 4, "b": 2}
    assert targets(old(make_nodes(2), whole, half, make_job("c", max_trainers=1))) == {"a": 4, "b": 4, "c": 1}


def test_a_pinned_an_inelastic_and_a_suspended_job_are_not_scaled() -> None:
    jobs = (
        make_job("even", min_trainers=3, max_trainers=3),
        make_job("pinned", pinned=2),
        replace(make_job("rest"), suspended=True),
    )
    plan = old(make_nodes(2), *jobs)
    assert targets(plan) == {"even": 3, "pinned": 2, "rest": 0}
    assert [d.reason for d in plan.decisions] == [Reason.AT_MAX, Reason.PINNED, Reason.SUSPENDED]


def test_a_job_without_its_pservers_counts_for_nothing_in_the_certificate() -> None:
    fixed = (FixedPods(Role.PSERVER, make_shape(9, 1), 1),)
    plan = old(make_nodes(2), make_job("a", fixed=fixed, max_trainers=1), make_job("b", max_trainers=1))
    assert decision_of(plan, "a").reason is Reason.MIN_UNSATISFIED
    assert plan.certificate.achieved == pytest.approx(1.0)


def test_the_plan_says_that_it_is_only_to_compare_with() -> None:
    plan = old(make_nodes(1), make_job("a"))
    assert (plan.is_comparison, plan.policy) == (True, "edl-2017")


@examples(60)
@given(running_worlds())
def test_what_is_said_to_have_room_has_it_and_the_bound_holds(world: ClusterSnapshot) -> None:
    plan = edl_2017.Edl2017().plan(world, Limits())
    assert plan.certificate.bound >= plan.certificate.achieved
    free = {n.name: n.allocatable[CPU] // 1000 for n in world.nodes}
    before = dict(free)
    for pod in world.pods:
        if pod.node in free:
            free[pod.node] -= cores_of(pod.shape)
    for job, decision in zip(world.jobs, plan.decisions, strict=True):
        for pod in job.pods:
            if pod.node in free and pod.is_live and pod.name not in decision.victims and decision.admitted:
                free[pod.node] -= cores_of(pod.shape)
        for node, pods in decision.nodes:
            free[node] -= cores_of(job.trainer) * pods
            assert takes(next(n for n in world.nodes if n.name == node), job.trainer.placement)
        for role, node in decision.fixed_nodes:
            free[node] -= cores_of(next(f.shape for f in job.fixed if f.role is role))
        if decision.admitted:
            assert decision.target >= (job.pinned or job.min_trainers)
    assert all(left >= 0 for left in free.values()), (before, free)
