"""Both solvers: the same values, prices that prove them, and an outcome for every program that has no solution."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from highspy import Highs, HighsStatus
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import random as sparse

from benchmarks.random_worlds import random_world
from benchmarks.worlds import fleet, mixed
from benchmarks.worst_worlds import many_sizes
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.planner.decide import study
from edl.planner.guard import check
from edl.planner.policies.registry import policy_named
from edl.planner.solvers.linear_program import REFUSED, FloatArray, LinearProgram, Outcome, Solver, solved
from edl.planner.solvers.matrix import Matrix
from edl.planner.solvers.with_highspy import Highspy
from edl.planner.solvers.with_scipy import Scipy
from tests.worlds.effort import examples

ROOT = Path(__file__).parents[3]
SOLVERS = pytest.mark.parametrize("solver", [Highspy(), Scipy()], ids=lambda solver: solver.name)
LIMIT_S = 600.0
LIMITS = Limits(deadline_s=LIMIT_S)
NUMBERS = st.integers(-4, 6).map(float)


@st.composite
def programs(draw: st.DrawFn) -> LinearProgram:
    """A small program; some have no solution, some no optimum."""
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 6))

    def numbers(count: int) -> FloatArray:
        return np.array(draw(st.lists(NUMBERS, min_size=count, max_size=count)))

    low = numbers(columns)
    high = low + draw(st.lists(st.sampled_from([0.0, 1.0, 5.0, np.inf]), min_size=columns, max_size=columns))
    left = Matrix.from_dense(numbers(rows * columns).reshape(rows, columns))
    return LinearProgram(numbers(columns), left, numbers(rows), low, high, grows=draw(st.booleans()))


def with_columns(program: LinearProgram, columns: Matrix) -> LinearProgram:
    """The program with further columns that cost nothing, all at once."""
    more = np.zeros(columns.shape[1])
    return LinearProgram(
        np.concatenate([program.cost, more]),
        Matrix.from_dense(np.hstack([program.left.dense(), columns.dense()])),
        program.right,
        np.concatenate([program.low, more]),
        np.concatenate([program.high, more + np.inf]),
    )


def lower_bound(program: LinearProgram, price: FloatArray) -> float:
    """What no solution is below, by prices that are not negative."""
    price = price.clip(min=0)
    pays = program.cost + program.left.dense().T @ price
    pays[np.abs(pays) < 1e-7] = 0.0
    if np.isinf(program.high[pays < 0]).any():
        return -np.inf
    taken = np.where(pays < 0, program.high, program.low)
    return float(pays @ np.where(np.isinf(taken), 0.0, taken) - price @ program.right)


@examples(300)
@given(programs())
def test_both_solvers_find_the_same_value_and_prices_that_prove_it(program: LinearProgram) -> None:
    answers = [solver.load(program).solve(LIMIT_S) for solver in (Highspy(), Scipy())]

    assert (answers[0].outcome is Outcome.OPTIMAL) == (answers[1].outcome is Outcome.OPTIMAL)
    for answer in answers:
        if answer.outcome is Outcome.OPTIMAL:
            assert answer.value == pytest.approx(answers[0].value, abs=1e-6)
            assert (program.left.dense() @ answer.x <= program.right + 1e-6).all()
            assert lower_bound(program, answer.price) == pytest.approx(answer.value, abs=1e-5)


@SOLVERS
@examples(150)
@given(programs(), st.data())
def test_columns_that_are_added_count_as_if_they_had_been_there(
    solver: Solver, program: LinearProgram, data: st.DataObject
) -> None:
    rows = len(program.right)
    model, all_at_once = solver.load(program), program
    for _ in range(2):
        model.solve(LIMIT_S)
        numbers = data.draw(st.lists(NUMBERS, min_size=2 * rows, max_size=2 * rows))
        columns = Matrix.from_dense(np.array(numbers).reshape(rows, 2))
        model.add(columns)
        all_at_once = with_columns(all_at_once, columns)

    found, expected = model.solve(LIMIT_S), solver.load(all_at_once).solve(LIMIT_S)

    assert (found.outcome is Outcome.OPTIMAL) == (expected.outcome is Outcome.OPTIMAL)
    if expected.outcome is Outcome.OPTIMAL:
        assert found.value == pytest.approx(expected.value, abs=1e-6)
        assert len(found.x) == len(all_at_once.cost)
        assert lower_bound(all_at_once, found.price) == pytest.approx(found.value, abs=1e-5)


def one_variable(cost: float, left: float, right: float, high: float) -> LinearProgram:
    number = [np.array([n]) for n in (cost, right, 0.0, high)]
    return LinearProgram(number[0], Matrix.from_dense(np.array([[left]])), number[1], number[2], number[3])


def test_the_first_program_of_a_process_prints_nothing() -> None:
    """Standard output is for the plan; HiGHS 1.16.0 writes its version there when it is first used."""
    first = "from highspy import Highs\nHighs().setOptionValue('output_flag', False)"
    done = subprocess.run([sys.executable, "-c", first], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


@SOLVERS
def test_a_program_without_a_solution_is_called_infeasible(solver: Solver) -> None:
    assert solver.load(one_variable(1, 1, -1, 9)).solve(LIMIT_S).outcome is Outcome.INFEASIBLE


@SOLVERS
def test_a_program_without_an_optimum_is_called_unbounded(solver: Solver) -> None:
    assert solver.load(one_variable(-1, -1, 0, np.inf)).solve(LIMIT_S).outcome is Outcome.UNBOUNDED


@SOLVERS
@pytest.mark.parametrize(("right", "outcome"), [(0.0, Outcome.OPTIMAL), (-1.0, Outcome.INFEASIBLE)])
def test_a_program_without_columns_is_solved_by_nothing(solver: Solver, right: float, outcome: Outcome) -> None:
    none = np.zeros(0)
    answer = solver.load(
        LinearProgram(none, Matrix.from_dense(np.zeros((2, 0))), np.array([3.0, right]), none, none)
    ).solve(LIMIT_S)

    assert answer.outcome is outcome
    if outcome is Outcome.OPTIMAL:
        assert (answer.value, len(answer.x), answer.price.tolist()) == (0.0, 0, [0.0, 0.0])


@SOLVERS
def test_a_cluster_of_many_sizes_without_a_free_node_has_a_plan(solver: Solver) -> None:
    world = many_sizes(20, 24, 5).snapshot
    full = tuple(replace(node, reserved=node.allocatable) for node in world.nodes)
    plan = study(replace(world, nodes=full), policy_named("maxmin"), LIMITS, solver=solver).plan

    assert not any(decision.admitted for decision in plan.decisions)


@SOLVERS
@pytest.mark.parametrize("numbers", [(np.nan, 1, 1, 1), (1, np.nan, 1, 1), (1, 1, np.nan, 1), (1, 1, 1, np.nan)])
def test_a_number_that_is_none_is_refused(solver: Solver, numbers: tuple[float, float, float, float]) -> None:
    assert solver.load(one_variable(*numbers)).solve(LIMIT_S) is REFUSED


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_optimum_with_a_number_that_is_none_is_no_optimum(value: float) -> None:
    none = np.zeros(1)
    assert solved("", 0.0, none, none).outcome is Outcome.OPTIMAL
    assert solved("", value, none, none).outcome is Outcome.BROKEN
    assert solved("", 0.0, none + value, none).outcome is Outcome.BROKEN
    assert solved("", 0.0, none, none + value).outcome is Outcome.BROKEN


def large() -> LinearProgram:
    """A program that takes a good part of a second."""
    rows, columns = 500, 800
    random = np.random.default_rng(1)
    left = Matrix.from_dense(sparse(rows, columns, density=0.05, random_state=1).toarray())
    return LinearProgram(-random.random(columns), left, np.full(rows, 3.0), np.zeros(columns), np.full(columns, 5.0))


@SOLVERS
def test_a_solver_ends_at_its_time(solver: Solver) -> None:
    assert solver.load(large()).solve(1e-3).outcome is Outcome.LATE


def test_each_solve_has_its_time_however_long_the_model_has_been_used(monkeypatch: pytest.MonkeyPatch) -> None:
    class Used(Highs):
        """A solver that has run for a long time; it notes the limits that it is given."""

        limits: ClassVar[list[float]] = []

        def getRunTime(self) -> float:  # noqa: N802 - the library's name
            return 100.0 + super().getRunTime()

        def setOptionValue(self, option_name: str, option_value: Any) -> HighsStatus:  # noqa: N802 - the same
            if option_name == "time_limit":
                self.limits.append(option_value)
            return super().setOptionValue(option_name, option_value)

    monkeypatch.setattr("edl.planner.solvers.with_highspy.Highs", Used)

    answer = Highspy().load(one_variable(-1, 1, 1, 9)).solve(5.0)

    assert answer.outcome is Outcome.OPTIMAL
    assert Used.limits == [pytest.approx(105.0, abs=1.0)]


@SOLVERS
def test_nothing_is_written(solver: Solver, capfd: pytest.CaptureFixture[str]) -> None:
    solver.load(large()).solve(LIMIT_S)

    assert capfd.readouterr() == ("", "")


@SOLVERS
@pytest.mark.parametrize("snapshot", [fleet(20, 8), many_sizes(20, 24, 5).snapshot], ids=["patterns", "many sizes"])
def test_the_same_program_gives_the_same_plan_twice(solver: Solver, snapshot: ClusterSnapshot) -> None:
    policy = policy_named("maxmin")
    plans = [replace(study(snapshot, policy, LIMITS, solver=solver).plan, seconds=0.0, stages=()) for _ in range(2)]

    assert plans[0] == plans[1]


@pytest.mark.parametrize("snapshot", [fleet(20, 8), mixed(12, 6), many_sizes(20, 24, 5).snapshot])
def test_both_solvers_promise_the_same_levels_and_prove_the_same_bound(snapshot: ClusterSnapshot) -> None:
    made = [study(snapshot, policy_named("maxmin"), LIMITS, solver=solver) for solver in (Highspy(), Scipy())]

    levels = [np.array(sorted(one.context.shared.level.items())) for one in made]
    np.testing.assert_allclose(levels[0], levels[1], atol=1e-4)
    bounds = [one.plan.certificate.bound for one in made]
    assert bounds[0] == pytest.approx(bounds[1], rel=5e-3)


@pytest.mark.parametrize("number", range(6))
def test_random_worlds_have_plans_by_scipy(number: int) -> None:
    world = random_world(number)

    plan = study(
        world.snapshot, policy_named("maxmin"), replace(world.limits, deadline_s=LIMIT_S), solver=Scipy()
    ).plan

    assert not check(world.snapshot, plan, world.limits.quotas)
    assert plan.certificate.bound >= plan.certificate.achieved


WITHOUT = """
import sys
sys.modules["highspy"] = None
from edl.planner.solvers.choice import DEFAULT_SOLVER
from tests.worlds.builders import make_job, make_node, make_snapshot
from tests.worlds.small_clusters import plan_for
plan = plan_for(make_snapshot((make_node("n", 8, 64),), (make_job("a", cpu=3),)))
print(DEFAULT_SOLVER.name, plan.decisions[0].target)
"""


def test_without_highspy_plans_are_made_by_scipy() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], cwd=ROOT, capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["scipy", "2"]


def stored(name: str) -> LinearProgram:
    """A program of `data`: each column is its cost, its left sides, and its bounds; null is infinity."""
    found = json.loads((Path(__file__).parent / "data" / f"{name}.json").read_text())
    table = np.array([[np.inf if x is None else x for x in column] for column in found["columns"]])
    left = Matrix.from_dense(table[:, 1:-2].T)
    return LinearProgram(table[:, 0], left, np.array(found["right"]), table[:, -2], table[:, -1], grows=True)


def test_a_program_that_the_primal_method_gives_up_is_solved() -> None:
    program = stored("unknown")
    model = Highspy().load(program)
    first = model.solve(LIMIT_S)
    model.add(Matrix.from_dense(np.array([[1.0], [0.0], [0.0]])))
    for answer in (first, model.solve(LIMIT_S)):
        assert answer.outcome is Outcome.OPTIMAL
        assert answer.value == pytest.approx(Scipy().load(program).solve(LIMIT_S).value)
        assert (program.left.dense() @ answer.x[: len(program.cost)] <= program.right + 1e-6).all()
