"""The allotments of all jobs, how much of them is used, and what needs capacity that no plan has counted yet.

Each plan replaces all allotments. Growth that was granted and not sent is void then.

Why no capacity is used twice: a slot is granted only if its capacity was free in the plan's snapshot, with the pods
counted that are being created, and with those that still terminate. Each slot is used once. A pod that was created
after that snapshot uses up a slot of the new plan on its node (`allotment.without_taken`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from edl.controller.allotment import (
    Allotment,
    Slot,
    Start,
    Usable,
    allotment_of,
    serving_needing_capacity,
    within,
    without_taken,
)
from edl.model.actions import Action, CreatePod, RequestNode, ResizePod, WithdrawNodeRequest
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.names import JobKey
from edl.model.plan import ScaleDecision, ScalePlan
from edl.model.quota_trees import NO_TREES, QuotaTrees
from edl.model.sizes import at_most
from edl.model.status import Reason
from edl.planner.queues.growth_now import askable

K = TypeVar("K", JobKey, str)
_TAKEN_MEANWHILE = "others have come to use the quota of Kueue that it was to get"
HELD_S, FREE_S = 2.0, 1.0
"""How long surplus growth is held back at most, and then sent, so that endless changes do not stop growth."""


@dataclass
class Planning:
    """A plan that is being made.

    Attributes:
        snapshot: what it is made from.
        unprobed: UIDs of the jobs whose pods the API server was not asked about; they lose no trainer for that.
        sent: the pods that were created since.
        node_requests_sent: the jobs whose node requests were changed since.
        amended: what was evicted for serving since, by job.
        evicted_for: UIDs of the serving pods for which that was.
    """

    snapshot: ClusterSnapshot
    unprobed: frozenset[str] = frozenset()
    sent: list[CreatePod] = field(default_factory=list)
    node_requests_sent: set[JobKey] = field(default_factory=set)
    amended: dict[JobKey, Allotment] = field(default_factory=dict)
    evicted_for: frozenset[str] = frozenset()


@dataclass
class Allotments:
    """The allotments of all jobs in the last plan, and how much of each is used.

    Attributes:
        by_job: what the last plan grants each job.
        used: the slots of the allotments that were used.
        node_requests_sent: the jobs whose node requests follow their allotment already.
        planning: the plan that is being made; None if there is none.
        known: UIDs of the serving pods that the allotments take into account.
        held_since_s: when the last time began in which surplus was held back (`is_held`).
        ignored_evictions: the last plan's evictions for serving were left out (`publish`).
        keeps_donors: a job that the last plan lets grow was edited or deleted since: no trainer ends for other jobs
            until the next plan.
        kept_donors: that was so with the plan before, so it is not with this one: edits without end stop nothing.
        unknown: the jobs that can be planned for and have no allotment as they are now.
        obsolete: the jobs of allotments with growth that are gone, or are not as the plan saw them.
        trees: the quotas of Kueue that the last plan knew.
        cut: UIDs of the jobs that did not grow as the plan says, because others use that quota by now.
    """

    by_job: dict[JobKey, Allotment] = field(default_factory=dict)
    used: dict[JobKey, Counter[Slot]] = field(default_factory=dict)
    node_requests_sent: set[JobKey] = field(default_factory=set)
    planning: Planning | None = None
    known: frozenset[str] = frozenset()
    held_since_s: float | None = None
    ignored_evictions: bool = False
    keeps_donors: bool = False
    kept_donors: bool = False
    unknown: set[JobKey] = field(default_factory=set)
    obsolete: set[JobKey] = field(default_factory=set)
    trees: QuotaTrees = NO_TREES
    cut: set[str] = field(default_factory=set)
    _askable: tuple[ClusterSnapshot, dict[JobKey, int]] | None = None

    # --- Plans

    def begin(self, snapshot: ClusterSnapshot, unprobed: frozenset[str]) -> None:
        """Note that a plan is being made from a snapshot; see `Planning`."""
        self.planning = Planning(snapshot, unprobed)

    def publish(
        self,
        plan: ScalePlan | None,
        starts: Iterable[Start],
        requests: Mapping[JobKey, tuple[ResizePod, ...]],
        awaited: frozenset[str],
        jobs: Collection[Job],
        *,
        is_explained: bool = True,
    ) -> list[str]:
        """Replace all allotments by those of a new plan; None: there is no plan, and no job may grow.

        A job for whose trainers capacity was found ahead of the plan keeps that allotment. If this plan, too, evicts
        for a serving pod that was helped meanwhile, its evictions for serving are left out, but never those of two
        plans in a row.

        Args:
            plan: it has passed its checks.
            starts: its pods whose capacity is free now, the first to be created first.
            requests: the changed CPU requests of running trainers.
            awaited: UIDs of the serving pods for which the plan evicts trainers.
            jobs: as the cache shows them now.
            is_explained: its decisions have their sentences; else those that are as before keep theirs.

        Returns:
            UIDs of the jobs for which something changes, those whose trainers end for serving first.
        """
        planning, self.planning = self.planning, None
        if planning is None:
            return []
        granted = _granted(plan, planning, starts, requests, awaited, before=self.by_job)
        repeats = bool(planning.evicted_for & awaited) and not self.ignored_evictions
        self.ignored_evictions = repeats
        if repeats:
            granted = self._without_evictions(granted)
        if not is_explained:
            before = self.by_job
            granted = {k: a.explained(before[k].decision) if k in before else a for k, a in granted.items()}
        granted |= planning.amended
        self.keeps_donors, self.kept_donors = False, self.keeps_donors
        changed = [*self._replace(granted, planning.node_requests_sent, jobs), *self.cut]
        self.trees, self._askable = planning.snapshot.kueue, None
        self.cut.clear()
        known = serving_needing_capacity(planning.snapshot) if not repeats else frozenset()
        self.known = known | planning.evicted_for
        return changed

    def unexplained(self) -> frozenset[JobKey]:
        """The jobs whose decision has no sentence yet."""
        return frozenset(key for key, allotment in self.by_job.items() if not allotment.decision.message)

    def explain(self, plan: ScalePlan, awaiting: Collection[JobKey]) -> list[str]:
        """Take the sentences of the plan that was published; returns the UIDs of the jobs whose status they change.

        Args:
            plan: the plan with its sentences.
            awaiting: the jobs whose status waits for them.
        """
        changed = []
        for decision in plan.decisions:
            if (old := self.by_job.get(decision.job)) is None:
                continue
            self.by_job[decision.job] = new = old.explained(decision)
            if new is not old or decision.job in awaiting:
                changed.append(new.uid)
        return changed

    def amend(self, decisions: Sequence[ScaleDecision], view: ClusterSnapshot, awaited: frozenset[str]) -> list[str]:
        """Add evictions ahead of a plan to the allotments; returns the UIDs of the jobs that lose trainers.

        Args:
            decisions: for the jobs that lose trainers.
            view: what they were made from.
            awaited: UIDs of the serving pods that the trainers are evicted for.
        """
        bases = {job.key: job for job in view.jobs}
        self.known |= awaited
        for d in decisions:
            allotment = allotment_of(d, bases[d.job], awaited)
            self.by_job[d.job] = allotment
            self.used.pop(d.job, None)
            if self.planning is not None:
                self.planning.amended[d.job] = allotment
                self.planning.evicted_for |= awaited
        return [bases[d.job].uid for d in decisions]

    def _replace(
        self, granted: dict[JobKey, Allotment], node_requests_sent: set[JobKey], jobs: Collection[Job]
    ) -> list[str]:
        before, used = self.by_job, self.used
        self.by_job, self.used, self.node_requests_sent = granted, {}, node_requests_sent
        self.unknown, self.obsolete = set(), set()
        by_key = {job.key: job for job in jobs}
        for key in granted.keys() | by_key.keys():
            self.compare(key, by_key.get(key))
        in_order = sorted(jobs, key=lambda job: not (job.key in granted and granted[job.key].ends_for_serving))
        changed = [
            job.uid
            for job in in_order
            if before.get(job.key) != granted.get(job.key) or used.get(job.key) or job.key in node_requests_sent
        ]
        return [*changed, *self.donors()] if self.kept_donors else changed

    def _without_evictions(self, granted: Mapping[JobKey, Allotment]) -> dict[JobKey, Allotment]:
        """Return the new allotments; a job that would lose trainers to serving keeps its old one, without growth."""
        kept = {}
        for key, allotment in granted.items():
            if not allotment.ends_for_serving:
                kept[key] = allotment
            elif (old := self.by_job.get(key)) is not None:
                kept[key] = replace(old, slots=())
        return kept

    # --- What a job may do

    def of(self, job: Job, waits: frozenset[str], now: ClusterSnapshot) -> Usable:
        """Return the part of its allotment that a job may use now.

        Args:
            job: as it will be once the writes under way have succeeded.
            waits: UIDs of the serving pods that wait for capacity.
            now: what the cache shows.
        """
        allotment = self.by_job.get(job.key)
        decision = allotment.decision_for(job) if allotment is not None else None
        if allotment is None or decision is None:
            return Usable()
        is_vain = bool(allotment.awaited) and not allotment.awaited & waits
        is_early = self.keeps_donors and allotment.ends_for_other_jobs
        if decision.victims and (is_vain or is_early):
            return Usable()
        if decision.target > decision.current and job.kueue is not None:
            decision = self._with_quota(decision, job, now)
        may_request_nodes = job.key not in self.node_requests_sent
        return Usable(decision, self._left(allotment), allotment.requests, may_request_nodes=may_request_nodes)

    def _with_quota(self, decision: ScaleDecision, job: Job, now: ClusterSnapshot) -> ScaleDecision:
        """Return the decision without the growth whose quota somebody else has used since the plan began."""
        if self._askable is None or self._askable[0] is not now:
            is_known = now.kueue.nodes == self.trees.nodes
            targets = {key: one.decision.target for key, one in self.by_job.items() if one.grows}
            self._askable = now, {} if is_known else askable(now, targets)
        most = self._askable[1].get(job.key)
        found = decision if most is None else within(decision, max(job.bounds.min_trainers, at_most(job.sizes, most)))
        _mark(self.cut, job.uid, is_in=found is not decision)
        if found is decision:
            return decision
        return replace(found, reason=Reason.QUOTA_REACHED, message=_TAKEN_MEANWHILE, details="")

    def _left(self, allotment: Allotment) -> list[Slot]:
        """The slots of an allotment that are not used yet, in the order of the plan."""
        left = Counter(allotment.slots)
        left.subtract(self.used.get(allotment.decision.job, {}))
        slots = []
        for slot in allotment.slots:
            if left[slot] > 0:
                left[slot] -= 1
                slots.append(slot)
        return slots

    def use(self, action: Action) -> None:
        """Count the slot of a job as used, because the action that uses it is being sent."""
        if isinstance(action, CreatePod):
            self.used.setdefault(action.job, Counter())[action.role, action.node or ""] += 1
            if self.planning is not None:
                self.planning.sent.append(action)
        elif isinstance(action, RequestNode | WithdrawNodeRequest):
            self.node_requests_sent.add(action.job)
            if self.planning is not None:
                self.planning.node_requests_sent.add(action.job)

    def give_back(self, action: CreatePod) -> None:
        """Count a slot as unused, because its pod was not created; not one of a former job of the same name."""
        used, allotment = self.used.get(action.job), self.by_job.get(action.job)
        is_own = allotment is not None and allotment.uid == action.job_uid
        if used is not None and is_own and used[action.role, action.node or ""] > 0:
            used[action.role, action.node or ""] -= 1

    def has_needless_evictions(self, waits: frozenset[str]) -> bool:
        """True if trainers would end for serving pods that do not wait any more; these trainers stay."""
        return any(a.awaited and not a.awaited & waits for a in self.by_job.values())

    def concerned(self, *, waits: bool) -> list[str]:
        """UIDs of the jobs whose writes depend on which serving pods wait.

        Args:
            waits: some do now.
        """
        return [a.uid for a in self.by_job.values() if a.awaited or (a.requests and waits)]

    def growing(self) -> list[str]:
        """UIDs of the jobs that the last plan lets grow."""
        return [one.uid for one in self.by_job.values() if one.grows]

    # --- Who is not known

    def compare(self, key: JobKey, job: Job | None) -> None:
        """Note whether the allotment of a job is for the job as it is now; None: the job is gone."""
        allotment = self.by_job.get(key)
        is_same = job is not None and allotment is not None and allotment.is_for(job)
        is_unknown = job is not None and job.is_schedulable and not is_same
        _mark(self.unknown, key, is_in=is_unknown)
        is_there = is_same and job is not None and not job.deleting
        is_obsolete = allotment is not None and allotment.grows and not is_there
        _mark(self.obsolete, key, is_in=is_obsolete)

    def is_held(self, waits: frozenset[str], now_s: float) -> bool:
        """True while a pod or job needs capacity that the allotments do not take into account yet.

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

    def keep_donors(self) -> list[str]:
        """Cancel deletions for other jobs if a job that was to grow was edited or deleted since; see `keeps_donors`.

        Returns:
            UIDs of the jobs that keep their trainers; empty if that was so already.
        """
        if not self.obsolete or self.keeps_donors or self.kept_donors:
            return []
        self.keeps_donors = True
        return self.donors()

    def donors(self) -> list[str]:
        """UIDs of the jobs that lose trainers to other jobs."""
        return [a.uid for a in self.by_job.values() if a.ends_for_other_jobs]


