"""Clusters above the size where whole patterns are placed at once: the same rules hold as below it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.worlds import carried_out, mixed
from edl.model.cluster import ClusterSnapshot
from edl.model.plan import Limits, Quota, ScalePlan
from edl.model.resources import CPU
from edl.planner.guard import check
from edl.planner.problem_reader import LARGE_NODES
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
    plan = plan_for(cluster, Limits(max_load_desired=0.5))
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
