"""Decides which jobs run: waiting serving pods first, then jobs tier by tier and by age, each whole or not at all.

Jobs whose trainers request neither cpu nor memory rank below every tier.

A job waits for capacity or for quota. The oldest job that waits for capacity is the head of its tier: younger jobs
may pass it only for a limited time. A job that waits for quota is a head for its own queue only.

A trial packs everything that must fit (serving pods, missing masters and pservers, minimums) and deletes surplus
trainers for it where needed. A linear program rejects what cannot fit; whole pods on real nodes confirm what does.
`sharing` decides how much more than its minimum a job gets.

Source: gang admission with backfill behind a head, after Kueue's BestEffortFIFO.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from edl.model.jobs import Job
from edl.model.names import JobKey
from edl.planner.admission.trial import AdmissionTrial
from edl.planner.guard import is_whole
from edl.planner.problem import JobDemand
from edl.planner.quota import QuotaShortage
from edl.planner.trial_packing import TrialPacking

FEW_JOBS = 20  # up to so many jobs are tried one by one if no program proves which of them do not fit
FEW_NODES, MORE_JOBS = 64, 60  # the same where nodes are few, because a trial is short there
_QuotaOwner = tuple[str, str]  # (namespace, name) of a ResourceQuota; a queue has the empty namespace
UNPROVED = 4  # so often the jobs that one packing left out are dropped; after that, the youngest


@dataclass(frozen=True, slots=True)
class Admission:
    """The admitted jobs, and a packing in which each of their required pods has a node.

    Attributes:
        packing: every admitted job has at least its minimum in it.
        head: for each waiting job, the older job that it waits behind; a head names itself.
        infeasible: jobs that would not fit even if no other job ran, or that exceed their quota alone.
        short: for each job that waits for quota, or behind one that does, the quota that is short.
    """

    packing: TrialPacking
    head: Mapping[int, int]
    infeasible: frozenset[int]
    short: Mapping[int, QuotaShortage]


def admit(trial: AdmissionTrial, infeasible: frozenset[int]) -> Admission:
    """Choose which jobs run: rank by rank; running jobs before waiting ones; older before younger.

    Args:
        trial: of a problem whose maximums are capped.
        infeasible: indices of jobs that cannot run.
    """
    hopeful = [c for c in trial.problem.demands if c.index not in infeasible]
    packing = trial.packing_of([c.index for c in hopeful])
    if packing is not None:
        return Admission(packing, {}, infeasible, {})
    packing = trial.packing_of([])
    queue = _Queue(trial)
    for rank in sorted({c.job.rank for c in hopeful}, reverse=True):
        ranked = sorted((c for c in hopeful if c.job.rank == rank), key=lambda c: seniority(c.job))
        packing = queue.keep_admitted(packing, [c for c in ranked if c.job.was_admitted])
        packing = queue.admit_waiting(packing, [c for c in ranked if not c.job.was_admitted])
    if packing is None:
        packing = TrialPacking(trial.problem, ())
    return Admission(packing, queue.head, infeasible, queue.short)


def seniority(job: Job) -> tuple[bool, float, JobKey]:
    """Sort key: whole jobs before those that lack pods, then older before younger."""
    is_broken = job.was_admitted and not is_whole(job)
    return (is_broken, job.created_s, job.key)


@dataclass(frozen=True, slots=True)
class _Behind:
    """The first job of the queue that waits, and the jobs that may not pass it.

    Attributes:
        first: the first job of the tier that does not fit; None if all that have quota do.
        held: the jobs that may not pass it.
    """

    first: int | None
    held: frozenset[int]


@dataclass(frozen=True, slots=True)
class _Pass:
    """The result of one pass over the queue; see `_Queue` for `head` and `short`."""

    taken: list[int] = field(default_factory=list)
    head: dict[int, int] = field(default_factory=dict)
    short: dict[int, QuotaShortage] = field(default_factory=dict)


class _Queue:
    """Admits jobs in their order, and remembers which job each one waits behind, and for which quota.

    Attributes:
        head: for each waiting job, the older job that it waits behind; a head names itself.
        short: for each job that waits for quota, or behind one that does, the quota that is short.
    """

    def __init__(self, trial: AdmissionTrial) -> None:
        self._trial = trial
        self.head: dict[int, int] = {}
        self.short: dict[int, QuotaShortage] = {}

    def keep_admitted(self, packing: TrialPacking | None, running: list[JobDemand]) -> TrialPacking | None:
        """Keep the running jobs; if not all of them fit, the youngest lose their admission."""
        indices = [demand.index for demand in running]
        if not running or (together := self._trial.packing_of([*_members(packing), *indices])) is None:
            return self._in_turn(packing, running, None)
        return together

    def admit_waiting(self, packing: TrialPacking | None, waiting: list[JobDemand]) -> TrialPacking | None:
        """Admit the longest prefix by age that fits, then younger jobs that fit, until the head has waited too long.

        A job that lacks quota is left out of the prefix and becomes the head of its queue.
        """
        order = self._with_quota(_members(packing), waiting)
        count, packing = self._longest_prefix(packing, order)
        if count == len(waiting):
            return packing
        first = order[count] if count < len(order) else None
        if first is not None:
            self.head[first] = first
        may_pass = first is None or not self._trial.has_waited(self._trial.problem.demands[first])
        indices = [demand.index for demand in waiting]
        younger = frozenset(indices[indices.index(first) :]) if first is not None else frozenset()
        settled = {*order[:count], first}
        others = [demand for demand in waiting if demand.index not in settled]
        return self._in_turn(packing, others, _Behind(first, frozenset() if may_pass else younger))

    def _longest_prefix(self, packing: TrialPacking | None, order: list[int]) -> tuple[int, TrialPacking | None]:
        """How many jobs, the oldest first, fit together beside those that run, and their packing."""
        before = _members(packing)

        trial = self._prefixes(before, order)

        def attempt(count: int) -> TrialPacking | None:
            return trial(count) if count else packing

        most = self._trial.passing(before, order)
        while (tried := attempt(most)) is None:
            known = most
            most = self._trial.passing(before, order)
            if most >= known:
                fitting = {*self._trial.fitting(before, order[:known])}
                guess = next((n for n, j in enumerate(order[:known]) if j not in fitting), known)
                return _longest(attempt, known - 1, packing, guess)
        return most, tried

    def _in_turn(
        self, packing: TrialPacking | None, candidates: list[JobDemand], behind: _Behind | None
    ) -> TrialPacking | None:
        """Admit jobs one after the other, each if it fits beside those before it.

        All that no proof rejects are tried together. If they do not fit, the program proves why, and that rejects
        some of them. Jobs are tried one by one only if nothing is proved.
        """
        before = _members(packing)
        refused: set[int] = set()
        screen = self._trial.screen

        def admits(j: int) -> bool:
            if j in refused or not screen.admits(j):
                return False
            screen.add(j)
            return True

        def chosen() -> _Pass:
            screen.start(before, [demand.index for demand in candidates])
            return self._pass(before, candidates, behind, admits)

        passed, unproved = chosen(), 0
        while passed.taken and (together := self._trial.packing_of([*before, *passed.taken])) is None:
            known, passed = passed, chosen()
            if known.taken != passed.taken:
                continue
            if len(candidates) <= (MORE_JOBS if len(self._trial.problem.empty) <= FEW_NODES else FEW_JOBS):
                return self._one_by_one(packing, candidates, behind)
            unproved += 1
            fitting = self._trial.fitting(before, known.taken) if unproved < UNPROVED else ()
            if not fitting or len(fitting) == len(known.taken):
                most = len(known.taken) - 1
                count = _longest(self._prefixes(before, known.taken), most, None, most)[0]
                fitting = known.taken[:count]
            refused = {demand.index for demand in candidates} - {*fitting}
            passed = chosen()
        self.head.update(passed.head)
        self.short.update(passed.short)
        return together if passed.taken else packing

    def _prefixes(self, before: tuple[int, ...], order: list[int]) -> Callable[[int], TrialPacking | None]:
        """Make the trials of the first n jobs of an order."""
        return lambda count: self._trial.packing_of([*before, *order[:count]])

    def _one_by_one(
        self, packing: TrialPacking | None, candidates: list[JobDemand], behind: _Behind | None
    ) -> TrialPacking | None:
        """Admit the jobs one after the other, with a packing for each."""

        def admits(j: int) -> bool:
            nonlocal packing
            tried = self._trial.beside(_members(packing), j)
            packing = tried or packing
            return tried is not None

        passed = self._pass(_members(packing), candidates, behind, admits)
        self.head.update(passed.head)
        self.short.update(passed.short)
        return packing

    def _pass(
        self,
        before: tuple[int, ...],
        candidates: list[JobDemand],
        behind: _Behind | None,
        admits: Callable[[int], bool],
    ) -> _Pass:
        """Go through the jobs in order and admit those that fit, have quota and may pass the first of the queue."""
        meter, passed = self._trial.meter(before), _Pass()
        heads: dict[_QuotaOwner, int] = {}
        for demand in candidates:
            j = demand.index
            shortage = meter.short_of_start(demand.quota_uses, demand.min_trainers)
            if behind is not None and shortage is None:
                shortage = self._shortage_of_head(passed, heads, demand)
            if shortage is not None:
                passed.short[j] = shortage
                if behind is not None:
                    passed.head[j] = heads.setdefault(_owner(shortage), j)
            elif (behind is None or j not in behind.held) and admits(j):
                meter.start(demand.quota_uses, demand.min_trainers)
                passed.taken.append(j)
            elif behind is not None:
                passed.head[j] = j if behind.first is None else behind.first
        return passed

    def _shortage_of_head(
        self, passed: _Pass, heads: Mapping[_QuotaOwner, int], demand: JobDemand
    ) -> QuotaShortage | None:
        """What the first job of a queue or namespace lacks, if it has waited so long that no other may pass it."""
        for owner in _owners(demand):
            head = heads.get(owner)
            if head is not None and self._trial.has_waited(self._trial.problem.demands[head]):
                return passed.short[head]
        return None

    def _with_quota(self, members: tuple[int, ...], waiting: list[JobDemand]) -> list[int]:
        """The jobs that have quota once all older ones among them run.

        No job passes a head of its queue that has waited too long.
        """
        meter = self._trial.meter(members)
        closed: set[_QuotaOwner] = set()
        order = []
        for demand in waiting:
            if not closed.isdisjoint(_owners(demand)):
                continue
            shortage = meter.short_of_start(demand.quota_uses, demand.min_trainers)
            if shortage is None:
                meter.start(demand.quota_uses, demand.min_trainers)
                order.append(demand.index)
            elif self._trial.has_waited(demand):
                closed.add(_owner(shortage))
        return order


def _owner(shortage: QuotaShortage) -> _QuotaOwner:
    return shortage.row.namespace, shortage.row.queue


def _owners(demand: JobDemand) -> Iterable[_QuotaOwner]:
    """The owners of the quotas that limit a job: its queue, then its namespace."""
    return dict.fromkeys((use.row.namespace, use.row.queue) for use in demand.quota_uses)


def _members(packing: TrialPacking | None) -> tuple[int, ...]:
    """The jobs of a packing; none without a packing."""
    return packing.members if packing is not None else ()


def _longest(
    attempt: Callable[[int], TrialPacking | None], most: int, start: TrialPacking | None, guess: int
) -> tuple[int, TrialPacking | None]:
    """The largest count for which an attempt succeeds, and its packing.

    The steps away from the guess double until the answer is between two of them; then it is bisected.

    Args:
        attempt: returns the packing of so many jobs, None if they do not fit.
        most: the largest count to try.
        start: the packing of no job.
        guess: the count to try first.
    """
    low, high, packing, step = 0, most + 1, start, 1
    count = min(max(guess, 1), most)
    while high - low > 1:
        if (tried := attempt(count)) is not None:
            low, packing, beyond = count, tried, count + step
        else:
            high, beyond = count, count - step
        step *= 2
        count = beyond if low < beyond < high else (low + high) // 2
    return low, packing
