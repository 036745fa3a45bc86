"""The experiment of 2017, decided again on a surrogate of its 133 nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.worlds import jobs_2017, nodes_2017
from edl.model.cluster import ClusterSnapshot, Node
from edl.model.jobs import FixedPods, Job
from edl.model.names import Role
from edl.model.plan import ScalePlan
from edl.model.resources import CPU
from tests.worlds.builders import make_job, make_node, make_resources, make_serving, make_shape, make_snapshot
from tests.worlds.small_clusters import apply_plan, later, plan_for, targets, victims, with_jobs

RESERVED = make_resources(0.38)


def nodes_of_2017() -> tuple[Node, ...]:
    """The surrogate of the 133 nodes of the 2017 experiment: 69 of 12 cores, 63 of 24, 1 of 8."""
    sizes = [12] * 69 + [24] * 63 + [8]
    nodes = (make_node(f"n{i:03d}", cpu, 8 * cpu) for i, cpu in enumerate(sizes))
    return tuple(replace(node, reserved=RESERVED) for node in nodes)


def job_of_2017(name: str, created_s: float = 0.0) -> Job:
    fixed = (FixedPods(Role.PSERVER, make_shape(4, 5), 10), FixedPods(Role.MASTER, make_shape(1, 1), 1))
    job = make_job(name, min_trainers=2, max_trainers=60, cpu=5, memory_gib=8, fixed=fixed)
    return replace(job, created_s=created_s)


def jain(plan: ScalePlan) -> float:
    shares = [(d.target - d.min_trainers) / (d.max_trainers - d.min_trainers) for d in plan.decisions]
    return sum(shares) ** 2 / (len(shares) * sum(share**2 for share in shares))


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


CORES_IN_ALL = 2348  # of 133 nodes, with the 0.38 cores of each that system pods use


def free_cores_after(world: ClusterSnapshot, plan: ScalePlan) -> list[float]:
    """Cores of each node that nobody holds once the plan is carried out; waiting serving pods are not placed."""
    free = {node.name: node.allocatable[CPU] for node in world.nodes}
    for pod in (pod for job in apply_plan(world, plan).jobs for pod in job.pods):
        free[pod.node] -= pod.shape.request[CPU]
    assert min(free.values()) >= 0
    return [milli / 1000 for milli in free.values()]


def test_twenty_jobs_use_all_that_whole_pods_can_use() -> None:
    """254 trainers are the integer optimum: nodes of 11.62, 23.62 and 7.62 cores hold them beside 220 fixed pods."""
    world = make_snapshot(nodes_2017(), jobs_2017(20))
    plan = plan_for(world)
    assert sum(targets(plan).values()) == 254
    assert all(d.admitted and len(d.fixed_nodes) == 11 for d in plan.decisions)
    used = CORES_IN_ALL - sum(free_cores_after(world, plan))
    assert round(100 * used / CORES_IN_ALL, 1) == 91.2


@pytest.mark.parametrize(("waiting", "optimum"), [(400, 153), (300, 213), (200, 273), (100, 327)])
def test_six_jobs_beside_serving_that_waits_use_all_that_whole_pods_can_use(waiting: int, optimum: int) -> None:
    world = make_snapshot(nodes_2017(), jobs_2017(6), tuple(make_serving(f"web-{i:03d}") for i in range(waiting)))
    plan = plan_for(world)
    assert (plan.serving.placed, plan.serving.short) == (waiting, 0)
    assert abs(sum(targets(plan).values()) - optimum) <= 1
    free = free_cores_after(world, plan)
    assert sum(cores // 3 for cores in free) >= waiting
    used = CORES_IN_ALL - sum(free) + 3 * waiting
    assert 94.5 <= 100 * used / CORES_IN_ALL <= 97
