"""Linear programs over patterns: how many nodes of each class hold which pattern, and what else fits then.

A program is solved over the patterns known so far. Pricing finds better ones until there are none, and each round
gives a bound that no solution with any pattern exceeds. Duals are prices: what one more slot, or one more node of a
class, is worth.

Source: the Lagrangian bound of column generation and the smoothing of prices, Desrosiers and Luebbecke, A Primer in
Column Generation (2005), section 1.4; Pessoa et al., INFORMS Journal on Computing 30(2), 2018.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from scipy.sparse import csr_array

from edl.errors import PlanError, PlanFailure
from edl.planner.clock import OutOfTimeError
from edl.planner.problem import IntArray
from edl.planner.programs.columns import EPSILON, Columns, FloatArray
from edl.planner.programs.fluid import Buckets, buckets_of, constraints, most_places, node_prices, worth_of_buckets
from edl.planner.solvers.linear_program import Answer, LinearProgram, Model, Outcome
from edl.planner.solvers.matrix import Matrix

MAX_ROUNDS = 40
GAP = 1e-6  # part of the value; if patterns are not listed, a bound so near is near enough
SMOOTHING = 0.5  # weight of the best prices so far in the prices that patterns are searched at
_FAILURES = {
    Outcome.LATE: PlanFailure.LATE_SOLVER,
    Outcome.INFEASIBLE: PlanFailure.INFEASIBLE,
    Outcome.UNBOUNDED: PlanFailure.UNBOUNDED,
}


class Engine(StrEnum):
    """The method that gave a bound."""

    PATTERNS = "patterns"
    FLUID = "fluid"


@dataclass(frozen=True, slots=True)
class Program:
    """Maximise `gain @ v` over the variables v and the uses y of each column.

    Attributes:
        gain: (variables,) objective.
        low: (variables,) lower bounds.
        high: (variables,) upper bounds.
        use: (shapes, variables) slots of each shape that one unit of a variable takes.
        need: (shapes,) slots that are taken in any case.
        rows: (rows, variables) further constraints, rows @ v <= limits.
        limits: (rows,) their right-hand sides.
    """

    gain: FloatArray
    low: FloatArray
    high: FloatArray
    use: FloatArray
    need: FloatArray
    rows: FloatArray
    limits: FloatArray


@dataclass(frozen=True, slots=True)
class Solution:
    """The solution of a program.

    Attributes:
        value: the objective, over the columns known.
        bound: no solution with any pattern exceeds it.
        v: (variables,) the variables.
        y: (columns,) how many nodes use each column.
        slot_price: (shapes,) what one more slot is worth.
        class_price: (classes,) what one more node is worth.
        row_price: (rows,) what one more unit of each limit is worth.
        engine: which of both engines gave the bound.
    """

    value: float
    bound: float
    v: FloatArray
    y: FloatArray
    slot_price: FloatArray
    class_price: FloatArray
    row_price: FloatArray
    engine: Engine = Engine.PATTERNS


def solve(program: Program, columns: Columns, deadline_s: float, gap: float = GAP) -> Solution:
    """Solve a program by column generation; the columns found are kept.

    Args:
        program: what to maximise.
        columns: the patterns; better ones are added.
        deadline_s: time for each restricted program.
        gap: the part of the value by which the bound may exceed it if patterns are not all listed.

    Raises:
        PlanError: the program is infeasible or unbounded, took too long, or holds a value that is not a number.
    """
    if columns.buckets is not None:
        return _solve_fluid(program, columns, columns.buckets, deadline_s)
    bound, best_slot, restricted = np.inf, None, _Restricted(program, columns)
    for _ in range(MAX_ROUNDS):
        if columns.clock.is_over and np.isfinite(bound):
            columns.clock.cut_short("column generation")
            break
        columns.clock.check("a round of column generation")
        answer = _solve_restricted(restricted, program, columns, deadline_s)
        value = -answer.value
        slot, node, row = _prices(answer.price, columns)
        tried = slot if best_slot is None else SMOOTHING * best_slot + (1 - SMOOTHING) * slot
        for at in (tried, slot):
            patterns, values = _best_patterns(columns, at)
            upper = _lagrangian(program, columns, (at, row), values)
            if upper < bound:
                bound, best_slot = upper, at
            is_new = _add_better(columns, patterns, slot, node)
            if is_new or at is slot:
                break
        if not is_new or (columns.is_lazy and bound - value <= gap * abs(value)):
            break
    v, y = np.split(answer.x, [len(program.gain)])
    v, value = _within(program, v)
    y = np.pad(y, (0, columns.size - len(y)))  # the columns found last are not in the program
    columns.keep(y)
    bound, engine = max(bound, value), Engine.PATTERNS
    if bound - value > gap * abs(value) + EPSILON and columns.classes and not columns.clock.is_over:
        fluid = _fluid_bound(program, columns, deadline_s)
        bound, engine = (max(fluid, value), Engine.FLUID) if fluid < bound else (bound, engine)
    return Solution(value, bound, v, y, slot, node, row, engine)


def _fluid_bound(program: Program, columns: Columns, deadline_s: float) -> float:
    """The bound of the fluid program, for patterns whose best one was not found; infinity if it has none in time."""
    try:
        return _solve_fluid(program, columns, buckets_of(columns.classes, columns.request), deadline_s).bound
    except PlanError:
        return np.inf


def without_limits(program: Program) -> Program:
    """The program of phase one: slots may be missing and rows exceeded, at a price, and nothing else counts.

    It has a solution over any columns. Solving it adds the columns with which the program itself has one, if there is
    one at all; patterns that are merely full need not be among them.

    Source: the two-phase method for column generation, Desrosiers and Luebbecke (2005), section 1.4.
    """
    shapes, rows = len(program.need), len(program.limits)
    missing = (program.need + program.use @ program.high).clip(min=0)
    excess = (np.maximum(program.rows * program.low, program.rows * program.high).sum(axis=1) - program.limits).clip(
        min=0
    )
    return Program(
        gain=np.concatenate([np.zeros(len(program.gain)), np.full(shapes + rows, -1.0)]),
        low=np.concatenate([program.low, np.zeros(shapes + rows)]),
        high=np.concatenate([program.high, missing, excess]),
        use=np.hstack([program.use, -np.eye(shapes), np.zeros((shapes, rows))]),
        need=program.need,
        rows=np.hstack([program.rows, np.zeros((rows, shapes)), -np.eye(rows)]),
        limits=program.limits,
    )


def bound_without_program(program: Program, columns: Columns) -> float:
    """Bound all solutions from above without a program: by the single resource that allows least.

    Pods can be divided, and all nodes are one. Every variable is at its lower bound at least; then those come first
    that gain most for what they take. No variable may lose: `program.gain` is >= 0.

    Source: the bound of the divisible knapsack, Dantzig, Operations Research 5(2), 1957.
    """
    if columns.buckets is not None:
        request, free = columns.buckets.request, columns.buckets.free.sum(axis=0)
    else:
        request = columns.request.astype(np.float64)
        free = columns.node_counts @ np.array([g.capacity for g in columns.classes]).reshape(
            len(columns.classes), request.shape[1]
        )
    gain, more = program.gain, program.high - program.low
    bound = float(gain @ more)
    sizes = csr_array(program.use).T @ request  # a job uses one shape, and there may be thousands of resources
    for each, size, have in zip(request.T, sizes.T, free.tolist(), strict=True):
        order = np.argsort(np.divide(size, gain, out=np.full(len(gain), np.inf), where=gain > 0), kind="stable")
        taken = (size * more)[order]
        left = max(0.0, have - float(each @ program.need + size @ program.low)) - (np.cumsum(taken) - taken)
        part = np.divide(left, taken, out=np.ones(len(taken)), where=taken > 0).clip(0.0, 1.0)
        bound = min(bound, float((gain * more)[order] @ part))
    return float(gain @ program.low) + bound


def _prices(price: FloatArray, columns: Columns) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The duals of slots, (shapes,), of nodes, (classes,), and of the further rows, (rows,)."""
    shapes, classes = len(columns.shapes), len(columns.classes)
    return price[:shapes].clip(min=0), price[shapes : shapes + classes].clip(min=0), price[shapes + classes :]


