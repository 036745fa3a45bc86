"""Everything that was decided, for whoever puts it into words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from edl.model.jobs import Job
from edl.model.names import JobKey
from edl.planner.admission import Admission
from edl.planner.guard import cooldown_left_s, is_arriving
from edl.planner.minimums import Served
from edl.planner.pools import Pools
from edl.planner.problem import JobDemand, Problem, count_slots, sum_requests
from edl.planner.quota import QuotaMeter, QuotaShortage
from edl.planner.scarcity import Exchange, Shortage, Stands, SurplusHolder, describe, shortages
from edl.planner.sharing import Share
from edl.planner.trial_packing import SERVING, Placed


@dataclass(frozen=True, slots=True)
class Scarce:
    """What keeps one more pod of a shape out of the finished packing.

    Attributes:
        shortages: empty where some node still has room for one.
        holders: who has trainers above its minimum there, the largest part of the scarcest resource first.
        exchanges: what the best-off of them would have to give up for one more.
        words: which resource is full where.
        part_of: the part of each holder; part: of all of them together.
        is_left_soon: one more fits once those pods of others are gone that terminate.
        kept: serving pods that room is kept for, where one more would fit without that; else 0.
    """

    shortages: tuple[Shortage, ...] = ()
    holders: tuple[SurplusHolder, ...] = ()
    exchanges: tuple[Exchange, ...] = ()
    words: str = ""
    part_of: Mapping[int, float] = field(default_factory=dict)
    part: float = 0.0
    is_left_soon: bool = False
    kept: int = 0


@dataclass(slots=True)
class _Memory:
    """What was looked up: sentences about many jobs ask the same of few shapes."""

    demands: dict[JobKey, JobDemand] = field(default_factory=dict)
    arriving: tuple[int, ...] | None = None
    cooling: tuple[tuple[float, JobKey], ...] | None = None
    placed: Mapping[int, Sequence[Placed]] | None = None
    deleted: Mapping[int, Sequence[int]] | None = None
    stands: Stands | None = None
    meter: QuotaMeter | None = None
    pools: Pools | None = None
    scarce: dict[int, Scarce] = field(default_factory=dict)
    has_room: dict[int, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DecisionContext:
    """Everything that was decided."""

    problem: Problem
    served: Served
    admission: Admission
    shared: Share
    _memory: _Memory = field(default_factory=_Memory, repr=False, compare=False)

    def demand(self, job: Job) -> JobDemand | None:
        """The claim of a job that may be given something."""
        if not self._memory.demands:
            self._memory.demands.update({c.job.key: c for c in self.problem.demands})
        return self._memory.demands.get(job.key)

    def member(self, job: Job) -> int | None:
        """The index of a job that is admitted."""
        demand = self.demand(job)
        return demand.index if demand is not None and demand.index in self.shared.packing.count else None

    def arriving(self) -> tuple[int, ...]:
        """The members that may claim their whole share now: just admitted, or still starting."""
        if self._memory.arriving is None:
            now_s, demands = self.problem.snapshot.observed_at_s, self.problem.demands
            members = self.shared.packing.members
            self._memory.arriving = tuple(j for j in members if is_arriving(demands[j].job, now_s))
        return self._memory.arriving

    def quota_shortage(self, j: int) -> QuotaShortage | None:
        """The quota that keeps a member from one more trainer."""
        if self._memory.meter is None:
            self._memory.meter = self.shared.packing.meter()
        return self._memory.meter.quota_shortage(j)

    def pools(self) -> Pools:
        """What the nodes are called."""
        if self._memory.pools is None:
            self._memory.pools = Pools(self.problem.snapshot.nodes)
        return self._memory.pools

    def cooling(self) -> tuple[tuple[float, JobKey], ...]:
        """Members with more than their share that were resized too recently to give it; the last to end first."""
        if self._memory.cooling is None:
            packing, level, now_s = self.shared.packing, self.shared.level, self.problem.snapshot.observed_at_s
            demands = (self.problem.demands[j] for j in packing.members if packing.count[j] > level[j] + 1)
            waits = ((cooldown_left_s(demand.job, now_s), demand.job.key) for demand in demands)
            self._memory.cooling = tuple(sorted((wait for wait in waits if wait[0] > 0), reverse=True))
        return self._memory.cooling

    def placed(self, j: int) -> Sequence[Placed]:
        """The new pods of a member, in the order in which they were placed."""
        if self._memory.placed is None:
            groups: dict[int, list[Placed]] = defaultdict(list)
            for place in self.shared.packing.placed:
                groups[place.owner].append(place)
            self._memory.placed = groups
        return self._memory.placed.get(j, ())

    def deleted(self, j: int) -> Sequence[int]:
        """The seats of a member that die."""
        if self._memory.deleted is None:
            groups: dict[int, list[int]] = defaultdict(list)
            for index in self.shared.packing.victims:
                groups[self.problem.live_trainers[index].demand].append(index)
            self._memory.deleted = groups
        return (*self._memory.deleted.get(j, ()), *self.shared.packing.without_node[j])

    def has_room(self, shape: int) -> bool:
        """True where some node holds one more pod of the shape."""
        if shape not in self._memory.has_room:
            self._memory.has_room[shape] = bool(self.shared.packing.slots(shape).any())
        return self._memory.has_room[shape]

    def scarce(self, shape: int) -> Scarce:
        """What keeps one more pod of a shape out."""
        if shape not in self._memory.scarce:
            self._memory.scarce[shape] = self._look(shape)
        return self._memory.scarce[shape]

    def _look(self, shape: int) -> Scarce:
        packing = self.shared.packing
        if self.has_room(shape):
            return Scarce()
        found = shortages(packing, shape)
        if not found:
            return Scarce()
        if self._memory.stands is None:
            self._memory.stands = Stands(packing)
        holders = self._memory.stands.holders(shape, found[0].resource)
        exchanges = self._memory.stands.exchanges(shape, holders)
        words = describe(packing, shape, found, self.pools())
        parts = {h.demand: h.part for h in holders}
        problem = self.problem
        left = problem.leaving.any(axis=1) & problem.opened[shape]
        is_left_soon = bool(count_slots((packing.free + problem.leaving)[left], problem.request[shape]).any())
        kept = self._kept_for_serving(shape)
        return Scarce(found, holders, exchanges, words, parts, sum(parts.values()), is_left_soon, kept)

    def _kept_for_serving(self, shape: int) -> int:
        packing, problem = self.shared.packing, self.problem
        places = [(p.node, p.shape) for p in packing.placed if p.owner == SERVING]
        if not places:
            return 0
        free = packing.free + sum_requests(len(packing.free), problem.request, *map(list, zip(*places, strict=True)))
        fits = count_slots(free[problem.opened[shape]], problem.request[shape]).any()
        return len(places) if fits else 0
