"""Packs the pods anew that do not exist yet, by an integer program over patterns: what may be gained, then how.

Placing one pod at a time is fast and good. If it falls short of what the linear programs promise, this program finds
the packing that it missed. Bounds come first: whether a search can gain anything, and how far the promises must be
missed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np
from numpy.typing import NDArray

from edl.model.names import Role
from edl.planner.programs.columns import Columns, make_columns
from edl.planner.programs.integer import COLUMNS_LIMIT, ROUNDING, pattern_program, spread
from edl.planner.programs.limit_rows import quota_rows
from edl.planner.solvers.integer_program import IntegerProgram
from edl.planner.speedup import Worth
from edl.planner.trial_packing import Placed, TrialPacking

FloatArray = NDArray[np.float64]

EPSILON = 1e-6
WORTH_SEARCHING = 0.5  # of what one trainer adds to the job to which it adds least: no smaller gain is searched for
MOST_PODS = 4096  # more new pods than this are not repacked: a search could add few trainers to each job's many
NEAR = 1e-3  # nor is a smaller part of what all trainers above the minimums are worth
WORST_SHORTFALL, SHORTFALL = 1000.0, 10.0  # the cost of a missed promise, per fulfilment: the worst one, and each


def pack_anew(
    packing: TrialPacking,
    ceiling: Mapping[int, int],
    fair_share: Mapping[int, int],
    deadline_s: float,
    worths: Mapping[int, Worth] | None = None,
) -> TrialPacking | None:
    """Place all pods that do not exist yet anew, by an integer program over patterns.

    The program without whole numbers comes first. It takes a small part of the time and bounds what a search could
    gain, so that most searches are not begun.

    Args:
        packing: a packing, whose new pods are placed again; the program may also use its patterns. Not changed.
        ceiling: the most trainers of each member.
        fair_share: the fair share of each member, in whole trainers.
        deadline_s: time for the program.
        worths: what trainers are worth to each member; by default its weighted fulfilment.

    Returns:
        The new packing; None if there is nothing to gain, the program is too large, or no solution was found.
    """
    base = packing.copy()
    base.drop_all()
    columns = _columns_anew(packing, base, ceiling, any_shape=worths is not None)
    model = columns and _sharing_model(packing, base, (ceiling, fair_share), columns, worths)
    if not columns or not model:
        return None
    near = NEAR * sum(
        worths[j].value(n) if worths else packing.problem.demands[j].job.weight * packing.fulfilment(j)
        for j, n in packing.count.items()
    )
    solution = model.solve(packing, fair_share, near, lambda: columns.clock.left_s(deadline_s))
    return None if solution is None else _refill(packing, base, columns, solution)


def could_place_anew(
    packing: TrialPacking, ceiling: Mapping[int, int], fair_share: Mapping[int, int], deadline_s: float
) -> bool:
    """False if `pack_anew` cannot give every job its fair share: a bound excludes it, or it would not search."""
    base = packing.copy()
    base.drop_all()
    columns = _columns_anew(packing, base, ceiling, any_shape=False)
    model = columns and _sharing_model(packing, base, (ceiling, fair_share), columns, None)
    return bool(columns and model and model.keeps_promises(columns.clock.left_s(deadline_s)))


def _columns_anew(
    packing: TrialPacking, base: TrialPacking, ceiling: Mapping[int, int], *, any_shape: bool
) -> Columns | None:
    """The patterns of new pods to choose from; None if no search over them would pay.

    Args:
        packing: the packing whose patterns are among them.
        base: the same without its new pods.
        ceiling: the most trainers of each member.
        any_shape: patterns may gain something although all new pods have one shape.
    """
    problem = packing.problem
    if problem.is_many or problem.limits.sharing.max_load_desired < 1.0 or len(packing.placed) > MOST_PODS:
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
    """The integer program: new trainers of each job and uses of each pattern.

    Minimises the worst shortfall, then the sum.

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

    def cost_of(self, packing: TrialPacking, fair_share: Mapping[int, int]) -> float:
        """The cost of a packing as a solution of the integer program."""
        left = {k: packing.count[j] - int(self.kept[k]) for k, j in enumerate(self.jobs)}
        worth = 0.0
        for piece in self.pieces:
            taken = min(piece.most, left[piece.owner])
            left[piece.owner] -= taken
            worth += taken * piece.each
        lacking = self.lacking(packing, fair_share)
        return SHORTFALL * float(lacking.sum()) + WORST_SHORTFALL * float(lacking.max(initial=0.0)) - worth

    def lacking(self, packing: TrialPacking, fair_share: Mapping[int, int]) -> FloatArray:
        """(jobs,) how far each job of a packing is below its fair share, in fulfilment."""
        lacking: FloatArray = np.array([max(0, fair_share[j] - packing.count[j]) for j in self.jobs]) / self.span
        return lacking

    def keeps_promises(self, limit_s: float) -> bool:
        """False if no solution gives every job its fair share, or if there is no time to find out."""
        relaxed = self.program.relaxed(limit_s)
        return relaxed is not None and bool(relaxed[self._worst] <= ROUNDING)

    @property
    def _worst(self) -> int:
        """The variable for the largest shortfall below a fair share."""
        return len(self.pieces) + len(self.jobs)

    def solve(
        self, packing: TrialPacking, fair_share: Mapping[int, int], near: float, left_s: Callable[[], float]
    ) -> tuple[dict[int, int], list[int]] | None:
        """Solve the program: the new trainers of each job and the uses of each pattern.

        None if that is no improvement.

        Args:
            packing: a solution that is known.
            fair_share: the fair share of each member, in whole trainers.
            near: how much better a solution must be to be searched for.
            left_s: seconds that the next program may take.
        """
        relaxed = self.program.relaxed(left_s())
        if relaxed is None:
            return None
        least = float(self.program.cost @ relaxed)
        smallest = min((piece.each for piece in self.pieces if piece.each > 0 and piece.most), default=0.0)
        enough = max(near, WORTH_SEARCHING * smallest)
        if self.cost_of(packing, fair_share) - least <= enough:
            return None
        worst, gap = float(relaxed[self._worst]), enough / max(abs(least), smallest, ROUNDING)
        is_short = worst > ROUNDING
        if is_short:
            worst = self._least_shortfall(worst, float(self.lacking(packing, fair_share).max()), left_s)
        solution = replace(self._lacking_at_most(worst), gap=gap).solve(left_s())
        if solution is None and is_short:  # no bound excludes that shortfall, but no packing was found that has it
            solution = replace(self.program, gap=gap).solve(left_s())
        if solution is None:
            return None
        more = dict.fromkeys(self.jobs, 0)
        for piece, count in zip(self.pieces, solution, strict=False):
            more[self.jobs[piece.owner]] += count
        return more, solution[self._worst + 1 :]

    def _lacking_at_most(self, worst: float) -> IntegerProgram:
        """Return the program with the worst shortfall fixed at a value: such a bound makes the search much faster.

        Each member then lacks a whole number of trainers, which the program without whole numbers does not know.
        """
        first, last = len(self.pieces), self._worst
        low, high = self.program.low.copy(), self.program.high.copy()
        high[first:last] = np.floor(worst * self.span + EPSILON)
        low[last] = high[last] = worst
        return replace(self.program, low=low, high=high)

    def _least_shortfall(self, least: float, most: float, left_s: Callable[[], float]) -> float:
        """Find by bisection the least worst shortfall of whole numbers of trainers that no bound excludes.

        Args:
            least: what the program without whole numbers has.
            most: what a known packing has.
            left_s: seconds that the next program may take.
        """
        spans: list[float] = self.span.tolist()
        whole = {n / s for s in spans for n in range(ceil(least * s - EPSILON), int(most * s + EPSILON) + 1)}
        levels = sorted(whole) or [most]  # the last one can be had
        at = bisect_left(
            range(len(levels) - 1), True, key=lambda k: self._lacking_at_most(levels[k]).relaxed(left_s()) is not None
        )
        return levels[at]


