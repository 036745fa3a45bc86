"""Everything that a decision was made from, and its result; reasons, reports and sentences are read from it.

Facts that many jobs ask for are computed once per pod shape and kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from edl.model.jobs import Job
from edl.model.names import JobKey
from edl.planner.admission.admit import Admission
from edl.planner.findings.scarcity import PlacedTrainers, Shortage, SurplusHolder, shortages
from edl.planner.minimums.batches import Served
from edl.planner.objective import Exchange
from edl.planner.problem import JobDemand, Problem, count_slots, sum_requests
from edl.planner.quota import QuotaMeter, QuotaShortage
from edl.planner.sharing import Share, Yielded
from edl.planner.trial_packing import SERVING, Placed
from edl.planner.waits import cooldown_left_s, growth_hold_left_s, is_arriving

EPSILON = 1e-6  # trainers; a level is rounded


@dataclass(frozen=True, slots=True)
class Scarce:
    """What is missing in the finished packing for one more pod of a shape.

    Attributes:
        shortages: the resources that are full; empty if some node still has capacity for one.
        holders: jobs with trainers above their minimum there, the largest part of the scarcest resource first.
        exchanges: what the best off of them would have to give up for one more pod.
        part_of: the part of each holder; part: of all of them together.
        is_left_soon: one more fits once the terminating pods of others are gone.
        kept: serving pods that capacity is kept for, if one more would fit without that; else 0.
        is_proved: False if another arrangement of the pods that the plan starts may have capacity for one.
    """

    shortages: tuple[Shortage, ...] = ()
    holders: tuple[SurplusHolder, ...] = ()
    exchanges: tuple[Exchange, ...] = ()
    part_of: Mapping[int, float] = field(default_factory=dict)
    part: float = 0.0
    is_left_soon: bool = False
    kept: int = 0
    is_proved: bool = True


@dataclass(slots=True)
class _Memory:
    """A cache of answers by pod shape, because many jobs share few shapes."""

    demands: dict[JobKey, JobDemand] = field(default_factory=dict)
    arriving: tuple[int, ...] | None = None
    cooling: tuple[tuple[float, JobKey], ...] | None = None
    held: tuple[tuple[float, JobKey], ...] | None = None
    placed: Mapping[int, Sequence[Placed]] | None = None
    deleted: Mapping[int, Sequence[int]] | None = None
    trainers: PlacedTrainers | None = None
    meter: QuotaMeter | None = None
    scarce: dict[int, Scarce] = field(default_factory=dict)
    has_capacity: dict[int, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DecisionContext:
    """Everything that a decision was made from, and its result."""

    problem: Problem
    served: Served
    admission: Admission
    shared: Share
    _memory: _Memory = field(default_factory=_Memory, repr=False, compare=False)

    def demand(self, job: Job) -> JobDemand | None:
        """The pods and counts of a job, as the planner sees them; None for a job that may get nothing."""
        if not self._memory.demands:
            self._memory.demands.update({c.job.key: c for c in self.problem.demands})
        return self._memory.demands.get(job.key)

    def member(self, job: Job) -> int | None:
        """The index of the demand of an admitted job; None if the job is not admitted."""
        demand = self.demand(job)
        return demand.index if demand is not None and demand.index in self.shared.packing.count else None

    def arriving(self) -> tuple[int, ...]:
        """The admitted jobs that may take their whole fair share at once: just admitted, or still starting."""
        if self._memory.arriving is None:
            now_s, demands = self.problem.snapshot.observed_at_s, self.problem.demands
            members = self.shared.packing.members
            self._memory.arriving = tuple(j for j in members if is_arriving(demands[j].job, now_s))
        return self._memory.arriving

    def quota_shortage(self, j: int) -> QuotaShortage | None:
        """The quota that keeps an admitted job from one more trainer; None if none does."""
        if self._memory.meter is None:
            self._memory.meter = self.shared.packing.meter()
        return self._memory.meter.quota_shortage(j)

    def cooling(self) -> tuple[tuple[float, JobKey], ...]:
        """The jobs above their fair share in a cooldown, as (seconds left, job), the longest first."""
        if self._memory.cooling is None:
            packing, level, now_s = self.shared.packing, self.shared.level, self.problem.snapshot.observed_at_s
            demands = (self.problem.demands[j] for j in packing.members if packing.count[j] > level[j] + 1)
            waits = ((cooldown_left_s(demand.job, now_s), demand.job.key) for demand in demands)
            self._memory.cooling = tuple(sorted((wait for wait in waits if wait[0] > 0), reverse=True))
        return self._memory.cooling

    def held(self) -> tuple[tuple[float, JobKey], ...]:
        """The jobs below their fair share that may not grow yet, as (seconds left, job), the longest first."""
        if self._memory.held is None:
            packing, level, problem = self.shared.packing, self.shared.level, self.problem
            now_s, limits = problem.snapshot.observed_at_s, problem.limits
            demands = (problem.demands[j] for j in packing.members if packing.count[j] < int(level[j] + EPSILON))
            waits = ((growth_hold_left_s(demand.job, limits, now_s), demand.job.key) for demand in demands)
            self._memory.held = tuple(sorted((wait for wait in waits if wait[0] > 0), reverse=True))
        return self._memory.held

    def placed(self, j: int) -> Sequence[Placed]:
        """The new pods of a job, in the order in which they were placed."""
        if self._memory.placed is None:
            groups: dict[int, list[Placed]] = defaultdict(list)
            for place in self.shared.packing.placed:
                groups[place.owner].append(place)
            self._memory.placed = groups
        return self._memory.placed.get(j, ())

    def deleted(self, j: int) -> Sequence[int]:
        """The live trainers of a job that the plan deletes, by index."""
        if self._memory.deleted is None:
            groups: dict[int, list[int]] = defaultdict(list)
            for index in self.shared.packing.victims:
                groups[self.problem.live_trainers[index].demand].append(index)
            self._memory.deleted = groups
        return (*self._memory.deleted.get(j, ()), *self.shared.packing.without_node[j])

    def yielded(self, j: int) -> Sequence[Yielded]:
        """The surplus trainers of a job without requests that are to be evicted."""
        return [one for one in self.shared.yielded if one.trainer.demand == j]

    def has_capacity(self, shape: int) -> bool:
        """True if some node has capacity for one more pod of the shape."""
        if shape not in self._memory.has_capacity:
            self._memory.has_capacity[shape] = bool(self.shared.packing.slots(shape).any())
        return self._memory.has_capacity[shape]

    def scarce(self, shape: int) -> Scarce:
        """Why there is no capacity for one more pod of a shape."""
        if shape not in self._memory.scarce:
            self._memory.scarce[shape] = self._look(shape)
        return self._memory.scarce[shape]

    def _look(self, shape: int) -> Scarce:
        packing = self.shared.packing
        if self.has_capacity(shape):
            return Scarce()
        found = shortages(packing, shape)
        if not found:
            return Scarce()
        if self._memory.trainers is None:
            self._memory.trainers = PlacedTrainers(packing)
        holders = self._memory.trainers.holders(shape, found[0].resource)
        exchanges = self._memory.trainers.exchanges(shape, holders)
        parts = {h.demand: h.part for h in holders}
        problem = self.problem
        left = problem.leaving.any(axis=1) & problem.opened[shape]
        is_left_soon = bool(count_slots((packing.free + problem.leaving)[left], problem.request[shape]).any())
        kept = self._kept_for_serving(shape)
        return Scarce(
            found, holders, exchanges, parts, sum(parts.values()), is_left_soon, kept, shape not in self.shared.unsure
        )

    def _kept_for_serving(self, shape: int) -> int:
        packing, problem = self.shared.packing, self.problem
        places = [(p.node, p.shape) for p in self.placed(SERVING)]
        if not places:
            return 0
        free = packing.free + sum_requests(len(packing.free), problem.request, *map(list, zip(*places, strict=True)))
        fits = count_slots(free[problem.opened[shape]], problem.request[shape]).any()
        return len(places) if fits else 0
