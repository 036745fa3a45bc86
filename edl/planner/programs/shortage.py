"""Finds jobs that cannot run beside others: prices of one linear program prove it for many jobs.

A linear program that shows that some pods do not fit comes with prices: at these, the pods are worth more than the
nodes can hold. That inequality, a cut, holds for every set of jobs. So one program rejects many jobs, in one pass
over arrays: each further job adds what its pods are worth, and takes what its bound masters and pservers take from
the worth of their nodes.

A cut never rejects a job that would fit. It does not prove that those it lets pass do fit.

Source: the dual of a packing program as a valid inequality, Benders, Numerische Mathematik 4 (1962); the knapsack
that bounds what a node can hold, Gilmore and Gomory, Operations Research 9(6), 1961.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from edl.planner.problem import (
    BoolArray,
    IntArray,
    Problem,
    count_misplaced,
    count_slots,
    free_beside_fixed,
    training_capacity,
)
from edl.planner.programs.columns import FloatArray
from edl.planner.programs.knapsack import Pricer
from edl.planner.programs.patterns import classify, distinct

EPSILON = 1e-6
MOST_CUTS = 32  # the oldest cuts are forgotten
FEW_PRICED = 12  # with more priced shapes, what a node can hold is bounded by parts of pods


class Screen:
    """Rejects jobs that cannot run beside the jobs already added, by the known cuts (inequalities with prices).

    Use `start` with the jobs that run in any case, then `admits` and `add` for one job after the other.

    Attributes:
        capacity: (nodes, resources) what training pods may use, see `training_capacity`.
    """

    def __init__(self, problem: Problem, due: Mapping[int, int]) -> None:
        """Read which pods each job needs.

        Args:
            problem: the arrays.
            due: by shape, serving pods that must be placed beside all jobs.
        """
        self._problem = problem
        self._due = Counter({s: n for s, n in due.items() if n})
        misplaced = count_misplaced(problem)
        self._wants = [self._pods_of(j, misplaced[j]) for j in range(len(problem.demands))]
        self._fixed: list[list[tuple[int, int]]] = [[] for _ in problem.demands]
        held, is_fixed = problem.held, ~problem.held.is_trainer
        bound = zip(held.demand[is_fixed], held.node[is_fixed], held.shape[is_fixed], strict=True)
        for j, node, shape in bound:
            self._fixed[int(j)].append((int(node), int(shape)))
        self._cuts: list[_Cut] = []
        self.capacity = training_capacity(problem)
        self._free: IntArray = self.capacity
        self._started: tuple[int, ...] | None = None

    def standing(self, j: int) -> tuple[tuple[int, int], ...]:
        """The node and shape of each bound master and pserver of a job, sorted."""
        return tuple(sorted(self._fixed[j]))

    def wanted(self, members: Iterable[int]) -> Counter[int]:
        """By shape, the pods that need a slot if these jobs run: serving, minimums, missing masters and pservers."""
        wanted = Counter(self._due)
        for j in members:
            wanted.update(self._wants[j])
        return +wanted

    def learn(self, members: Sequence[int], prices: Mapping[int, float]) -> bool:
        """Add a cut, if it rejects these jobs together.

        Args:
            members: jobs that do not fit together.
            prices: by shape, what a slot is worth to the program that proved it.

        Returns:
            True if the cut is new and rejects them.
        """
        cut = _Cut(self._problem, prices)
        free = free_beside_fixed(self._problem, self.capacity, members)
        if cut.worth_of(self.wanted(members)) <= float(cut.values(free).sum()) + EPSILON:
            return False
        self._cuts = [*self._cuts[1 - MOST_CUTS :], cut]
        self._started = None
        return True

    def start(self, members: Sequence[int], order: Sequence[int] = ()) -> bool:
        """Begin with the jobs that run in any case.

        Args:
            members: these jobs.
            order: the jobs that will be tried, in their order; it only makes trying them faster.

        Returns:
            False if a cut rejects the members alone.
        """
        begun = tuple(members)
        if begun != self._started or order:
            self._free = free_beside_fixed(self._problem, self.capacity, begun)
            wanted = self.wanted(begun)
            rows, nodes = self._states(order)
            for cut in self._cuts:
                cut.start(self._free, wanted)
                cut.prepare(rows, nodes)
        self._started = begun
        return all(cut.slack >= -EPSILON for cut in self._cuts)

    def admits(self, j: int) -> bool:
        """False if a cut proves that a job cannot run beside the added ones."""
        if not self._cuts:
            return True
        after = self._after(j)
        return all(cut.slack >= cut.cost(self._wants[j], after) - EPSILON for cut in self._cuts)

    def add(self, j: int) -> None:
        """Add a job to those that run."""
        after = self._after(j)
        for cut in self._cuts:
            cut.take(self._wants[j], after)
        for node, free in after.items():
            self._free[node] = free
        self._started = None

    def _after(self, j: int) -> dict[int, IntArray]:
        """By node, what is free beside the masters and pservers that one more job has bound there."""
        after: dict[int, IntArray] = {}
        for node, shape in self._fixed[j]:
            after[node] = after.get(node, self._free[node]) - self._problem.request[shape]
        return after

    def _states(self, order: Sequence[int]) -> tuple[IntArray, IntArray]:
        """Estimate the free capacity of each node with masters or pservers, after each of the jobs starts."""
        pods = [pod for j in order for pod in self._fixed[j]]
        free = {node: self._free[node] for node, _ in pods}
        rows, nodes = [], []
        for node, shape in pods:
            free[node] = free[node] - self._problem.request[shape]
            rows += [free[node], self._free[node] - self._problem.request[shape]]
            nodes += [node, node]
        return np.array(rows, dtype=np.int64).reshape(len(rows), self._free.shape[1]), np.array(nodes, dtype=np.int64)

    def _pods_of(self, j: int, misplaced: int) -> Counter[int]:
        """By shape, the pods that need a slot if this job runs."""
        demand = self._problem.demands[j]
        pods = Counter({demand.shape: max(0, demand.min_trainers - misplaced)})
        for need in demand.needs:
            pods[need.shape] += need.missing
        pods.update(shape for shape, _ in demand.unbound_fixed)
        return +pods


class _Cut:
    """An inequality that holds for all jobs that fit together: prices of slots, and the value of the nodes.

    Attributes:
        slack: what the nodes can hold beyond all that was taken so far; negative if that does not fit.
    """

    def __init__(self, problem: Problem, prices: Mapping[int, float]) -> None:
        self._prices = {s: min(1.0, price) for s, price in prices.items() if price > EPSILON}
        shapes = sorted(self._prices)
        self._request = problem.request[shapes]
        self._opened = problem.opened[shapes]
        self._worth = np.array([self._prices[s] for s in shapes])
        self._columns = np.flatnonzero((self._request > 0).any(axis=0))
        self._known: dict[bytes, float] = {}
        self._value: FloatArray = np.zeros(len(problem.empty))
        self.slack = 0.0

    def worth_of(self, pods: Mapping[int, int]) -> float:
        """The value of pods at these prices."""
        return sum(count * self._prices.get(shape, 0.0) for shape, count in pods.items())

    def start(self, free: IntArray, wanted: Mapping[int, int]) -> None:
        """Begin with what is free on each node, (nodes, resources), and the pods that need a slot in any case."""
        self._value = self.values(free)
        self.slack = float(self._value.sum()) - self.worth_of(wanted)

    def prepare(self, free: IntArray, nodes: IntArray) -> None:
        """Compute the values of several node states at once, which is faster than one by one."""
        if len(nodes):
            keys = self._keys(free, nodes)
            self._known.update(zip(keys, self._values(free, self._opened[:, nodes]).tolist(), strict=True))

    def cost(self, pods: Mapping[int, int], after: Mapping[int, IntArray]) -> float:
        """The price of further pods plus the value that some nodes lose by changed free capacity."""
        lost = sum(float(self._value[node]) - self._value_of(node, free) for node, free in after.items())
        return self.worth_of(pods) + lost

    def take(self, pods: Mapping[int, int], after: Mapping[int, IntArray]) -> None:
        """Count these pods as needed, and these nodes as changed."""
        self.slack -= self.cost(pods, after)
        for node, free in after.items():
            self._value[node] = self._value_of(node, free)

    def values(self, free: IntArray) -> FloatArray:
        """Return (nodes,) the highest value that the pods on each node can have, given its free capacity."""
        return self._values(free, self._opened)

    def _value_of(self, node: int, free: IntArray) -> float:
        rows, nodes = free[None], np.array([node])
        (key,) = self._keys(rows, nodes)
        if key not in self._known:
            self._known[key] = float(self._values(rows, self._opened[:, nodes])[0])
        return self._known[key]

    def _keys(self, free: IntArray, nodes: IntArray) -> list[bytes]:
        """Cache keys of states: states with equal keys have the same value."""
        opened = np.packbits(self._opened[:, nodes], axis=0).T
        return [row.tobytes() + bits.tobytes() for row, bits in zip(free[:, self._columns], opened, strict=True)]

    def _values(self, free: IntArray, opened: BoolArray) -> FloatArray:
        """(rows,) the values of states: free amounts (rows, resources) and what is open there, (shapes, rows)."""
        free = free.clip(min=0)
        if len(self._worth) <= 1:
            slots = [count_slots(free, row) * is_open for row, is_open in zip(self._request, opened, strict=True)]
            return sum((worth * n for worth, n in zip(self._worth, slots, strict=True)), np.zeros(len(free)))
        if len(self._worth) > FEW_PRICED:
            return self._divided(free, opened)
        rows, row_of = distinct(np.hstack([free[:, self._columns], opened.T]))
        classes = classify(free[rows], self._request, opened[:, rows])
        values = np.zeros(len(rows))
        for group, value in zip(classes, Pricer(classes, self._request).best(self._worth)[1], strict=True):
            values[list(group.nodes)] = value
        return values[row_of]

    def _divided(self, free: IntArray, opened: BoolArray) -> FloatArray:
        """(rows,) an upper bound of each value: divisible pods, limited by one resource."""
        slots = np.stack([count_slots(free, row) for row in self._request]) * opened
        fits = slots > 0
        bound: FloatArray = self._worth @ slots
        for r in np.flatnonzero((self._request > 0).all(axis=0)).tolist():
            ratio = self._worth / self._request[:, r]
            bound = np.minimum(bound, free[:, r] * np.where(fits, ratio[:, None], 0.0).max(axis=0))
        return bound