def _mark(keys: set[K], key: K, *, is_in: bool) -> None:
    if is_in:
        keys.add(key)
    else:
        keys.discard(key)


def _granted(
    plan: ScalePlan | None,
    planning: Planning,
    starts: Iterable[Start],
    requests: Mapping[JobKey, tuple[ResizePod, ...]],
    awaited: frozenset[str],
    *,
    before: Mapping[JobKey, Allotment],
) -> dict[JobKey, Allotment]:
    """Make the allotments of a plan; of a continued plan most are the earlier ones. See `Allotments.publish`."""
    bases = {job.key: job for job in planning.snapshot.jobs}
    decisions = [d for d in plan.decisions if d.job in bases] if plan is not None else []
    decisions = [d for d in decisions if not (d.is_refused and bases[d.job].uid in planning.unprobed)]
    slots: dict[JobKey, list[Slot]] = {}
    for start in without_taken(tuple(starts), planning.sent, bases):
        slots.setdefault(start.job, []).append((start.role, start.node))
    granted: dict[JobKey, Allotment] = {}
    for d in decisions:
        old, of_slots, of_requests = before.get(d.job), slots.get(d.job, ()), requests.get(d.job, ())
        if old is None or old.decision is not d or not old.is_bare or of_slots or of_requests:
            granted[d.job] = allotment_of(d, bases[d.job], awaited, of_slots, of_requests)
        else:
            granted[d.job] = old if old.uid == bases[d.job].uid else replace(old, uid=bases[d.job].uid)
    return granted
