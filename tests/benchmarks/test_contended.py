"""The worlds of the benchmark `contended`, what a decision of one may cost, and how two planners are compared."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.contended_worlds import contended
from benchmarks.two_planners import Outcome, Table
from edl.model.limits import Limits
from edl.model.resources import CPU, MEMORY
from edl.planner.decide import study
from edl.planner.guard import check
from edl.planner.policies.registry import POLICIES
from edl.planner.solvers.integer_program import IntegerProgram, SolvedPrograms

ROWS = [(6, 6, 1), (12, 15, 12), (30, 15, 4), (60, 40, 12)]


@pytest.mark.parametrize(("nodes", "jobs", "sizes"), ROWS)
def test_a_contended_world_is_the_same_each_time_and_overcommits_no_node(nodes: int, jobs: int, sizes: int) -> None:
    world = contended(nodes, jobs, sizes, seed=3)
    assert world == contended(nodes, jobs, sizes, seed=3)
    assert world != contended(nodes, jobs, sizes, seed=4)
    used: Counter[tuple[str, str]] = Counter()
    for pod in (*world.pods, *(pod for job in world.jobs for pod in job.pods)):
        for name in (CPU, MEMORY):
            used[pod.node, name] += pod.shape.request[name]
    for node in world.nodes:
        assert all(used[node.name, name] <= node.allocatable[name] for name in (CPU, MEMORY))
    assert len({job.trainer for job in world.jobs}) == min(jobs, sizes)
    assert any(job.pods for job in world.jobs)
    assert any(not job.pods for job in world.jobs)


@pytest.mark.parametrize(("nodes", "jobs", "sizes"), ROWS)
def test_few_integer_programs_are_searched(
    nodes: int, jobs: int, sizes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[int] = []
    solve = IntegerProgram.solve

    def counted(program: IntegerProgram, limit_s: float, solved: SolvedPrograms | None = None) -> list[int] | None:
        searched.append(len(program.cost))
        return solve(program, limit_s, solved)

    monkeypatch.setattr(IntegerProgram, "solve", counted)
    world = contended(nodes, jobs, sizes, seed=0)
    plan = study(world, POLICIES["maxmin"], Limits(deadline_s=120.0)).plan
    assert not check(world, plan)
    assert not plan.cut
    assert len(searched) <= 8


def test_the_table_counts_what_is_worse() -> None:
    good = Outcome(2, (True, True), (0.3, 0.5), 0.8, deletions=4)
    table = Table()
    for worse in (
        good,
        Outcome(1, (True, True), (0.3, 0.5), 0.8, deletions=4),
        Outcome(2, (True, False), (0.9,), 0.9, deletions=4),
        Outcome(2, (True, True), (0.2, 0.7), 0.9, deletions=3),
        Outcome(2, (True, True), (0.3, 0.5), 0.8, deletions=5),
        Outcome(failure="refused"),
    ):
        table.add("world", good, worse)
    assert table.worse == {"serving": 1, "admission": 1, "leximin": 1, "deletions": 1, "failure": 1}
    assert table.better == {"sum": 1, "deletions": 1}
    assert table.losses == [pytest.approx(0.1)]
