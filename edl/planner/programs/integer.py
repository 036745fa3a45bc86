"""Integer programs: pack whole pods on whole nodes exactly, if the cluster is small enough.

Placing one pod at a time is fast and good. If it falls short of what the linear programs promise, these programs find
the packing over patterns that it missed. They move only pods that do not exist yet. The number of search nodes limits
them, not time, so that equal snapshots give equal plans.

Source: HiGHS by scipy.optimize.milp; Gilmore and Gomory, Operations Research 9(6), 1961, for the patterns.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from edl.model.names import Role
from edl.planner.problem import IntArray, Problem
from edl.planner.programs.columns import Columns, make_columns
from edl.planner.programs.fair_share import quota_rows
from edl.planner.programs.patterns import Pattern
from edl.planner.solvers.integer_program import IntegerProgram, Rows
from edl.planner.speedup import Worth
from edl.planner.trial_packing import Placed, TrialPacking

FloatArray = NDArray[np.float64]

SEARCH_NODES = 200
COLUMNS_LIMIT = 1500
ROUNDING = 1e-9
BESIDE = 0.5  # what all pods that only need room are worth together, beside the 1 that every other pod is worth
WORTH_SEARCHING = (
    0.5  # of what one trainer adds to the job to which it adds least: a smaller gain is not searched for
)
WORST_SHORTFALL, SHORTFALL = 1000.0, 10.0  # the cost of a missed promise, per fulfilment: the worst one, and each


def pack_most(
    problem: Problem, free: IntArray, wanted: Mapping[int, int], beside: Mapping[int, int], deadline_s: float
) -> list[tuple[int, int, int]] | None:
    """Pack as many whole pods of some shapes as possible; exact if the program is small.

    Args:
        problem: the shapes.
        free: (nodes, resources) what the pods may use.
        wanted: how many pods of each shape there are.
        beside: pods for which the packing leaves room if that costs none of the others.
        deadline_s: time for the program.

    Returns:
        (node, shape, pods) sorted by node; None if the program is too large or no solution was found.
    """
    if problem.is_many:
        return None
    columns = make_columns(problem, free, {*wanted, *beside}, COLUMNS_LIMIT)
    size = len(columns.shapes)
    most = np.array([wanted.get(s, beside.get(s, 0)) for s in columns.shapes], dtype=np.float64)
    little = BESIDE / max(1, sum(beside.values()))
    program = _program(
        columns,
        cost=np.array([-1.0 if s in wanted else -little for s in columns.shapes]),
        whole=np.ones(size, dtype=np.int64),
        low=np.zeros(size),
        high=most,
        use=np.eye(size),
        need=np.zeros(size),
        further=[],
    )
    solution = None if program is None else program.solve(columns.clock.left_s(deadline_s))
    if solution is None:
        return None
    left = dict(zip(columns.shapes, solution[:size], strict=True))
    packed = []
    for node, pattern in _spread(columns, solution[size:]):
        for shape, pods in zip(columns.shapes, pattern, strict=True):
            packed.append((node, shape, min(pods, left[shape])))
            left[shape] -= packed[-1][2]
    return sorted(place for place in packed if place[2] and place[1] in wanted)


def _program(
    columns: Columns,
    *,
    cost: FloatArray,
    whole: IntArray,
    low: FloatArray,
    high: FloatArray,
    use: FloatArray,
    need: FloatArray,
    further: list[tuple[FloatArray, FloatArray]],
) -> IntegerProgram | None:
    """The program that minimises `cost @ v` over the variables v, then the whole uses y of each column.

    Args:
        columns: the patterns.
        cost: (variables,) objective.
        whole: (variables,) 1 if a variable must be an integer.
        low: (variables,) lower bounds.
        high: (variables,) upper bounds.
        use: (shapes, variables) slots of each shape that one unit of a variable takes.
        need: (shapes,) slots that are taken in any case.
        further: (rows, least) with rows @ v >= least.

    Returns:
        The program; None if there are no columns, or too many of them.
    """
    owner, patterns = columns.flat()
    size, uses = len(cost), len(owner)
    if not uses or uses > COLUMNS_LIMIT:
        return None
    nodes = np.zeros((len(columns.classes), size + uses))
    nodes[owner, size + np.arange(uses)] = 1.0
    return IntegerProgram(
        np.concatenate([cost, np.zeros(uses)]),
        np.concatenate([whole, np.ones(uses, dtype=np.int64)]),
        np.concatenate([low, np.zeros(uses)]),
        np.concatenate([high, np.full(uses, np.inf)]),
        [
            Rows(np.hstack([-use, np.array(patterns, dtype=np.float64).T]), low=need),
            Rows(nodes, high=[len(group.nodes) for group in columns.classes]),
            *(Rows(np.hstack([r, np.zeros((len(r), uses))]), low=least) for r, least in further),
        ],
        SEARCH_NODES,
    )


def pack_anew(
    packing: TrialPacking,
    ceiling: Mapping[int, int],
    promised: Mapping[int, int],
    deadline_s: float,
    worths: Mapping[int, Worth] | None = None,
) -> TrialPacking | None:
    """Place all pods that do not exist yet anew, by an integer program over patterns.

    The program without whole numbers comes first. It takes a small part of the time and bounds what a search could
    gain, so that most searches are not begun.

    Args:
        packing: a packing, whose new pods are placed again; the program may also use its patterns. Not changed.
        ceiling: the most trainers of each member.
        promised: the fair share of each member, in whole trainers.
        deadline_s: time for the program.
        worths: what trainers are worth to each member; by default its weighted fulfilment.

    Returns:
        The new packing; None if there is nothing to gain, the program is too large, or no solution was found.
    """
    base = packing.copy()
    base.drop_all()
    columns = _columns_anew(packing, base, ceiling, any_shape=worths is not None)
    model = columns and _sharing_model(packing, base, (ceiling, promised), columns, worths)
    if not columns or not model:
        return None
    solution = model.solve(model.cost_of(packing, promised), columns.clock.left_s(deadline_s))
    return None if solution is None else _refill(packing, base, columns, solution)


def could_place_anew(
    packing: TrialPacking, ceiling: Mapping[int, int], promised: Mapping[int, int], deadline_s: float
) -> bool:
    """False if `pack_anew` cannot give every member what it is promised: a bound says so, or it would not search."""
    base = packing.copy()
    base.drop_all()
    columns = _columns_anew(packing, base, ceiling, any_shape=False)
    model = columns and _sharing_model(packing, base, (ceiling, promised), columns, None)
    return bool(columns and model and model.keeps_promises(columns.clock.left_s(deadline_s)))


def _columns_anew(
    packing: TrialPacking, base: TrialPacking, ceiling: Mapping[int, int], *, any_shape: bool
) -> Columns | None:
    """The patterns of new pods; None if no search over them is worth while.

    Args:
        packing: the packing whose patterns are among them.
        base: the same without its new pods.
        ceiling: the most trainers of each member.
        any_shape: patterns may gain something although all new pods have one shape.
    """
    problem = packing.problem
    if problem.is_many or problem.limits.max_load_desired < 1.0:
        return None
    placed = Counter((p.node, p.shape) for p in packing.placed)
    shapes = {shape for _, shape in placed}
    wanted = shapes | {problem.demands[j].shape for j in ceiling if base.count[j] < ceiling[j]}
    if len(wanted if any_shape else shapes) < 2 or all(packing.count[j] >= ceiling[j] for j in ceiling):
        return None
    columns = make_columns(problem, base.free, wanted, COLUMNS_LIMIT)
    for g, group in enumerate(columns.classes):
        for node in group.nodes:
            columns.add(g, tuple(placed[node, s] for s in columns.shapes))
    return columns


@dataclass(frozen=True, slots=True)
class _SharingModel:
    """The new trainers of each member and the uses of each column: first the worst shortfall, then the sum.

    Variables: new trainers of each member, by pieces of equal worth; what each member lacks of its promise; the
    largest part of a promise that is lacking; the uses of each column.

    Attributes:
        program: the program.
        jobs: indices of the members, ascending.
        pieces: the pieces, in the order of the variables.
        kept: (jobs,) trainers that each member has without the new ones.
        span: (jobs,) trainers between minimum and maximum, at least 1.
    """

    program: IntegerProgram
    jobs: tuple[int, ...]
    pieces: Sequence[_Piece]
    kept: FloatArray
    span: FloatArray

    def cost_of(self, packing: TrialPacking, promised: Mapping[int, int]) -> float:
        """What a packing costs as a solution of the program."""
        left = {k: packing.count[j] - int(self.kept[k]) for k, j in enumerate(self.jobs)}
        worth = 0.0
        for piece in self.pieces:
            taken = min(piece.most, left[piece.owner])
            left[piece.owner] -= taken
            worth += taken * piece.each
        lacking = np.array([max(0, promised[j] - packing.count[j]) for j in self.jobs]) / self.span
        return SHORTFALL * float(lacking.sum()) + WORST_SHORTFALL * float(lacking.max(initial=0.0)) - worth

    def keeps_promises(self, limit_s: float) -> bool:
        """False if no solution keeps every promise, or if there is no time to tell."""
        relaxed = self.program.relaxed(limit_s)
        return relaxed is not None and self._keeps(relaxed)

    def _keeps(self, solution: FloatArray) -> bool:
        return bool(solution[len(self.pieces) + len(self.jobs)] <= ROUNDING)

    def solve(self, known: float, limit_s: float) -> tuple[dict[int, int], list[int]] | None:
        """The new trainers of each member and the uses of each column; None if nothing better than `known` exists.

        Args:
            known: the cost of a solution that is known.
            limit_s: seconds for each of two programs.
        """
        relaxed = self.program.relaxed(limit_s)
        if relaxed is None:
            return None
        program, least = self.program, float(self.program.cost @ relaxed)
        smallest = min((piece.each for piece in self.pieces if piece.each > 0 and piece.most), default=0.0)
        if known - least <= WORTH_SEARCHING * smallest:
            return None
        first, last = len(self.pieces), len(self.pieces) + len(self.jobs)
        if self._keeps(relaxed):  # as bounds, promises cost the search half the time
            high = np.asarray(program.high, dtype=np.float64).copy()
            high[first : last + 1] = 0.0
            program = replace(
                program, high=high, gap=WORTH_SEARCHING * smallest / max(abs(least), smallest, ROUNDING)
            )
        solution = program.solve(limit_s)
        if solution is None:
            return None
        more = dict.fromkeys(self.jobs, 0)
        for piece, count in zip(self.pieces, solution, strict=False):
            more[self.jobs[piece.owner]] += count
        return more, solution[last + 1 :]


def _sharing_model(
    packing: TrialPacking,
    base: TrialPacking,
    terms: tuple[Mapping[int, int], Mapping[int, int]],
    columns: Columns,
    worths: Mapping[int, Worth] | None,
) -> _SharingModel | None:
    """The program of `pack_anew`; None if it is too large."""
    ceiling, promised = terms
    jobs = sorted(ceiling)
    demands, size = [packing.problem.demands[j] for j in jobs], len(jobs)
    span = np.array([max(1, c.max_trainers - c.min_trainers) for c in demands], dtype=np.float64)
    kept = np.array([base.count[j] for j in jobs], dtype=np.float64)
    row = {s: k for k, s in enumerate(columns.shapes)}
    pieces = _pieces_of(base, {j: ceiling[j] if packing.problem.demands[j].shape in row else 0 for j in jobs}, worths)
    need, use = np.zeros(len(row)), np.zeros((len(row), len(pieces) + size + 1))
    sums = np.zeros((size, len(pieces)))
    for place in packing.placed:
        need[row[place.shape]] += place.role is not Role.TRAINER
    for p, piece in enumerate(pieces):
        sums[piece.owner, p] = 1.0
        if demands[piece.owner].shape in row:
            use[row[demands[piece.owner].shape], p] = 1.0
    quota, limits = quota_rows(packing)
    column = np.zeros((size, 1))
    program = _program(
        columns,
        cost=np.concatenate([[-piece.each for piece in pieces], SHORTFALL / span, [WORST_SHORTFALL]]),
        whole=np.concatenate([np.ones(len(pieces), dtype=np.int64), np.zeros(size + 1, dtype=np.int64)]),
        low=np.concatenate([[piece.least for piece in pieces], np.zeros(size + 1)]),
        high=np.concatenate([[piece.most for piece in pieces], np.full(size + 1, np.inf)]),
        use=use,
        need=need,
        further=[
            (np.hstack([sums, np.eye(size), column]), np.array([promised[j] for j in jobs]) - kept),
            (np.hstack([0.0 * sums, -np.diag(1.0 / span), column + 1.0]), np.zeros(size)),
            (np.hstack([-quota @ sums, np.zeros((len(quota), size + 1))]), quota @ kept - limits - ROUNDING),
        ],
    )
    return None if program is None else _SharingModel(program, tuple(jobs), pieces, kept, span)


@dataclass(frozen=True, slots=True)
class _Piece:
    """New trainers that are worth the same to a member.

    Attributes:
        owner: position of the member among the jobs of the program.
        least: how many it must have.
        most: how many it may have.
        each: the worth of each.
    """

    owner: int
    least: int
    most: int
    each: float


def _pieces_of(base: TrialPacking, ceiling: Mapping[int, int], worths: Mapping[int, Worth] | None) -> list[_Piece]:
    """The new trainers that each member must and may have, piece by piece, the most useful first."""
    pieces = []
    for k, j in enumerate(sorted(ceiling)):
        demand, have = base.problem.demands[j], base.count[j]
        must = max(0, demand.min_trainers - have)
        may = max(ceiling[j] - have, must)
        if worths is None:
            pieces.append(_Piece(k, must, may, demand.job.weight / max(1, demand.max_trainers - demand.min_trainers)))
            continue
        if must:
            pieces.append(_Piece(k, must, must, 0.0))
        at, end = demand.min_trainers, have + may
        for length, each in worths[j].segments:
            first, last = max(at, have), min(at + length, end)
            if last > first:
                pieces.append(_Piece(k, 0, last - first, each))
            at += length
    return pieces


def _refill(
    packing: TrialPacking, base: TrialPacking, columns: Columns, solution: tuple[dict[int, int], list[int]]
) -> TrialPacking:
    """Place the pods as the integer program says: serving pods first, then masters and pservers, then trainers."""
    more, uses = solution
    queues: dict[int, deque[Placed]] = {s: deque() for s in columns.shapes}
    for place in sorted(packing.placed, key=lambda p: (p.owner, p.role or "", p.shape)):
        if place.role is not Role.TRAINER:
            queues[place.shape].append(place)
    for j, count in sorted(more.items()):
        shape = packing.problem.demands[j].shape
        queues.setdefault(shape, deque()).extend([Placed(j, Role.TRAINER, shape, 0)] * count)
    for node, pattern in _spread(columns, uses):
        for shape, pods in zip(columns.shapes, pattern, strict=True):
            for _ in range(min(pods, len(queues[shape]))):
                place = queues[shape].popleft()
                if place.role is Role.TRAINER:
                    base.place_trainer(place.owner, node)
                else:
                    base.hold(place._replace(node=node))
    return base


def _spread(columns: Columns, uses: list[int]) -> Iterator[tuple[int, Pattern]]:
    """The nodes of each class, in order, and the pattern that each of them holds."""
    free_nodes = [iter(group.nodes) for group in columns.classes]
    for g, pattern, count in zip(*columns.flat(), uses, strict=True):
        for _ in range(count):
            yield next(free_nodes[g]), pattern
