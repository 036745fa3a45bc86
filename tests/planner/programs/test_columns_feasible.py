"""A program that whole pods on whole nodes solve is never called infeasible, whatever columns it begins with."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp

from edl.errors import PlanError, PlanFailure
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.resources import Resources
from edl.planner.guard import check
from edl.planner.problem import Problem
from edl.planner.problem_reader import read_problem
from edl.planner.programs.columns import make_columns
from edl.planner.programs.generation import Program, solve
from tests.worlds.builders import make_job, make_node, make_serving, make_snapshot
from tests.worlds.effort import examples
from tests.worlds.small_clusters import plan_for

DEADLINE_S = 60.0
MILLI = st.integers(3, 90).map(lambda tenths: tenths / 10)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """A few large nodes and a few shapes."""
    nodes = tuple(
        make_node(f"n{i}", draw(st.integers(80, 640)) / 10, draw(st.integers(40, 200)))
        for i in range(draw(st.integers(1, 2)))
    )
    sizes = range(draw(st.integers(2, 4)))
    jobs = tuple(make_job(f"j{i}", cpu=draw(MILLI), memory_gib=draw(st.integers(1, 40))) for i in sizes)
    return replace(read_problem(make_snapshot(nodes, jobs), Limits()), plans_in_bulk=draw(st.booleans()))


@st.composite
def packed(draw: st.DrawFn) -> tuple[Problem, list[int]]:
    """A problem, and the pods of a random packing that leaves no room for another one."""
    problem = draw(problems())
    free, random = problem.empty.copy(), draw(st.randoms(use_true_random=False))
    wanted = [0] * len(problem.shapes)
    for node in range(len(free)):
        while fitting := [s for s, request in enumerate(problem.request) if (request <= free[node]).all()]:
            s = random.choice(fitting)
            free[node] -= problem.request[s]
            wanted[s] += 1
    return problem, wanted


def can_be_placed(problem: Problem, wanted: list[int]) -> bool:
    """Whether whole pods fit, by an integer program over nodes: x[node, shape] pods."""
    nodes, shapes = len(problem.empty), len(wanted)
    rows, low, high = [], [], []
    for n in range(nodes):
        for r in range(len(problem.names)):
            row = np.zeros((nodes, shapes))
            row[n] = problem.request[:, r]
            rows.append(row.ravel() / max(1, int(problem.empty[n, r])))
            low.append(-np.inf)
            high.append(1.0)
    for s, count in enumerate(wanted):
        row = np.zeros((nodes, shapes))
        row[:, s] = 1
        rows.append(row.ravel())
        low.append(count)
        high.append(np.inf)
    size = nodes * shapes
    found = milp(
        np.zeros(size),
        constraints=LinearConstraint(np.array(rows), low, high),
        integrality=np.ones(size, dtype=np.int64),
        bounds=Bounds(0, np.inf),
    )
    return bool(found.status == 0)


def program_of(wanted: list[int]) -> Program:
    size = len(wanted)
    return Program(
        gain=np.ones(size),
        low=np.zeros(size),
        high=np.ones(size),
        use=np.eye(size),
        need=np.array(wanted, dtype=np.float64),
        rows=np.zeros((0, size)),
        limits=np.zeros(0),
    )


@examples(120)
@given(packed())
def test_pods_that_were_packed_have_a_solution(world: tuple[Problem, list[int]]) -> None:
    problem, wanted = world
    columns = make_columns(problem, problem.empty, range(len(wanted)))
    assert solve(program_of(wanted), columns, DEADLINE_S).value >= 0


@examples(60)
@given(problems(), st.lists(st.integers(0, 14), min_size=4, max_size=4))
def test_what_is_called_infeasible_is_placed_by_no_integer_program(problem: Problem, counts: list[int]) -> None:
    wanted = counts[: len(problem.shapes)]
    columns = make_columns(problem, problem.empty, range(len(wanted)))
    if can_be_placed(problem, wanted):
        assert solve(program_of(wanted), columns, DEADLINE_S).value >= 0
    else:
        with suppress(PlanError):  # parts of pods may fit
            solve(program_of(wanted), columns, DEADLINE_S)


def test_what_no_packing_places_is_still_called_infeasible() -> None:
    problem = read_problem(make_snapshot((make_node("n", 8, 64),), (make_job("a", cpu=3),)), Limits())
    columns = make_columns(problem, problem.empty, range(1))
    with pytest.raises(PlanError) as raised:
        solve(program_of([3]), columns, DEADLINE_S)
    assert raised.value.failure is PlanFailure.INFEASIBLE


def one_node(gpu_cores: float, gpu_trainers: int, cores: float, running: int) -> ClusterSnapshot:
    """A node of 63.77 cores and 8 GPUs, a pinned job with all GPUs, an elastic one, and a serving pod that waits."""
    node = make_node("n", 63.77, 512)
    node = replace(node, allocatable=node.allocatable + Resources.of({"nvidia.com/gpu": 8}))
    with_gpus = make_job(
        "gpu",
        pinned=gpu_trainers,
        min_trainers=gpu_trainers,
        max_trainers=gpu_trainers,
        cpu=gpu_cores,
        memory_gib=16,
        trainers=gpu_trainers if running else 0,
        on=("n",),
    )
    request = with_gpus.trainer.request + Resources.of({"nvidia.com/gpu": 8 // gpu_trainers})
    shape = replace(with_gpus.trainer, request=request)
    with_gpus = replace(with_gpus, trainer=shape, pods=tuple(replace(pod, shape=shape) for pod in with_gpus.pods))
    elastic = make_job("cpu", min_trainers=1, max_trainers=80, cpu=cores, memory_gib=2, trainers=running, on=("n",))
    return make_snapshot((node,), (with_gpus, elastic), (make_serving("s", cpu=3),))


@pytest.mark.parametrize("policy", ["utility", "maxmin"])
@examples(14)
@given(
    st.sampled_from([(8, 8), (7.7, 4), (4, 1), (2, 8), (16, 2), (7.9, 2)]),
    st.sampled_from([0.5, 0.77, 0.9, 1.5, 2.0, 2.3]),
    st.sampled_from([0, 5, 9]),
)
def test_a_node_of_odd_size_with_a_pinned_job_is_planned(
    policy: str, gpu: tuple[float, int], cores: float, running: int
) -> None:
    each, count = gpu
    if each * count > 60:
        count //= 2
    snapshot = one_node(each, count, cores, running)
    plan = plan_for(snapshot, policy=policy)
    assert check(snapshot, plan) == ()
    assert plan.serving.placed == 1
    assert all(decision.admitted for decision in plan.decisions)
