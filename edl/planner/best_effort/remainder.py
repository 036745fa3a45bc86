"""Divides what the plan leaves among jobs whose trainers request neither cpu nor memory.

A trainer without requests counts as one pod, and kube-scheduler binds it wherever a node may have one more. So such
jobs take no part in the shares: until here they had their minimum alone, and the capacity of their other trainers was
free to everyone. Now each of these trainers stays if its capacity is left, the worst-off job first. Then free
capacity is given out one by one, again to the worst off. A running trainer is deleted for another such job only if
that one is behind by more than the dead band.

No trainer is deleted for capacity that is only kept, such as `--serving-headroom`: kube-scheduler preempts surplus by
itself, and trainers without requests are surplus of the lowest class.

Source: progressive filling, Bertsekas and Gallager: Data Networks (1992), section 6.5.2.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from edl.model.jobs import Job
from edl.model.names import JobKey, Role
from edl.planner.best_effort.emptiest_nodes import EmptiestNodes
from edl.planner.evictions import first_enough, shortfall
from edl.planner.packing import has_load_left
from edl.planner.problem import IntArray, LiveTrainer, Problem, count_slots, fulfilment, sum_requests
from edl.planner.quota import QuotaMeter
from edl.planner.scores import EPSILON, is_felt
from edl.planner.sharing import Share, Yielded, ceiling_now
from edl.planner.trial_packing import SERVING, TrialPacking
from edl.planner.waits import restrain


def with_remainder(shared: Share, *, may_grow: bool) -> Share:
    """Give jobs without requests what the others leave; the same object if there are none.

    Args:
        shared: the finished shares of all other jobs; its packing is not changed.
        may_grow: False if free capacity is to be left to others.
    """
    problem = shared.packing.problem
    members = [j for j in shared.packing.members if problem.demands[j].job.is_best_effort]
    if not members:
        return shared
    rest = _Remainder(shared, members)
    rest.keep_running()
    if may_grow:
        rest.grow()
    return replace(shared, packing=rest.packing, yielded=rest.yielded())


class _Remainder:
    """The packing of a plan while what it leaves is given out.

    Attributes:
        packing: the packing; counts and free capacity are kept up to date.
    """

    def __init__(self, shared: Share, members: list[int]) -> None:
        self.packing = shared.packing.copy()
        self._problem: Problem = self.packing.problem
        self._members = members
        self._spare = _capacity_of(shared, self.packing)
        self._meter: QuotaMeter = self.packing.meter()
        self._stays: dict[int, list[tuple[LiveTrainer, int]]] = {j: [] for j in members}
        self._goes: list[Yielded] = []
        self._held = restrain((self._job(j) for j in members), self._problem.snapshot.observed_at_s)
        placed = Counter(place for place in self.packing.placed if place.owner == SERVING)
        self._serving = {place.node for place in placed - Counter(shared.spare)}
        shapes = sorted({self._problem.demands[j].shape for j in members})
        self._emptiest = EmptiestNodes(self.packing, self._problem.opened[shapes].sum(axis=0))
        self._ceilings = {
            j: ceiling_now(self._problem, self._problem.demands[j], self._job(j).bounds.max_trainers) for j in members
        }

    def keep_running(self) -> None:
        """Keep running trainers where capacity is left: of the worst-off job first, and those deleted last first."""
        waiting: dict[int, list[LiveTrainer]] = {j: [] for j in self._members}
        for trainer in sorted(self._problem.yielding, key=lambda trainer: trainer.order):
            if trainer.demand in waiting:
                waiting[trainer.demand].append(trainer)
        for j in self._members:
            self._undo_starts(j, waiting[j])
        self._in_turn(lambda j: self._keep_next(j, waiting[j]))

    def grow(self) -> None:
        """Start further trainers one by one, the worst-off job first; at the end of the time, the others later."""
        clock = self._problem.clock
        self._in_turn(lambda j: not clock.is_over and self._start_one(j))
        if clock.is_over:
            clock.cut_short("best effort")

    def yielded(self) -> tuple[Yielded, ...]:
        """The trainers to evict, in a fixed order."""
        return tuple(sorted(self._goes, key=lambda one: (one.trainer.demand, one.trainer.pod.name)))

    def _job(self, j: int) -> Job:
        return self._problem.demands[j].job

    def _level(self, j: int, change: int = 0) -> float:
        return fulfilment(*self._job(j).bounds, self.packing.count[j] + change)

    def _in_turn(self, step: Callable[[int], bool]) -> None:
        """Take a step for the job with the least fulfilment, until none of them succeeds any more.

        Of jobs that are equally well off, the one to which a trainer adds most comes first.
        """

        def turn(j: int) -> tuple[float, float, JobKey, int]:
            return self._level(j), -self._level(j, 1), self._job(j).key, j

        heap = [turn(j) for j in self._members]
        heapq.heapify(heap)
        while heap:
            j = heapq.heappop(heap)[-1]
            if step(j):
                heapq.heappush(heap, turn(j))

    def _undo_starts(self, j: int, waiting: list[LiveTrainer]) -> None:
        """Let a running trainer stay instead of one that is to start elsewhere for the minimum of the same job."""
        for place in [p for p in self.packing.placed if p.owner == j and p.role is Role.TRAINER]:
            if self._problem.clock.is_over:
                return
            self.packing.drop(place)
            stays = next((t for t in reversed(waiting) if t.node >= 0 and self._has_capacity(t)), None)
            if stays is None:
                self.packing.place_trainer(j, place.node)
                continue
            waiting.remove(stays)
            self._stay(stays, stays.node)

    def _has_capacity(self, trainer: LiveTrainer) -> bool:
        """True if the node of a running trainer has its capacity, be it kept for serving pods to come."""
        left = self.packing.free[trainer.node] + self._spare[trainer.node]
        return bool(count_slots(left[None], self._problem.request[trainer.shape])[0])

    def _keep_next(self, j: int, waiting: list[LiveTrainer]) -> bool:
        """Keep the next running trainer of a job on its node, or evict it; False if the job has no further one."""
        if not waiting:
            return False
        trainer = waiting.pop()
        if self.packing.count[j] >= self._job(j).bounds.max_trainers:
            self._goes.append(Yielded(trainer))
        elif self._meter.quota_shortage(j) is not None:
            self._goes.append(Yielded(trainer, for_quota=True))
        elif (node := self._node_of(trainer)) >= 0:
            self._meter.add(j)
            self._stay(trainer, node)
        else:
            self._goes.append(Yielded(trainer, for_serving=trainer.node in self._serving))
        return True

    def _node_of(self, trainer: LiveTrainer) -> int:
        """The node that a live trainer may keep; for an unbound one any that has capacity; -1 if there is none."""
        if trainer.node >= 0:
            return trainer.node if self._has_capacity(trainer) else -1
        if trainer.pod.node:
            return -1
        slots, index = self.packing.slots(trainer.shape), self._problem.node_index
        for name in (trainer.pod.nominated, trainer.pod.planned):
            if (node := index.get(name, -1)) >= 0 and slots[node]:
                return node
        return self._emptiest.best(trainer.shape)

    def _stay(self, trainer: LiveTrainer, node: int) -> None:
        self.packing.count[trainer.demand] += 1
        self.packing.free[node] -= self._problem.request[trainer.shape]
        self._stays[trainer.demand].append((trainer, node))

    def _start_one(self, j: int) -> bool:
        """Start one more trainer of a job; False if it has all that it may have, or nothing is left."""
        demand = self._problem.demands[j]
        is_full = self.packing.count[j] >= self._ceilings[j]
        if is_full or self._meter.quota_shortage(j) is not None or not has_load_left(self.packing, demand.shape):
            return False
        node = self._emptiest.best(demand.shape)
        if node < 0:
            node = self._taken_for(j)
        if node < 0:
            return False
        self.packing.place_trainer(j, node)
        self._meter.add(j)
        return True

    def _taken_for(self, j: int) -> int:
        """Delete a running trainer of a job that is ahead by more than the dead band.

        Returns its node, -1 without one.
        """
        opened = self._problem.opened[self._problem.demands[j].shape]
        request = self._problem.request[self._problem.demands[j].shape]
        for d in sorted(self._members, key=lambda d: (-self._level(d), self._job(d).key)):
            ahead = is_felt(self._level(d) - self._level(j)) and self._level(d, -1) >= self._level(j, 1) - EPSILON
            if self._problem.clock.is_over:
                return -1
            if d == j or not ahead or self._job(d).key in self._held:
                continue
            for number in range(len(self._stays[d]) - 1, -1, -1):
                trainer, node = self._stays[d][number]
                freed = self._problem.request[trainer.shape]
                if opened[node] and first_enough(shortfall(self.packing.free[node], request), freed[None]):
                    del self._stays[d][number]
                    self._goes.append(Yielded(trainer))
                    self.packing.count[d] -= 1
                    self.packing.free[node] += freed
                    self._emptiest.grew(node)
                    self._meter.remove(d)
                    return node
        return -1


def _capacity_of(shared: Share, packing: TrialPacking) -> IntArray:
    """(nodes, resources) capacity that is kept for serving pods to come."""
    node, shape = [place.node for place in shared.spare], [place.shape for place in shared.spare]
    return sum_requests(len(packing.free), packing.problem.request, node, shape)
