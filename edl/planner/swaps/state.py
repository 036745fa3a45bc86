"""The new trainers of a packing as arrays: what a search over swaps changes, with exact integers for every fit.

Only trainers that do not exist yet are here; they may go anywhere. Live pods, serving pods, masters and pservers stay
where the packing has them. Counts, free capacity, quotas and the allowed load are kept with every change.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from edl.model.names import Role
from edl.planner.problem import BoolArray, IntArray, count_slots
from edl.planner.swaps.tightest import tightest_first
from edl.planner.trial_packing import Placed, TrialPacking

FloatArray = NDArray[np.float64]
WordArray = NDArray[np.uint64]

MOST_COMPARED = 1200  # jobs that are compared pair by pair
MANY_UNITS = 8  # so many resources that a pod asks for at most one of, and a node has at most one of, are bits
NEARLY_USED = 8  # a quota that has capacity for fewer of the largest trainers is looked at while swaps are chosen


class SwapState:
    """New trainers by node and job.

    Attributes:
        base: the packing without its new trainers.
        jobs: indices of the members, ascending; arrays over jobs are in this order.
        request: (jobs, resources) of one trainer; opened: (jobs, nodes) True if one may go there.
        free: (nodes, resources) left.
        held: (nodes, jobs) new trainers.
        count: (jobs,) trainers in all.
        low, due, high: (jobs,) minimum, promise and ceiling.
        span: (jobs,) trainers between minimum and maximum, at least 1.
        size: (jobs,) the largest part that one trainer requests of any resource of the cluster.
        needed: (jobs, words) a bit for each resource of which a trainer needs one and no node has two, like a host
            port; no words if these are few.
        here: (nodes, words) the same: the node has one left.
    """

    def __init__(self, packing: TrialPacking, ceiling: Mapping[int, int], fair_share: Mapping[int, int]) -> None:
        """Take the new trainers out of a packing, which is not changed.

        Args:
            packing: every member at its minimum at least.
            ceiling: the most trainers of each member.
            fair_share: the fair share of each member, in whole trainers.
        """
        problem = packing.problem
        self.base = packing.copy()
        self.base.drop_all()
        self.base.hold_all([place for place in packing.placed if place.role is not Role.TRAINER])
        self.jobs = packing.members
        demands = [problem.demands[j] for j in self.jobs]
        shapes = [demand.shape for demand in demands]
        self.request, self.opened = problem.request[shapes], problem.opened[shapes]
        self.free = self.base.free.copy(order="F")  # slots are counted resource by resource
        self.held = np.zeros((len(self.free), len(self.jobs)), dtype=np.int32)
        self.count = np.array([self.base.count[j] for j in self.jobs], dtype=np.int64)
        self.low = np.array([demand.min_trainers for demand in demands], dtype=np.int64)
        self.high = np.maximum([ceiling.get(j, 0) for j in self.jobs], self.low)
        self.due = np.clip([fair_share.get(j, 0) for j in self.jobs], self.low, self.high)
        self.span = np.array([max(1, d.max_trainers - d.min_trainers) for d in demands], dtype=np.float64)
        self.total = problem.allocatable.sum(axis=0).clip(min=1).astype(np.float64)
        parts = self.request / self.total
        self.size, self._parts = parts.max(axis=1, initial=1e-12), parts.sum(axis=1)
        self._asked = [np.flatnonzero(row) for row in self.request]  # a cluster may have thousands of resources
        self._spare = np.zeros(len(self.free))
        for column, all_nodes in zip(self.free.T, self.total.tolist(), strict=True):
            self._spare += column / all_nodes
        self._rows, self._left = self._limits()
        single = (self.request.max(axis=0, initial=0) <= 1) & (self.free.max(axis=0, initial=0) <= 1)
        self._is_unit = single if single.sum() >= MANY_UNITS else np.zeros_like(single)
        self._amounts = self.request[:, ~self._is_unit]
        self.needed, self.here = (as_bits(rows[:, self._is_unit] > 0) for rows in (self.request, self.free))
        self._covers: BoolArray | None = None

    def _limits(self) -> tuple[IntArray, IntArray]:
        """(rows, jobs) what one trainer uses of each quota and of the allowed load; (rows,) what is left of them."""
        problem, meter = self.base.problem, self.base.meter()
        number = {row: k for k, row in enumerate(sorted(meter.used))}
        quota = np.zeros((len(number), len(self.jobs)), dtype=np.int64)
        for k, j in enumerate(self.jobs):
            for use in problem.demands[j].quota_uses:
                quota[number[use.row], k] = use.each
        left = np.array([row.limit - meter.used[row] for row in number], dtype=np.int64)
        share = problem.limits.sharing.max_load_desired
        if share >= 1.0:
            return quota, left
        total = problem.allocatable.sum(axis=0)
        load = np.floor(share * total).astype(np.int64) - (total - self.free.sum(axis=0))
        return np.vstack([quota, self.request.T]), np.concatenate([left, load])

    def allowed(self) -> BoolArray:
        """(jobs,) True if quotas and the allowed load have one more trainer of the job left."""
        return np.asarray(((self._rows <= self._left[:, None]) | (self._rows == 0)).all(axis=0))

    def with_limits(self, nodes: IntArray) -> tuple[IntArray, IntArray]:
        """Treat quotas and the allowed load that are nearly used up as resources.

        Args:
            nodes: indices of some nodes.

        Returns:
            (jobs, amounts + rows) of one trainer, and (some nodes, amounts + rows) left, without what `needed` and
            `here` say; what is left of a quota is left on every node, but only for one of them.
        """
        tight = np.flatnonzero(self._left < NEARLY_USED * self._rows.max(axis=1, initial=0))
        left = np.broadcast_to(self._left[tight].clip(min=0), (len(nodes), len(tight)))
        return (
            np.hstack([self._amounts, self._rows[tight].T]),
            np.hstack([self.free[np.ix_(nodes, np.flatnonzero(~self._is_unit))], left]),
        )

    def most_allowed(self, k: int) -> int:
        """How many more trainers of a job quotas and the allowed load have left."""
        used = self._rows[:, k] > 0
        return int((self._left[used] // self._rows[used, k]).min(initial=np.iinfo(np.int32).max))

    def allows(self, more: list[int], less: list[int]) -> bool:
        """Return True if quotas and the allowed load permit some jobs one more trainer each and others one less."""
        change = self._rows[:, more].sum(axis=1) - self._rows[:, less].sum(axis=1)
        return bool(((change <= self._left) | (change <= 0)).all())

    def covers(self, among: IntArray) -> BoolArray:
        """(some jobs, the same) True where the first requests no more than the second and may go wherever it may.

        It depends on no count, so it is computed once where jobs are not too many.
        """
        if len(self.jobs) > MOST_COMPARED:
            return self._covers_of(among)
        if self._covers is None:
            self._covers = self._covers_of(np.arange(len(self.jobs)))
        return self._covers[np.ix_(among, among)]

    def _covers_of(self, among: IntArray) -> BoolArray:
        of_each = np.hstack([self.request[among], self._rows[:, among].T])
        kinds, kind = np.unique(np.packbits(self.opened[among], axis=1), axis=0, return_inverse=True)
        covers = np.array([~(kinds & ~wide).any(axis=1) for wide in kinds])[np.ix_(kind.ravel(), kind.ravel())]
        for column in of_each.T[of_each.any(axis=0)]:
            users = np.flatnonzero(column > 0)  # what a job does not request, it never requests more of
            covers[users] &= column[users, None] <= column[None]
        return np.asarray(covers, dtype=np.bool_)

    def slots(self, k: int) -> IntArray:
        """(nodes,) how many more trainers of a job fit on each node."""
        found: IntArray = count_slots(self.free, self.request[k]) * self.opened[k]
        return found

    def add(self, node: int, k: int, number: int = 1) -> None:
        """Put trainers of a job on a node; a negative number takes them away."""
        self.free[node] -= number * self.request[k]
        self._spare[node] -= number * self._parts[k]
        self.here[node] = self.here[node] & ~self.needed[k] if number > 0 else self.here[node] | self.needed[k]
        self.held[node, k] += number
        self.count[k] += number
        self._left -= number * self._rows[:, k]

    def _add_all(self, nodes: IntArray, k: int, numbers: IntArray) -> None:
        """Put trainers of a job on several nodes; `numbers` is (nodes,)."""
        for r in self._asked[k]:
            self.free[nodes, r] -= numbers * self.request[k, r]
        self._spare[nodes] -= numbers * self._parts[k]
        self.here[nodes] &= ~self.needed[k]
        self.held[nodes, k] += numbers
        self.count[k] += numbers.sum()
        self._left -= numbers.sum() * self._rows[:, k]

    def value(self, gain: FloatArray) -> float:
        """The total value of all trainers, given the value of one trainer of each job."""
        return float(gain @ self.count)

    def rank(self, gain: FloatArray) -> tuple[int, float]:
        """Score of the state: first few jobs below their fair share, then what all trainers add."""
        return -int((self.due - self.count).clip(min=0).sum()), self.value(gain)

    def best_fit(self, k: int, number: int, *, is_bound: bool = True) -> int:
        """Place at most a number of trainers of a job, each where it leaves least; returns how many were placed.

        Args:
            k: the job.
            number: the number of number.
            is_bound: keep within quotas and the allowed load; minimums were admitted already.
        """
        left = min(number, self.most_allowed(k)) if is_bound else number
        if left <= 0:
            return 0
        nodes, numbers = tightest_first(self.slots(k), self._spare, float(self._parts[k]), left)
        self._add_all(nodes, k, numbers)
        return int(numbers.sum())

    def restore(self, packing: TrialPacking) -> None:
        """Put the new trainers back where a packing has them; nothing may have been placed since."""
        number = {j: k for k, j in enumerate(self.jobs)}
        for place in packing.placed:
            if place.role is Role.TRAINER:
                self.add(place.node, number[place.owner])

    def copy(self) -> SwapState:
        """Return an independent copy; both share what does not change."""
        other = object.__new__(SwapState)
        other.__dict__.update(self.__dict__)
        other.free, other.held, other.count = self.free.copy(order="F"), self.held.copy(), self.count.copy()
        other._left, other._spare, other.here = self._left.copy(), self._spare.copy(), self.here.copy()
        return other

    def packed(self) -> TrialPacking:
        """The packing with every new trainer on its node."""
        packing = self.base.copy()
        node, column = self.held.nonzero()
        by_job = np.argsort(column, kind="stable")
        node, column = node[by_job], column[by_job]
        new: list[Placed] = []
        for k, at, count in zip(column.tolist(), node.tolist(), self.held[node, column].tolist(), strict=True):
            j = self.jobs[k]
            for _ in range(count):
                if packing.without_node[j]:
                    packing.place_trainer(j, at)
                else:
                    new.append(Placed(j, Role.TRAINER, packing.problem.demands[j].shape, at))
        packing.hold_all(new)
        return packing


def as_bits(flags: BoolArray) -> WordArray:
    """(rows, words) the flags of each row as bits, 64 in a word.

    A cluster may have hundreds of host ports, of which each node has one. Comparing 64 at a time is faster.
    """
    octets = np.packbits(flags, axis=1)
    padded = np.zeros((len(flags), -(-flags.shape[1] // 64) * 8), dtype=np.uint8)
    padded[:, : octets.shape[1]] = octets
    return padded.view(np.uint64)
