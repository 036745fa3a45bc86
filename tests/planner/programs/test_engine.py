"""Every job asks for another amount: there is a plan, it keeps every rule, and it is made soon."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.ruled import rules_for, world
from benchmarks.worlds import carried_out
from benchmarks.worst_worlds import many_sizes, one_odd_job
from edl.kube.translate.rules.apply import RuledSnapshots
from edl.kube.translate.rules.facts import NO_FACTS
from edl.kube.translate.rules.terms import PodRules
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits, Quota
from edl.model.plan import ScalePlan
from edl.model.resources import CPU
from edl.planner.decide import study
from edl.planner.guard import check
from edl.planner.policies.registry import policy_named
from edl.planner.problem_reader import read_problem
from edl.planner.programs.engine import has_many_sizes, with_engine
from edl.planner.programs.fluid import make_buckets, worth_of_buckets
from tests.worlds.builders import make_job, make_node, make_nodes, make_serving, make_snapshot, only_on

LIMITS = Limits(deadline_s=600.0)
SMALL_LIMITS = {"nodes": st.integers(8, 24), "jobs": st.integers(20, 30), "seed": st.integers(0, 9999)}


def planned(snapshot: ClusterSnapshot, limits: Limits = LIMITS, policy: str = "maxmin") -> ScalePlan:
    """The plan, which is not cut short."""
    plan = study(snapshot, policy_named(policy), limits).plan
    assert not plan.cut
    return replace(plan, seconds=0.0)


@settings(derandomize=True, deadline=None, max_examples=15)
@given(**SMALL_LIMITS)
def test_a_plan_keeps_every_rule_and_its_bound(nodes: int, jobs: int, seed: int) -> None:
    snapshot = many_sizes(nodes, jobs, seed).snapshot
    assert with_engine(read_problem(snapshot, LIMITS)).is_many

    plan = planned(snapshot)

    assert not check(snapshot, plan)
    assert plan.certificate.bound >= plan.certificate.achieved
    assert all(d.admitted and d.target >= d.min_trainers for d in plan.decisions)


@settings(derandomize=True, deadline=None, max_examples=5)
@given(**SMALL_LIMITS)
def test_equal_snapshots_give_equal_plans(nodes: int, jobs: int, seed: int) -> None:
    snapshot = many_sizes(nodes, jobs, seed).snapshot

    assert planned(snapshot) == planned(snapshot)


@pytest.mark.parametrize("policy", ["maxmin", "utility"])
def test_what_runs_is_kept_and_jobs_may_join(policy: str) -> None:
    snapshot = many_sizes(20, 24, 3).snapshot
    full = carried_out(snapshot, planned(snapshot, policy=policy))
    late = make_job("zz-late", cpu=2.37, memory_gib=3.125, max_trainers=9, age_s=-900.0)
    joined = replace(full, jobs=(*full.jobs, late))

    plan = planned(joined, policy=policy)

    assert not check(joined, plan)
    assert plan.decisions[-1].admitted


def test_quotas_and_the_allowed_load_hold() -> None:
    snapshot = many_sizes(20, 24, 5).snapshot
    snapshot = replace(snapshot, jobs=tuple(replace(job, queue="q") for job in snapshot.jobs))
    free = sum(node.allocatable[CPU] for node in snapshot.nodes)
    limits = replace(
        LIMITS, quotas=(Quota("q", ((CPU, free * 6 // 10),)),), sharing=replace(LIMITS.sharing, max_load_desired=0.8)
    )

    plan = planned(snapshot, limits)

    assert not check(snapshot, plan, limits.quotas)
    assert plan.certificate.bound >= plan.certificate.achieved


def test_one_odd_job_does_not_slow_the_others() -> None:
    snapshot = one_odd_job(30, 40, 1).snapshot

    plan = planned(snapshot)

    assert not check(snapshot, plan)
    assert plan.certificate.gap <= 0.1


def test_one_odd_job_leaves_a_large_cluster_its_patterns() -> None:
    snapshot = one_odd_job(300, 60, 1).snapshot
    odd = next(number for number, job in enumerate(snapshot.jobs) if job.key.name == "odd")

    made = study(snapshot, policy_named("maxmin"), LIMITS)

    (odd_shape,) = made.context.problem.odd_shapes
    assert made.context.problem.shapes[odd_shape] == snapshot.jobs[odd].trainer
    assert not made.context.problem.is_many
    assert not check(snapshot, made.plan)
    assert made.plan.certificate.gap <= 0.005
    assert made.plan.decisions[odd].target >= int(min(made.context.shared.level.values()))


def test_trainers_set_aside_have_no_advantage_and_are_kept() -> None:
    snapshot = one_odd_job(300, 60, 2).snapshot
    odd = next(job for job in snapshot.jobs if job.key.name == "odd")
    larger = replace(odd, max_trainers=20)
    snapshot = replace(snapshot, jobs=tuple(larger if job is odd else job for job in snapshot.jobs))

    made = study(snapshot, policy_named("maxmin"), LIMITS)
    full = carried_out(snapshot, made.plan)
    again = study(full, policy_named("maxmin"), LIMITS).plan

    level = {d.job.key.name: made.context.shared.level[d.index] for d in made.context.problem.demands}
    part = {
        job.key.name: (level[job.key.name] - job.min_trainers) / (job.max_trainers - job.min_trainers)
        for job in snapshot.jobs
    }
    assert part["odd"] == pytest.approx(min(part.values()))
    assert not check(full, again)
    assert not any(decision.victims for decision in again.decisions)


def test_a_bound_without_those_set_aside_is_a_bound_of_all_plans() -> None:
    snapshot = one_odd_job(270, 50, 3).snapshot
    problem = with_engine(read_problem(snapshot, LIMITS))
    assert problem.odd_shapes
    without = replace(snapshot, jobs=tuple(job for job in snapshot.jobs if job.key.name != "odd"))

    bound = planned(snapshot).certificate.bound

    assert bound >= planned(without).certificate.bound - 1e-6  # no trainer of the odd job takes the room of another
    assert bound <= planned(without).certificate.bound + 1.0 + 1e-3


def test_many_odd_jobs_are_not_set_aside() -> None:
    problem = with_engine(read_problem(many_sizes(300, 60, 1).snapshot, LIMITS))

    assert problem.is_many
    assert not problem.odd_shapes


def test_round_sizes_keep_their_patterns() -> None:
    jobs = tuple(make_job(f"j{i:02d}", cpu=1 + i % 12, memory_gib=2 + i % 9) for i in range(40))
    nodes = tuple(make_node(f"n{i:02d}", 32, 128) for i in range(40))

    assert not with_engine(read_problem(make_snapshot(nodes, jobs), LIMITS)).is_many


def test_the_worth_of_buckets_bounds_every_set_of_whole_pods() -> None:
    random = np.random.default_rng(4)
    for _ in range(20):
        capacity, request = random.integers(0, 12, (3, 2)), random.integers(1, 5, (2, 2))
        opened = random.random((2, 3)) < 0.8
        buckets = make_buckets(capacity, request, opened)
        slot, room = random.random(2), random.random(buckets.free.shape) * random.integers(0, 2)
        best = 0.0
        for n in range(3):
            sets = product(range(13), repeat=2)
            best += max(
                float(np.dot(slot, s))
                for s in sets
                if (np.array(s) @ request <= capacity[n]).all() and all(opened[k, n] or not s[k] for k in range(2))
            )
        assert worth_of_buckets(buckets, slot, room) >= best - 1e-9


def test_odd_sizes_on_many_nodes_of_few_kinds_are_packed_by_patterns() -> None:
    sizes = [(round(0.7 + 0.53 * k, 2), (11 + 17 * k % 61) / 8) for k in range(10)]
    nodes = tuple(make_node(f"n{i:03d}", (16, 32, 48)[i % 3], (64, 128, 96)[i % 3]) for i in range(300))
    jobs = tuple(make_job(f"j{k}", max_trainers=200, cpu=cpu, memory_gib=gib) for k, (cpu, gib) in enumerate(sizes))
    snapshot = make_snapshot(nodes, jobs)
    made = study(snapshot, policy_named("maxmin"), LIMITS)
    problem = made.context.problem
    assert has_many_sizes(problem.empty, problem.request, problem.opened)
    assert not problem.is_many
    assert not check(snapshot, made.plan)
    assert made.plan.certificate.gap <= 0.005


@pytest.mark.parametrize("count", [20, 150])
def test_many_serving_pods_that_each_name_their_node_leave_patterns_to_jobs(count: int) -> None:
    """They have one size, so one table would price all patterns; but nearly each node has patterns of its own."""
    nodes = make_nodes(150)
    jobs = tuple(
        make_job(f"j{k}", trainers=600, max_trainers=600, on=tuple(node.name for node in nodes[k::2]))
        for k in range(2)
    )
    pods = tuple(only_on(make_serving(f"web-{i:03d}"), node.name) for i, node in enumerate(nodes[:count]))
    snapshot = make_snapshot(nodes, jobs, pods)
    problem = with_engine(read_problem(snapshot, LIMITS))
    assert problem.is_many is (count > 20)
    assert problem.few_shapes == ({demand.shape for demand in problem.demands} if count > 20 else set())
    plan = planned(snapshot)
    assert not check(snapshot, plan)
    assert (plan.serving.placed, sum(len(d.victims) for d in plan.decisions)) == (count, 3 * count)
    assert plan.certificate.gap <= 0.01


def test_serving_with_rules_leaves_patterns_to_jobs() -> None:
    """Each rule is a resource, so sizes are many; programs of pods of jobs alone have their patterns all the same."""
    snapshot = world(300, 20, 4, 1)
    found = {}
    for share in (0.0, 1.0):
        ruled = RuledSnapshots().apply(
            snapshot, NO_FACTS, rules_for(snapshot, share), lambda _job, _role: PodRules("")
        )
        problem = with_engine(read_problem(ruled, LIMITS))
        assert problem.is_many is (share > 0)
        assert problem.few_shapes == ({demand.shape for demand in problem.demands} if share else set())
        plan = planned(ruled)
        assert not check(ruled, plan)
        found[share] = plan
    assert found[1.0].serving.placed == found[0.0].serving.placed
    assert found[1.0].certificate.gap <= found[0.0].certificate.gap + 0.005
