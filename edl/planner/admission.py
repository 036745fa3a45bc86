"""Who runs: waiting serving first, then jobs tier by tier and by age, each with all it needs or not at all.

A job can wait for room or for quota. Waiting for room it is the head that the younger ones of its tier pass only for
so long; waiting for what other jobs of its queue need at least, it is a head to its queue alone.

A trial places everything that must have room (serving, missing masters and pservers, minimums), letting surplus
trainers die where they must. A linear program rejects what cannot fit; whole pods on real nodes confirm what does.
How much more than its minimum a job gets is decided in `sharing`.

Source: gang admission with backfill behind a head, after Kueue's BestEffortFIFO.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice, permutations

from edl.planner.minimums import (
    ORDERS_TRIED,
    Served,
    by_size,
    demands_of,
    for_serving,
    settle,
    settle_freely,
    size_of,
)
from edl.planner.packing import make_room
from edl.planner.problem import Claim, World, count_beyond, count_stuck, room_beside
from edl.planner.programs.fair_share import place_most
from edl.planner.programs.integer import pack_most
from edl.planner.quota import Meter, Short, most_alone
from edl.planner.trial import Room


@dataclass(frozen=True, slots=True)
class Admission:
    """Who runs, and a room in which all that must have room has it.

    Attributes:
        room: the trial with every admitted job at its minimum at least.
        head: of each waiting job, the older one that it waits behind; itself where it is the head.
        hopeless: jobs that would not fit even alone, or not into their quota.
        short: of each job that waits for quota, or behind one that does, what is lacking.
    """

    room: Room
    head: Mapping[int, int]
    hopeless: frozenset[int]
    short: Mapping[int, Short]


def serve(world: World, deadline_s: float) -> Served:
    """Count how many waiting serving pods could be placed with no training at all: those must be placed."""
    wanted = {group.shape: group.due + group.young for group in world.waiting}
    best: Counter[int] = Counter()
    if wanted:
        goal = min(sum(wanted.values()), int(place_most(world, world.empty, wanted, deadline_s) + 1e-6))
        for order in islice(permutations(by_size(world, wanted)), ORDERS_TRIED):
            room = Room(world, ())
            placed = Counter({s: make_room(room, for_serving(s, wanted[s]), {}) for s in order})
            best = max(best, placed, key=Counter.total)
            if best.total() >= goal:
                break
        if best.total() < goal and (packed := pack_most(world, world.empty, wanted, deadline_s)) is not None:
            exact: Counter[int] = Counter()
            for _, shape, pods in packed:
                exact[shape] += pods
            best = max(best, exact, key=Counter.total)
    due = {group.shape: min(group.due, best[group.shape]) for group in world.waiting}
    young = {group.shape: best[group.shape] - due[group.shape] for group in world.waiting}
    return Served(due, young, sum(wanted.values()) - best.total())


def cap(world: World, served: Served, deadline_s: float) -> tuple[World, frozenset[int]]:
    """Cap each maximum at what would fit were the job alone, and find the jobs that would not even fit alone.

    Trainers that a job has are never above its cap: a cap buys nothing and costs nobody. Only what is above the cap
    of a quota goes. The cap is what one order of placing finds; that a job would not even fit is only said once no
    packing was found that holds it.
    """
    alone = _Trial(world, served, deadline_s)
    idle = alone(()) or Room(world, ())
    for shape, count in sorted(served.young.items()):
        make_room(idle, for_serving(shape, count), {})
    known: dict[tuple[object, ...], int] = {}
    claims, hopeless, beyond = [], set(), count_beyond(world)
    for claim in world.claims:
        kind = (claim.shape, claim.job.fixed)
        if kind not in known:
            known[kind] = _alone(idle, claim)
        most = max(known[kind] + beyond[claim.index], len(claim.seats))
        quota = most_alone(claim.asks)
        if quota < claim.low or (
            most < claim.low
            and not (claim.job.was_admitted and claim.seats)
            and alone.beside((), claim.index) is None
        ):
            hopeless.add(claim.index)
        claims.append(replace(claim, high=max(claim.low, int(min(claim.high, most, max(quota, 0))))))
    return replace(world, claims=tuple(claims)), frozenset(hopeless)


def _alone(idle: Room, claim: Claim) -> int:
    """Trainers that fit beside all of the job's masters and pservers; -1 where not even those fit."""
    room = idle.copy()
    number = {shape: index for index, shape in enumerate(room.world.shapes)}
    for fixed in sorted(claim.job.fixed, key=lambda f: -size_of(room.world, number[f.shape])):
        wanted = for_serving(number[fixed.shape], fixed.count)
        if fixed.count and make_room(room, wanted, {}) < fixed.count:
            return -1
    return int(room.slots(claim.shape).sum())


