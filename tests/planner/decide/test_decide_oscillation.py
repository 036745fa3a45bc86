"""Ten minutes of a restless cluster in virtual time: each deletion has a reason, and none comes again and again."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import pytest

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.limits import Limits, ServingLimits
from edl.model.plan import VOLUNTARY_SHRINKS
from edl.model.pods import Pod, PodPhase
from tests.worlds.builders import make_job, make_nodes, make_serving, make_snapshot
from tests.worlds.small_clusters import apply_plan, cores_of, later, plan_for, with_jobs, with_pods

ROUND_S, HALF_PERIOD_S, LENGTH_S = 5, 20, 600
LIMITS = Limits(serving=ServingLimits(grace_s=2.0))


def jobs_of(policy: str) -> tuple[Job, ...]:
    """Three jobs; where speeds count, they are such that the wave makes trading attractive."""
    jobs = (
        make_job("a", min_trainers=2, max_trainers=20),
        make_job("b", min_trainers=1, max_trainers=12, cpu=2),
        make_job("c", min_trainers=1, max_trainers=30),
    )
    if policy == "maxmin":
        return jobs
    scales, stalls = ((1, 100.0), (30, 2900.0)), ((1, 100.0), (4, 150.0), (12, 160.0))
    return tuple(replace(j, throughput=t) for j, t in zip(jobs, (scales, stalls, ()), strict=True))


def bind_serving(world: ClusterSnapshot) -> ClusterSnapshot:
    """What kube-scheduler does with waiting pods: each goes to the first node with room for it."""
    free = {n.name: cores_of_node(world, n.name) for n in world.nodes}
    pods: list[Pod] = []
    for pod in world.pods:
        node = next((n for n, room in free.items() if not pod.node and room >= cores_of(pod.shape)), "")
        if node:
            free[node] -= cores_of(pod.shape)
        pods.append(replace(pod, node=node, phase=PodPhase.RUNNING) if node else replace(pod, tried=True))
    return replace(world, pods=tuple(pods))


def cores_of_node(world: ClusterSnapshot, name: str) -> int:
    total = next(n.allocatable["cpu"] // 1000 for n in world.nodes if n.name == name)
    pods = (*world.pods, *(p for job in world.jobs for p in job.pods))
    return total - sum(cores_of(p.shape) for p in pods if p.node == name)


@pytest.mark.parametrize("policy", ["maxmin", "utility", "goodput"])
@pytest.mark.parametrize("serving", [(3, 3, 3), (7, 5, 2, 2)], ids=["even", "uneven"])
def test_a_serving_wave_every_twenty_seconds(policy: str, serving: tuple[int, ...]) -> None:
    world = make_snapshot(make_nodes(4), jobs_of(policy))
    world = later(apply_plan(world, plan_for(world, LIMITS, policy)), 120)
    start_s = world.observed_at_s
    voluntary: dict[str, list[float]] = defaultdict(list)
    placed_s: list[float] = []
    for elapsed_s in range(0, LENGTH_S, ROUND_S):
        if elapsed_s % (2 * HALF_PERIOD_S) == 0:
            wave = (make_serving(f"w{elapsed_s}-{i}", cpu=cpu) for i, cpu in enumerate(serving))
            world = with_pods(world, *(replace(p, created_s=world.observed_at_s, tried=True) for p in wave))
        elif elapsed_s % HALF_PERIOD_S == 0:
            world = replace(world, pods=())
        world = bind_serving(world)
        needed = sum(cores_of(p.shape) for p in world.pods if not p.node)
        free = sum(cores_of_node(world, n.name) for n in world.nodes)
        plan = plan_for(world, LIMITS, policy)
        shapes = {job.key: cores_of(job.trainer) for job in world.jobs}
        deleted = sum(len(d.victims) * shapes[d.job] for d in plan.decisions if d.shrink_reason == "ServingNeedsRoom")
        assert deleted <= needed + 1, (
            "no more is deleted for serving than it requests, but for one trainer of two cores"
        )
        assert not deleted or needed
        for decision in plan.decisions:
            assert decision.admitted
            if decision.shrink_reason in VOLUNTARY_SHRINKS:
                voluntary[decision.job.name].append(world.observed_at_s)
            if decision.victims and decision.shrink_reason != "ServingNeedsRoom":
                assert decision.target < decision.current, "nobody moves for nothing"
        if needed and free < needed and not deleted:
            placed_s.append(elapsed_s)
        world = later(apply_plan(world, plan), ROUND_S)
    for times in voluntary.values():
        assert all(b - a >= 60.0 for a, b in pairwise(times)), "a cooldown lies between two voluntary shrinks"
        assert len(times) <= LENGTH_S / 60 + 1
    assert placed_s == [], "serving waits for nothing but the plan that frees capacity"
    assert world.observed_at_s == start_s + LENGTH_S


@pytest.mark.parametrize("policy", ["maxmin", "utility", "goodput"])
def test_after_the_waves_the_cluster_is_full_and_still(policy: str) -> None:
    world = make_snapshot(make_nodes(4), jobs_of(policy))
    world = later(apply_plan(world, plan_for(world, LIMITS, policy)), 120)
    for _ in range(3):
        world = with_pods(world, make_serving("w", cpu=7))
        world = later(apply_plan(bind_serving(world), plan_for(world, LIMITS, policy)), 20)
        world = later(apply_plan(replace(world, pods=()), plan_for(replace(world, pods=()), LIMITS, policy)), 20)
        world = replace(world, pods=())
    for _ in range(4):
        world = later(apply_plan(world, plan_for(world, LIMITS, policy)), 60)
    assert sum(cores_of_node(world, n.name) for n in world.nodes) <= 1
    for _ in range(6):
        plan = plan_for(world, LIMITS, policy)
        assert [d.target - d.current for d in plan.decisions] == [0, 0, 0]
        assert not any(d.victims for d in plan.decisions)
        world = later(apply_plan(world, plan), 30)


def test_jobs_that_leave_one_by_one_end_hardly_a_trainer_of_the_others() -> None:
    """Ten jobs on twenty mixed nodes arrive; seven leave: the rest grow by what became free."""
    nodes = tuple(
        replace(n, name=f"n{i:02d}") for i, n in enumerate((*make_nodes(10, cpu=8), *make_nodes(10, cpu=16)))
    )
    world = make_snapshot(nodes)
    sizes = [(40, 1), (60, 1), (30, 2), (50, 1), (20, 2)] * 2
    for i, (max_trainers, cpu) in enumerate(sizes):
        job = make_job(f"job-{i}", min_trainers=2, max_trainers=max_trainers, cpu=cpu)
        world = with_jobs(world, replace(job, created_s=world.observed_at_s))
        for _ in range(3):
            plan = plan_for(world, LIMITS)
            assert all(d.shrink_reason in {"", "Admitted"} for d in plan.decisions)
            world = later(apply_plan(world, plan), 5)
    deleted = 0
    for i in range(7):
        world = replace(world, jobs=tuple(j for j in world.jobs if j.key.name != f"job-{i}"))
        for _ in range(3):
            plan = plan_for(world, LIMITS)
            deleted += sum(len(d.victims) for d in plan.decisions)
            world = later(apply_plan(world, plan), 5)
    assert deleted <= 2
