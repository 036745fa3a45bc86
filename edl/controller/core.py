"""What the controller sends next: a state machine without input or output, tasks or callbacks.

It is told what the cache shows (`seen`), when a plan begins and what it grants (`plan_begins`, `published`), what is
evicted ahead of it (`amended`), and how each write ended (`ended`). It is asked for the next write (`take`).

A job's writes are never patched. If the job, its pods or its allotment change, they are computed anew and replace the
old ones, so nothing of an old plan or an old spec is sent. Growth that was granted and not sent is void once the next
plan is published. All that is remembered may be lost at any moment: that costs time and never correctness.

Why no capacity is used twice: a slot is granted only if its capacity was free in the plan's snapshot, with the pods
counted that are being created, and with those that still terminate. Each slot is used once. A pod that was created
after that snapshot uses up a slot of the new plan on its node (`allotment.without_taken`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from edl.clock import Clock
from edl.controller.allotment import Allotment, Slot, Start, allotment_of, serving_without_node, without_taken
from edl.controller.assumed import as_if_done, is_foreseen
from edl.controller.backoff import Backoff
from edl.controller.job_timers import next_end_s
from edl.controller.job_writes import Facts, Granted, JobWrites, is_exclusive, node_requests_by_job
from edl.controller.pending_writes import STATUS_EVERY, Lane, PendingWrites, Write
from edl.controller.probes import Probes
from edl.controller.status_pace import StatusPace
from edl.lifecycle.node_watch import NodeWatch
from edl.model.actions import (
    CreatePod,
    DeletePod,
    EmitEvent,
    Need,
    Outcome,
    PatchStatus,
    ProbePod,
    RequestNode,
    ResizePod,
    Result,
    WithdrawNodeRequest,
)
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.names import JobKey, Role
from edl.model.plan import ScaleDecision, ScalePlan
from edl.planner.quota import QuotaNow

JOBS_AT_ONCE = 5
"""So many jobs are looked at between two writes: what a job needs takes some milliseconds at worst."""
HELD_S, FREE_S = 2.0, 1.0
"""Surplus is held back for the first time at most, then sent for the second: changes without end stop no growth."""
CONFLICT_S = 0.5
"""How long a job rests after its first conflict: the watch shows soon what has changed."""
REPEAT_S = 1.0
"""The same write is sent again after this time at the earliest, if it succeeded and the cache does not show it."""
SHORTEST_S = 0.01
"""A job is looked at again after this time at the earliest, if only the time changes what it needs."""
HOLDABLE = (Lane.SURPLUS,)
URGENT = tuple(lane for lane in Lane if lane < Lane.SURPLUS)


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
class State:
    """All that the controller remembers of its plans and writes.

    Attributes:
        allotments: what the last plan grants; replaced as a whole by each plan.
        used: the slots of the allotments that were used.
        asked: the jobs whose node requests follow their allotment already.
        under_way: the writes that were sent and have not ended.
        unanswered: by UID of the job and name: creations whose answer was lost.
        planning: the plan that is being made; None if there is none.
        rests: by UID: (failures in a row, when the job is looked at again).
        known: UIDs of the serving pods that the allotments take into account.
        held_since_s: when the last time began in which surplus was held back (`Core.is_held`).
        ignored_evictions: the last plan's evictions for serving were left out (`published`).
        spares: no trainer ends for the jobs that the last plan lets grow: one of these has become another one.
        spared: that was so with the plan before, so it is not with this one.
        turns: how many writes were taken since the last status.
    """

    allotments: dict[JobKey, Allotment] = field(default_factory=dict)
    used: dict[JobKey, Counter[Slot]] = field(default_factory=dict)
    asked: set[JobKey] = field(default_factory=set)
    under_way: list[Write] = field(default_factory=list)
    unanswered: dict[tuple[str, str], CreatePod] = field(default_factory=dict)
    planning: Planning | None = None
    rests: dict[str, tuple[int, float]] = field(default_factory=dict)
    known: frozenset[str] = frozenset()
    held_since_s: float | None = None
    ignored_evictions: bool = False
    spares: bool = False
    spared: bool = False
    turns: int = 0


class Core:
    """The state machine; see the module.

    Args:
        clock: is only read.
        writes: computes the writes of one job.
        backoff: is told of each outcome.
        retry_s, retry_at_most_s: how long a job rests after a write failed; doubled each time.

    Attributes:
        s: what is remembered.
        snapshot: what the cache shows.
        at_once: no status waits for further changes.
        looked_at: how often a job's writes were computed.
    """

    def __init__(
        self,
        clock: Clock,
        writes: JobWrites,
        backoff: Backoff,
        *,
        retry_s: float = 1.0,
        retry_at_most_s: float = 30.0,
    ) -> None:
        self._clock, self._writes, self._backoff = clock, writes, backoff
        self._retry_s, self._retry_at_most_s = retry_s, retry_at_most_s
        self.s, self.snapshot, self.looked_at = State(), ClusterSnapshot(0.0), 0
        self.at_once = False
        self._facts, self._waits = Facts(), frozenset[str]()
        self._jobs: dict[str, Job] = {}
        self._dirty: dict[str, None] = {}
        self._later: dict[str, float] = {}
        self._done: dict[str, tuple[Write, float]] = {}  # by UID: the last write but creations, and when it ended
        self._pending, self._probes, self._statuses = PendingWrites(), Probes(backoff), StatusPace()
        self._unknown: set[JobKey] = set()
        self._obsolete: set[JobKey] = set()
        self._quota: tuple[ClusterSnapshot, QuotaNow] | None = None

    # --- What happens

    def seen(self, snapshot: ClusterSnapshot, unreachable: frozenset[str]) -> None:
        """Take what the cache shows now; most jobs have not changed, and are the same objects.

        Args:
            snapshot: the cluster.
            unreachable: UIDs of pods whose end no kubelet will confirm.
        """
        before, self.snapshot = self._jobs, snapshot
        self._jobs = {job.uid: job for job in snapshot.jobs}
        self._note_facts(unreachable)
        for uid, job in self._jobs.items():
            if (old := before.get(uid)) is not job and old != job:
                self._note_job(old, job)
        for uid in before.keys() - self._jobs.keys():
            self._forget(before[uid])

    def look_at(self, uids: Iterable[str]) -> None:
        """Look at these jobs again: something that they depend on has changed. Until then nothing is sent of them."""
        for uid in uids:
            if uid in self._jobs and uid not in self._dirty:
                self._dirty[uid] = None
                self._pending.empty(uid)

    def look_at_all(self) -> None:
        """Look at every job again."""
        self.look_at(self._jobs)

    def watch(self, nodes: NodeWatch) -> None:
        """Take what is known now about nodes on which trainers failed or hung."""
        if nodes != self._facts.watch:
            self._facts = replace(self._facts, watch=nodes)
            self.look_at_all()

    def plan_begins(self, unasked: frozenset[str] = frozenset()) -> ClusterSnapshot:
        """A plan is being made; returns the cluster that it is made from, see `assumed`.

        Args:
            unasked: what `unprobed` has returned.
        """
        snapshot = replace(self.assumed(), observed_at_s=self._clock.now_s())
        self.s.planning = Planning(snapshot, unasked)
        return snapshot

    def published(
        self,
        plan: ScalePlan | None,
        starts: Iterable[Start] = (),
        requests: Mapping[JobKey, tuple[ResizePod, ...]] | None = None,
        *,
        awaited: frozenset[str] = frozenset(),
    ) -> None:
        """A plan was made: it replaces all allotments. None: there is no plan, and nothing grows.

        A job for whose trainers capacity was found ahead of the plan keeps that allotment. If this plan, too, evicts
        for a serving pod that was helped meanwhile, its evictions for serving are left out, but never those of two
        plans in a row.

        Args:
            plan: it has passed its checks.
            starts: its pods whose capacity is free now, the first to be created first.
            requests: the changed CPU requests of running trainers.
            awaited: UIDs of the serving pods for which the plan evicts trainers.
        """
        planning, self.s.planning = self.s.planning, None
        if planning is None:
            return
        if plan is not None:
            self._statuses.plan_s = plan.seconds
        bases = {job.key: job for job in planning.snapshot.jobs}
        decisions = [d for d in plan.decisions if d.job in bases] if plan is not None else []
        decisions = [d for d in decisions if not (d.is_refused and bases[d.job].uid in planning.unasked)]
        known = serving_without_node(planning.snapshot)
        slots: dict[JobKey, list[Slot]] = {}
        for start in without_taken(tuple(starts), planning.sent, bases):
            slots.setdefault(start.job, []).append((start.role, start.node))
        changed = requests or {}
        granted = {
            d.job: allotment_of(d, bases[d.job], awaited, slots.get(d.job, ()), changed.get(d.job, ()))
            for d in decisions
        }
        repeats = bool(planning.evicted_for & awaited) and not self.s.ignored_evictions
        self.s.ignored_evictions = repeats
        if repeats:
            granted = self._without_evictions(granted)
        granted |= planning.amended
        self.s.spares, self.s.spared = False, self.s.spares
        self._replace_allotments(granted, asked=planning.asked)
        self.s.known = (known if not repeats else frozenset()) | planning.evicted_for

    def amended(self, decisions: Sequence[ScaleDecision], view: ClusterSnapshot, awaited: frozenset[str]) -> None:
        """Trainers are evicted ahead of a plan; nothing else changes for their jobs, or for others.

        Args:
            decisions: for the jobs that lose trainers.
            view: what they were made from.
            awaited: UIDs of the serving pods that the trainers make way for.
        """
        bases = {job.key: job for job in view.jobs}
        self.s.known |= awaited
        for d in decisions:
            allotment = allotment_of(d, bases[d.job], awaited)
            self.s.allotments[d.job] = allotment
            self.s.used.pop(d.job, None)
            if self.s.planning is not None:
                self.s.planning.amended[d.job] = allotment
                self.s.planning.evicted_for |= awaited
            self.look_at((bases[d.job].uid,))

    def ended(self, write: Write, outcomes: Sequence[Outcome]) -> None:
        """Note how a write ended; the cache shows what the API server answered already."""
        now_s, uid = self._clock.monotonic_s(), write.job_uid
        self.s.under_way.remove(write)
        for outcome in outcomes:
            self._backoff.record(outcome, now_s)
            if isinstance(outcome.action, CreatePod):
                self._note_creation(outcome.action, outcome)
        job = self._jobs.get(uid)
        if job is None:
            return
        is_probe = isinstance(write.actions[-1], ProbePod)
        failed = [o for o in outcomes if not o.is_ok and not isinstance(o.action, EmitEvent)]
        if is_probe:
            self._probes.ended(job, outcomes)
        elif not failed and isinstance(write.actions[0], Need):
            self._writes.sent(write.actions[0], generation=job.generation)
        for outcome in outcomes:
            if outcome.is_ok and isinstance(outcome.action, EmitEvent):
                self._writes.sent(outcome.action, generation=job.generation)
        if not failed and not isinstance(write.actions[0], CreatePod):
            self._done[uid] = (write, now_s)
        self._let_rest(uid, failed, now_s)
        is_last = not (self._pods_under_way(uid) or self._pending.has_of(uid))
        if failed or is_exclusive(write) or is_last:
            self.look_at((uid,))

    def try_again(self) -> None:
        """Let no job rest any more after a failure."""
        self.s.rests.clear()

    def stand_down(self) -> None:
        """The lease is lost: forget what was granted, as another controller acts now."""
        if self.s.allotments or self.s.planning is not None:
            self.s = State(under_way=self.s.under_way, unanswered=self.s.unanswered)
            self._unknown = {job.key for job in self.snapshot.jobs if job.is_schedulable}
            self._obsolete.clear()
            self._pending.clear()
            self.look_at_all()

    # --- What follows

    def take(self, *, patient: bool = True) -> Write | None:
        """Return the next write to send now, which then is under way; None if there is none.

        Args:
            patient: writes that nobody waits for may be sent, too.
        """
        now_s = self._clock.monotonic_s()
        self._compute(now_s)
        is_held = self.is_held(now_s) or self.has_more
        lanes = [lane for lane in Lane if (patient or lane in URGENT) and not (is_held and lane in HOLDABLE)]
        if patient and (self.s.turns + 1) % STATUS_EVERY == 0:
            lanes = [Lane.STATUS, *lanes]
        write = self._pending.take(lanes)
        if write is None:
            return None
        self.s.turns = (self.s.turns + 1) % STATUS_EVERY
        self.s.under_way.append(write)
        self._note_sent(write)
        return write

    def assumed(self) -> ClusterSnapshot:
        """The cluster as it will be once the writes under way have succeeded: what plans are made from."""
        touched = {uid for uid, _ in self.s.unanswered} | {write.job_uid for write in self.s.under_way}
        if not touched:
            return self.snapshot
        jobs = (self._assumed(job) if job.uid in touched else job for job in self.snapshot.jobs)
        return replace(self.snapshot, jobs=tuple(jobs))

    def unprobed(self) -> frozenset[str]:
        """UIDs of the jobs whose pods the API server was not asked about yet; a plan leaves them out.

        They are looked at again, so that it is asked.
        """
        found = frozenset(uid for uid, job in self._jobs.items() if self._wants_probe(job))
        self.look_at(found - {write.job_uid for write in self.s.under_way if isinstance(write.actions[-1], ProbePod)})
        return found

    def is_unprobed(self, uid: str) -> bool:
        """True if the API server has yet to be asked about the pods of that job."""
        return (job := self._jobs.get(uid)) is not None and self._wants_probe(job)

    @property
    def is_probing(self) -> bool:
        """True while the API server is asked about pods."""
        return any(isinstance(write.actions[-1], ProbePod) for write in self.s.under_way)

    @property
    def has_more(self) -> bool:
        """True if jobs have yet to be looked at that need not wait for anything."""
        return bool(self._dirty) and any(self._may_be_looked_at(self._dirty, self._clock.monotonic_s()))

    def has_new_spec(self, job: Job) -> bool:
        """True if the API server was asked about pods of an older spec of the job."""
        return self._probes.is_new(job)

    @property
    def is_growing(self) -> bool:
        """True if trainers that a plan granted have yet to be created."""
        return self._pending.has((Lane.BASE, Lane.MINIMUM, Lane.SURPLUS))

    def has_urgent(self) -> bool:
        """True if a write can be sent that somebody waits for."""
        return self._pending.has(URGENT)

    def is_held(self, now_s: float) -> bool:
        """True while somebody wants capacity that the allotments do not take into account.

        Nobody else's surplus takes it meanwhile. Whoever comes, and however often, this is so for `HELD_S` of
        `HELD_S + FREE_S` at most.
        """
        since_s = self.s.held_since_s
        if since_s is not None and now_s - since_s >= HELD_S + FREE_S:
            self.s.held_since_s = since_s = None
        if not self._unknown and not self._obsolete and self._waits <= self.s.known:
            return False
        if since_s is None:
            self.s.held_since_s = since_s = now_s
        return now_s - since_s < HELD_S

    def has_needless_evictions(self) -> bool:
        """True if trainers are to end for serving pods that do not wait any more; they stay."""
        return any(a.awaited and not a.awaited & self._waits for a in self.s.allotments.values())

    def next_look_s(self) -> float:
        """The monotonic time at which something may be sent although nothing changes; infinity if there is none."""
        rests = (self.s.rests[uid][1] for uid in self._dirty if uid in self.s.rests)
        times = [*self._later.values(), *rests]
        if (since_s := self.s.held_since_s) is not None:
            ends_s = (since_s + HELD_S, since_s + HELD_S + FREE_S)
            times += [end_s for end_s in ends_s if end_s > self._clock.monotonic_s()]
        return min(times, default=inf)

    # --- What is seen

    def _note_facts(self, unreachable: frozenset[str]) -> None:
        """Note what jobs depend on besides themselves, and look at the jobs that it concerns."""
        snapshot, before = self.snapshot, self._facts
        waits = serving_without_node(snapshot)
        requests = node_requests_by_job(snapshot)
        if unreachable != before.unreachable:
            lost = unreachable ^ before.unreachable
            self.look_at(job.uid for job in snapshot.jobs if any(pod.uid in lost for pod in job.pods))
        if waits != self._waits:
            self.look_at(a.uid for a in self.s.allotments.values() if a.awaited or (a.requests and waits))
            self._waits = waits
        if requests != before.node_requests:
            keys = requests.keys() | before.node_requests.keys()
            self.look_at(job.uid for job in snapshot.jobs if job.key in keys)
        if snapshot.missing_priority_classes != before.missing_priority_classes:
            self.look_at_all()
        self._facts = Facts(
            snapshot.nodes,
            unreachable,
            before.watch,
            snapshot.missing_priority_classes,
            requests,
            serving_waits=bool(waits),
        )

    def _note_job(self, before: Job | None, job: Job) -> None:
        """Look at a job that has changed: at once, or a little later if only the counts of its status change."""
        now_s, uid = self._clock.monotonic_s(), job.uid
        mine = self._pods_under_way(uid)
        if before is not None and before.generation != job.generation:
            self.s.rests.pop(uid, None)
        if before is not None and uid not in self._dirty and is_foreseen(before, job, mine):
            due_s = self._statuses.counted(uid, now_s)
            self._later[uid] = now_s if self.at_once else min(self._later.get(uid, inf), due_s)
            return
        if before is None:
            self._probes.first_seen(job)
        self._statuses.changed(uid, now_s)
        self.look_at((uid,))
        self._compare(job.key, job)

    def _forget(self, job: Job) -> None:
        """Forget a job that is gone."""
        uid = job.uid
        self._compare(job.key, next((other for other in self._jobs.values() if other.key == job.key), None))
        self._pending.replace(uid, ())
        for known in (self._dirty, self._later, self._done, self.s.rests):
            known.pop(uid, None)
        for key in [key for key in self.s.unanswered if key[0] == uid]:
            del self.s.unanswered[key]
        self._writes.forget(uid)
        self._probes.forget(uid)
        self._statuses.forget(uid)
        self._backoff.forget(uid)

    def _compare(self, key: JobKey, job: Job | None) -> None:
        """Note whether the allotment of a job is for the job as it is now."""
        allotment = self.s.allotments.get(key)
        is_same = job is not None and allotment is not None and allotment.is_for(job)
        is_unknown = job is not None and job.is_schedulable and not is_same
        (set.add if is_unknown else set.discard)(self._unknown, key)
        is_there = is_same and job is not None and not job.deleting
        is_obsolete = allotment is not None and allotment.grows and not is_there
        (set.add if is_obsolete else set.discard)(self._obsolete, key)

    # --- What plans grant

    def _replace_allotments(self, granted: dict[JobKey, Allotment], *, asked: set[JobKey]) -> None:
        """Replace all allotments, and look at the jobs for which something changes."""
        before, used = self.s.allotments, self.s.used
        self.s.allotments, self.s.used, self.s.asked = granted, {}, asked
        self._unknown.clear()
        self._obsolete.clear()
        by_key = {job.key: job for job in self._jobs.values()}
        for key in granted.keys() | by_key.keys():
            self._compare(key, by_key.get(key))
        for uid, job in self._jobs.items():
            if before.get(job.key) != granted.get(job.key) or used.get(job.key) or job.key in asked:
                self.look_at((uid,))
        if self.s.spared:
            self._look_at_givers()

    def _without_evictions(self, granted: Mapping[JobKey, Allotment]) -> dict[JobKey, Allotment]:
        """The new allotments; a job that would lose trainers to serving keeps its old one, without growth."""
        kept = {}
        for key, allotment in granted.items():
            if not allotment.ends_for_serving:
                kept[key] = allotment
            elif (old := self.s.allotments.get(key)) is not None:
                kept[key] = replace(old, slots=())
        return kept

    def _granted(self, job: Job) -> Granted:
        """What a job may do now."""
        allotment = self.s.allotments.get(job.key)
        decision = allotment.decision_for(job) if allotment is not None else None
        if allotment is None or decision is None:
            return Granted()
        is_vain = bool(allotment.awaited) and not allotment.awaited & self._waits
        is_early = self.s.spares and allotment.ends_for_other_jobs
        if decision.victims and (is_vain or is_early):
            return Granted()
        left = Counter(allotment.slots)
        left.subtract(self.s.used.get(job.key, {}))
        slots = [slot for slot in allotment.slots if left[slot] > 0 and not left.subtract((slot,))]
        return Granted(decision, slots, allotment.requests, may_ask=job.key not in self.s.asked)

    # --- One job

    def _pods_under_way(self, uid: str) -> list[CreatePod | DeletePod]:
        return [
            action
            for write in self.s.under_way
            if write.job_uid == uid
            for action in write.actions
            if isinstance(action, CreatePod | DeletePod)
        ]

    def _unanswered(self, job: Job, under_way: Collection[CreatePod | DeletePod]) -> list[CreatePod]:
        """The creations of a job whose answer was lost, and whose pods the cache does not show.

        Those that the job has no place for any more are forgotten: sent again, they would exceed its maximum. So are
        those of a job whose creations fail for ever: nothing is to be planned with them.
        """
        if not self.s.unanswered:
            return []
        there = {pod.name for pod in job.pods} | {a.pod_name for a in under_way if isinstance(a, CreatePod)}
        live = {pod.name for pod in job.live_trainers}
        live |= {a.pod_name for a in under_way if isinstance(a, CreatePod) and a.role is Role.TRAINER}
        kept: list[CreatePod] = []
        is_refused = self._backoff.refused_creation(job.uid, self._clock.monotonic_s()) is not None
        for key, action in list(self.s.unanswered.items()):
            if key[0] != job.uid:
                continue
            is_beyond = action.role is Role.TRAINER and len(live) >= job.bounds.max_trainers
            if action.pod_name in there or not job.is_schedulable or is_beyond or is_refused:
                del self.s.unanswered[key]
            else:
                kept.append(action)
                live |= {action.pod_name} if action.role is Role.TRAINER else set()
        return kept

    def _assumed(self, job: Job) -> Job:
        mine = self._pods_under_way(job.uid)
        return as_if_done(job, (*mine, *self._unanswered(job, mine)))

    def _compute(self, now_s: float) -> None:
        """Compute the writes of some jobs that have changed; the others of these jobs have none until then."""
        for uid in [uid for uid, at_s in self._later.items() if at_s <= now_s]:
            del self._later[uid]
            self.look_at((uid,))
        self._spare()
        if not self._dirty:
            return
        due = sorted(self._may_be_looked_at(self._dirty, now_s), key=self._statuses.is_counted)
        for uid in due[:JOBS_AT_ONCE]:
            del self._dirty[uid]
            self.looked_at += 1
            self._pending.replace(uid, self._wanted(self._jobs[uid], now_s))

    def _spare(self) -> None:
        """Let no trainer end for the jobs that the last plan lets grow, once one of these has become another one."""
        if self._obsolete and not (self.s.spares or self.s.spared):
            self.s.spares = True
            self._look_at_givers()

    def _look_at_givers(self) -> None:
        self.look_at(a.uid for a in self.s.allotments.values() if a.ends_for_other_jobs)

    def _may_be_looked_at(self, uids: Iterable[str], now_s: float) -> Iterator[str]:
        """Those jobs that do not rest, and for which nothing is under way on whose end it depends what follows."""
        exclusive = {write.job_uid for write in self.s.under_way if is_exclusive(write) and not _is_probe(write)}
        return (uid for uid in uids if uid not in exclusive and self.s.rests.get(uid, (0, -inf))[1] <= now_s)

    def _wanted(self, job: Job, now_s: float) -> Iterator[Write]:
        """All that may be sent of a job now."""
        mine = self._pods_under_way(job.uid)
        unanswered = self._unanswered(job, mine)
        if self._backoff.allows(job.uid, CreatePod, now_s):
            yield from (Write((action,), Lane.BASE) for action in unanswered)
        yield from self._probe(job)
        under_way = (*mine, *unanswered)
        granted = self._granted(job)
        time_s = self._clock.now_s()
        wait_s = max(SHORTEST_S, next_end_s(job, time_s) - time_s)
        due_s = min(now_s + wait_s, self._backoff.next_try_s(job.uid, now_s))
        for write in self._writes.of(job, as_if_done(job, under_way), granted, self._facts, under_way):
            status_s = self._statuses.due_s(job, write, now_s, is_planned=job.key not in self._unknown)
            sent_s = max(-inf if self.at_once else status_s, self._repeated_s(write))
            if sent_s <= now_s:
                yield write
            else:
                due_s = min(due_s, sent_s)
        self._later[job.uid] = due_s

    def _repeated_s(self, write: Write) -> float:
        """When a write may be sent that may have been sent just now, in monotonic seconds."""
        done = self._done.get(write.job_uid)
        return done[1] + REPEAT_S if done is not None and done[0].actions == write.actions else -inf

    def _probe(self, job: Job) -> Iterator[Write]:
        """The question whether the API server accepts the pods of a job, if it was not asked yet."""
        if self._wants_probe(job) and not any(_is_probe(w) and w.job_uid == job.uid for w in self.s.under_way):
            yield Write(self._probes.questions(job), Lane.BASE)

    def _wants_probe(self, job: Job) -> bool:
        if self._quota is None or self._quota[0] is not self.snapshot:
            self._quota = (self.snapshot, QuotaNow(self.snapshot))
        return self._probes.is_due(job, self._quota[1], self._clock.monotonic_s())

    # --- Writes that begin and end

    def _note_sent(self, write: Write) -> None:
        """Note what a write uses up that is being sent."""
        job, planning = self._jobs[write.job_uid], self.s.planning
        for action in write.actions:
            if isinstance(action, CreatePod) and (write.job_uid, action.pod_name) not in self.s.unanswered:
                self.s.used.setdefault(action.job, Counter())[action.role, action.node or ""] += 1
                if planning is not None:
                    planning.sent.append(action)
            elif isinstance(action, RequestNode | WithdrawNodeRequest):
                self.s.asked.add(job.key)
                if planning is not None:
                    planning.asked.add(job.key)
            elif isinstance(action, PatchStatus):
                self._statuses.sent(write.job_uid)

    def _note_creation(self, action: CreatePod, outcome: Outcome) -> None:
        """Note whether a pod was created; if nobody knows, the same creation is sent again before anything else."""
        key = (action.job_uid, action.pod_name)
        if outcome.result is Result.FAILED:
            self.s.unanswered[key] = action
            return
        self.s.unanswered.pop(key, None)
        used = self.s.used.get(action.job)
        if not outcome.is_ok and used is not None and used[action.role, action.node or ""] > 0:
            used[action.role, action.node or ""] -= 1

    def _let_rest(self, uid: str, failed: Sequence[Outcome], now_s: float) -> None:
        """Let a job rest after a failure or a conflict, longer each time; a success ends that.

        Writes that fail while the job rests already were sent before, and say nothing new.
        """
        before, until_s = self.s.rests.get(uid, (0, -inf))
        if not failed:
            self.s.rests.pop(uid, None)
            return
        first_s = {Result.FAILED: self._retry_s, Result.CONFLICT: CONFLICT_S}.get(failed[-1].result)
        if first_s is not None and now_s >= until_s:
            pause_s = min(self._retry_at_most_s, first_s * 2.0 ** min(before, 10))
            self.s.rests[uid] = (before + 1, now_s + pause_s)


def _is_probe(write: Write) -> bool:
    return isinstance(write.actions[-1], ProbePod)