def _best_patterns(columns: Columns, worth: FloatArray) -> tuple[IntArray | None, FloatArray]:
    """The best pattern of each class at these prices.

    Returns:
        (classes, shapes) the patterns, None if all are known; (classes,) bounds on their values.
    """
    values = np.zeros(len(columns.classes))
    if not all(columns.complete):
        patterns, values = columns.pricer.best(worth)
    for g, menu in enumerate(columns.menus):
        if columns.complete[g]:
            values[g] = max((float(np.dot(p, worth)) for p in menu), default=0.0)
    return (None if all(columns.complete) else patterns), values


def _add_better(columns: Columns, patterns: IntArray | None, slot: FloatArray, node: FloatArray) -> bool:
    """Add the patterns whose pods are worth more than a node of their class costs; False if there are none."""
    if patterns is None:
        return False
    is_new = False
    for g in np.flatnonzero(patterns @ slot > node + EPSILON).tolist():
        if not columns.complete[g]:
            is_new = columns.add(g, tuple(patterns[g].tolist())) or is_new
    return is_new


def _lagrangian(
    program: Program, columns: Columns, prices: tuple[FloatArray, FloatArray], values: FloatArray
) -> float:
    """Bound all solutions from above by the Lagrangian at these prices: each class takes its best pattern."""
    return _lagrangian_of(program, prices[0], prices[1].clip(min=0), float(columns.node_counts @ values))


