"""Linear programs over patterns: how many nodes of each class hold which pattern, and what that lets others have.

A program is solved over the patterns known so far; pricing finds better ones until none is left, and each round gives
a bound that no solution with any pattern exceeds. Duals are prices: what one more slot or one more node of a class is
worth.

Source: HiGHS by scipy.optimize.linprog; the Lagrangian bound of column generation and the smoothing of prices,
Desrosiers and Luebbecke, A Primer in Column Generation (2005), section 1.4; Pessoa et al., INFORMS Journal on
Computing 30(2), 2018.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, linprog
from scipy.sparse import coo_array

from edl.errors import PlanError, PlanFailure
from edl.model.plan import KeptColumns
from edl.planner.problem import IntArray, Problem, UsedColumn
from edl.planner.programs.knapsack import Pricer
from edl.planner.programs.patterns import ENUMERATION_LIMIT, NodeClass, Pattern, classify, list_patterns

FloatArray = NDArray[np.float64]

EPSILON = 1e-7
MAX_ROUNDS = 40
_FAILURES = {1: PlanFailure.LATE_SOLVER, 2: PlanFailure.INFEASIBLE, 3: PlanFailure.UNBOUNDED}  # linprog's status
FEW_CLASSES = 64  # up to which every pattern of a class is listed where they are few
CLOSED = 1e-6  # of the value: a bound so near is not brought nearer where classes are many
SMOOTHING = 0.5  # part of the best prices so far in those that patterns are priced at


@dataclass(slots=True)
class Columns:
    """The classes of a cluster and the patterns known for each.

    Attributes:
        shapes: indices of the shapes, the rows; request: (shapes, resources).
        menus: the patterns of each class; `complete` where there are no others.
        is_lazy: patterns are generated as they are needed; none is listed beforehand.
        spare: (class, pattern) that is added only where a program has no answer without it.
        used: where the programs write down which patterns they used.
    """

    shapes: tuple[int, ...]
    classes: tuple[NodeClass, ...]
    request: IntArray
    menus: list[dict[Pattern, None]]
    complete: list[bool]
    is_lazy: bool = False
    spare: list[tuple[int, Pattern]] = field(default_factory=list)
    used: dict[UsedColumn, None] = field(default_factory=dict)
    pricer: Pricer = field(init=False)
    _owner: list[int] = field(default_factory=list)
    _patterns: list[Pattern] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pricer = Pricer(self.classes, self.request)
        for g, menu in enumerate(self.menus):
            self._owner += [g] * len(menu)
            self._patterns += menu

    def add(self, g: int, pattern: Pattern) -> bool:
        """Add a pattern to a class; False where it is known."""
        if pattern in self.menus[g]:
            return False
        self.menus[g][pattern] = None
        self._owner.append(g)
        self._patterns.append(pattern)
        return True

    def widen(self) -> bool:
        """Add what was spared, else for each shape the pattern with the most of it; False where all that is known."""
        spared = [self.add(g, pattern) for g, pattern in self.spare]
        self.spare.clear()
        if any(spared):
            return True
        added: list[bool] = []
        size = len(self.shapes)
        for first in range(size if not all(self.complete) else 0):
            order = [first, *(s for s in range(size) if s != first)]
            patterns = self.pricer.fill(np.zeros((len(self.classes), size), dtype=np.int64), order)
            added += [self.add(g, tuple(p)) for g, p in enumerate(patterns.tolist()) if not self.complete[g]]
        return any(added)

    def keep(self, y: FloatArray) -> None:
        """Write down the patterns that a solution uses."""
        for column in np.flatnonzero(y > EPSILON).tolist():
            held = zip(self.shapes, self._patterns[column], strict=True)
            pattern = tuple(sorted((s, pods) for s, pods in held if pods))
            self.used[self.classes[self._owner[column]].room, pattern] = None

    def flat(self) -> tuple[list[int], list[Pattern]]:
        """(columns,) the class of each column, and its pattern."""
        return list(self._owner), list(self._patterns)

    @property
    def size(self) -> int:
        """How many columns there are."""
        return len(self._owner)

    @property
    def node_counts(self) -> FloatArray:
        """(classes,) how many nodes each has."""
        return np.array([len(group.nodes) for group in self.classes], dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Program:
    """Maximise `gain @ v` over v and pattern counts y.

    Attributes:
        gain: (variables,) objective.
        low, high: (variables,) bounds.
        use: (shapes, variables) slots of each shape that one unit of a variable takes.
        need: (shapes,) slots that are taken anyway.
        rows, limits: further constraints rows @ v <= limits.
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
    """What a program gave.

    Attributes:
        value: of the restricted program; bound: no solution with any pattern exceeds it.
        v: (variables,); y: (columns,) how many nodes use each column.
        slot_price: (shapes,); class_price: (classes,); row_price: (rows,).
    """

    value: float
    bound: float
    v: FloatArray
    y: FloatArray
    slot_price: FloatArray
    class_price: FloatArray
    row_price: FloatArray


