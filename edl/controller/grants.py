"""What the last plan grants to all jobs, how much of it is used, and who wants capacity that it does not know of.

Each plan replaces all allotments. Growth that was granted and not sent is void then.

Why no capacity is used twice: a slot is granted only if its capacity was free in the plan's snapshot, with the pods
counted that are being created, and with those that still terminate. Each slot is used once. A pod that was created
after that snapshot uses up a slot of the new plan on its node (`allotment.without_taken`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from edl.controller.allotment import Allotment, Slot, Start, allotment_of, serving_without_node, without_taken
from edl.controller.job_writes import Granted
from edl.model.actions import Action, CreatePod, RequestNode, ResizePod, WithdrawNodeRequest
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.names import JobKey
from edl.model.plan import ScaleDecision, ScalePlan

HELD_S, FREE_S = 2.0, 1.0
"""Surplus is held back for the first time at most, then sent for the second: changes without end stop no growth."""


@dataclass
class Planning:
    """A plan that is being made.

    Attributes:
        snapshot: what it is made from.
        unasked: UIDs of the jobs whose pods the API server was not asked about; nothing is taken from them for that.
        sent: the pods that were created since.
        asked: the jobs whose node requests were changed since.
        amended: what was evicted for serving since, by job.
        evicted_for: UIDs of the serving pods for which that was.
    """

    snapshot: ClusterSnapshot
    unasked: frozenset[str] = frozenset()
    sent: list[CreatePod] = field(default_factory=list)
    asked: set[JobKey] = field(default_factory=set)
    amended: dict[JobKey, Allotment] = field(default_factory=dict)
    evicted_for: frozenset[str] = frozenset()


@dataclass
class Grants:
    """What the last plan grants, and what of it is used.

    Attributes:
        allotments: what the last plan grants, by job.
        used: the slots of the allotments that were used.
        asked: the jobs whose node requests follow their allotment already.
        planning: the plan that is being made; None if there is none.
        known: UIDs of the serving pods that the allotments take into account.
        held_since_s: when the last time began in which surplus was held back (`is_held`).
        ignored_evictions: the last plan's evictions for serving were left out (`publish`).
        spares: no trainer ends for the jobs that the last plan lets grow: one of these has become another one.
        spared: that was so with the plan before, so it is not with this one.
        unknown: the jobs that can be planned for and have no allotment as they are now.
        obsolete: the jobs of allotments with growth that are gone, or are not as the plan saw them.
    """

    allotments: dict[JobKey, Allotment] = field(default_factory=dict)
    used: dict[JobKey, Counter[Slot]] = field(default_factory=dict)
    asked: set[JobKey] = field(default_factory=set)
    planning: Planning | None = None
    known: frozenset[str] = frozenset()
    held_since_s: float | None = None
    ignored_evictions: bool = False
    spares: bool = False
    spared: bool = False
    unknown: set[JobKey] = field(default_factory=set)
    obsolete: set[JobKey] = field(default_factory=set)

    # --- Plans

    def begin(self, snapshot: ClusterSnapshot, unasked: frozenset[str]) -> None:
        """A plan is being made from a snapshot; see `Planning`."""
        self.planning = Planning(snapshot, unasked)

    def publish(
        self,
        plan: ScalePlan | None,
        starts: Iterable[Start],
        requests: Mapping[JobKey, tuple[ResizePod, ...]],
        awaited: frozenset[str],
        jobs: Collection[Job],
    ) -> list[str]:
        """A plan was made: it replaces all allotments. None: there is no plan, and nothing grows.

        A job for whose trainers capacity was found ahead of the plan keeps that allotment. If this plan, too, evicts
        for a serving pod that was helped meanwhile, its evictions for serving are left out, but never those of two
        plans in a row.

        Args:
            plan: it has passed its checks.
            starts: its pods whose capacity is free now, the first to be created first.
            requests: the changed CPU requests of running trainers.
            awaited: UIDs of the serving pods for which the plan evicts trainers.
            jobs: as the cache shows them now.

        Returns:
            UIDs of the jobs for which something changes.
        """
        planning, self.planning = self.planning, None
        if planning is None:
            return []
        granted = _granted(plan, planning, starts, requests, awaited)
        repeats = bool(planning.evicted_for & awaited) and not self.ignored_evictions
        self.ignored_evictions = repeats
        if repeats:
            granted = self._without_evictions(granted)
        granted |= planning.amended
        self.spares, self.spared = False, self.spares
        changed = self._replace(granted, planning.asked, jobs)
        known = serving_without_node(planning.snapshot) if not repeats else frozenset()
        self.known = known | planning.evicted_for
        return changed

    def amend(self, decisions: Sequence[ScaleDecision], view: ClusterSnapshot, awaited: frozenset[str]) -> list[str]:
        """Trainers are evicted ahead of a plan; returns the UIDs of their jobs. Nothing else changes.

        Args:
            decisions: for the jobs that lose trainers.
            view: what they were made from.
            awaited: UIDs of the serving pods that the trainers make way for.
        """
        bases = {job.key: job for job in view.jobs}
        self.known |= awaited
        for d in decisions:
            allotment = allotment_of(d, bases[d.job], awaited)
            self.allotments[d.job] = allotment
            self.used.pop(d.job, None)
            if self.planning is not None:
                self.planning.amended[d.job] = allotment
                self.planning.evicted_for |= awaited
        return [bases[d.job].uid for d in decisions]

    def _replace(self, granted: dict[JobKey, Allotment], asked: set[JobKey], jobs: Collection[Job]) -> list[str]:
        before, used = self.allotments, self.used
        self.allotments, self.used, self.asked = granted, {}, asked
        self.unknown, self.obsolete = set(), set()
        by_key = {job.key: job for job in jobs}
        for key in granted.keys() | by_key.keys():
            self.compare(key, by_key.get(key))
        changed = [
            job.uid
            for job in jobs
            if before.get(job.key) != granted.get(job.key) or used.get(job.key) or job.key in asked
        ]
        return [*changed, *self.givers()] if self.spared else changed

    def _without_evictions(self, granted: Mapping[JobKey, Allotment]) -> dict[JobKey, Allotment]:
        """The new allotments; a job that would lose trainers to serving keeps its old one, without growth."""
        kept = {}
        for key, allotment in granted.items():
            if not allotment.ends_for_serving:
                kept[key] = allotment
            elif (old := self.allotments.get(key)) is not None:
                kept[key] = replace(old, slots=())
        return kept

    # --- What a job may do

    def of(self, job: Job, waits: frozenset[str]) -> Granted:
        """What a job may do now.

        Args:
            job: as the cache shows it.
            waits: UIDs of the serving pods that wait for capacity.
        """
        allotment = self.allotments.get(job.key)
        decision = allotment.decision_for(job) if allotment is not None else None
        if allotment is None or decision is None:
            return Granted()
        is_vain = bool(allotment.awaited) and not allotment.awaited & waits
        is_early = self.spares and allotment.ends_for_other_jobs
        if decision.victims and (is_vain or is_early):
            return Granted()
        left = Counter(allotment.slots)
        left.subtract(self.used.get(job.key, {}))
        slots = [slot for slot in allotment.slots if left[slot] > 0 and not left.subtract((slot,))]
        return Granted(decision, slots, allotment.requests, may_ask=job.key not in self.asked)

    def use(self, action: Action) -> None:
        """An action is being sent: it uses a slot of its job."""
        if isinstance(action, CreatePod):
            self.used.setdefault(action.job, Counter())[action.role, action.node or ""] += 1
            if self.planning is not None:
                self.planning.sent.append(action)
        elif isinstance(action, RequestNode | WithdrawNodeRequest):
            self.asked.add(action.job)
            if self.planning is not None:
                self.planning.asked.add(action.job)

    def give_back(self, action: CreatePod) -> None:
        """The pod was not created: its slot may be used again."""
        used = self.used.get(action.job)
        if used is not None and used[action.role, action.node or ""] > 0:
            used[action.role, action.node or ""] -= 1

    def has_needless_evictions(self, waits: frozenset[str]) -> bool:
        """True if trainers are to end for serving pods that do not wait any more; they stay."""
        return any(a.awaited and not a.awaited & waits for a in self.allotments.values())

    def concerned(self, *, waits: bool) -> list[str]:
        """UIDs of the jobs for which it matters which serving pods wait.

        Args:
            waits: some do now.
        """
        return [a.uid for a in self.allotments.values() if a.awaited or (a.requests and waits)]

    # --- Who is not known

    def compare(self, key: JobKey, job: Job | None) -> None:
        """Note whether the allotment of a job is for the job as it is now; None: the job is gone."""
        allotment = self.allotments.get(key)
        is_same = job is not None and allotment is not None and allotment.is_for(job)
        is_unknown = job is not None and job.is_schedulable and not is_same
        (set.add if is_unknown else set.discard)(self.unknown, key)
        is_there = is_same and job is not None and not job.deleting
        is_obsolete = allotment is not None and allotment.grows and not is_there
        (set.add if is_obsolete else set.discard)(self.obsolete, key)

    def is_held(self, waits: frozenset[str], now_s: float) -> bool:
        """True while somebody wants capacity that the allotments do not take into account.

        Nobody else's surplus takes it meanwhile. Whoever comes, and however often, this is so for `HELD_S` of
        `HELD_S + FREE_S` at most.

        Args:
            waits: UIDs of the serving pods that wait for capacity.
            now_s: monotonic seconds.
        """
        since_s = self.held_since_s
        if since_s is not None and now_s - since_s >= HELD_S + FREE_S:
            self.held_since_s = since_s = None
        if not self.unknown and not self.obsolete and waits <= self.known:
            return False
        if since_s is None:
            self.held_since_s = since_s = now_s
        return now_s - since_s < HELD_S

    def held_until_s(self, now_s: float) -> list[float]:
        """The monotonic times at which `is_held` may change by itself."""
        if (since_s := self.held_since_s) is None:
            return []
        return [end_s for end_s in (since_s + HELD_S, since_s + HELD_S + FREE_S) if end_s > now_s]

    def spare(self) -> list[str]:
        """Let no trainer end for the jobs that the last plan lets grow, once one of these has become another one.

        Returns:
            UIDs of the jobs that keep their trainers; empty if that was so already.
        """
        if not self.obsolete or self.spares or self.spared:
            return []
        self.spares = True
        return self.givers()

    def givers(self) -> list[str]:
        """UIDs of the jobs whose trainers end for other jobs."""
        return [a.uid for a in self.allotments.values() if a.ends_for_other_jobs]


def _granted(
    plan: ScalePlan | None,
    planning: Planning,
    starts: Iterable[Start],
    requests: Mapping[JobKey, tuple[ResizePod, ...]],
    awaited: frozenset[str],
) -> dict[JobKey, Allotment]:
    """The allotments of a plan; see `Grants.publish`."""
    bases = {job.key: job for job in planning.snapshot.jobs}
    decisions = [d for d in plan.decisions if d.job in bases] if plan is not None else []
    decisions = [d for d in decisions if not (d.is_refused and bases[d.job].uid in planning.unasked)]
    slots: dict[JobKey, list[Slot]] = {}
    for start in without_taken(tuple(starts), planning.sent, bases):
        slots.setdefault(start.job, []).append((start.role, start.node))
    return {
        d.job: allotment_of(d, bases[d.job], awaited, slots.get(d.job, ()), requests.get(d.job, ()))
        for d in decisions
    }
