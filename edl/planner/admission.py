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
    batches_of,
    by_size,
    for_serving,
    place_in_free_room,
    place_required,
    size_of,
)
from edl.planner.packing import make_room
from edl.planner.problem import JobDemand, Problem, count_misplaced, count_without_slot, free_beside_fixed
from edl.planner.programs.fair_share import place_most
from edl.planner.programs.integer import pack_most
from edl.planner.quota import QuotaMeter, QuotaShortage, most_alone
from edl.planner.trial_packing import TrialPacking


@dataclass(frozen=True, slots=True)
class Admission:
    """Who runs, and a room in which all that must have room has it.

    Attributes:
        room: the trial with every admitted job at its minimum at least.
        head: of each waiting job, the older one that it waits behind; itself where it is the head.
        hopeless: jobs that would not fit even alone, or not into their quota.
        short: of each job that waits for quota, or behind one that does, what is lacking.
    """

    packing: TrialPacking
    head: Mapping[int, int]
    hopeless: frozenset[int]
    short: Mapping[int, QuotaShortage]


def serve(problem: Problem, deadline_s: float) -> Served:
    """Count how many waiting serving pods could be placed with no training at all: those must be placed."""
    wanted = {group.shape: group.due + group.in_grace for group in problem.waiting}
    best: Counter[int] = Counter()
    if wanted:
        goal = min(sum(wanted.values()), int(place_most(problem, problem.empty, wanted, deadline_s) + 1e-6))
        for order in islice(permutations(by_size(problem, wanted)), ORDERS_TRIED):
            packing = TrialPacking(problem, ())
            placed = Counter({s: make_room(packing, for_serving(s, wanted[s]), {}) for s in order})
            best = max(best, placed, key=Counter.total)
            if best.total() >= goal:
                break
        if best.total() < goal and (packed := pack_most(problem, problem.empty, wanted, deadline_s)) is not None:
            exact: Counter[int] = Counter()
            for _, shape, pods in packed:
                exact[shape] += pods
            best = max(best, exact, key=Counter.total)
    due = {group.shape: min(group.due, best[group.shape]) for group in problem.waiting}
    in_grace = {group.shape: best[group.shape] - due[group.shape] for group in problem.waiting}
    return Served(due, in_grace, sum(wanted.values()) - best.total())


def cap(problem: Problem, served: Served, deadline_s: float) -> tuple[Problem, frozenset[int]]:
    """Cap each maximum at what would fit were the job alone, and find the jobs that would not even fit alone.

    Trainers that a job has are never above its cap: a cap buys nothing and costs nobody. Only what is above the cap
    of a quota goes. The cap is what one order of placing finds; that a job would not even fit is only said once no
    packing was found that holds it.
    """
    alone = _Trial(problem, served, deadline_s)
    idle = alone(()) or TrialPacking(problem, ())
    for shape, count in sorted(served.in_grace.items()):
        make_room(idle, for_serving(shape, count), {})
    known: dict[tuple[object, ...], int] = {}
    demands, hopeless, beyond = [], set(), count_without_slot(problem)
    for demand in problem.demands:
        kind = (demand.shape, demand.job.fixed)
        if kind not in known:
            known[kind] = _alone(idle, demand)
        most = max(known[kind] + beyond[demand.index], len(demand.live_trainers))
        quota = most_alone(demand.quota_uses)
        if quota < demand.min_trainers or (
            most < demand.min_trainers
            and not (demand.job.was_admitted and demand.live_trainers)
            and alone.beside((), demand.index) is None
        ):
            hopeless.add(demand.index)
        demands.append(
            replace(demand, max_trainers=max(demand.min_trainers, int(min(demand.max_trainers, most, max(quota, 0)))))
        )
    return replace(problem, demands=tuple(demands)), frozenset(hopeless)


def _alone(idle: TrialPacking, demand: JobDemand) -> int:
    """Trainers that fit beside all of the job's masters and pservers; -1 where not even those fit."""
    packing = idle.copy()
    number = {shape: index for index, shape in enumerate(packing.problem.shapes)}
    for fixed in sorted(demand.job.fixed, key=lambda f: -size_of(packing.problem, number[f.shape])):
        wanted = for_serving(number[fixed.shape], fixed.count)
        if fixed.count and make_room(packing, wanted, {}) < fixed.count:
            return -1
    return int(packing.slots(demand.shape).sum())