def _sharing_model(
    packing: TrialPacking,
    base: TrialPacking,
    terms: tuple[Mapping[int, int], Mapping[int, int]],
    columns: Columns,
    worths: Mapping[int, Worth] | None,
) -> _SharingModel | None:
    """The program of `pack_anew`; None if it is too large."""
    ceiling, fair_share = terms
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
    program = pattern_program(
        columns,
        cost=np.concatenate([[-piece.each for piece in pieces], SHORTFALL / span, [WORST_SHORTFALL]]),
        whole=np.concatenate([np.ones(len(pieces), dtype=np.int64), np.zeros(size + 1, dtype=np.int64)]),
        low=np.concatenate([[piece.least for piece in pieces], np.zeros(size + 1)]),
        high=np.concatenate([[piece.most for piece in pieces], np.full(size + 1, np.inf)]),
        use=use,
        need=need,
        further=[
            (np.hstack([sums, np.eye(size), column]), np.array([fair_share[j] for j in jobs]) - kept),
            (np.hstack([0.0 * sums, -np.diag(1.0 / span), column + 1.0]), np.zeros(size)),
            (np.hstack([-quota @ sums, np.zeros((len(quota), size + 1))]), quota @ kept - limits - ROUNDING),
        ],
    )
    return None if program is None else _SharingModel(program, tuple(jobs), pieces, kept, span)


@dataclass(frozen=True, slots=True)
class _Piece:
    """New trainers of one job that add the same to the objective.

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
    """Divide the new trainers that each job must and may have into pieces, the most useful first."""
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
    for node, pattern in spread(columns, uses):
        for shape, pods in zip(columns.shapes, pattern, strict=True):
            taken = Counter(queues[shape].popleft() for _ in range(min(pods, len(queues[shape]))))
            for place, number in taken.items():
                if place.role is Role.TRAINER:
                    base.place_trainer(place.owner, node, number)
                else:
                    base.hold(place._replace(node=node), number)
    return base
