"""The plan for lack of time: running jobs stay, and by age each waiting job starts that fits in free capacity.

Admission weighs sets of jobs against each other, which can take longer than a decision may. Then this plan is made:
surplus trainers are deleted for serving pods only, so no job that runs is stopped, and a job that waits gets what is
free in any case. A job that has waited too long still keeps younger ones of its tier from passing it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from edl.model.names import Role
from edl.planner.admission.admit import Admission
from edl.planner.admission.trial import waiting_since_s
from edl.planner.minimums.batches import Served, batches_of
from edl.planner.minimums.required import place_in_free_capacity
from edl.planner.minimums.serving import serve_over_surplus
from edl.planner.packing import place_batch
from edl.planner.problem import JobDemand, Problem, count_slots
from edl.planner.quota import QuotaMeter
from edl.planner.swaps.tightest import tightest_first
from edl.planner.trial_packing import Placed, TrialPacking

NOTHING_SERVED = Served({}, {}, 0)


@dataclass(frozen=True, slots=True)
class Stopgap:
    """A plan without the long searches: running jobs stay, and waiting jobs start if they fit beside them.

    Attributes:
        admission: who runs.
        served: what serving pods get: what they are due, as far as free capacity and surplus trainers freed capacity
            in time.
        is_complete: serving got what it is due, and there was time to try every job that waits.
    """

    admission: Admission
    served: Served
    is_complete: bool


def stopgap(problem: Problem, served: Served | None, part: float) -> Stopgap:
    """Keep what runs, serve from free capacity and then over surplus, and start each job that fits beside it.

    Jobs that run and lack pods get these from free capacity; those for which there is none lose their admission. The
    clock is asked for each job that waits; at the end of the time the others keep waiting.

    Args:
        problem: the arrays.
        served: what serving pods are due; None if there was no time to find out: then each gets what can be freed.
        part: the part of the deadline until which capacity is made for serving, and jobs that wait are tried.
    """
    problem.clock.allow(inf)  # what runs is kept, however late it is
    members, packing = problem.with_pods, None
    if served is not None:
        packing = place_in_free_capacity(TrialPacking(problem, members), served)
    is_served = packing is not None
    packing = packing or _standing(problem, members)
    problem.clock.allow(part)
    served = served or Served({group.shape: group.due for group in problem.waiting}, {}, 0)
    given = served if is_served else serve_over_surplus(packing, served)
    is_served = given.due == served.due
    packing, head = _joined(packing)
    return Stopgap(Admission(packing, head, frozenset(), {}), given, is_served and not problem.clock.is_over)


def _standing(problem: Problem, members: tuple[int, ...]) -> TrialPacking:
    """The running jobs that have all they need, or get it in free capacity, within the quotas."""
    while True:
        packing = TrialPacking(problem, members)
        broken = set(_beyond_quota(packing))
        for batch in batches_of(packing, NOTHING_SERVED):
            placed = place_batch(packing, batch, {})
            broken.update(j for j, _ in batch.owners[placed:])
        if not broken:
            return packing
        members = tuple(j for j in members if j not in broken)


def _beyond_quota(packing: TrialPacking) -> list[int]:
    """The job that began last of those whose minimums pass a quota together; empty if none is passed."""
    demands = packing.problem.demands
    limited = {j: demands[j].quota_uses for j in packing.members if demands[j].quota_uses}
    passed = QuotaMeter(limited, {j: demands[j].min_trainers for j in limited}).passed()
    users = [j for j, uses in limited.items() if any(use.row in passed for use in uses)]
    return sorted(users, key=lambda j: _turn(demands[j]))[-1:]


def _joined(packing: TrialPacking) -> tuple[TrialPacking, dict[int, int]]:
    """Add every waiting job that fits to a packing, by age.

    Map each of the other jobs to the job behind which it waits.
    """
    problem, capacity, meter = packing.problem, _FreeCapacity(packing), packing.meter()
    head: dict[int, int] = {}
    members = set(packing.members)
    waiting = sorted((d for d in problem.demands if d.index not in members), key=_turn)
    closed_ranks: dict[tuple[bool, bool, int], int] = {}
    joined: dict[int, list[Placed]] = {}
    for demand in waiting:
        blocking = closed_ranks.get(demand.job.rank)
        places = None if blocking is not None or problem.clock.is_over else _places(demand, capacity, meter)
        if places is not None:
            joined[demand.index] = places
            continue
        head[demand.index] = demand.index if blocking is None else blocking
        now_s = problem.snapshot.observed_at_s
        if blocking is None and now_s - waiting_since_s(demand) >= problem.limits.sharing.head_wait_s:
            closed_ranks[demand.job.rank] = demand.index
    together = packing.with_members(joined)
    together.hold_all([place for places in joined.values() for place in places])
    return together, head


def _turn(demand: JobDemand) -> tuple[bool, bool, int, float, object]:
    """Sort key of waiting jobs: the order of admission."""
    return demand.job.turn


def _places(demand: JobDemand, capacity: _FreeCapacity, meter: QuotaMeter) -> list[Placed] | None:
    """Place one more job at its minimum in free capacity, and count its quota; None if capacity or quota is short."""
    if any(pod.is_live for pod in demand.job.pods):  # they go first
        return None
    if meter.short_of_start(demand.quota_uses, demand.min_trainers) is not None:
        return None
    missing = [(need.shape, need.role, need.missing) for need in demand.needs]
    places = capacity.take(demand.index, [*missing, (demand.shape, Role.TRAINER, demand.min_trainers)])
    if places is not None:
        meter.start(demand.quota_uses, demand.min_trainers)
    return places


class _FreeCapacity:
    """The free capacity of each node while thousands of jobs are tried one after the other."""

    def __init__(self, packing: TrialPacking) -> None:
        self._problem, self._free = packing.problem, packing.free.copy(order="F")
        total = self._problem.allocatable.sum(axis=0).clip(min=1)
        self._spare, self._parts = self._free @ (1.0 / total), self._problem.request @ (1.0 / total)

    def take(self, j: int, needs: list[tuple[int, Role, int]]) -> list[Placed] | None:
        """Use capacity for pods of a job, each where it leaves least; None, and no change, if they do not all fit."""
        places: list[Placed] = []
        for shape, role, number in needs:
            slots = count_slots(self._free, self._problem.request[shape]) * self._problem.opened[shape]
            found = tightest_first(slots, self._spare, float(self._parts[shape]), number) if number else ((), ())
            if sum(found[1]) < number:
                for place in places:
                    self._use(place, -1)
                return None
            new = [Placed(j, role, shape, int(node)) for node, here in zip(*found, strict=True) for _ in range(here)]
            for place in new:
                self._use(place, 1)
            places += new
        return places

    def _use(self, place: Placed, number: int) -> None:
        asked = np.flatnonzero(self._problem.request[place.shape])
        self._free[place.node, asked] -= number * self._problem.request[place.shape, asked]
        self._spare[place.node] -= number * self._parts[place.shape]