def admit(problem: Problem, served: Served, hopeless: frozenset[int], deadline_s: float) -> Admission:
    """Choose who runs: tier by tier; those that run already before those that wait; older before younger."""
    trial = _Trial(problem, served, deadline_s)
    hopeful = [c for c in problem.demands if c.index not in hopeless]
    packing = trial([c.index for c in hopeful])
    if packing is not None:
        return Admission(packing, {}, hopeless, {})
    packing = trial([])
    queue = _Queue(trial)
    for tier in sorted({c.job.tier for c in hopeful}, reverse=True):
        ranked = sorted((c for c in hopeful if c.job.tier == tier), key=_seniority)
        packing = queue.keep(packing, [c.index for c in ranked if c.job.was_admitted])
        packing = queue.let_in(packing, [c for c in ranked if not c.job.was_admitted])
    if packing is None:
        packing = TrialPacking(problem, ())
    return Admission(packing, queue.head, hopeless, queue.short)


def waiting_since_s(demand: JobDemand) -> float:
    """When a job that does not run began to wait: at its creation, or when it lost its place."""
    status = demand.job.status
    admitted = status.condition("Admitted") if status is not None else None
    if status is not None and status.start_s is not None and admitted is not None and admitted.status == "False":
        return admitted.since_s
    return demand.job.created_s


def _seniority(demand: JobDemand) -> tuple[bool, float, object]:
    """Whole jobs before those that have lost pods; then by age."""
    is_broken = bool(demand.needs) or len(demand.live_trainers) < demand.min_trainers
    return (demand.job.was_admitted and is_broken, demand.job.created_s, demand.job.key)


class _Trial:
    """Tries sets of jobs: whether all that they need fits beside serving. Sets that were refused are remembered."""

    def __init__(self, problem: Problem, served: Served, deadline_s: float) -> None:
        self.problem = problem
        self.served = served
        self.deadline_s = deadline_s
        self.refused: set[tuple[tuple[int, ...], tuple[object, ...]]] = set()

    def __call__(self, members: Iterable[int]) -> TrialPacking | None:
        chosen = tuple(sorted(members))
        if self.meter(chosen).passed():
            return None
        packing = TrialPacking(self.problem, chosen)
        if not batches_of(packing, self.served):
            return packing
        if self.problem.is_large and place_in_free_room(packing, self.served) is not None:
            return packing  # sooner done than proved
        return place_required(self.problem, chosen, self.served, self.deadline_s) if self._could_fit(chosen) else None

    def beside(self, members: tuple[int, ...], newcomer: int) -> TrialPacking | None:
        """Try one more job; one that needs the same as a refused one is refused at once."""
        demand = self.problem.demands[newcomer]
        kind = (
            members,
            (
                demand.shape,
                demand.min_trainers,
                demand.needs,
                demand.unbound_fixed,
                demand.live_trainers,
                demand.quota_uses,
            ),
        )
        if kind in self.refused:
            return None
        packing = self((*members, newcomer))
        if packing is None:
            self.refused.add(kind)
        return packing

    def meter(self, members: Iterable[int]) -> QuotaMeter:
        """What some jobs need at least of the quotas of their queues."""
        limited = {j: demand for j in members if (demand := self.problem.demands[j]).quota_uses}
        return QuotaMeter(
            {j: c.quota_uses for j, c in limited.items()}, {j: c.min_trainers for j, c in limited.items()}
        )

    def quota_shortage(self, members: Iterable[int], newcomer: int) -> QuotaShortage | None:
        """The quota that keeps a job from running beside others, which have their minimums."""
        demand = self.problem.demands[newcomer]
        return (
            self.meter(members).short_of_start(demand.quota_uses, demand.min_trainers) if demand.quota_uses else None
        )

    def has_waited(self, demand: JobDemand) -> bool:
        """True where a job has waited so long that nothing younger passes it."""
        now_s = self.problem.snapshot.observed_at_s
        return now_s - waiting_since_s(demand) >= self.problem.limits.head_wait_s

    def _could_fit(self, members: tuple[int, ...]) -> bool:
        """False where the linear program proves that it cannot: every trainer may move, every pod may be split."""
        problem = self.problem
        wanted: Counter[int] = Counter({s: n for s, n in self.served.due.items() if n})
        stuck = count_misplaced(problem)
        for j in members:
            demand = problem.demands[j]
            wanted[demand.shape] += max(0, demand.min_trainers - stuck[j])
            for need in demand.needs:
                wanted[need.shape] += need.missing
            for shape, _ in demand.unbound_fixed:
                wanted[shape] += 1
        wanted = +wanted
        if not wanted:
            return True
        return (
            place_most(problem, free_beside_fixed(problem, members), wanted, self.deadline_s) >= wanted.total() - 1e-6
        )


