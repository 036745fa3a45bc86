"""Every job asks for another amount: there is a plan, it keeps every rule, and it is made soon."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.worlds import carried_out
from benchmarks.worst_worlds import many_sizes, one_odd_job
from edl.model.cluster import ClusterSnapshot
from edl.model.plan import Limits, Quota, ScalePlan
from edl.model.resources import CPU
from edl.planner.decide import study
from edl.planner.guard import check
from edl.planner.policies.registry import policy_named
from edl.planner.problem_reader import read_problem
from edl.planner.programs.engine import with_engine
from edl.planner.programs.fluid import make_buckets, worth_of_buckets
from tests.worlds.builders import make_job, make_node, make_snapshot

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
    limits = replace(LIMITS, quotas=(Quota("q", ((CPU, free * 6 // 10),)),), max_load_desired=0.8)

    plan = planned(snapshot, limits)

    assert not check(snapshot, plan, limits.quotas)
    assert plan.certificate.bound >= plan.certificate.achieved


def test_one_odd_job_does_not_slow_the_others() -> None:
    snapshot = one_odd_job(30, 40, 1).snapshot

    plan = planned(snapshot)

    assert not check(snapshot, plan)
    assert plan.certificate.gap <= 0.1


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
        slot, room = random.random(2), random.random(buckets.room.shape) * random.integers(0, 2)
        best = 0.0
        for n in range(3):
            sets = product(range(13), repeat=2)
            best += max(
                float(np.dot(slot, s))
                for s in sets
                if (np.array(s) @ request <= capacity[n]).all() and all(opened[k, n] or not s[k] for k in range(2))
            )
        assert worth_of_buckets(buckets, slot, room) >= best - 1e-9
