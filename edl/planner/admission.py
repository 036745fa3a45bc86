"""Decides which jobs run: waiting serving pods first, then jobs tier by tier and by age, each whole or not at all.

A job waits for capacity or for quota. The oldest job that waits for capacity is the head of its tier: younger jobs
may pass it only for a limited time. A job that waits for quota is a head for its own queue only.

A trial packs everything that must fit (serving pods, missing masters and pservers, minimums) and deletes surplus
trainers for it where needed. A linear program rejects what cannot fit; whole pods on real nodes confirm what does.
`sharing` decides how much more than its minimum a job gets.

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
    """Which jobs run, and a packing in which everything that must fit has a node.

    Attributes:
        packing: every admitted job has at least its minimum in it.
        head: of each waiting job, the older job that it waits behind; a head names itself.
        hopeless: jobs that would not fit even if no other job ran, or that exceed their quota alone.
        short: of each job that waits for quota, or behind one that does, the quota that is short.
    """

    packing: TrialPacking
    head: Mapping[int, int]
    hopeless: frozenset[int]
    short: Mapping[int, QuotaShortage]


def serve(problem: Problem, deadline_s: float) -> Served:
    """Find how many waiting serving pods fit if no training runs: so many must be placed.

    Args:
        problem: the arrays.
        deadline_s: time for each program.
    """
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
    """Lower each maximum to what fits if no other job runs, and find the jobs that do not fit even then.

    Trainers that a job has are never above its cap: deleting them would help nobody. Only those above a quota are.
    The cap is what one order of placing finds. A job counts as hopeless only if no packing was found that holds it.

    Args:
        problem: the arrays.
        served: what serving pods get.
        deadline_s: time for each program.

    Returns:
        The problem with the lower maximums, and the indices of the hopeless jobs.
    """
    trial = _AdmissionTrial(problem, served, deadline_s)
    idle = trial(()) or TrialPacking(problem, ())
    for shape, count in sorted(served.in_grace.items()):
        make_room(idle, for_serving(shape, count), {})
    known: dict[tuple[object, ...], int] = {}
    demands, hopeless, without_slot = [], set(), count_without_slot(problem)
    for demand in problem.demands:
        kind = (demand.shape, demand.job.fixed)
        if kind not in known:
            problem.clock.check("the largest counts")
            known[kind] = _count_alone(idle, demand)
        most = max(known[kind] + without_slot[demand.index], len(demand.live_trainers))
        quota = most_alone(demand.quota_uses)
        if quota < demand.min_trainers or (
            most < demand.min_trainers
            and not (demand.job.was_admitted and demand.live_trainers)
            and trial.beside((), demand.index) is None
        ):
            hopeless.add(demand.index)
        demands.append(
            replace(demand, max_trainers=max(demand.min_trainers, int(min(demand.max_trainers, most, max(quota, 0)))))
        )
    return replace(problem, demands=tuple(demands)), frozenset(hopeless)


def _count_alone(idle: TrialPacking, demand: JobDemand) -> int:
    """How many trainers fit beside all masters and pservers of the job; -1 if not even these fit."""
    if not demand.job.fixed:
        return int(idle.slots(demand.shape).sum())
    packing = idle.copy()
    number = {shape: index for index, shape in enumerate(packing.problem.shapes)}
    for fixed in sorted(demand.job.fixed, key=lambda f: -size_of(packing.problem, number[f.shape])):
        wanted = for_serving(number[fixed.shape], fixed.count)
        if fixed.count and make_room(packing, wanted, {}) < fixed.count:
            return -1
    return int(packing.slots(demand.shape).sum())


def admit(problem: Problem, served: Served, hopeless: frozenset[int], deadline_s: float) -> Admission:
    """Choose which jobs run: tier by tier; running jobs before waiting ones; older before younger.

    Args:
        problem: the arrays, maximums capped.
        served: what serving pods get.
        hopeless: indices of jobs that cannot run.
        deadline_s: time for each program.
    """
    trial = _AdmissionTrial(problem, served, deadline_s)
    hopeful = [c for c in problem.demands if c.index not in hopeless]
    packing = trial([c.index for c in hopeful])
    if packing is not None:
        return Admission(packing, {}, hopeless, {})
    packing = trial([])
    queue = _Queue(trial)
    for tier in sorted({c.job.tier for c in hopeful}, reverse=True):
        ranked = sorted((c for c in hopeful if c.job.tier == tier), key=_seniority)
        packing = queue.keep_admitted(packing, [c.index for c in ranked if c.job.was_admitted])
        packing = queue.admit_waiting(packing, [c for c in ranked if not c.job.was_admitted])
    if packing is None:
        packing = TrialPacking(problem, ())
    return Admission(packing, queue.head, hopeless, queue.short)


def running(problem: Problem) -> tuple[int, ...]:
    """The jobs that were admitted and have pods: what a plan keeps if there is no time to decide who runs."""
    return tuple(d.index for d in problem.demands if d.job.was_admitted and any(pod.is_live for pod in d.job.pods))


def waiting_since_s(demand: JobDemand) -> float:
    """When a job that does not run began to wait: at its creation, or when it lost its admission."""
    status = demand.job.status
    admitted = status.condition("Admitted") if status is not None else None
    if status is not None and status.start_s is not None and admitted is not None and admitted.status == "False":
        return admitted.since_s
    return demand.job.created_s


def _seniority(demand: JobDemand) -> tuple[bool, float, object]:
    """Sort key: whole jobs before those that lack pods, then older before younger."""
    is_broken = bool(demand.needs) or len(demand.live_trainers) < demand.min_trainers
    return (demand.job.was_admitted and is_broken, demand.job.created_s, demand.job.key)


class _AdmissionTrial:
    """Tries sets of jobs: whether all that they need fits beside serving; rejected sets are remembered.

    Calling it with the indices of jobs returns the packing, or None if they do not fit together.
    """

    def __init__(self, problem: Problem, served: Served, deadline_s: float) -> None:
        self.problem = problem
        self.served = served
        self.deadline_s = deadline_s
        self.refused: set[tuple[tuple[int, ...], tuple[object, ...]]] = set()

    def __call__(self, members: Iterable[int]) -> TrialPacking | None:
        self.problem.clock.check("admission")
        chosen = tuple(sorted(members))
        if self.meter(chosen).passed():
            return None
        packing = TrialPacking(self.problem, chosen)
        if not batches_of(packing, self.served):
            return packing
        if self.problem.is_large and place_in_free_room(packing, self.served) is not None:
            return packing  # placing the pods is faster than proving that they fit
        return place_required(self.problem, chosen, self.served, self.deadline_s) if self._could_fit(chosen) else None

    def beside(self, members: tuple[int, ...], newcomer: int) -> TrialPacking | None:
        """Try one more job; a job that needs the same as a rejected one is rejected at once."""
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
        """What the minimums of some jobs use of the quotas of their queues."""
        limited = {j: demand for j in members if (demand := self.problem.demands[j]).quota_uses}
        return QuotaMeter(
            {j: c.quota_uses for j, c in limited.items()}, {j: c.min_trainers for j, c in limited.items()}
        )

    def quota_shortage(self, members: Iterable[int], newcomer: int) -> QuotaShortage | None:
        """The quota that keeps a job from running beside others at their minimums; None if there is none."""
        demand = self.problem.demands[newcomer]
        return (
            self.meter(members).short_of_start(demand.quota_uses, demand.min_trainers) if demand.quota_uses else None
        )

    def has_waited(self, demand: JobDemand) -> bool:
        """True if a job has waited so long that no younger job may pass it."""
        now_s = self.problem.snapshot.observed_at_s
        return now_s - waiting_since_s(demand) >= self.problem.limits.head_wait_s

    def _could_fit(self, members: tuple[int, ...]) -> bool:
        """False if the linear program proves that they do not fit, even with trainers moved and pods split."""
        problem = self.problem
        wanted: Counter[int] = Counter({s: n for s, n in self.served.due.items() if n})
        misplaced = count_misplaced(problem)
        for j in members:
            demand = problem.demands[j]
            wanted[demand.shape] += max(0, demand.min_trainers - misplaced[j])
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
    """Admits jobs in their order, and remembers which job each one waits behind, and for which quota.

    Attributes:
        head: of each waiting job, the older job that it waits behind; a head names itself.
        short: of each job that waits for quota, or behind one that does, the quota that is short.
    """

    def __init__(self, trial: _AdmissionTrial) -> None:
        self._trial = trial
        self.head: dict[int, int] = {}
        self.short: dict[int, QuotaShortage] = {}

    def keep_admitted(self, packing: TrialPacking | None, running: list[int]) -> TrialPacking | None:
        """Keep the running jobs; if not all of them fit, the youngest lose their admission."""
        if not running or (together := self._trial([*_members(packing), *running])) is None:
            for j in running:
                if (shortage := self._trial.quota_shortage(_members(packing), j)) is not None:
                    self.short[j] = shortage
                packing = self._trial.beside(_members(packing), j) or packing
            return packing
        return together

    def admit_waiting(self, packing: TrialPacking | None, waiting: list[JobDemand]) -> TrialPacking | None:
        """Admit the longest prefix by age that fits, then younger jobs that fit, until the head has waited too long.

        A job that lacks quota is left out of the prefix and becomes the head of its queue.
        """
        before = _members(packing)
        order = self._with_quota(before, waiting)
        count, packing = _longest(lambda n: self._trial([*before, *order[:n]]) if n else packing, len(order), packing)
        if count == len(waiting):
            return packing
        first = order[count] if count < len(order) else None
        if first is not None:
            self.head[first] = first
        may_pass = first is None or not self._trial.has_waited(self._trial.problem.demands[first])
        heads: dict[str, int] = {}
        is_younger = False
        for demand in waiting:
            is_younger = is_younger or demand.index == first
            if demand.index == first or demand.index in order[:count]:
                continue
            queue_head = heads.get(demand.job.queue, demand.index)
            shortage = self._trial.quota_shortage(_members(packing), demand.index) or self._shortage_of_head(
                queue_head, demand.index
            )
            if shortage is not None:
                self.head[demand.index] = heads.setdefault(demand.job.queue, demand.index)
                self.short[demand.index] = shortage
                continue
            tried = self._trial.beside(_members(packing), demand.index) if may_pass or not is_younger else None
            packing = tried or packing
            if tried is None:
                self.head[demand.index] = demand.index if first is None else first
        return packing

    def _shortage_of_head(self, head: int, j: int) -> QuotaShortage | None:
        """What the head of the queue lacks, if it has waited so long that job j may not pass it."""
        return self.short[head] if head != j and self._trial.has_waited(self._trial.problem.demands[head]) else None

    def _with_quota(self, members: tuple[int, ...], waiting: list[JobDemand]) -> list[int]:
        """The jobs that have quota once all older ones among them run.

        No job passes a head of its queue that has waited too long.
        """
        meter = self._trial.meter(members)
        closed_queues: set[str] = set()
        order = []
        for demand in waiting:
            if demand.quota_uses and demand.job.queue in closed_queues:
                continue
            if meter.short_of_start(demand.quota_uses, demand.min_trainers) is None:
                meter.start(demand.quota_uses, demand.min_trainers)
                order.append(demand.index)
            elif self._trial.has_waited(demand):
                closed_queues.add(demand.job.queue)
        return order


def _members(packing: TrialPacking | None) -> tuple[int, ...]:
    """The members of a packing; none without one."""
    return packing.members if packing is not None else ()


def _longest(
    attempt: Callable[[int], TrialPacking | None], most: int, start: TrialPacking | None
) -> tuple[int, TrialPacking | None]:
    """The largest count for which an attempt succeeds, by bisection, and its packing.

    Args:
        attempt: returns the packing of so many jobs, None if they do not fit.
        most: the largest count to try.
        start: the packing of no job.
    """
    low, high, packing = 0, most + 1, start
    while high - low > 1:
        middle = most if high > most else (low + high) // 2
        if (tried := attempt(middle)) is not None:
            low, packing = middle, tried
        else:
            high = middle
    return low, packing
