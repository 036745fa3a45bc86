"""Clusters above the size where whole patterns are placed at once: the same rules hold as below it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.worlds import carried_out, mixed
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits, Quota, SharingLimits
from edl.model.plan import ScalePlan
from edl.model.resources import CPU, Placement
from edl.planner.guard import check
from edl.planner.problem_reader import LARGE_NODES
from tests.worlds.builders import make_job, make_node, make_serving, make_shape, make_snapshot
from tests.worlds.small_clusters import plan_for

NODES = LARGE_NODES + 44


@pytest.fixture(scope="module")
def cluster() -> ClusterSnapshot:
    """300 nodes of four sizes and 150 jobs of six shapes, in two queues."""
    world = mixed(NODES, 150)
    return replace(
        world, jobs=tuple(replace(job, queue="ads" if i % 2 else "vision") for i, job in enumerate(world.jobs))
    )


def cpu_of(world: ClusterSnapshot, plan: ScalePlan, queue: str = "") -> int:
    return sum(
        d.target * job.trainer.request[CPU]
        for job, d in zip(world.jobs, plan.decisions, strict=True)
        if not queue or job.queue == queue
    )


def largest_trainer(world: ClusterSnapshot) -> int:
    return max(job.trainer.request[CPU] for job in world.jobs)


def test_a_quota_bounds_its_queue_and_nobody_else(cluster: ClusterSnapshot) -> None:
    free = plan_for(cluster)
    limit = cpu_of(cluster, free, "ads") // 2
    limits = Limits(quotas=(Quota("ads", ((CPU, limit),)),))
    plan = plan_for(cluster, limits)
    assert check(cluster, plan) == ()
    one_each = sum(job.trainer.request[CPU] for job in cluster.jobs if job.queue == "ads")
    assert limit - one_each < cpu_of(cluster, plan, "ads") <= limit
    assert cpu_of(cluster, plan, "vision") >= cpu_of(cluster, free, "vision")
    assert plan.certificate.bound >= plan.certificate.achieved


def test_growth_stops_at_the_desired_load(cluster: ClusterSnapshot) -> None:
    plan = plan_for(cluster, Limits(sharing=SharingLimits(max_load_desired=0.5)))
    total = sum(node.allocatable[CPU] for node in cluster.nodes)
    assert total // 2 - largest_trainer(cluster) < cpu_of(cluster, plan) <= total // 2
    assert plan.certificate.bound >= plan.certificate.achieved


def test_the_full_cluster_is_left_as_it_is(cluster: ClusterSnapshot) -> None:
    full = carried_out(cluster, plan_for(cluster))
    again = plan_for(full)
    assert [d.target for d in again.decisions] == [d.current for d in again.decisions]
    assert not any(d.victims or d.nodes for d in again.decisions)


def test_the_gap_is_small(cluster: ClusterSnapshot) -> None:
    assert plan_for(cluster).certificate.gap <= 0.01


def test_jobs_with_curves_share_by_their_worth(cluster: ClusterSnapshot) -> None:
    speeds = [((1, 100.0), (8, 700.0 if i % 3 else 150.0)) for i in range(len(cluster.jobs))]
    jobs = tuple(replace(job, throughput=seen) for job, seen in zip(cluster.jobs, speeds, strict=True))
    curves = replace(cluster, jobs=jobs)
    plan = plan_for(curves, policy="utility")
    assert plan.policy == "utility"
    assert check(curves, plan) == ()
    assert plan.certificate.bound >= plan.certificate.achieved
    assert plan.certificate.gap <= 0.01


@pytest.mark.parametrize(("late", "quiet"), [("a", "b"), ("b", "a")])
def test_a_minimum_moves_to_a_node_where_it_need_not_wait_for_pods_that_end(late: str, quiet: str) -> None:
    """The serving pod may use the job's node alone, and all other nodes are full but for one on which a pod ends."""
    only = Placement(node_selector=(("kubernetes.io/hostname", "home"),))
    web = replace(make_serving("web", cpu=4), shape=make_shape(4, placement=only), tried=True)
    job = make_job("moves", cpu=4, trainers=1, max_trainers=1, on=("home",))
    ended = make_job("ended", cpu=4, trainers=1, max_trainers=1, on=(late,))
    ended = replace(ended, suspended=True, pods=tuple(replace(pod, terminating=True) for pod in ended.pods))
    full = tuple(f"x{number}" for number in range(LARGE_NODES))
    others = make_job("others", cpu=4, trainers=len(full), min_trainers=len(full), on=full)
    nodes = tuple(make_node(name, 4) for name in ("home", late, quiet, *full))
    plan = plan_for(make_snapshot(nodes, (job, ended, others), (web,)))
    moves = next(decision for decision in plan.decisions if decision.job == job.key)
    assert (moves.victims, moves.nodes) == (("moves-trainer-0",), ((quiet, 1),))


@pytest.mark.parametrize(("late", "quiet"), [("a", "b"), ("b", "a")])
def test_the_node_that_is_free_at_once_is_for_the_minimum_and_not_for_growth(late: str, quiet: str) -> None:
    """A job that grows comes first by its name; another one moves, and a pod ends on one of the two nodes."""
    only = Placement(node_selector=(("kubernetes.io/hostname", "home"),))
    web = replace(make_serving("web", cpu=4), shape=make_shape(4, placement=only), tried=True)
    full = tuple(f"x{number}" for number in range(LARGE_NODES))
    grows = make_job("grows", cpu=4, trainers=len(full), min_trainers=1, max_trainers=len(full) + 1, on=full)
    job = make_job("moves", cpu=4, trainers=1, max_trainers=1, on=("home",))
    ended = make_job("ended", cpu=4, trainers=1, max_trainers=1, on=(late,))
    ended = replace(ended, suspended=True, pods=tuple(replace(pod, terminating=True) for pod in ended.pods))
    nodes = tuple(make_node(name, 4) for name in ("home", late, quiet, *full))
    plan = plan_for(make_snapshot(nodes, (grows, job, ended), (web,)))
    new = {decision.job.name: decision.nodes for decision in plan.decisions if decision.nodes}
    assert new == {"grows": ((late, 1),), "moves": ((quiet, 1),)}
