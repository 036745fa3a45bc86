"""Thousands of trainers without requests find their nodes in few steps, and the others wait once the time is over."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, count, repeat

import pytest

from benchmarks.hostile_jobs import HONEST, KINDS, beside, cluster
from edl.model.limits import Limits
from edl.planner import decide
from edl.planner.best_effort.emptiest_nodes import EmptiestNodes
from edl.planner.best_effort.remainder import with_remainder
from edl.planner.clock import Clock
from edl.planner.decide import study
from edl.planner.guard import check
from edl.planner.policies.registry import policy_named
from edl.planner.problem import IntArray
from edl.planner.problem_reader import read_problem
from edl.planner.sharing import Share
from edl.planner.trial_packing import TrialPacking
from tests.worlds.builders import make_job, make_node, make_snapshot
from tests.worlds.small_clusters import plan_for, targets


def test_all_nodes_are_looked_at_once_and_not_once_a_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    looked, slots = count(), TrialPacking.slots

    def counted(packing: TrialPacking, shape: int) -> IntArray:
        next(looked)
        return slots(packing, shape)

    monkeypatch.setattr(TrialPacking, "slots", counted)
    plan = plan_for(beside(cluster(60), *(KINDS["best effort"](i, 60) for i in range(2))))

    assert targets(plan)[HONEST.key.name] == HONEST.max_trainers
    assert sum(targets(plan).values()) > 5_000
    assert next(looked) < 300


@pytest.mark.parametrize(("steps", "more"), [(0, False), (40, True)])
@pytest.mark.parametrize("kind", ["best effort", "best effort, hostnames", "best effort, running"])
def test_growth_without_requests_ends_with_its_time(
    kind: str, steps: int, more: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = beside(cluster(60), *(KINDS[kind](i, 60) for i in range(2)))
    times: Iterator[float] = repeat(0.0)

    def ends_soon(shared: Share, *, may_grow: bool) -> Share:
        nonlocal times
        times = chain(repeat(9.0, steps), repeat(9.5))
        return with_remainder(shared, may_grow=may_grow)

    monkeypatch.setattr(decide, "with_remainder", ends_soon)
    clock = Clock(10.0, lambda: next(times))
    plan = study(world, policy_named("maxmin"), Limits(), clock=clock).plan

    assert plan.cut == ("best effort",)
    assert targets(plan)[HONEST.key.name] == HONEST.max_trainers
    assert not check(world, plan, Limits().quotas)
    hungry = [d for d in plan.decisions if d.job != HONEST.key]
    assert all(d.admitted and d.min_trainers <= d.target < d.max_trainers for d in hungry)
    assert more or kind == "best effort, running" or all(d.target == d.min_trainers for d in hungry)


def test_the_next_node_is_the_one_that_a_look_at_all_nodes_would_find() -> None:
    nodes = tuple(make_node(f"n{i}", cpu=1 + i % 3, memory_gib=4 + i % 5, pods=3 + i % 4) for i in range(12))
    problem = read_problem(make_snapshot(nodes, (make_job("a", cpu=0.25, memory_gib=0.5),)), Limits())
    packing, shape = TrialPacking(problem, (0,)), problem.demands[0].shape
    users = problem.opened[[shape]].sum(axis=0)
    emptiest = EmptiestNodes(packing, users)

    def find() -> int:
        return EmptiestNodes(packing, users).best(shape)

    placed = 0
    while (node := emptiest.best(shape)) >= 0:
        assert node == find()
        packing.place_trainer(0, node)
        placed += 1
        if placed % 5 == 0:
            gone = packing.placed[placed // 2]
            packing.drop(gone)
            emptiest.grew(gone.node)
            placed -= 1
            assert emptiest.best(shape) == find()
            packing.place_trainer(0, emptiest.best(shape))
            placed += 1
    assert find() == -1
    assert not packing.slots(shape).any()
