"""Finds prices for a certificate: by a linear program of its own, and from the prices of the plan.

Any prices give a bound that holds; good ones give a low bound. The program divides pods, but puts no more pods of a
shape on the nodes of a kind than fit there whole. Its duals are the prices. They are floats: `exact` makes the bound
from their rounded values, so nothing rests on the solver.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import gcd, inf, log, prod

import numpy as np
from numpy.typing import NDArray

from edl.errors import PlanError, PlanFailure
from edl.explain.certificates.exact import DENOMINATOR, Claim, Prices, count_in, fitting, rounded
from edl.explain.certificates.rules import NodeKind, Rules
from edl.model.resources import CPU, MEMORY, PODS, PodShape
from edl.planner.solvers.choice import DEFAULT_SOLVER
from edl.planner.solvers.linear_program import LinearProgram, Outcome, Solver
from edl.planner.solvers.matrix import Matrix

FloatArray = NDArray[np.float64]

MOST_VARIABLES = 40_000  # of the program; with more, kinds of nodes that are alike share a bucket
MOST_CELLS = 60_000  # of a table over whole pods
MOST_PODS = 300  # on one node in a table: the check recurses once for each
BASE = 1.5  # nodes whose ratios of resources differ by less than this factor are alike


@dataclass(frozen=True, slots=True)
class _Bucket:
    """Kinds of nodes that the linear program adds up and treats as one node.

    Attributes:
        kinds: their indices.
        capacity: (resources,) what their nodes have together.
        slots: by shape, how many of its pods fit on them, if each shape were alone.
    """

    kinds: tuple[int, ...]
    capacity: FloatArray
    slots: Mapping[int, int]


def fluid_prices(rules: Rules, claim: Claim, deadline_s: float, solver: Solver = DEFAULT_SOLVER) -> Prices:
    """Find prices as the dual values of a linear program in which pods are divisible.

    Args:
        rules: what plans may do.
        claim: the plans that the bound is to cover.
        deadline_s: time for the program.
        solver: what solves it.

    Raises:
        PlanError: the program took too long.
    """
    buckets = _buckets(rules)
    scale = np.maximum(1.0, np.sum([bucket.capacity for bucket in buckets], axis=0) / max(1, len(buckets)))
    shapes, width = len(rules.shapes), len(rules.resources)
    if not rules.jobs:
        return given_prices(rules, {})
    answer = solver.load(_program(rules, claim, buckets, scale)).solve(deadline_s)
    if answer.outcome is not Outcome.OPTIMAL:
        raise PlanError(
            f"no certificate within {deadline_s:g} s: {answer.message}; plan without --certificate",
            PlanFailure.LATE_SOLVER,
        )
    duals = answer.price.clip(min=0)
    of_kind = {k: b for b, bucket in enumerate(buckets) for k in bucket.kinds}
    return Prices(
        slots=_numerators(duals[:shapes]),
        vectors=tuple(_numerators(row / scale) for row in duals[shapes:].reshape(len(buckets), width)),
        vector_of=tuple(of_kind.get(k) for k in range(len(rules.kinds))),
    )


def _program(rules: Rules, claim: Claim, buckets: list[_Bucket], scale: FloatArray) -> LinearProgram:
    """The program with divisible pods; rows are the shapes, then each resource of each bucket in units of `scale`."""
    uses = [(b, s) for b, bucket in enumerate(buckets) for s in bucket.slots]
    shapes, width = len(rules.shapes), len(rules.resources)
    entries: list[tuple[int, int, float]] = []
    limits: list[tuple[float, float, float]] = []  # of each variable: its bounds, and its cost
    for job, least in zip(rules.jobs, claim.least, strict=True):
        few = max(0, least - job.immovable)
        pieces = job.pieces(max(least, job.immovable)) if claim.has_worth else []
        limits += [(few, few, 0.0), *((0.0, length, -gain) for length, gain in pieces)]
        entries += [(rules.row(job), k, 1.0) for k in range(len(limits) - 1 - len(pieces), len(limits))]
    for at, (b, s) in enumerate(uses, start=len(limits)):
        entries.append((s, at, -1.0))
        amounts = enumerate(rules.request[s])
        entries += [(shapes + b * width + r, at, n / scale[r]) for r, n in amounts if n]
    limits += [(0.0, buckets[b].slots[s], 0.0) for b, s in uses]
    if not claim.has_worth:
        entries += [(s, len(limits) + s, -1.0) for s in range(shapes)]
        limits += [(0.0, inf, 1.0)] * shapes
    capacity = np.concatenate([bucket.capacity / scale for bucket in buckets]) if buckets else np.zeros(0)
    rows, columns, values = zip(*entries, strict=True)
    low, high, cost = np.array(limits, dtype=np.float64).T
    return LinearProgram(
        cost=cost,
        left=Matrix.from_entries(values, rows, columns, (shapes + len(capacity), len(limits))),
        right=np.concatenate([-np.array(rules.needs, dtype=np.float64), capacity]),
        low=low,
        high=high,
    )


def given_prices(rules: Rules, known: Mapping[PodShape, float]) -> Prices:
    """Take the prices that the planner's own program found; a shape without one gets price 0."""
    slots = _numerators(np.array([max(0.0, known.get(shape, 0.0)) for shape in rules.shapes]))
    return Prices(slots, vector_of=(None,) * len(rules.kinds))