def _lagrangian_of(program: Program, slot: FloatArray, row: FloatArray, nodes: float) -> float:
    """Bound all solutions from above, given the value of all nodes at these prices, which are >= 0."""
    pays = program.gain - slot @ program.use - row @ program.rows
    variables = np.where(pays > 0, pays * program.high, pays * program.low)
    return float(nodes - slot @ program.need + row @ program.limits + variables.sum())


def _solve_fluid(program: Program, columns: Columns, buckets: Buckets, deadline_s: float) -> Solution:
    """Solve a program with pods that can be divided over buckets of nodes; see `fluid`."""
    columns.clock.check("a fluid program")
    left = constraints(buckets, program.use, program.rows)
    model = columns.solver.load(_linear_program(program, left, buckets.free.ravel(), most_places(buckets)))
    answer = _solved(model, columns, deadline_s)
    if answer.outcome is not Outcome.OPTIMAL:
        raise _no_solution(answer, columns)
    shapes, amounts = len(columns.shapes), buckets.free.size
    prices = answer.price
    slot = prices[:shapes].clip(min=0)
    capacity = prices[shapes : shapes + amounts].clip(min=0).reshape(buckets.free.shape)
    row = prices[shapes + amounts :]
    bound = _lagrangian_of(program, slot, row.clip(min=0), worth_of_buckets(buckets, slot, capacity))
    v, value = _within(program, answer.x[: len(program.gain)])
    node = node_prices(buckets, slot, capacity)
    return Solution(value, max(bound, value), v, np.zeros(0), slot, node, row, Engine.FLUID)