def make_columns(problem: Problem, room: IntArray, shapes: Iterable[int], most: int = 0) -> Columns:
    """Classes of nodes for these shapes, with the patterns to begin with: all of them where they are few.

    Args:
        problem: the shapes.
        room: (nodes, resources) that they may use.
        shapes: indices of the shapes.
        most: how many patterns an integer program can take in all; 0 where more can be generated by price.
    """
    rows = tuple(sorted(set(shapes)))
    request = problem.request[list(rows)]
    classes = classify(room.clip(min=0), request, problem.opened[list(rows)])
    if problem.is_large or len(classes) > FEW_CLASSES:
        none: list[dict[Pattern, None]] = [{} for _ in classes]
        columns = Columns(rows, classes, request, none, [False] * len(classes), used=problem.used_columns)
        columns.is_lazy = True
        if not _recall(problem, columns):
            columns.widen()
        largest = np.argsort(-(request / problem.largest).max(axis=1, initial=0.0), kind="stable").tolist()
        start = columns.pricer.fill(np.zeros((len(classes), len(rows)), dtype=np.int64), largest)
        for g in (g for g, menu in enumerate(columns.menus) if not menu):
            columns.add(g, tuple(start[g].tolist()))
        return columns
    limit = max(ENUMERATION_LIMIT, most // max(1, len(classes)))
    menus = [list_patterns(group, request, limit) for group in classes]
    return Columns(rows, classes, request, [dict.fromkeys(m.patterns) for m in menus], [m.is_complete for m in menus])


def _recall(problem: Problem, columns: Columns) -> bool:
    """Begin with the patterns that were used before, in this decision or the last; False where there are none."""
    kept = problem.columns
    number = {shape: index for index, shape in enumerate(problem.shapes)}
    shapes = [number.get(shape, -1) for shape in kept.shapes]
    rooms = [tuple(dict(room).get(name, 0) for name in problem.names) for room in kept.rooms]
    known: dict[tuple[int, ...], list[tuple[tuple[int, int], ...]]] = {}
    for room, held in kept.patterns:
        known.setdefault(rooms[room], []).append(tuple((shapes[s], pods) for s, pods in held))
    for class_room, pattern in problem.used_columns:
        known.setdefault(class_room, []).append(pattern)
    row = {s: k for k, s in enumerate(columns.shapes)}
    patterns, owner = [], []
    for g, group in enumerate(columns.classes):
        for held in known.get(group.room, ()):
            counts = [0] * len(row)
            for s, pods in held:
                if s in row:
                    counts[row[s]] = pods
            patterns.append(counts)
            owner.append(g)
    if not patterns:
        return False
    counted, of = np.array(patterns, dtype=np.int64), np.array(owner, dtype=np.int64)
    usable = np.array([group.room for group in columns.classes], dtype=np.int64)[of]
    most = np.array([group.most for group in columns.classes], dtype=np.int64)[of]
    fits = (counted @ columns.request <= usable).all(axis=1) & (counted <= most).all(axis=1)
    for column in np.flatnonzero(fits).tolist():
        columns.add(owner[column], tuple(patterns[column]))
    return True


def keep_columns(problem: Problem) -> KeptColumns:
    """What the programs of a decision used, for the next."""
    rooms = {room: k for k, room in enumerate(sorted({room for room, _ in problem.used_columns}))}
    shapes = {s: k for k, s in enumerate(sorted({s for _, pattern in problem.used_columns for s, _ in pattern}))}
    patterns = [(rooms[room], tuple((shapes[s], n) for s, n in pattern)) for room, pattern in problem.used_columns]
    return KeptColumns(
        shapes=tuple(problem.shapes[s] for s in shapes),
        rooms=tuple(tuple((r, n) for r, n in zip(problem.names, room, strict=True) if n) for room in rooms),
        patterns=tuple(sorted(patterns)),
    )


def solve(program: Program, columns: Columns, deadline_s: float, closed: float = CLOSED) -> Solution:
    """Solve a program by column generation; the columns found are kept.

    Args:
        program: what to maximise.
        columns: the patterns; better ones are added.
        deadline_s: time for each restricted program.
        closed: the part of the value by which the bound may exceed it where patterns are not all listed.

    Raises:
        PlanError: infeasible, late, or not a number.
    """
    bound, best_slot = np.inf, None
    for _ in range(MAX_ROUNDS):
        result = _answer(program, columns, deadline_s)
        value = -float(result.fun)
        slot, node, row = _prices(result, columns)
        tried = slot if best_slot is None else SMOOTHING * best_slot + (1 - SMOOTHING) * slot
        for at in (tried, slot):
            patterns, values = _best_patterns(columns, at)
            above = _lagrangian(program, columns, (at, row), values)
            if above < bound:
                bound, best_slot = above, at
            is_new = _add_better(columns, patterns, slot, node)
            if is_new or at is slot:
                break
        if not is_new or (columns.is_lazy and bound - value <= closed * abs(value)):
            break
    v, y = np.split(np.asarray(result.x, dtype=np.float64), [len(program.gain)])
    y = np.pad(y, (0, columns.size - len(y)))  # what was found last is not in the program
    columns.keep(y)
    return Solution(value, max(bound, value), v, y, slot, node, row)


def _prices(result: OptimizeResult, columns: Columns) -> tuple[FloatArray, FloatArray, FloatArray]:
    prices = -np.asarray(result.ineqlin.marginals, dtype=np.float64)
    shapes, classes = len(columns.shapes), len(columns.classes)
    return prices[:shapes].clip(min=0), prices[shapes : shapes + classes].clip(min=0), prices[shapes + classes :]


def _best_patterns(columns: Columns, worth: FloatArray) -> tuple[IntArray | None, FloatArray]:
    """(classes, shapes) the best pattern of each class, None where all are known; (classes,) values from above."""
    values = np.zeros(len(columns.classes))
    if not all(columns.complete):
        patterns, values = columns.pricer.best(worth)
    for g, menu in enumerate(columns.menus):
        if columns.complete[g]:
            values[g] = max((float(np.dot(p, worth)) for p in menu), default=0.0)
    return (None if all(columns.complete) else patterns), values


def _add_better(columns: Columns, patterns: IntArray | None, slot: FloatArray, node: FloatArray) -> bool:
    """Add the patterns that are worth more than a node of their class costs; False where there is none."""
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
    """What no solution exceeds: every class takes its best pattern, and every variable what pays at these prices."""
    slot, row = prices[0], prices[1].clip(min=0)
    pays = program.gain - slot @ program.use - row @ program.rows
    variables = np.where(pays > 0, pays * program.high, pays * program.low)
    return float(columns.node_counts @ values - slot @ program.need + row @ program.limits + variables.sum())


def _linprog(program: Program, columns: Columns, deadline_s: float) -> OptimizeResult:
    """Slots asked <= slots of the patterns; nodes used <= nodes; further rows."""
    owner, patterns = columns.flat()
    shapes, classes, variables = len(columns.shapes), len(columns.classes), len(program.gain)
    held = np.array(patterns, dtype=np.float64).reshape(len(owner), shapes)
    column, shape = held.nonzero()
    use_row, use_column = program.use.nonzero()
    row_row, row_column = program.rows.nonzero()
    left: Any = coo_array(  # the stubs of scipy know of no sparse constraints and no bounds in an array
        (
            np.concatenate(
                [
                    -held[column, shape],
                    np.ones(len(owner)),
                    program.use[use_row, use_column],
                    program.rows[row_row, row_column],
                ]
            ),
            (
                np.concatenate(
                    [shape, shapes + np.array(owner, dtype=np.int64), use_row, shapes + classes + row_row]
                ),
                np.concatenate([variables + column, variables + np.arange(len(owner)), use_column, row_column]),
            ),
        ),
        shape=(shapes + classes + len(program.rows), variables + len(owner)),
    )
    bounds: Any = np.zeros((variables + len(owner), 2))
    bounds[:, 1] = np.inf
    bounds[:variables] = np.column_stack([program.low, program.high])
    for presolve in (True, False):  # presolve now and then calls a tight program infeasible
        try:
            result: OptimizeResult = linprog(
                np.concatenate([-program.gain, np.zeros(len(owner))]),
                A_ub=left,
                b_ub=np.concatenate([-program.need, columns.node_counts, program.limits]),
                bounds=bounds,
                method="highs",
                options={"time_limit": deadline_s, "presolve": presolve},
            )
        except ValueError as error:
            message = f"the linear program is not one: {error}; the last plan stays in force"
            raise PlanError(message, PlanFailure.NOT_A_NUMBER) from error
        if _is_answer(result):
            break
    return result


def _is_answer(result: OptimizeResult) -> bool:
    return result.status == 0 and result.x is not None and bool(np.isfinite([result.fun, *result.x]).all())


def _answer(program: Program, columns: Columns, deadline_s: float) -> OptimizeResult:
    """The program solved over the columns known, or over more where these do not suffice."""
    while True:
        result = _linprog(program, columns, deadline_s)
        if _is_answer(result):
            return result
        if not columns.widen():
            failure = _FAILURES.get(result.status, PlanFailure.NOT_A_NUMBER)
            message = f"the linear program gave no answer: {result.message}; the last plan stays in force"
            raise PlanError(message, failure)
