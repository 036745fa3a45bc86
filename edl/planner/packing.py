"""Puts whole pods on whole nodes: frees capacity for a batch, and grows jobs one trainer at a time.

The linear programs say what is possible. Here it is done, pod by pod, with exact free capacity for each node. What
does not fit is reported by the count; a node is never overcommitted. What to place is decided elsewhere.

Source: best fit by lost capacity, after Tetris (Grandl et al., SIGCOMM 2014, section 3.2).
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from edl.model.names import JobKey, Role
from edl.model.topology import SEATS
from edl.planner.problem import IntArray, Problem, count_slots
from edl.planner.quota import QuotaMeter
from edl.planner.speedup import Worth
from edl.planner.trial_packing import SERVING, Placed, TrialPacking
from edl.planner.victims import choose

FEW_ROWS = 64
STEPS = 256  # the turns in which a job gets its trainers, if it has that many
MIN_SIZE = 1e-12  # part of the cluster; the size of a trainer that requests nothing

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PodBatch:
    """Pods of one shape that have to be placed.

    Attributes:
        shape: index of the shape.
        owners: (job, role) of each pod, in the order in which they are served; (SERVING, None) for a serving pod.
    """

    shape: int
    owners: tuple[tuple[int, Role | None], ...]


def place_batch(packing: TrialPacking, batch: PodBatch, allowance: Mapping[int, int]) -> int:
    """Place a batch of pods and delete trainers for it where needed; the packing is changed.

    Args:
        packing: the packing.
        batch: the pods.
        allowance: how many trainers of each job may be deleted; a job that is not named loses none.

    Returns:
        How many pods were placed: those of the first so many owners.
    """
    left = deque(batch.owners)
    allowed = dict(allowance)
    while left:
        packing.problem.clock.check("freeing capacity")
        before = len(left)
        view = packing.for_requests() if left[0][0] == SERVING else packing
        for choice in choose(view, batch.shape, len(left), allowed):
            deleted = Counter(packing.problem.live_trainers[i].demand for i in choice.live_trainers)
            if any(n > allowed[j] for j, n in deleted.items()):
                continue
            for index in choice.live_trainers:
                packing.delete(index)
            if left[0][0] == SERVING:
                packing.for_serving.update(choice.live_trainers)
            for j, n in deleted.items():
                allowed[j] -= n
            owners = Counter(left.popleft() for _ in range(choice.slots))
            for owner, number in owners.items():
                place(packing, batch.shape, owner, choice.node, number)
        if len(left) == before:
            break
    return len(batch.owners) - len(left)


def place(packing: TrialPacking, shape: int, owner: tuple[int, Role | None], node: int, number: int = 1) -> None:
    """Place pods of an owner on a node; the packing is changed."""
    j, role = owner
    if j == SERVING or role is None:
        packing.hold(Placed(SERVING, None, shape, node), number)
    elif role is Role.TRAINER:
        packing.place_trainer(j, node, number)
    else:
        for _ in range(number):
            packing.place_fixed(j, role, shape, node)


class Grower:
    """Finds the best node for the next trainer of each shape while free capacity is used.

    Attributes:
        packing: the packing.
        shapes: indices of the shapes, ascending.
        nodes: indices of the nodes that hold one more trainer of any shape, ascending.
        rank: (shapes, nodes) the cost of one more trainer of each shape on each of these nodes; infinite if it does
            not fit.
        slots: (shapes, nodes) how many more of each shape each of these nodes could hold.
    """

    def __init__(self, packing: TrialPacking) -> None:
        self.packing = packing
        self.shapes = sorted({demand.shape for demand in packing.problem.demands})
        self._request = packing.problem.request[self.shapes]
        self._opened = packing.problem.opened[self.shapes]
        self._known: dict[bytes, tuple[FloatArray, IntArray]] = {}  # equal nodes pass through the same states
        fits = [(packing.slots(shape) > 0) for shape in self.shapes]
        self.nodes = np.flatnonzero(np.logical_or.reduce(fits)) if fits else np.zeros(0, dtype=np.int64)
        self.rank, self.slots = self._ranks(self.nodes)

    def find(self, shape: int) -> int:
        """The node where one more trainer of the shape costs the least capacity; -1 if there is none."""
        rank = self.rank[self.shapes.index(shape)]
        if not len(rank) or not has_load_left(self.packing, shape):
            return -1
        at = int(rank.argmin())
        return int(self.nodes[at]) if rank[at] < np.inf else -1

    def refresh(self, node: int) -> None:
        """Compute the cost anew for a node whose free capacity has changed."""
        at, packing = int(self.nodes.searchsorted(node)), self.packing
        state = packing.free[node].tobytes() + packing.now[node].tobytes() + self._opened[:, node].tobytes()
        if state not in self._known:
            rank, slots = self._ranks(self.nodes[at : at + 1])
            self._known[state] = rank[:, 0], slots[:, 0]
        self.rank[:, at], self.slots[:, at] = self._known[state]

    def at_once(self, j: int, node: int, most: int, meter: QuotaMeter, others: int) -> int:
        """How many trainers of a job to place on a node before the next job: several if the job may have very many.

        One by one, a job of ten thousand would cost a decision as much as hundreds of jobs, for shares that differ by
        less than anybody notices. Once slots are few, or a limit is near, there is one trainer a turn.

        Args:
            j: the member whose turn it is.
            node: where one more of its trainers fits.
            most: how many it may have.
            meter: the quota that is used so far.
            others: how many more members may grow.
        """
        packing, demand = self.packing, self.packing.problem.demands[j]
        if (most := min(most, (demand.max_trainers - demand.min_trainers) // STEPS)) <= 1:
            return 1
        slots, turns = self.slots[self.shapes.index(demand.shape)], 2 * others + 2
        most = min(most, int(slots.sum()) // turns, int(slots[self.nodes.searchsorted(node)]))
        further = (most * turns - 1) * packing.problem.request[demand.shape]
        is_far = most > 1 and meter.quota_shortage(j, most * turns) is None
        return most if is_far and has_load_left(packing, demand.shape, -further) else 1

    def _ranks(self, rows: IntArray) -> tuple[FloatArray, IntArray]:
        """(shapes, rows) the cost of one more trainer of each shape on some nodes, and how many fit.

        The cost is the slots that other trainers lose there; then whether it must wait for pods that are on their way
        out; then what the node has to spare. It is infinite if none fits.
        """
        packing, problem = self.packing, self.packing.problem
        free, request, opened = packing.free[rows], self._request, self._opened[:, rows]
        states = np.concatenate([free[None], free - request[:, None]])  # unchanged, then with one pod of each shape
        slots, after = np.split(_slots(states, request), [1], axis=1)  # (shapes, states, rows)
        slots = slots[:, 0]
        lost = ((slots[:, None] - after) * opened[:, None]).sum(axis=0) - 1
        late = (packing.now[rows][None] < request[:, None]).any(axis=2)
        scale = problem.largest
        spare = np.minimum(np.maximum((free[None] - request[:, None]) / scale, 0), 1).sum(axis=2) / max(1, len(scale))
        slots = slots * opened
        return np.where(slots > 0, lost * 4 + late * 2 + spare, np.inf), slots


def _slots(free: IntArray, request: IntArray) -> IntArray:
    """(shapes, ...) how many pods of each shape fit into each row of free capacity, (..., resources)."""
    rows = free.reshape(-1, free.shape[-1])
    if len(rows) <= FEW_ROWS:  # all at once, because a call takes longer than what it computes
        parts = rows[None] // np.maximum(request, 1)[:, None]
        most = np.iinfo(np.int32).max
        few: IntArray = np.maximum(np.where(request[:, None] > 0, parts, most).min(axis=2, initial=most), 0)
        return few.reshape(len(request), *free.shape[:-1])
    slots = [count_slots(rows, row) for row in request]
    return np.array(slots, dtype=np.int64).reshape(len(request), *free.shape[:-1])


def has_load_left(packing: TrialPacking, shape: int, freed: IntArray | int = 0) -> bool:
    """True if one more trainer of the shape keeps the cluster within --max-load-desired, counted on totals.

    `freed`: (resources,) what trainers request that go for it.
    """
    share = packing.problem.limits.sharing.max_load_desired
    if share >= 1.0:
        return True
    total = packing.problem.allocatable.sum(axis=0)
    request = packing.problem.request[shape]
    return bool((total - packing.free.sum(axis=0) + request - freed <= share * total)[request > 0].all())


def may_have_more(packing: TrialPacking, most: Mapping[int, int]) -> Iterator[int]:
    """Yield the jobs below `most` that lack only a slot for one more trainer, because quotas and load allow it."""
    meter = packing.meter()
    for j in packing.members:
        shape = packing.problem.demands[j].shape
        if packing.count[j] < most.get(j, 0) and meter.quota_shortage(j) is None and has_load_left(packing, shape):
            yield j


def grow(
    packing: TrialPacking,
    ceiling: Mapping[int, int],
    fair_share: Mapping[int, int],
    take: Callable[[TrialPacking, int], bool] | None = None,
    worths: Mapping[int, Worth] | None = None,
) -> None:
    """Give free slots to the jobs in turn until none below its ceiling can have one more; the packing is changed.

    Members below their promise come first, the one with the least fulfilment before the others. What rounding has
    left goes to the worst off that it fits; with worths, or in a large cluster, it goes where a trainer adds most for
    its size. A job whose queue has no quota left gets none. At the deadline, growth ends where it is.

    Args:
        packing: the packing.
        ceiling: the most trainers that each member may have here.
        fair_share: the fair share of each member, in whole trainers.
        take: makes capacity for a member below its promise that nothing is free for, by taking from others; it
            changes the packing and returns whether it did.
        worths: what trainers are worth to each member; by default only fulfilment counts.
    """
    size = _sizes(packing.problem)
    heap = [(_urgency(packing, j, fair_share, worths, size), j) for j in ceiling if packing.count[j] < ceiling[j]]
    if not heap:
        return
    grower, meter = Grower(packing), packing.meter()
    heapq.heapify(heap)
    while heap:
        if packing.problem.clock.is_over:
            packing.problem.clock.cut_short("growth")
            return
        _, j = heapq.heappop(heap)
        if packing.count[j] >= ceiling[j]:
            continue
        node = grower.find(packing.problem.demands[j].shape) if meter.quota_shortage(j) is None else -1
        if node >= 0:
            end = fair_share[j] if packing.count[j] < fair_share[j] < ceiling[j] else ceiling[j]
            number = grower.at_once(j, node, end - packing.count[j], meter, len(heap))
            packing.place_trainer(j, node, number)
            meter.add(j, number)
            grower.refresh(node)
            heapq.heappush(heap, (_urgency(packing, j, fair_share, worths, size), j))
        elif take is not None and packing.count[j] < fair_share[j] and take(packing, j):
            grower, meter = Grower(packing), packing.meter()
            heap = [(_urgency(packing, i, fair_share, worths, size), i) for i in ceiling]
            heapq.heapify(heap)


def _sizes(problem: Problem) -> dict[int, float]:
    """The size of one trainer of each shape: the largest part that it requests of any resource of the cluster."""
    total = problem.allocatable.sum(axis=0).clip(min=1)
    counted = [column for column, name in enumerate(problem.names) if not name.startswith(SEATS)]
    shapes = sorted({demand.shape for demand in problem.demands})
    return {s: max(float((problem.request[s] / total)[counted].max(initial=0.0)), MIN_SIZE) for s in shapes}


def _urgency(
    packing: TrialPacking,
    j: int,
    fair_share: Mapping[int, int],
    worths: Mapping[int, Worth] | None,
    size: Mapping[int, float],
) -> tuple[float, float, JobKey]:
    """Sort key for growth: first jobs below their fair share, then the worst-off job, or the one that gains most."""
    demand = packing.problem.demands[j]
    if packing.count[j] < fair_share[j]:
        return (-inf, packing.fulfilment(j), demand.job.key)
    if worths is None:
        each = demand.job.weight / max(1, demand.max_trainers - demand.min_trainers)
        worst, most = packing.fulfilment(j), -each / size[demand.shape]
        return (most, worst, demand.job.key) if packing.problem.plans_in_bulk else (worst, most, demand.job.key)
    return (-worths[j].next(packing.count[j]) / size[demand.shape], packing.fulfilment(j), demand.job.key)