class _Restricted:
    """A program over the columns known, in a solver that keeps it while columns are added."""

    def __init__(self, program: Program, columns: Columns) -> None:
        self._columns, self._further, self._known = columns, len(program.rows), columns.size
        classes = len(columns.classes)
        use_row, use_column = program.use.nonzero()
        row_row, row_column = program.rows.nonzero()
        values = np.concatenate([program.use[use_row, use_column], program.rows[row_row, row_column]])
        rows = np.concatenate([use_row, len(columns.shapes) + classes + row_row])
        size = (len(columns.shapes) + classes + self._further, len(program.gain))
        variables = Matrix.from_entries(values, rows, np.concatenate([use_column, row_column]), size)
        left = variables.beside(columns.left_sides(self._further))
        restricted = _linear_program(program, left, columns.node_counts, np.full(self._known, np.inf))
        self._model = columns.solver.load(replace(restricted, grows=True))

    def solve(self, deadline_s: float) -> Answer:
        """Solve it over the columns known by now."""
        if self._columns.size > self._known:
            self._model.add(self._columns.left_sides(self._further, self._known))
            self._known = self._columns.size
        return _solved(self._model, self._columns, deadline_s)


def _solved(model: Model, columns: Columns, deadline_s: float) -> Answer:
    """Solve a program in the time that is left.

    Raises:
        OutOfTimeError: the solver used all of it, by the clock on the wall, which is the only one that it knows.
    """
    allowed_s, since_s = columns.clock.left_s(deadline_s), time.perf_counter()
    answer = model.solve(allowed_s)
    if answer.outcome is Outcome.LATE and time.perf_counter() - since_s >= allowed_s:
        message = f"the solver found no solution in time: {answer.message}; the last plan stays in force"
        raise OutOfTimeError(message, PlanFailure.LATE_SOLVER)
    return answer


def _within(program: Program, v: FloatArray) -> tuple[FloatArray, float]:
    """Clip the variables to their bounds, and compute the objective again: a solver rounds."""
    kept = v.clip(program.low, program.high)
    return kept, float(program.gain @ kept)


def _linear_program(program: Program, left: Matrix, free: FloatArray, most: FloatArray) -> LinearProgram:
    """The arrays of a program over its variables and some uses.

    Args:
        program: what to maximise.
        left: (shapes + capacities + rows, variables + uses) the left sides.
        free: (capacities,) what the uses may take.
        most: (uses,) their upper bounds.
    """
    none = np.zeros(len(most))
    return LinearProgram(
        cost=np.concatenate([-program.gain, none]),
        left=left,
        right=np.concatenate([-program.need, free, program.limits]),
        low=np.concatenate([program.low, none]),
        high=np.concatenate([program.high, most]),
    )


def _solve_restricted(restricted: _Restricted, program: Program, columns: Columns, deadline_s: float) -> Answer:
    """Solve the program over the columns known, or over more if these are not enough."""
    may_search = True
    while True:
        answer = restricted.solve(deadline_s)
        if answer.outcome is Outcome.OPTIMAL:
            return answer
        if columns.widen():
            continue
        if may_search and answer.outcome is Outcome.INFEASIBLE:
            may_search = False
            _find_columns(program, columns, deadline_s)
        else:
            raise _no_solution(answer, columns)


def _find_columns(program: Program, columns: Columns, deadline_s: float) -> None:
    """Add the columns of phase one, which has a solution; a solver that finds none is broken, so nothing is added."""
    phase_one = without_limits(program)
    if _Restricted(phase_one, columns).solve(deadline_s).outcome is Outcome.OPTIMAL:
        solve(phase_one, columns, deadline_s)


def _no_solution(answer: Answer, columns: Columns) -> PlanError:
    """The error of a program that has no solution, or none in time.

    A solver that gives up although there is time left is broken: what it was asked is not counted as cut short.
    """
    failure = _FAILURES.get(answer.outcome, PlanFailure.NOT_A_NUMBER)
    is_late = failure is PlanFailure.LATE_SOLVER and columns.clock.has_run_out
    error = OutOfTimeError if is_late else PlanError
    return error(f"the solver found no solution: {answer.message}; the last plan stays in force", failure)
