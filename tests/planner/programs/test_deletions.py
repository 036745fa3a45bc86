"""The program of deletions proposes only what fits to the byte, although its solver works with a tolerance."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edl.model.limits import Limits
from edl.model.resources import CPU, MEMORY, PODS, Placement, PodShape, Resources
from edl.planner.problem_reader import read_problem
from edl.planner.programs.deletions import fewest_victims
from edl.planner.solvers.integer_program import IntegerProgram, SolvedPrograms
from edl.planner.trial_packing import TrialPacking
from tests.worlds.builders import GIB, make_job, make_node, make_serving, make_shape, make_snapshot

TINY = PodShape(Resources.of({CPU: 1, MEMORY: 36, PODS: 1}))
DEADLINE_S = 60.0


def small_packing(nodes: int) -> TrialPacking:
    """Nodes of 64 GiB, a job of one trainer of 64 GiB, and a waiting serving pod of 36 bytes."""
    pods = (replace(make_serving("s", cpu=1, memory_gib=1), shape=TINY),)
    job = make_job("large", cpu=1, memory_gib=64, max_trainers=1)
    rows = tuple(make_node(f"n{i}", 16, 64) for i in range(nodes))
    return TrialPacking(read_problem(make_snapshot(rows, (job,), pods), Limits()), (0,))


def test_does_not_place_a_tiny_pod_on_a_full_node() -> None:
    packing = small_packing(nodes=1)
    (waiting,) = packing.problem.waiting

    assert fewest_victims(packing, {waiting.shape: 1}, DEADLINE_S) is None


def test_finds_the_node_that_has_room_for_a_tiny_pod() -> None:
    packing = small_packing(nodes=2)
    (waiting,) = packing.problem.waiting

    found = fewest_victims(packing, {waiting.shape: 1}, DEADLINE_S)

    assert found is not None
    used = {node: 0 for node, _, _ in found.places}
    for node, shape, pods in found.places:
        used[node] += pods * int(packing.problem.request[shape, packing.problem.names.index(MEMORY)])
    assert sorted(used.values()) == [36, 64 * GIB]


@pytest.mark.parametrize("late", ["n0", "n1"])
def test_a_minimum_moves_to_a_node_where_it_need_not_wait_for_pods_that_end(late: str) -> None:
    """The serving pod may use the job's node alone; the job's trainer would wait for an ending one on one of two."""
    only = Placement(node_selector=(("kubernetes.io/hostname", "home"),))
    web = replace(make_serving("web", cpu=4), shape=make_shape(4, placement=only))
    job = make_job("moves", cpu=4, trainers=1, max_trainers=1, on=("home",))
    ended = make_job("ended", cpu=4, trainers=1, max_trainers=1, on=(late,))
    ended = replace(ended, suspended=True, pods=tuple(replace(pod, terminating=True) for pod in ended.pods))
    nodes = tuple(make_node(name, 4) for name in ("home", "n0", "n1"))
    packing = TrialPacking(read_problem(make_snapshot(nodes, (job, ended), (web,)), Limits()), (0,))
    (waiting,) = packing.problem.waiting

    found = fewest_victims(packing, {waiting.shape: 1}, DEADLINE_S)

    assert found is not None
    moved = {nodes[node].name for node, shape, pods in found.places if shape != waiting.shape and pods}
    assert moved == {"n0", "n1"} - {late}


@pytest.mark.parametrize(
    ("known", "most", "gap", "deletions"),
    [
        (0, 27, 0.0, 9),
        (8, 27, 0.0, None),
        (9, 27, 0.1, None),
        (10, 27, 0.09, 9),
        (2, 20, 0.0, None),  # seven trainers go in any case, so two deletions are known to be enough
        (3, 20, 0.0, 9),
    ],
)
def test_only_fewer_deletions_than_are_known_to_be_enough_are_looked_for(
    known: int, most: int, gap: float, deletions: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nine nodes are full of trainers of two cores; one of three must leave each for a serving pod of two cores."""
    nodes = tuple(make_node(f"n{i}", 6) for i in range(9))
    places = tuple(node.name for node in nodes for _ in range(3))
    job = make_job("a", cpu=2, trainers=27, min_trainers=1, max_trainers=most, on=places)
    serving = tuple(replace(make_serving(f"s{i}", cpu=2), tried=True) for i in range(9))
    packing = TrialPacking(read_problem(make_snapshot(nodes, (job,), serving), Limits()), (0,))
    gaps: list[float | None] = []
    solve = IntegerProgram.solve

    def noted(program: IntegerProgram, limit_s: float, solved: SolvedPrograms) -> list[int] | None:
        gaps.append(program.gap)
        return solve(program, limit_s, solved)

    monkeypatch.setattr(IntegerProgram, "solve", noted)
    (waiting,) = packing.problem.waiting
    found = fewest_victims(packing, {waiting.shape: 9}, DEADLINE_S, known=known)
    assert (None if found is None else len(found.deleted)) == deletions
    assert set(gaps) == {gap}
