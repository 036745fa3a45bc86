"""In any cluster, the pservers that move are the best choice, no job loses by it, and moves come to an end."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.names import Role
from edl.planner.consolidation import moves
from edl.planner.decide import study
from edl.planner.policies.registry import policy_named
from tests.worlds.builders import make_job, make_node, make_serving, make_snapshot
from tests.worlds.effort import examples
from tests.worlds.pserver_jobs import REST, with_pservers
from tests.worlds.small_clusters import apply_plan, cores_of, later, plan_for, targets


@st.composite
def quiet_clusters(draw: st.DrawFn) -> ClusterSnapshot:
    """Up to four nodes with serving pods, pservers of up to two jobs anywhere, and as many trainers as fit."""
    cores = draw(st.lists(st.integers(4, 9), min_size=2, max_size=4))
    nodes = tuple(make_node(f"n{i}", c, 64) for i, c in enumerate(cores))
    left = dict(zip((n.name for n in nodes), cores, strict=True))
    serving = []
    for node in nodes:
        size = draw(st.integers(0, 3))
        if size:
            serving.append(make_serving(f"web-{node.name}", cpu=size, node=node.name))
            left[node.name] -= size
    size = draw(st.integers(3, 4))
    jobs = []
    for name in draw(st.sampled_from([("a",), ("a", "b")])):
        each = draw(st.integers(1, 3))
        open_to = [n for n in left if left[n] >= each]
        on = draw(st.lists(st.sampled_from(open_to), min_size=1, max_size=2)) if open_to else []
        on = [n for i, n in enumerate(on) if left[n] >= each * (on[: i + 1].count(n))]
        for n in on:
            left[n] -= each
        if on:
            safe = draw(st.sampled_from([True, None]))
            job = with_pservers(
                make_job(name, min_trainers=1, max_trainers=8, cpu=size, age_s=100), each, tuple(on), safe=safe
            )
            jobs.append(job)
    world = make_snapshot(nodes, tuple(jobs), tuple(serving), now_s=2000.0)
    for _ in range(4):
        world = later(apply_plan(world, plan_for(world)), 1000)
    return world


def best_value(world: ClusterSnapshot, moved: frozenset[str]) -> float:
    """The best value of moving these pservers, gains less prices, found by trying every node for each of them.

    All trainers are alike, and those above a minimum may be deleted.
    """
    size = cores_of(world.jobs[0].trainer)
    free = {n.name: n.allocatable["cpu"] // 1000 for n in world.nodes}
    there, surplus = Counter[str](), Counter[str]()
    for pod in (*world.pods, *(p for j in world.jobs for p in j.pods)):
        if pod.role is Role.TRAINER:
            there[pod.node] += 1
            surplus[pod.node] += (pod.index or 0) >= 1
        elif pod.name not in moved:
            free[pod.node] -= cores_of(pod.shape)
    interrupted = sum(any(p.name in moved for p in j.pods) for j in world.jobs)
    wanted = sum(j.max_trainers - len(j.live_trainers) for j in world.jobs if j.was_admitted)
    sizes = [cores_of(p.shape) for j in world.jobs for p in j.pods if p.name in moved]
    values = []
    for places in product(free, repeat=len(sizes)):
        left = Counter(free)
        for place, cores in zip(places, sizes, strict=True):
            left[place] -= cores
        fit = {node: cores // size for node, cores in left.items()}
        deletions = {node: max(0, there[node] - n) for node, n in fit.items()}
        gain = min(wanted, sum(fit.values()) - there.total())
        if min(left.values()) >= 0 and all(deletions[n] <= surplus[n] for n in deletions) and gain >= interrupted:
            values.append(gain - 0.1 * sum(deletions.values()) - 0.7 * interrupted - 0.01 * len(moved))
    return max(values, default=-9.0)


@given(quiet_clusters())
@examples(60)
def test_no_choice_of_pservers_is_better_than_the_one_found(world: ClusterSnapshot) -> None:
    running = [j for j in world.jobs if j.was_admitted]
    if not running:
        return
    found = moves(study(world, policy_named("maxmin"), Limits()).context.shared.packing, 10.0).pservers
    names = [p.name for j in running for p in j.pods if p.role is Role.PSERVER]
    subsets = (frozenset(s) for n in range(len(names) + 1) for s in combinations(names, n))
    risky = [{p.name for p in j.pods if not p.safe_to_evict} for j in running]
    subsets = (s for s in subsets if all(len(s & few) < 2 for few in risky))
    best = max(best_value(world, moved) for moved in subsets)
    chosen = frozenset(name for pods in found.values() for name in pods)
    assert best_value(world, chosen) == pytest.approx(best)


@given(quiet_clusters())
@examples(60)
def test_moves_come_to_an_end_and_no_job_loses_a_trainer(world: ClusterSnapshot) -> None:
    counts = targets(plan_for(world))
    for _ in range(6):
        plan = plan_for(world, REST)
        if not any(d.moves for d in plan.decisions):
            return
        then = apply_plan(world, plan, gone=False, only_startable=True)
        assert targets(plan_for(then)) == targets(plan), "the next plan finishes the move"
        world = later(apply_plan(world, plan), 1000)
        now = targets(plan_for(world))
        assert sum(now.values()) > sum(counts.values())
        assert all(now[name] >= count for name, count in counts.items())
        counts = now
    raise AssertionError("pservers still move after six rounds")