def admit(world: World, served: Served, hopeless: frozenset[int], deadline_s: float) -> Admission:
    """Choose who runs: tier by tier; those that run already before those that wait; older before younger."""
    trial = _Trial(world, served, deadline_s)
    hopeful = [c for c in world.claims if c.index not in hopeless]
    room = trial([c.index for c in hopeful])
    if room is not None:
        return Admission(room, {}, hopeless, {})
    room = trial([])
    queue = _Queue(trial)
    for tier in sorted({c.job.tier for c in hopeful}, reverse=True):
        ranked = sorted((c for c in hopeful if c.job.tier == tier), key=_seniority)
        room = queue.keep(room, [c.index for c in ranked if c.job.was_admitted])
        room = queue.let_in(room, [c for c in ranked if not c.job.was_admitted])
    if room is None:
        room = Room(world, ())
    return Admission(room, queue.head, hopeless, queue.short)


def waiting_since_s(claim: Claim) -> float:
    """When a job that does not run began to wait: at its creation, or when it lost its place."""
    status = claim.job.status
    admitted = status.condition("Admitted") if status is not None else None
    if status is not None and status.start_s is not None and admitted is not None and admitted.status == "False":
        return admitted.since_s
    return claim.job.created_s


def _seniority(claim: Claim) -> tuple[bool, float, object]:
    """Whole jobs before those that have lost pods; then by age."""
    is_broken = bool(claim.needs) or len(claim.seats) < claim.low
    return (claim.job.was_admitted and is_broken, claim.job.created_s, claim.job.key)


class _Trial:
    """Tries sets of jobs: whether all that they need fits beside serving. Sets that were refused are remembered."""

    def __init__(self, world: World, served: Served, deadline_s: float) -> None:
        self.world = world
        self.served = served
        self.deadline_s = deadline_s
        self.refused: set[tuple[tuple[int, ...], tuple[object, ...]]] = set()

    def __call__(self, members: Iterable[int]) -> Room | None:
        chosen = tuple(sorted(members))
        if self.meter(chosen).passed():
            return None
        room = Room(self.world, chosen)
        if not demands_of(room, self.served):
            return room
        if self.world.is_large and settle_freely(room, self.served) is not None:
            return room  # sooner done than proved
        return settle(self.world, chosen, self.served, self.deadline_s) if self._could_fit(chosen) else None

    def beside(self, members: tuple[int, ...], newcomer: int) -> Room | None:
        """Try one more job; one that needs the same as a refused one is refused at once."""
        claim = self.world.claims[newcomer]
        kind = (members, (claim.shape, claim.low, claim.needs, claim.unbound_fixed, claim.seats, claim.asks))
        if kind in self.refused:
            return None
        room = self((*members, newcomer))
        if room is None:
            self.refused.add(kind)
        return room

    def meter(self, members: Iterable[int]) -> Meter:
        """What some jobs need at least of the quotas of their queues."""
        limited = {j: claim for j in members if (claim := self.world.claims[j]).asks}
        return Meter({j: c.asks for j, c in limited.items()}, {j: c.low for j, c in limited.items()})

    def short_of(self, members: Iterable[int], newcomer: int) -> Short | None:
        """The quota that keeps a job from running beside others, which have their minimums."""
        claim = self.world.claims[newcomer]
        return self.meter(members).short_of_start(claim.asks, claim.low) if claim.asks else None

    def has_waited(self, claim: Claim) -> bool:
        """True where a job has waited so long that nothing younger passes it."""
        now_s = self.world.snapshot.observed_at_s
        return now_s - waiting_since_s(claim) >= self.world.limits.head_wait_s

    def _could_fit(self, members: tuple[int, ...]) -> bool:
        """False where the linear program proves that it cannot: every trainer may move, every pod may be split."""
        world = self.world
        wanted: Counter[int] = Counter({s: n for s, n in self.served.due.items() if n})
        stuck = count_stuck(world)
        for j in members:
            claim = world.claims[j]
            wanted[claim.shape] += max(0, claim.low - stuck[j])
            for need in claim.needs:
                wanted[need.shape] += need.missing
            for shape, _ in claim.unbound_fixed:
                wanted[shape] += 1
        wanted = +wanted
        if not wanted:
            return True
        return place_most(world, room_beside(world, members), wanted, self.deadline_s) >= wanted.total() - 1e-6