class _Queue:
    """Lets jobs in, in their order, and remembers who waits behind whom and for what.

    Attributes:
        head: of each waiting job, the older one that it waits behind; itself where it is a head.
        short: of each job that waits for quota, or behind one that does, what is lacking.
    """

    def __init__(self, trial: _Trial) -> None:
        self._trial = trial
        self.head: dict[int, int] = {}
        self.short: dict[int, QuotaShortage] = {}

    def keep(self, packing: TrialPacking | None, running: list[int]) -> TrialPacking | None:
        """Keep those that run; where not all fit, the youngest go, whole."""
        if not running or (together := self._trial([*_members(packing), *running])) is None:
            for j in running:
                if (lacking := self._trial.quota_shortage(_members(packing), j)) is not None:
                    self.short[j] = lacking
                packing = self._trial.beside(_members(packing), j) or packing
            return packing
        return together

    def let_in(self, packing: TrialPacking | None, waiting: list[JobDemand]) -> TrialPacking | None:
        """Let in the longest prefix by age that fits, then whoever fits behind it while its head has not waited long.

        Who lacks quota is left out of the prefix and becomes the head of its queue.
        """
        before = _members(packing)
        order = self._with_quota(before, waiting)
        count, packing = _longest(lambda n: self._trial([*before, *order[:n]]) if n else packing, len(order), packing)
        if count == len(waiting):
            return packing
        first = order[count] if count < len(order) else None
        if first is not None:
            self.head[first] = first
        heads: dict[str, int] = {}
        is_behind = False
        for demand in waiting:
            is_behind = is_behind or demand.index == first
            if demand.index == first or demand.index in order[:count]:
                continue
            passed = heads.get(demand.job.queue, demand.index)
            lacking = self._trial.quota_shortage(_members(packing), demand.index) or self._behind(
                passed, demand.index
            )
            if lacking is not None:
                self.head[demand.index] = heads.setdefault(demand.job.queue, demand.index)
                self.short[demand.index] = lacking
                continue
            is_closed = is_behind and first is not None and self._trial.has_waited(self._trial.problem.demands[first])
            let_in = None if is_closed else self._trial.beside(_members(packing), demand.index)
            packing = let_in or packing
            if let_in is None:
                self.head[demand.index] = demand.index if first is None else first
        return packing

    def _behind(self, head: int, j: int) -> QuotaShortage | None:
        """What the head of a job's queue lacks, where it has waited so long that the job may not pass it."""
        return self.short[head] if head != j and self._trial.has_waited(self._trial.problem.demands[head]) else None

    def _with_quota(self, members: tuple[int, ...], waiting: list[JobDemand]) -> list[int]:
        """Those that have quota once all older ones among them run; nobody passes a head that has waited long."""
        meter = self._trial.meter(members)
        closed: set[str] = set()
        order = []
        for demand in waiting:
            if demand.quota_uses and demand.job.queue in closed:
                continue
            if meter.short_of_start(demand.quota_uses, demand.min_trainers) is None:
                meter.start(demand.quota_uses, demand.min_trainers)
                order.append(demand.index)
            elif self._trial.has_waited(demand):
                closed.add(demand.job.queue)
        return order


def _members(packing: TrialPacking | None) -> tuple[int, ...]:
    return packing.members if packing is not None else ()


def _longest(
    attempt: Callable[[int], TrialPacking | None], most: int, start: TrialPacking | None
) -> tuple[int, TrialPacking | None]:
    """The largest count for which the attempt succeeds, by bisection, and its room; `start` is that of none."""
    low, high, packing = 0, most + 1, start
    while high - low > 1:
        middle = most if high > most else (low + high) // 2
        if (tried := attempt(middle)) is not None:
            low, packing = middle, tried
        else:
            high = middle
    return low, packing