def grid_of(rules: Rules) -> dict[str, int]:
    """Choose the step of each resource for a table over whole pods on a node.

    Empty if the table would be too large.
    """
    devices = [name for name in rules.resources if name not in {CPU, MEMORY, PODS}]
    for names in ([CPU, MEMORY, *devices], [CPU, MEMORY], [CPU]):
        columns = [(rules.resources.index(name), name) for name in names if name in rules.resources]
        steps = {name: gcd(*(request[c] for request in rules.request)) or 1 for c, name in columns}
        most = [max((kind.capacity[c] for kind in rules.kinds), default=0) // steps[name] for c, name in columns]
        if columns and prod(n + 1 for n in most) <= MOST_CELLS and _depth(rules, columns, most, steps) <= MOST_PODS:
            return steps
    return {}


def _depth(rules: Rules, columns: list[tuple[int, str]], most: list[int], steps: Mapping[str, int]) -> int:
    """The largest number of pods of one shape that a node of such a table can hold."""
    sizes = [[request[c] // steps[name] for c, name in columns] for request in rules.request]
    counts = [[n // size for n, size in zip(most, row, strict=True) if size] for row in sizes]
    return max((min(row) for row in counts if row), default=0)


def _numerators(prices: FloatArray) -> tuple[int, ...]:
    return tuple(round(price * DENOMINATOR) for price in prices.tolist())


def _buckets(rules: Rules) -> list[_Bucket]:
    """Group the kinds of nodes into buckets: one for each kind or, if these are too many, for similar kinds."""
    has_many_variables = len(rules.kinds) * len(rules.shapes) > MOST_VARIABLES
    groups: dict[object, list[int]] = defaultdict(list)
    for k, kind in enumerate(rules.kinds):
        if fits := fitting(rules, kind):
            groups[
                (kind.taken, *_likeness(kind)) if has_many_variables else (fits, rounded(rules, kind, fits))
            ].append(k)
    return [_bucket(rules, kinds) for kinds in groups.values()]


def _likeness(kind: NodeKind) -> Iterator[int]:
    """Yield a key for a kind of nodes: kinds with about the same ratios between their resources have equal keys."""
    first = max(1, kind.capacity[0])
    yield from (-1_000 if not have else round(log(have / first, BASE)) for have in kind.capacity)


def _bucket(rules: Rules, kinds: list[int]) -> _Bucket:
    capacity = np.zeros(len(rules.resources))
    slots: dict[int, int] = defaultdict(int)
    for k in kinds:
        kind = rules.kinds[k]
        fits = fitting(rules, kind)
        usable = rounded(rules, kind, fits)
        capacity += np.array(usable, dtype=np.float64) * len(kind.names)
        for s in fits:
            slots[s] += len(kind.names) * count_in(usable, rules.request[s])
    return _Bucket(tuple(kinds), capacity, dict(slots))