class _Queue:
    """Lets jobs in, in their order, and remembers who waits behind whom and for what.

    Attributes:
        head: of each waiting job, the older one that it waits behind; itself where it is a head.
        short: of each job that waits for quota, or behind one that does, what is lacking.
    """

    def __init__(self, trial: _Trial) -> None:
        self._trial = trial
        self.head: dict[int, int] = {}
        self.short: dict[int, Short] = {}

    def keep(self, room: Room | None, running: list[int]) -> Room | None:
        """Keep those that run; where not all fit, the youngest go, whole."""
        if not running or (together := self._trial([*_members(room), *running])) is None:
            for j in running:
                if (lacking := self._trial.short_of(_members(room), j)) is not None:
                    self.short[j] = lacking
                room = self._trial.beside(_members(room), j) or room
            return room
        return together

    def let_in(self, room: Room | None, waiting: list[Claim]) -> Room | None:
        """Let in the longest prefix by age that fits, then whoever fits behind it while its head has not waited long.

        Who lacks quota is left out of the prefix and becomes the head of its queue.
        """
        before = _members(room)
        order = self._with_quota(before, waiting)
        count, room = _longest(lambda n: self._trial([*before, *order[:n]]) if n else room, len(order), room)
        if count == len(waiting):
            return room
        first = order[count] if count < len(order) else None
        if first is not None:
            self.head[first] = first
        heads: dict[str, int] = {}
        is_behind = False
        for claim in waiting:
            is_behind = is_behind or claim.index == first
            if claim.index == first or claim.index in order[:count]:
                continue
            passed = heads.get(claim.job.queue, claim.index)
            lacking = self._trial.short_of(_members(room), claim.index) or self._behind(passed, claim.index)
            if lacking is not None:
                self.head[claim.index] = heads.setdefault(claim.job.queue, claim.index)
                self.short[claim.index] = lacking
                continue
            is_closed = is_behind and first is not None and self._trial.has_waited(self._trial.world.claims[first])
            let_in = None if is_closed else self._trial.beside(_members(room), claim.index)
            room = let_in or room
            if let_in is None:
                self.head[claim.index] = claim.index if first is None else first
        return room

    def _behind(self, head: int, j: int) -> Short | None:
        """What the head of a job's queue lacks, where it has waited so long that the job may not pass it."""
        return self.short[head] if head != j and self._trial.has_waited(self._trial.world.claims[head]) else None

    def _with_quota(self, members: tuple[int, ...], waiting: list[Claim]) -> list[int]:
        """Those that have quota once all older ones among them run; nobody passes a head that has waited long."""
        meter = self._trial.meter(members)
        closed: set[str] = set()
        order = []
        for claim in waiting:
            if claim.asks and claim.job.queue in closed:
                continue
            if meter.short_of_start(claim.asks, claim.low) is None:
                meter.start(claim.asks, claim.low)
                order.append(claim.index)
            elif self._trial.has_waited(claim):
                closed.add(claim.job.queue)
        return order


def _members(room: Room | None) -> tuple[int, ...]:
    return room.members if room is not None else ()


def _longest(attempt: Callable[[int], Room | None], most: int, start: Room | None) -> tuple[int, Room | None]:
    """The largest count for which the attempt succeeds, by bisection, and its room; `start` is that of none."""
    low, high, room = 0, most + 1, start
    while high - low > 1:
        middle = most if high > most else (low + high) // 2
        if (tried := attempt(middle)) is not None:
            low, room = middle, tried
        else:
            high = middle
    return low, room
